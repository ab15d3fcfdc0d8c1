"""Values of a workload that a recording shows. A value that the program itself states or uses has the confidence
`recorded`. A value that is derived from recorded values has the confidence of the rule by which it is derived.
"""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlio_hpc.base.units import counted, format_seconds, format_size
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.programs.recordings import (
    doubted_data,
    recorded_checkpoints,
    recorded_files,
    recorded_order,
    recorded_training,
)
from dlio_hpc.programs.recordings.own_loop import OwnLoop
from dlio_hpc.programs.recordings.recorded_files import LABEL, Arrays, Read, RecordedData
from dlio_hpc.programs.recordings.recorded_program import (
    Pass,
    RankRecording,
    RecordedProgram,
)
from dlio_hpc.programs.recordings.recorded_training import RecordedTraining
from dlio_hpc.programs.recordings.tensorflow_pipelines import Pipeline

# Sizes that differ by less than this share are equal.
_EVEN = 0.001
# Share by which the batches of the workload may differ from those of the program, and share of the bytes of the passes
# that the dataset must have.
_CONSISTENT, _IN_WHOLE = 0.05, 0.99
# Largest number of arrays in a file that a workload lists.
_MOST_ARRAYS = 64
# Largest compression ratio of a workload.
_MOST_RATIO = 20
# Keys that a recording shows without a loader, too.
_SURE: dict[str, Confidence] = {
    "dataset.format": "recorded",
    "dataset.chunk": "recorded",
    "dataset.compression": "recorded",
}


def values(program: RecordedProgram, made: RecordedTraining, data: RecordedData) -> dict[str, DerivedValue]:
    """Return the keys of the workload. program: the recorded program. made: training of the program. data: dataset that
    the training reads.
    """
    in_memory = [batch.bytes / max(batch.samples or 1, 1) for batch in made.batches]
    keys = _dataset(program, _distinct(program, made), data, round(statistics.median(in_memory or [0])))
    keys |= _reader(program, made, data, keys["dataset.samples_per_file"].value)
    if made.per_item > 1:
        keys |= _of_items(keys, made.per_item)
    is_raw = keys["dataset.format"].value == "raw" and keys["dataset.samples_per_file"].value > 1
    if is_raw and (not data.library or data.library == "tf.data"):
        reason = f"{data.library or 'Python'} reads files of several samples in parts, not whole"
        keys["reader.mode"] = _recorded("posix", reason, "medium")
    keys["compute.time"] = _compute(made)
    keys |= _epochs(made)
    keys |= recorded_order.blocks(keys, data) | recorded_order.reopened(keys, data, _used(made))
    keys |= _evaluation(program, made, keys)
    keys |= _inconsistent(program, made, keys) | _incomplete(data, keys) | _endless(made, keys)
    ends = list(itertools.accumulate(one.steps for one in made.passes[0]))
    return keys | _in_batches(made, recorded_checkpoints.keys_of(program, int(keys["train.epochs"].value), ends))


def _used(made: RecordedTraining) -> int:
    """Return the number of samples in all batches of all ranks."""
    return sum(batch.samples or 0 for batch in made.batches)


def _inconsistent(
    program: RecordedProgram, made: RecordedTraining, keys: Mapping[str, DerivedValue]
) -> dict[str, DerivedValue]:
    """Compare the number of steps that the keys give with the number of steps that the program made. If they differ,
    one of the keys must be wrong: return the keys with lower confidence. If they are equal, return an empty dict.
    """
    names = ("dataset.files", "dataset.samples_per_file", "reader.batch_size", "train.epochs", "train.steps")
    files, per_file, batch, epochs, steps = (keys[name].value for name in names)
    ranks = len(program.ranks) if keys["reader.shard"].value else 1
    planned = epochs * (steps or files * per_file / ranks / batch)
    recorded = statistics.median(sum(len(one.batches) for one in passes) for passes in made.passes)
    if abs(planned - recorded) <= max(epochs, _CONSISTENT * recorded):
        return {}
    doubt = f"the program took {recorded:,.0f} batches, but these values give {planned:,.0f}"
    return {name: keys[name].at_most("medium", doubt) for name in names}


