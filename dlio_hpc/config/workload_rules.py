"""Combinations of a workload's `dataset` and `reader` that are rejected. Each message names a setting that works."""

from typing import Any

from dlio_hpc.base import serialization
from dlio_hpc.base.serialization import refuse
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.format_facts import FORMATS
from dlio_hpc.config.reader_keys import (
    BLOCK,
    Reader,
    by_streams,
    can_reopen,
    deals_files,
    fits_blocks,
    keeps_handles,
    loads_files,
    outer_names,
    reads_records,
    reads_streams,
)

_MAPPING = " or ".join(name for name, facts in FORMATS.items() if facts.maps)
# Values of a reader that a workload without a dataset may have, although it reads no samples. Suites set drop_cache for
# all their parts; plan/notes.py has a note.
_WITHOUT_SAMPLES: tuple[dict[str, Any], ...] = (
    serialization.plain(Reader()), {"shard": False, "prefetch": 0, "verify_content": "none", "drop_cache": True},
)  # fmt: skip


def unused_keys(reader: object) -> list[str]:
    """Return the keys of `reader`, as read from a YAML file, that have an effect only if samples are read. Values that
    such a workload may have are left out, and so are unknown keys.
    """
    keys = reader if isinstance(reader, dict) else {}
    usual = {key: [values[key] for values in _WITHOUT_SAMPLES if key in values] for key in Reader.__struct_fields__}
    return [key for key in keys if key in usual and not any(_is_part(keys[key], value) for value in usual[key])]


def _is_part(value: object, whole: object) -> bool:
    """Return whether two values are equal, or one mapping contains the other."""
    if isinstance(value, dict) and isinstance(whole, dict):
        return value.items() <= whole.items()
    return value == whole


def check_evaluation(dataset: Dataset, reader: Reader, passes: int) -> None:
    """Raise ValueError if the workload cannot have evaluation passes. passes: number of passes in the run."""
    refuse(
        (
            not passes,
            "evaluation.every_epochs is larger than train.epochs, so the run would have no evaluation pass; lower "
            "every_epochs, or raise train.epochs",
        ),
        (
            not dataset.facts.holds_data or dataset.existing is not None or dataset.file_access == "shared",
            "evaluation needs a dataset that is generated, with file_access=multi",
        ),
        (
            reader.load == "memory" or reader.access == "collective",
            "evaluation needs load=on_demand and access=independent",
        ),
    )


def _unknown_columns(dataset: Dataset, reader: Reader) -> str:
    """Return the names in reader.columns that are no columns of the dataset, in parentheses; empty if there is none, or
    if the columns are not known before the scan.
    """
    if dataset.existing is not None and dataset.scan is None:
        return ""
    names = set(dataset.column_names)
    if dataset.existing is not None:
        names = names.union(*map(outer_names, names))
    unknown = [name for name in reader.columns or () if name not in names]
    return f" ({', '.join(unknown[:8])}: unknown)" if unknown else ""


