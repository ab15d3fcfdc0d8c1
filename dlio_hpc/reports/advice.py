"""Advice on the application that a workload models. It is phrased in the terms of the application's I/O library,
following section V.D of the DLIO paper, which gives such advice for CosmoFlow and Cosmic Tagger.

Sources: tensorflow.org/api_docs/python/tf/data (TFRecordDataset, Dataset.map, prefetch, interleave), docs.pytorch.org
(DataLoader), docs.h5py.org (create_dataset, File), h5repack's own help (HDF5 1.14), lfs-setstripe(1).
"""

import math
import shlex
from collections.abc import Callable, Iterator

from dlio_hpc.analysis.study.best_setting import Comparison, Finding
from dlio_hpc.base.units import counted, format_size
from dlio_hpc.config import lustre_layout as layouts
from dlio_hpc.config.format_facts import FORMATS
from dlio_hpc.config.workload import Workload
from dlio_hpc.plan import plan, sweep
from dlio_hpc.plan.study import Part, Point, Study

# Application that each shipped workload stands for. For other workloads, the name of the workload is used.
_APPLICATIONS = {
    "cosmoflow": "CosmoFlow",
    "cosmic_tagger": "Cosmic Tagger",
    "imagenet": "AlexNet on ImageNet",
    "ffn": "FFN",
    "candle": "CANDLE",
    "frnn": "FRNN",
}
# Phrases for loaders; a loader that is not listed is not mentioned.
_LOADERS = {"tensorflow": " through tf.data", "pytorch": " through DataLoader"}
# Size of HDF5's default chunk cache in bytes. Each open dataset has its own cache.
_CHUNK_CACHE = 1 << 20
# Bytes that a TFRecord adds to its data: the length, and the checksums of length and data.
_FRAME = 16


def of_study(study: Study, findings: tuple[Finding, ...]) -> list[str]:
    """Return lines of advice. Each part of the study that compares settings contributes lines. A line that begins with
    blanks continues the previous line.
    """
    return [line for finding in findings for line in _of_part(study, study.part(finding.part), finding)]


def _of_part(study: Study, part: Part, finding: Finding) -> Iterator[str]:
    compared = [
        comparison
        for comparison in finding.comparisons
        if comparison.recommended is not None and comparison.reference is not None
    ]
    if not compared:
        return
    chosen = max(compared, key=lambda comparison: study.points[comparison.best].ranks)
    assert chosen.recommended is not None
    assert chosen.reference is not None
    before, after = study.points[chosen.reference], study.points[chosen.recommended]
    where = f", on {after.ranks} ranks" if part.is_scaling else ""
    where += f", below {chosen.data}" if chosen.data is not None else ""
    heading = f"{part.name}: " * bool(part.name) + _application(after.workload) + where
    kept = [axis.key for axis in part.settings if after.places[axis.key] == before.places[axis.key]]
    if len(kept) == len(part.settings):
        settings = _settings(part, before, kept)
        advice = f"keep the present settings ({settings})" if part.is_default else f"no change from {settings}"
        yield f"{heading}: {advice}; no other setting is better by more than the noise."
        return
    yield f"{heading}: {_gain(chosen)}"
    changed = [axis.key for axis in part.settings if axis.key not in kept]
    lines = [line for key in changed for line in _lines(key, after)]
    yield from (f"  {line}" for line in dict.fromkeys([*lines, *_alignment(changed, after)]))
    if kept:
        yield f"  Keep {_settings(part, before, kept)}."


def _application(workload: Workload) -> str:
    name = _APPLICATIONS.get(workload.name, workload.name)
    kind, loader = workload.dataset.format, workload.reader.loader
    return f"{name} ({FORMATS[kind].title}{_LOADERS.get(loader, '')})"


def _settings(part: Part, point: Point, keys: list[str]) -> str:
    """Return the given keys with their values at a point, such as "reader.read_threads=2"."""
    return ", ".join(f"{axis.key}={axis.labels[point.places[axis.key]]}" for axis in part.settings if axis.key in keys)