def _endless(made: RecordedTraining, keys: Mapping[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the keys that are less certain if a pipeline repeats its files without an end. The end of a pass over the
    files is then unknown.
    """
    if made.pipeline is None or made.pipeline.repeats is not None:
        return {}
    names = ("dataset.samples_per_file", "train.epochs", "train.steps")
    return {name: keys[name].at_most("medium", "the pipeline repeats its files endlessly") for name in names}


def _incomplete(data: RecordedData, keys: Mapping[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the size of a sample with lower confidence if other reads in the passes are left out. Otherwise, return an
    empty dict.
    """
    other, name = data.other_reads, "dataset.sample.bytes"
    if other is None or name not in keys or other.bytes <= (1 - _IN_WHOLE) * other.bytes_of_data:
        return {}
    doubt = f"{format_size(other.bytes)} of other reads in the passes are left out, such as reads of {other.path}"
    return {name: keys[name].at_most("medium", doubt)}


def _in_batches(made: RecordedTraining, keys: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the checkpoint keys, converted to steps of the workload. A step of the workload takes one batch. A program
    makes fewer optimizer steps than batches if it accumulates gradients, and more if it has several optimizers.
    """
    every = keys.get("checkpoint.every_steps")
    steps = sum(one.steps for one in made.passes[0])
    batches = sum(len(one.batches) for one in made.passes[0] if one.steps)
    if every is None or not every.value or not steps or steps == batches:
        return keys
    evidence = f"{every.evidence}; {batches:,} batches for {steps:,} steps of optimizers"
    level: Confidence = "recorded" if max(steps, batches) % min(steps, batches) == 0 else "medium"
    number = max(1, round(every.value * batches / steps))
    return keys | {"checkpoint.every_steps": DerivedValue(number, weaker(every.confidence, level), evidence)}


def _of_items(keys: Mapping[str, DerivedValue], per_item: int) -> dict[str, DerivedValue]:
    """Return the keys that depend on the assumption that the rows of an item are samples."""
    reason = f"a batch has {per_item:,} rows for each item of the dataset; each row is treated as a sample"
    names = ("dataset.samples_per_file", "dataset.sample.bytes", "reader.batch_size")
    return {name: keys[name].at_most("medium", reason) for name in names if name in keys}


def _recorded(value: Any, evidence: str, level: Confidence = "recorded") -> DerivedValue:
    return DerivedValue(value, level, evidence)


def _samples(made: RecordedTraining) -> int:
    """Return the number of samples that all ranks together use in a pass."""
    repeats = (made.pipeline and made.pipeline.repeats) or 1
    used = sum(max((_of_pass(one, made.per_item) for one in passes), default=0) for passes in made.passes)
    if not used and made.settings.get("batch_size"):
        used = sum(max((len(one.batches) for one in passes), default=0) for passes in made.passes)
        used *= made.settings["batch_size"]
    return used // repeats


def _of_pass(one: Pass, per_item: int) -> int:
    if one.order and one.order[0]:
        return int(one.order[0]) * per_item
    return sum(batch.samples or 0 for batch in one.batches)


def _distinct(program: RecordedProgram, made: RecordedTraining) -> int:
    """Return the number of samples of the dataset: its length according to the loader, or the number in a pass."""
    used = _samples(made)
    length = made.settings.get("samples")
    if isinstance(length, int) and not made.settings.get("is_iterable") and not _is_of_batches(made):
        return length * made.per_item
    return used if _is_sharded(program, made) else used // max(1, len(program.ranks))


def _is_of_batches(made: RecordedTraining) -> bool:
    """Return whether the loader does not batch, because the program makes its own batches. Each sample of the loader is
    then a batch.
    """
    return made.settings.get("batch_size") is None and made.settings.get("library") == "torch"


def _is_sharded(program: RecordedProgram, made: RecordedTraining) -> bool:
    if len(program.ranks) == 1:
        return True
    shards = made.settings.get("shards")
    if isinstance(shards, int):
        return shards > 1
    length = made.settings.get("samples")
    if isinstance(length, int):
        return _samples(made) < (len(program.ranks) - 0.5) * length * made.per_item
    return True


def _dataset(program: RecordedProgram, total: int, data: RecordedData, in_memory: int) -> dict[str, DerivedValue]:
    """Return the keys of the dataset. total: number of samples. in_memory: bytes of a sample in memory; 0 if they are
    unknown.
    """
    count, sizes = len(data.files), data.sizes
    opened_by = Counter(path for rank in program.ranks for path in _paths_of(rank, data))
    is_shared = count == 1
    reader = data.library or "Python"
    spread = f"{format_size(min(sizes))} to {format_size(max(sizes))}" if sizes else "of unknown size"
    keys = {
        "dataset.format": _recorded(data.format, f"{counted(count, 'file')} read through {reader}")
        if not data.form
        else _recorded(
            data.format, f"{data.form}: the nearest format that a workload can have is {data.format}", "medium"
        ),
        "dataset.file_access": _recorded(
            "shared" if is_shared else "multi", f"{counted(count, 'file')}, of which {len(opened_by):,} were opened"
        ),
        "dataset.files": _recorded(count, f"{count:,} files were read in the passes of the loader, {spread}"),
    }
    return keys | _geometry(total, data, in_memory)


def _paths_of(rank: RankRecording, data: RecordedData) -> set[str]:
    return {path for process in rank.processes for path in process.files.values() if path in data.files}


def _geometry(total: int, data: RecordedData, in_memory: int) -> dict[str, DerivedValue]:
    """Return samples per file and the size of a sample."""
    if data.arrays is not None:
        return _of_arrays(data, total)
    per_file = max(1, round(total / len(data.files)))
    is_even = per_file * len(data.files) == total
    evidence = f"{total:,} samples in {len(data.files):,} files"
    if data.rows:
        per_file = max(1, round(statistics.mean(data.rows.values())))
        evidence, is_even = f"{per_file:,} rows in a file, according to the files", True
    keys = {"dataset.samples_per_file": _recorded(per_file, evidence, "recorded" if is_even else "medium")}
    if data.format == "csv":
        return keys | _of_table(data)
    return keys | _row_group(data) | _bytes(data, per_file, in_memory)


def _row_group(data: RecordedData) -> dict[str, DerivedValue]:
    """Return the number of rows of a row group, for Parquet files that are read by row groups."""
    rows = Counter(read.rows for read in data.reads if read.library == "pyarrow.row_group" and read.rows)
    if not rows:
        return {}
    (usual, count), total = rows.most_common(1)[0], sum(rows.values())
    return {"dataset.row_group": _recorded(usual, f"{count:,} of {total:,} row groups that were read")}


def _bytes(data: RecordedData, per_file: int, in_memory: int) -> dict[str, DerivedValue]:
    if data.library in ("numpy.npz", "numpy.load") and per_file == 1:
        if data.library == "numpy.npz" and (equal := _equal_arrays(data.reads)):
            return equal
        arrays = _array_bytes(data.reads)
        if arrays:
            return _sizes(arrays, "arrays that numpy read", "recorded")
    if not data.sizes:
        return {"dataset.sample.bytes": _recorded(max(1, in_memory), "bytes of a sample in memory", "low")}
    level: Confidence = "recorded" if per_file == 1 else "medium"
    return _sizes([size / per_file for size in data.sizes], f"{len(data.sizes):,} files", level)


def _sizes(sizes: Sequence[float], what: str, level: Confidence) -> dict[str, DerivedValue]:
    """Return the size of a sample, and the standard deviation if sizes differ."""
    mean, stdev = statistics.mean(sizes), statistics.pstdev(sizes)
    keys = {"dataset.sample.bytes": _recorded(max(1, round(mean)), f"mean of {what}", level)}
    if stdev > _EVEN * mean and level == "recorded":
        keys["dataset.sample.stdev"] = _recorded(round(stdev), f"standard deviation of {what}")
    return keys


def _array_bytes(reads: Sequence[Read]) -> list[int]:
    """Return the bytes of the arrays of each file. Arrays that are far smaller than the largest are labels."""
    by_file: dict[str, Counter[int]] = {}
    for read in reads:
        if read.size:
            by_file.setdefault(read.path, Counter())[read.size] += 1
    made = []
    for counts in by_file.values():
        visits = min(counts.values())
        made.append(sum(size * (count // visits) for size, count in counts.items() if size * LABEL >= max(counts)))
    return made


def _equal_arrays(reads: Sequence[Read]) -> dict[str, DerivedValue]:
    """Return the keys for several arrays per file if all files have the same two or more arrays, and if each visit to a
    file reads all arrays of the file. Otherwise return an empty dict.
    """
    by_file: dict[tuple[Path, str], list[tuple[int, int | None]]] = {}
    for read in reads:
        if read.size:
            by_file.setdefault((read.process, read.path), []).append((read.size, read.member))
    first = next(iter(by_file.values()), [])
    count = len(first) // min(Counter(first).values(), default=1)
    arrays = first[:count]
    if not 2 <= count <= _MOST_ARRAYS or any(listed != _repeated(arrays, len(listed)) for listed in by_file.values()):
        return {}
    members = [member for _, member in arrays if member is not None]
    places = sorted(range(count), key=members.__getitem__) if len(set(members)) == count else list(range(count))
    evidence = f"{count} arrays of each file"
    sizes = [arrays[place][0] for place in places]
    keys = {"dataset.sample.bytes": _recorded(sum(sizes), evidence), "dataset.arrays": _recorded(sizes, evidence)}
    if places == sorted(places):
        return keys
    order = [places.index(place) for place in range(count)]
    return keys | {"reader.array_order": _recorded(order, "order of the reads of a file")}


def _repeated(items: list[Any], length: int) -> list[Any]:
    """Return a list of `length` elements that repeats `items`."""
    return (items * (-(-length // len(items))))[:length]


def _of_table(data: RecordedData) -> dict[str, DerivedValue]:
    widths = [read.size // 8 // read.rows for read in data.reads if read.size and read.rows]
    width = Counter(widths).most_common(1)[0][0] if widths else 1
    return {
        "dataset.sample.shape": _recorded([width], f"tables of {width:,} columns"),
        "dataset.sample.dtype": DerivedValue("float32", "unknown", "csv files have only this type"),
    }


def _of_arrays(data: RecordedData, total: int) -> dict[str, DerivedValue]:
    arrays = data.arrays
    assert arrays is not None
    rows = [shape[0] if shape else 1 for shape in arrays.shapes]
    per_file = max(1, round(statistics.mean(rows)))
    row = max(1, arrays.itemsize * math.prod(arrays.shapes[0][1:]) * arrays.per_file)
    asked = Counter(read.place[2] for read in data.reads if read.place and read.place[2])
    # A sample that is several rows of a long array, such as a window of a recording.
    window = asked.most_common(1)[0][0] if asked else 1
    is_window = 0 < total < 0.9 * sum(rows) / arrays.per_file and window > 1
    if is_window:
        per_file, row = max(1, round(total * arrays.per_file / len(rows))), row * window
    keys = {
        "dataset.samples_per_file": _recorded(
            per_file, f"{counted(len(rows), 'array')} of {rows[0]:,} rows", "medium" if is_window else "recorded"
        ),
        "dataset.sample.bytes": _recorded(row, f"{format_size(row)} a row of shape {arrays.shapes[0][1:]}"),
    }
    if arrays.chunks:
        size = math.prod(arrays.chunks) * arrays.itemsize
        keys["dataset.chunk"] = _recorded(size, f"chunks of shape {arrays.chunks}")
        if arrays.compression in ("gzip", "lzf"):
            keys["dataset.compression"] = _recorded(arrays.compression, "filter of the array")
            keys |= _ratio(arrays, data)
    return keys


def _ratio(arrays: Arrays, data: RecordedData) -> dict[str, DerivedValue]:
    """Return the compression ratio of the contents: bytes of the arrays, divided by bytes of the files."""
    whole, stored = sum(map(math.prod, arrays.shapes)) * arrays.itemsize, sum(data.sizes)
    if not stored or not 1 < whole / stored <= _MOST_RATIO:
        return {}
    evidence = f"arrays of {format_size(whole)} in {format_size(stored)} of files"
    return {"dataset.compression_ratio": _recorded(round(whole / stored, 3), evidence, "medium")}


def _reader(
    program: RecordedProgram, made: RecordedTraining, data: RecordedData, per_file: int
) -> dict[str, DerivedValue]:
    """Return the keys of the reader. per_file: samples per file."""
    settings, batches = made.settings, made.batches
    lengths = Counter(batch.samples for batch in batches if batch.samples)
    size = (settings.get("batch_size") or 0) * made.per_item or (lengths.most_common(1)[0][0] if lengths else None)
    workers = settings.get("workers") or 0
    factor = settings.get("prefetch_factor") or 0
    ahead = workers * factor
    name = f"{settings.get('library', 'loader')} loader of {settings.get('dataset', 'data')}"
    held = round(statistics.median([batch.bytes for batch in batches] or [0]))
    in_memory = f", {format_size(held)} in memory" if held else ""
    # A loader does not show what an iterable dataset of the program's own reads ahead, and how Python's files are read.
    is_known = "library" in settings or made.pipeline is not None
    own: Confidence = "medium" if settings.get("is_iterable") or not is_known else "recorded"
    load = doubted_data.load(program, made, data, _load(made, data))
    keys = {
        "reader.mode": _recorded(
            "framework", f"read through {data.library or 'Python'}", "recorded" if data.library else "medium"
        ),
        "reader.load": load,
        "reader.batch_size": DerivedValue(1, "unknown", f"{name}: {len(batches):,} batches of unknown length")
        if size is None
        else _recorded(
            size, f"{name}: {len(batches):,} batches, most of {size:,} samples{in_memory}",
            "medium" if len({one.loader for passes in made.passes for one in passes}) > 1 else "recorded",
        ),
        "reader.read_threads": _recorded(
            max(1, workers), f"{name}: {counted(workers, 'worker')}", "recorded" if is_known else "medium"
        ),
        "reader.prefetch": _recorded(ahead, f"{name}: {counted(workers, 'worker')}, prefetch_factor {factor}", own),
        "reader.shard": _recorded(_is_sharded(program, made), f"{_samples(made):,} samples of all ranks in a pass"),
    }  # fmt: skip
    if settings.get("library") == "torch":
        keys["reader.loader"] = _recorded("pytorch", name)
    if made.pipeline is not None:
        keys |= _of_pipeline(made.pipeline, name)
    if settings.get("drop_last"):
        keys["reader.drop_last"] = _recorded(True, f"{name}: drop_last")
    return keys | recorded_order.of_loader(made, data, per_file, load.value == "memory")


def _load(made: RecordedTraining, data: RecordedData) -> DerivedValue:
    """Return `reader.load`."""
    if data.is_mapped:
        return _recorded("on_demand", "pages of a memory map are read when they are used, without calls", "medium")
    if made.pipeline is not None and made.pipeline.is_cached:
        if made.pipeline.caches_in_file:
            return _recorded("on_demand", "cache() in a file: later passes read that file instead", "low")
        return _recorded("memory", "cache() in the pipeline")
    if data.is_memory:
        return _recorded("memory", "no file was read while batches were asked for")
    if made.pipeline is not None:
        return _recorded("on_demand", "no cache() in the pipeline")
    return _recorded("on_demand", f"{len(data.reads):,} reads and opens while batches were asked for")


def _of_pipeline(pipeline: Pipeline, name: str) -> dict[str, DerivedValue]:
    chosen = DerivedValue(None, "unknown", "TensorFlow chooses it while it runs (AUTOTUNE)")
    keys = {
        "reader.loader": _recorded("tensorflow", name),
        "reader.read_threads": chosen._replace(value=1)
        if pipeline.threads is None
        else _recorded(pipeline.threads, "num_parallel_calls"),
        "reader.prefetch": chosen if pipeline.ahead is None else _recorded(
            pipeline.ahead, f"prefetch and a buffer of {pipeline.shuffles_samples:,} samples to shuffle",
            "medium" if pipeline.shuffles_samples else "recorded",
        ),
        "reader.transfer_size": _recorded(pipeline.buffer, "buffer_size of the reader"),
    }  # fmt: skip
    if pipeline.interleave is not None:
        keys["reader.interleave"] = _recorded(pipeline.interleave, "cycle_length of interleave")
    return keys


def _compute(made: RecordedTraining) -> DerivedValue:
    times = [batch.compute for batch in made.batches if batch.compute is not None]
    if any(batch.is_step for batch in made.batches):
        # Steps of fit: the first compiles the model.
        middle = statistics.median(times)
        evidence = f"median of {len(times):,} steps of fit, including the wait for their batches"
        return DerivedValue(round(middle, 6), "medium", evidence)
    if not times:
        return DerivedValue(0, "unknown", "no time between two batches was recorded")
    if made.is_in_thread:
        evidence = (
            f"{format_seconds(statistics.median(times))} between a batch and the request of a thread for the next"
        )
        return DerivedValue(round(statistics.mean(times), 6), "low", evidence)
    mean = statistics.mean(times)
    usual = format_seconds(statistics.median(times))
    evidence = f"mean of {len(times):,} times between a batch and the request for the next; the median is {usual}"
    return _recorded(round(mean, 6), evidence)


def _evaluation(
    program: RecordedProgram, made: RecordedTraining, keys: dict[str, DerivedValue]
) -> dict[str, DerivedValue]:
    """Return the keys of the evaluation passes. Only passes without steps over other loaders are used. The result is
    empty if their files are unknown, or if a workload cannot have such passes.
    """
    epochs = int(keys["train.epochs"].value)
    evaluation = recorded_training.evaluation_of_epochs(made)
    passes = max(evaluation, key=len, default=[])
    spans = [(one.begin, one.end) for mine in evaluation for one in mine]
    is_possible = keys["dataset.file_access"].value == "multi" and keys["reader.load"].value == "on_demand"
    if not passes or len(passes) > epochs or not is_possible:
        return {}
    data = recorded_files.of(program.ranks, spans)
    if data is None or data.is_memory:
        return {}
    batches = [batch for one in passes for batch in one.batches]
    lengths = Counter(batch.samples for batch in batches if batch.samples)
    times = [batch.compute for batch in batches if batch.compute is not None]
    every = max(1, round(epochs / len(passes)))
    evidence = f"{counted(len(passes), 'pass')} of another loader without a step, in {counted(epochs, 'epoch')}"
    made_keys = {
        "evaluation.files": _recorded(len(data.files), f"{len(data.files):,} files were read in these passes"),
        "evaluation.every_epochs": _recorded(
            every, evidence, "recorded" if len(passes) * every == epochs else "medium"
        ),
    }
    if lengths:
        made_keys["evaluation.batch_size"] = _recorded(lengths.most_common(1)[0][0], f"{len(batches):,} batches")
    if times:
        mean = round(statistics.mean(times), 6)
        made_keys["evaluation.time.mean"] = _recorded(mean, f"mean of {len(times):,} times between two batches")
    return made_keys


def _epochs(made: RecordedTraining) -> dict[str, DerivedValue]:
    counts = [len([one for one in passes if one.batches or one.is_whole]) for passes in made.passes]
    whole = sum(one.is_whole for passes in made.passes for one in passes)
    counts = [count * ((made.pipeline and made.pipeline.repeats) or 1) for count in counts]
    keys = {
        "train.epochs": _recorded(
            max(counts), f"{counted(max(counts), 'pass')} of the loader on each rank, {whole} to the end"
        )
    }
    left = [len(one.batches) for passes in made.passes for one in passes if not one.is_whole and one.batches]
    steps = Counter(left).most_common(1)[0][0] if left and not whole else None
    keys["train.steps"] = _recorded(steps, "batches of a pass" if steps else "passes end when the loader does")
    return keys


def of_own_loop(program: RecordedProgram, data: RecordedData, loop: OwnLoop) -> dict[str, DerivedValue]:
    """Return the keys of the workload of a program that reads without a loader."""
    total = sum({visit.unit: visit.samples for mine in loop.visits for visit in mine}.values())
    shared = [_paths_of(rank, data) for rank in program.ranks]
    is_sharded = len(shared) == 1 or not set.intersection(*shared) or data.arrays is not None
    order = DerivedValue(loop.is_drawn, "medium", "order of the reads in the second pass")
    has_many = data.arrays is not None
    keys = {key: value.at_most(_SURE.get(key, "medium")) for key, value in _dataset(program, total, data, 0).items()}
    keys |= {
        "reader.mode": _recorded("framework", f"read through {data.library or 'Python'}", "medium"),
        "reader.load": _recorded("on_demand", f"{len(data.reads):,} reads and opens", "medium"),
        "reader.batch_size": loop.batch,
        "reader.read_threads": _recorded(1, "no worker processes", "medium"),
        "reader.prefetch": DerivedValue(
            0,
            "low",
            "a loop reads a batch when it needs it; whether a thread of the program reads ahead is not recorded",
        ),
        "reader.shard": _recorded(is_sharded, "files of each rank", "medium"),
        "reader.shuffle.files": order if not has_many or len(data.files) > 1 else order._replace(value=False),
        "reader.shuffle.samples": order if has_many else _recorded(loop.goes_back, "order in a file", "medium"),
        "compute.time": loop.compute,
        "train.epochs": loop.epochs,
        "train.steps": DerivedValue(None, "medium", "passes over all files"),
    }
    saved = recorded_checkpoints.keys_of(program, int(loop.epochs.value), [])
    if "checkpoint.every_steps" in saved:  # steps are known, passes are derived
        every = saved["checkpoint.every_steps"]
        saved["checkpoint.every_steps"] = every.at_most("medium")
    keys |= saved
    keys |= recorded_order.blocks(keys, data)
    if loop.steps > 1.5 * max(map(len, loop.visits)):
        return _doubted(keys)
    return keys


def _doubted(keys: dict[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the keys of a program with far fewer reads than steps, with lower confidence. Such a program keeps its
    data in memory, or reads its data by calls that are not recorded. The keys for the files and the checkpoints keep
    their confidence.
    """
    sure = ("dataset.format", "dataset.file", "checkpoint.")
    doubt = "far fewer reads than steps were recorded"
    return {key: value if key.startswith(sure) else value.at_most("low", doubt) for key, value in keys.items()}
