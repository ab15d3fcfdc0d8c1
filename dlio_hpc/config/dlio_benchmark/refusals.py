"""Workloads of dlio_benchmark that are refused, because dlio-hpc cannot make the same requests."""

from dlio_hpc.config.dlio_benchmark.formats import FORMATS, IMAGES, LOADERS, UNREADABLE, loader_of
from dlio_hpc.config.dlio_benchmark.keys import ELEMENT_BYTES, KEYS, REVISION
from dlio_hpc.config.dlio_benchmark.source import SourceWorkload

# Formats of which dlio_benchmark loads the whole file, and again for each sample with an index.
_WHOLE = ("npz", "npy", "csv", *IMAGES)
_RANK_DEPENDENT = (
    "the files of a checkpoint depend on the number of ranks; import the reading without checkpoints: "
    "++workload.workflow.checkpoint=False"
)


def check(source: SourceWorkload) -> None:
    """Raise ConfigError for a workload that makes requests which dlio-hpc cannot make."""
    kind, loader = source["dataset.format"], loader_of(source)
    indexed = loader in {"pytorch", "dali"}
    rules: tuple[tuple[bool, str, str], ...] = (
        (
            not source["workflow.train"] and not source["workflow.generate_data"],
            "workflow.train",
            "the workload reads no training data; set ++workload.workflow.train=True",
        ),
        (
            source["storage.storage_type"] not in {"local_fs", "parallel_fs"},
            "storage.storage_type",
            "dlio-hpc reads files of a mounted file system, not objects; set ++workload.storage.storage_type=local_fs",
        ),
        *(
            (bool(source[key]), key, "the requests of a custom class are unknown; remove the key")
            for key in ("reader.data_loader_classname", "reader.reader_classname")
        ),
        (kind in UNREADABLE, "dataset.format", UNREADABLE.get(kind, "")),
        (
            kind not in {*FORMATS, *UNREADABLE},
            "dataset.format",
            f"not a format of dlio_benchmark {REVISION}; use one of: {', '.join(FORMATS)}",
        ),
        (
            loader not in LOADERS,
            "reader.data_loader",
            f"dlio-hpc does not know the requests of this loader; use one of: {', '.join(LOADERS)}",
        ),
        (
            {source["framework"], loader} == {"tensorflow", "pytorch"} or (kind == "tfrecord" and loader == "pytorch"),
            "reader.data_loader",
            f"dlio_benchmark refuses it with framework {source['framework']} and format {kind}; set "
            "++workload.framework and ++workload.reader.data_loader to values that fit together",
        ),
        (
            kind in _WHOLE and indexed and source["dataset.num_samples_per_file"] > 1,
            "dataset.num_samples_per_file",
            f"dlio_benchmark loads the whole {kind} file again for each of its samples; dlio-hpc loads it once; set "
            "++workload.dataset.num_samples_per_file=1",
        ),
        (
            kind in IMAGES and source["dataset.num_samples_per_file"] > 1,
            "dataset.num_samples_per_file",
            "an image file holds one image; set ++workload.dataset.num_samples_per_file=1",
        ),
        (
            kind == "parquet" and bool(source["dataset.parquet.partition_by"]),
            "dataset.parquet.partition_by",
            "dlio-hpc does not divide a dataset into folders by a column; remove the key",
        ),
        (
            kind == "csv" and source["dataset.compression"] != "none",
            "dataset.compression",
            "dlio_benchmark does not find the compressed files; set ++workload.dataset.compression=none",
        ),
        (
            kind == "csv" and source["dataset.record_element_type"] not in {"int8", "uint8"},
            "dataset.record_element_type",
            "the length of these numbers as text varies; set ++workload.dataset.record_element_type=uint8",
        ),
        (
            source["dataset.record_element_type"] not in ELEMENT_BYTES,
            "dataset.record_element_type",
            f"use one of: {', '.join(ELEMENT_BYTES)}",
        ),
        (
            not 1 <= source["dataset.record_length_bytes"] < 2**60 or source["dataset.record_length_bytes_stdev"] < 0,
            "dataset.record_length_bytes",
            "expected a number of bytes from 1, and a deviation from 0",
        ),
        (
            source["dataset.hdf5.num_dset_per_record"] > 1,
            "dataset.hdf5.num_dset_per_record",
            "dlio-hpc reads a sample from a single dataset; set ++workload.dataset.hdf5.num_dset_per_record=1",
        ),
        (
            bool(source["dataset.record_dims"]) and source["dataset.record_length_bytes_stdev"] > 0,
            "dataset.record_length_bytes_stdev",
            "dlio_benchmark does not accept this key together with record_dims; remove one of the two",
        ),
        (
            source["reader.odirect"] and kind not in {"npz", "npy"},
            "reader.odirect",
            f"dlio_benchmark has O_DIRECT for npz and npy only, not {kind}; set ++workload.reader.odirect=False",
        ),
    )
    for is_refused, key, reason in rules:
        if is_refused:
            raise source.refused(key, reason)


def check_checkpoint(source: SourceWorkload) -> None:
    """Raise ConfigError for checkpoints that dlio-hpc cannot write."""
    if source["checkpoint.checkpoint_mechanism_classname"]:
        raise source.refused(
            "checkpoint.checkpoint_mechanism_classname",
            "the requests of a custom class are unknown; import the reading without checkpoints: "
            "++workload.workflow.checkpoint=False",
        )
    if source["checkpoint.mode"] != "default":
        raise source.refused("checkpoint.mode", _RANK_DEPENDENT)
    if source["model.model_size_bytes"] < 1:
        raise source.refused(
            "model.model_size_bytes",
            "expected at least 1; to import without checkpoints, set workflow.checkpoint to False",
        )
    for key in ("model.num_layers", "model.layer_parameters", "model.optimization_groups"):
        value = source[key]
        if value and value != KEYS[key].default:
            raise source.refused(key, _RANK_DEPENDENT)
    for key in ("model.parallelism.tensor", "model.parallelism.pipeline", "model.parallelism.zero_stage"):
        if source[key] > KEYS[key].default:
            raise source.refused(key, _RANK_DEPENDENT)