def _gain(chosen: Comparison) -> str:
    """Return a heading that recommends a change and states the gain over the reference."""
    if chosen.change is not None:
        low, high = chosen.change.low, chosen.change.high
        return f"change these settings (measured: {low:.2f} to {high:.2f} x the reference):"
    judged = chosen.of(chosen.recommended) if chosen.recommended is not None else None
    ratio = f"{judged.to_reference:.2f}" if judged and judged.to_reference else "1.00"
    if judged and judged.reference_low is not None and judged.reference_high is not None:
        ratio = f"{judged.reference_low:.2f} to {judged.reference_high:.2f}"
    return f"change these settings (measured: {ratio} x the reference):"


def _lines(key: str, point: Point) -> list[str]:
    """Return lines that describe how to apply a recommended setting in the application. key: YAML key of the setting.
    point: point at which the setting has the recommended value.
    """
    workload = point.workload
    if point.data is not None and sweep.sides([point.data]).key == key:
        return [f"keep the dataset in {point.data}"]
    if key.startswith("site.layout"):
        return _striping(point.layout)
    adviser = _ADVICE.get(key) or next(
        (function for start, function in _ADVICE.items() if key.startswith(f"{start}.")), None
    )
    if (lines := adviser(plan.resolved(workload)) if adviser else None) is not None:
        return lines
    value: object = workload
    for name in key.split("."):
        value = getattr(value, name, None)
    return [f"{key}: {str(value).lower() if isinstance(value, bool) else value}"]


def _records(workload: Workload) -> list[str] | None:
    """Return the Python call that reads the dataset if its files are TFRecord files. Return None for other formats."""
    reader = workload.reader
    if not workload.dataset.facts.holds_records:
        return None
    size = "" if reader.transfer_size is None else f"buffer_size={int(reader.transfer_size)}, "
    kind = f'compression_type="{workload.dataset.compression.upper()}", ' if workload.dataset.is_packed else ""
    return [f"tf.data.TFRecordDataset(files, {kind}{size}num_parallel_reads={reader.read_threads})"]


def _transfer(workload: Workload) -> list[str] | None:
    if (lines := _records(workload)) is not None or workload.reader.transfer_size is None:
        return lines
    size = format_size(workload.reader.transfer_size)
    if workload.reader.access == "collective":
        return [f"read with MPI-IO in pieces of {size} per call and rank"]
    return [f"read {size} per request: open(name, 'rb', buffering={int(workload.reader.transfer_size)}), or os.preadv"]


def _threads(workload: Workload) -> list[str] | None:
    reader = workload.reader
    if reader.loader == "pytorch":
        return _workers(workload)
    if reader.loader == "tensorflow" and not workload.dataset.facts.holds_records:
        return [f"dataset.map(read_sample, num_parallel_calls={reader.read_threads})"]
    return _records(workload) or [
        f"read with {reader.read_threads} threads per rank, such as concurrent.futures.ThreadPoolExecutor"
    ]


def _workers(workload: Workload) -> list[str]:
    """Return the Python call that creates PyTorch's DataLoader. The argument `prefetch_factor` is per worker, and is
    left out if there are no workers.
    """
    reader = workload.reader
    workers = reader.worker_processes
    options = [f"batch_size={reader.batch_size}", f"num_workers={workers}"]
    if workers:
        options.append(f"prefetch_factor={max(1, -(-reader.batches_ahead // workers))}")
        options.append(f"multiprocessing_context={reader.multiprocessing_context!r}".replace("'", '"'))
    return [f"torch.utils.data.DataLoader(dataset, {', '.join(options)})"]