def check(dataset: Dataset, reader: Reader) -> None:
    """Raise ValueError if the reader cannot read the dataset."""
    kind, framework = dataset.format, reader.mode == "framework"
    facts = dataset.facts
    plain = dataset.compression == "none" and not dataset.is_chunked
    refuse(
        (
            not facts.holds_data and reader.transfer_size is not None,
            "reader.transfer_size: the null format makes no requests; leave transfer_size null",
        ),
        (
            not facts.holds_data and (reader.access != "independent" or reader.direct or reader.load != "on_demand"),
            "reader: the null format has no storage; do not set access, load or direct",
        ),
        (
            reader.transfer_size is not None and framework and facts.chooses_requests,
            f"reader.transfer_size needs mode=posix; in mode=framework, {facts.library or facts.title} chooses the "
            "request size",
        ),
        (
            dataset.arrays is not None and framework and facts.holds_chunks and reader.transfer_size is not None,
            "reader.transfer_size: with dataset.arrays, each call of h5py reads an array of a sample; leave "
            "transfer_size null",
        ),
        (
            dataset.arrays is not None
            and not framework
            and reader.access == "independent"
            and not reader.direct
            and (reader.transfer_size or 0) > dataset.largest,
            "reader.transfer_size: with dataset.arrays, at least one request is made for each array of a sample; leave "
            "transfer_size null, or set it to at most the size of a sample",
        ),
        (
            dataset.blend is not None and reader.shuffle.files != reader.shuffle.samples,
            "reader.shuffle: a blend takes samples from all files of a group; set shuffle.files and shuffle.samples "
            "both to true, or both to false",
        ),
        (
            dataset.blend is not None and ((reader.interleave or 1) > 1 or reader.shuffle.block > 1),
            "reader.interleave and reader.shuffle.block: a blend takes one sample at a time from the group whose turn "
            "it is; leave both out",
        ),
        (
            dataset.blend is not None and reader.load == "memory",
            "reader.load=memory reads each sample once, but a blend repeats samples; set load=on_demand",
        ),
        (
            dataset.blend is not None and dataset.sizes_vary,
            "dataset.blend needs samples of one size: set dataset.documents, or existing.sample_bytes for existing "
            "files, and leave sample.stdev null",
        ),
        (
            (reader.interleave or 1) > 1 and loads_files(dataset, reader),
            "reader.interleave: with these settings, each sample would require loading a whole file; leave interleave "
            "null",
        ),
        (
            reader.files_in_turn(dataset) > 1 and loads_files(dataset, reader),
            "reader.read_threads: with shuffle.samples, each worker of PyTorch would decompress a whole file for each "
            "sample; set reader.interleave=1, or shuffle.samples=false",
        ),
        (
            dataset.is_packed and framework and not facts.loads_whole and not reads_streams(dataset, reader),
            "reader.shuffle: TFRecordDataset reads a compressed file from its beginning, so the samples of all files "
            "cannot be mixed; set shuffle.files or shuffle.samples to false, or mode=posix",
        ),
        (
            (reader.interleave or 1) > 1 and facts.holds_columns and framework and dataset.row_group_samples > 1,
            "reader.interleave: with these settings, each sample would require reading a row group; leave interleave "
            "null, or set mode=posix",
        ),
        (
            (reader.interleave or 1) > 1 and deals_files(dataset, reader),
            "reader.interleave: each worker of PyTorch reads one archive after the other; leave interleave null",
        ),
        (
            by_streams(dataset, reader)
            and not deals_files(dataset, reader)
            and reader.read_threads > reader.files_in_turn(dataset),
            "reader.read_threads: each thread reads its own file from start to end, but with reader.interleave="
            f"{reader.interleave}, fewer files than threads are read at a time; raise reader.interleave, or leave it "
            "null",
        ),
        (
            by_streams(dataset, reader) and (reader.by_array or reader.array_order is not None),
            "reader.by_array and reader.array_order: a shard is read front to back, so its members come in the order "
            "of the shard; leave both out, or set mode=posix",
        ),
        (
            reader.array_order is not None and sorted(reader.array_order) != list(range(len(dataset.arrays or ()))),
            "reader.array_order: list each position in dataset.arrays once, from 0; leave array_order null for files "
            "with one array",
        ),
        (
            reader.mapped and not facts.maps,
            f"reader.mapped=true needs format={_MAPPING}; files of format={kind} are not mapped, so leave mapped false",
        ),
        (
            reader.mapped and reader.direct,
            "reader.mapped and reader.direct exclude each other: the kernel maps pages of its cache; leave one of them "
            "out",
        ),
        (
            reader.mapped and not framework,
            f"reader.mapped=true needs reader.mode=framework, not {reader.mode}: set reader.mode=framework",
        ),
        (
            reader.columns is not None and not facts.holds_columns,
            f"reader.columns: format={kind} has no columns; leave columns null",
        ),
        (
            facts.holds_columns and (reader.columns == () or bool(_unknown_columns(dataset, reader))),
            f"reader.columns{_unknown_columns(dataset, reader)} must name one or more columns of the dataset: "
            f"{', '.join(dataset.column_names[:8])}{', ...' if len(dataset.column_names) > 8 else ''}"
            if facts.holds_columns
            else "",
        ),
        (
            facts.holds_columns and reader.access == "collective",
            "reader.access=collective needs samples that follow each other; format=parquet stores columns; set "
            "access=independent",
        ),
        (
            reader.by_array
            and (dataset.arrays is None or reader.loader != "native" or (facts.loads_whole and framework)),
            "reader.by_array=true needs dataset.arrays and loader=native; with npz in mode=framework, arrays are "
            "read file by file",
        ),
        (
            reader.keep_open and not keeps_handles(dataset, reader),
            "reader.keep_open=true has no effect: with these settings, a file is opened whenever it is loaded or read "
            "from its beginning",
        ),
        (
            reader.shuffle.block > 1 and (dataset.counts_vary or reads_streams(dataset, reader)),
            "reader.shuffle.block: with these settings, the samples of a file cannot be read in blocks: files have "
            "different numbers of samples, or are read as streams; leave block at 1",
        ),
        (
            reader.shuffle.files and reader.shuffle.block > 1 and dataset.samples_per_file % reader.shuffle.block > 0,
            f"reader.shuffle.block: found {reader.shuffle.block}; with shuffle.files, it must divide "
            "dataset.samples_per_file "
            f"({dataset.samples_per_file}), so that no block belongs to two files",
        ),
        (
            reader.reopen and not can_reopen(dataset, reader),
            "reader.reopen=true needs files of several samples, and settings with which files otherwise stay open: "
            "mode=posix without arrays, chunk and compression, or mode=framework with hdf5, or with tfrecord whose "
            "samples are all mixed",
        ),
        (
            reader.reopen and (reader.transfer_size or 0) > dataset.largest,
            "reader.reopen=true opens a file for each sample, so no request can read several samples; lower "
            "reader.transfer_size, or leave it null",
        ),
        (
            dataset.existing is not None and reader.verify_content == "all",
            "reader.verify_content: the contents of existing files are not known, so there is nothing to compare them "
            "with; set verify_content=none",
        ),
        (
            not facts.holds_data and reader.verify_content == "all",
            "reader.verify_content: the null format has no content to compare; set verify_content=first or none",
        ),
        (
            reads_records(dataset, reader) and reader.shuffle.ascending,
            "reader.shuffle.ascending has no effect here: TensorFlow reads each TFRecord file from start to end, even "
            "if samples are shuffled; remove ascending",
        ),
        (
            bool(reader.verify) and not facts.holds_records,
            f"reader.verify checks the checksums of TFRecord files; format={kind} has none, so leave verify null",
        ),
        (
            not framework and dataset.compression == "lzf",
            "reader.mode=posix cannot decompress lzf; only HDF5 can. Set mode=framework",
        ),
        (
            not framework and dataset.scan is not None and dataset.scan.needs_library,
            "reader.mode=posix cannot read these existing files"
            + (f", because {dataset.scan.obstacle}" if dataset.scan is not None and dataset.scan.obstacle else "")
            + "; only the library of their format reads them. Set mode=framework",
        ),
        (
            reader.direct and not plain,
            "reader.direct=true needs contiguous samples: no chunk, no compression",
        ),
        (
            reader.engine == "io_uring" and (not plain or not facts.holds_data or reader.verifies),
            "reader.engine=io_uring needs contiguous samples: a format other than null, no chunk, no compression, no "
            "verify",
        ),
        (
            reader.engine == "io_uring" and not facts.holds_columns and (reader.transfer_size or 0) > dataset.largest,
            "reader.engine=io_uring makes at least one request per sample; leave transfer_size null, or set it to at "
            "most the size of a sample",
        ),
        (
            reader.engine == "io_uring" and reader.direct and not fits_blocks(dataset),
            "reader.engine=io_uring with direct=true needs samples that begin and end at a block of the file: "
            f"format=raw or npz, one array, and a sample size that is a multiple of {BLOCK} bytes",
        ),
    )
    if reader.access == "collective":
        refuse(
            (
                dataset.joins_documents,
                "reader.access=collective reads each byte of a batch once, but samples across documents share tokens; "
                "set access=independent, or dataset.documents=null",
            ),
            (
                dataset.file_access != "shared",
                "reader.access=collective needs a single file that all ranks read: dataset.file_access=shared",
            ),
            (
                not framework and not plain,
                "reader.access=collective with reader.mode=posix needs contiguous samples: no chunk, no compression",
            ),
            (
                framework and not facts.reads_together,
                f"reader.access=collective with format={kind} needs mode=posix, which uses MPI-IO",
            ),
            (
                framework and (bool(reader.hints) or reader.transfer_size is not None),
                "reader: HDF5's own collective reads support neither hints nor transfer_size; set mode=posix",
            ),
        )