def _preprocessing(workload: Workload) -> list[str] | None:
    count = workload.reader.preprocess_threads
    if workload.reader.loader == "pytorch":
        return [f"preprocess a sample with {counted(count, 'thread')} in each worker: torch.set_num_threads({count})"]
    if workload.reader.loader == "tensorflow" or workload.dataset.facts.holds_records:
        return [f"dataset.map(preprocess, num_parallel_calls={count})"]
    return [f"preprocess with {counted(count, 'thread')} per rank"]


def _prefetch(workload: Workload) -> list[str]:
    ahead = workload.reader.batches_ahead
    if workload.reader.loader == "pytorch":
        return _workers(workload)
    if workload.reader.loader == "tensorflow" or workload.dataset.facts.holds_records:
        return [f"dataset.batch({workload.reader.batch_size}).prefetch({ahead})"]
    return [
        f"read {counted(ahead, 'batch')} ahead of the training loop" if ahead else "read each batch when it is needed"
    ]


def _batch(workload: Workload) -> list[str]:
    count = workload.reader.batch_size
    if workload.reader.loader == "pytorch":
        return [*_workers(workload), _BATCH_NOTE]
    if workload.reader.loader == "tensorflow" or workload.dataset.facts.holds_records:
        return [f"dataset.batch({count})", _BATCH_NOTE]
    return [f"take {count} samples per step and rank", _BATCH_NOTE]


_BATCH_NOTE = (
    "the batch size also affects the training: check the quality of the model before you change the batch size"
)


def _interleave(workload: Workload) -> list[str] | None:
    count = workload.reader.interleave
    if not workload.dataset.facts.holds_records:
        return [f"read from {count} files alternately, one sample from each"]
    if count == workload.reader.read_threads:  # one thread per interleaved file
        return _records(workload)
    return [
        f"tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset, cycle_length={count}, "
        f"num_parallel_calls={workload.reader.read_threads})"
    ]


def _chunks(workload: Workload) -> list[str] | None:
    """Return lines that describe how to store an HDF5 dataset with the recommended chunk shape. The lines call the
    dataset x. The shape is given in elements; its first dimension counts samples. Return None for formats other than
    HDF5.
    """
    dataset = workload.dataset
    if not dataset.facts.chunks_in_file:
        return None
    shape = dataset.chunk_shape
    if shape is None:
        return [
            'file.create_dataset("x", ...) without chunks; for existing files: h5repack -f x:NONE -l x:CONTI OLD NEW'
        ]
    size = math.prod(shape) * dataset.sample.item_bytes
    comment = f"{format_size(size)}: in elements of {dataset.sample.array_dtype}, samples first"
    lines = [
        f'file.create_dataset("x", ..., chunks={tuple(map(int, shape))})  # {comment}',
        f"for existing files: h5repack -l x:CHUNK={'x'.join(map(str, shape))} OLD NEW",
    ]
    if size > _CHUNK_CACHE:
        lines.append(
            "HDF5 does not cache a chunk that is larger than the cache (default 1 MiB), and decompresses it again for "
            f'each part that is read; enlarge the cache: h5py.File(name, "r", rdcc_nbytes={_cache(size)})'
        )
    return lines


def _cache(size: int) -> int:
    """Return a size for HDF5's chunk cache in bytes: the smallest power of two that holds four chunks of `size`
    bytes.
    """
    return int(1 << (4 * size - 1).bit_length())


def _compression(workload: Workload) -> list[str] | None:
    dataset = workload.dataset
    level = 4 if dataset.level is None else dataset.level
    if dataset.facts.packs_files and dataset.facts.holds_arrays:
        return ["numpy.savez_compressed(...)" if dataset.compression == "gzip" else "numpy.savez(...), not compressed"]
    if dataset.facts.holds_records:
        return _record_options(dataset.compression, level)
    if not dataset.facts.chunks_in_file:
        return None
    if dataset.compression == "none":
        return ['file.create_dataset("x", ...) without compression; for existing files: h5repack -f x:NONE OLD NEW']
    lines = _chunks(workload) or []
    if dataset.compression == "lzf":
        return [
            *lines,
            'file.create_dataset("x", ..., compression="lzf")  # h5py\'s own filter: other readers may lack it',
        ]
    lines.append(f'file.create_dataset("x", ..., compression="gzip", compression_opts={level})')
    if level:
        lines.append(f"for existing files: h5repack -f x:GZIP={level} OLD NEW")
    return [*lines, _BITS_NOTE]


def _record_options(compression: str, level: int) -> list[str]:
    """Return the Python call that writes TFRecord files. level: level of the compression."""
    if compression == "none":
        return ["tf.io.TFRecordWriter(name), not compressed"]
    kind = f'compression_type="{compression.upper()}", compression_level={level}'
    return [f"tf.io.TFRecordWriter(name, tf.io.TFRecordOptions({kind}))", _BITS_NOTE]


_BITS_NOTE = (
    "dataset.compression_ratio or random_bits sets how compressible the benchmark's data are; compare with your files"
)


def _access(workload: Workload) -> list[str]:
    if workload.reader.access == "independent":
        return ["each rank reads independently (no collective calls)"]
    if workload.dataset.facts.holds_chunks:
        return ['h5py.File(name, "r", driver="mpio", comm=comm), and read within "with dataset.collective:"']
    return ["read with MPI_File_read_at_all (mpi4py: File.Read_at_all)"]


def _memory(workload: Workload) -> list[str]:
    if workload.reader.load == "on_demand":
        return ["read samples when they are needed"]
    cached = " (tf.data: dataset.cache())" if workload.reader.loader == "tensorflow" else ""
    return [f"read the dataset into memory once, before the first step{cached}"]


def _files(workload: Workload) -> list[str]:
    dataset = workload.dataset
    return [f"store {dataset.samples_per_file} samples of {format_size(dataset.sample_bytes)} in each file"]


def _striping(layout: layouts.Layout | None) -> list[str]:
    if layout is None:
        return ["lfs setstripe -d DIR, then copy the files into DIR again"]
    return [
        f"{' && '.join(map(shlex.join, layouts.commands(layout, 'DIR')))}  # {layouts.describe(layout)}",
        "then copy the files into DIR again: existing files keep their stripes",
    ]


_ADVICE: dict[str, Callable[[Workload], list[str] | None]] = {
    "reader.transfer_size": _transfer,
    "reader.read_threads": _threads,
    "reader.interleave": _interleave,
    "reader.preprocess_threads": _preprocessing,
    "reader.prefetch": _prefetch,
    "reader.batch_size": _batch,
    "reader.access": _access,
    "reader.load": _memory,
    "dataset.chunk": _chunks,
    "dataset.compression": _compression,
    "dataset.level": _compression,
    "dataset.files": _files,
    "dataset.samples_per_file": _files,
}


def _alignment(changed: list[str], point: Point) -> Iterator[str]:
    """Yield a line for each alignment rule of the DLIO paper that is violated after the settings are changed."""
    workload, layout = plan.resolved(point.workload), point.layout
    dataset, transfer = workload.dataset, workload.reader.transfer_size
    shape = dataset.chunk_shape if dataset.facts.chunks_in_file else None
    chunk = math.prod(shape) * dataset.sample.item_bytes if shape else None
    stripe = layout.stripe_size if layout is not None else None
    if chunk and stripe and stripe % chunk and any(key.startswith(("dataset.", "site.")) for key in changed):
        yield (
            f"alignment (DLIO paper): make the stripe size ({format_size(stripe)}) a multiple of the chunk "
            f"({format_size(chunk)})"
        )
    record = dataset.sample_bytes + _FRAME
    fixed = dataset.facts.holds_records and dataset.sample.stdev is None
    if fixed and transfer and "reader.transfer_size" in changed and transfer > record and transfer % record:
        yield (
            f"alignment (DLIO paper): make the transfer size a multiple of a record ({record} bytes with its frame), "
            f"for example {transfer // record * record}"
        )
