"""The keys of a workload file of dlio_benchmark, as its revision e1919d7 (June 2026) reads them. This revision does not
support Parquet. The keys `dataset.parquet` are from the version that MLPerf Storage v3.0 uses.
"""

from typing import Literal, NamedTuple

REVISION = "e1919d7"

Kind = Literal["count", "number", "flag", "text", "any"]


class SourceKey(NamedTuple):
    """A key of dlio_benchmark. kind: type of its value. default: value that applies without the key. without_effect:
    reason why the key does not change the requests to the dataset; empty if a key of dlio-hpc depends on it.
    """

    kind: Kind
    default: object = None
    without_effect: str = ""


_FOLDER = "give the folder of the dataset with dlio-submit --data"
_MEMORY = "affects memory, not requests to the storage"
_UNUSED = f"dlio_benchmark {REVISION} reads this key but does not use it"
_REPORT = "affects reports of dlio_benchmark only"
_CREDENTIALS = "for object storage only"
_ALONE = "only for runs that only write and read checkpoints"
_CUSTOM = "only for custom classes"

# Keys of parts that a workload may leave out, with the key that turns the part on.
SWITCHES = {"checkpoint.": "workflow.checkpoint", "model.": "workflow.checkpoint", "evaluation.": "workflow.evaluation"}

KEYS: dict[str, SourceKey] = {
    "framework": SourceKey("text", "tensorflow"),
    "workflow.train": SourceKey("flag", True),
    "workflow.generate_data": SourceKey("flag", False),
    "workflow.evaluation": SourceKey("flag", False),
    "workflow.checkpoint": SourceKey("flag", False),
    "workflow.profiling": SourceKey("flag", False, "see dlio-submit --darshan"),
    "workflow.query": SourceKey("any", None, _REPORT),
    "dataset.format": SourceKey("text", "tfrecord"),
    "dataset.num_files_train": SourceKey("count", 8),
    "dataset.num_samples_per_file": SourceKey("count", 1),
    "dataset.record_length_bytes": SourceKey("number", 64 * 1024),
    "dataset.record_length_bytes_stdev": SourceKey("number", 0),
    "dataset.record_length_bytes_resize": SourceKey("number", 0),
    "dataset.record_dims": SourceKey("any", None),
    "dataset.record_element_type": SourceKey("text", "uint8"),
    "dataset.record_element_bytes": SourceKey("number", 4, "follows from record_element_type"),
    "dataset.hdf5.chunk_dims": SourceKey("any", None),
    "dataset.hdf5.max_shape": SourceKey("any", None),
    "dataset.hdf5.num_dset_per_record": SourceKey("count", 1),
    "dataset.parquet.columns": SourceKey("any", None),
    "dataset.parquet.row_group_size": SourceKey("count", 1024),
    "dataset.parquet.generation_batch_size": SourceKey("count", 0),
    "dataset.parquet.read_mode": SourceKey("text", "", "row groups are read with any value of this key"),
    "dataset.parquet.partition_by": SourceKey("text", ""),
    "dataset.num_subfolders_train": SourceKey("count", 0),
    "dataset.num_files_eval": SourceKey("count", 0),
    "dataset.num_subfolders_eval": SourceKey("count", 0),
    "dataset.compression": SourceKey("text", "none"),
    "dataset.compression_level": SourceKey("count", 4),
    "dataset.enable_chunking": SourceKey("flag", False, _UNUSED),
    "dataset.chunk_size": SourceKey("number", 0, _UNUSED),
    "dataset.data_folder": SourceKey("text", "", _FOLDER),
    "dataset.file_prefix": SourceKey("text", "", "names of files do not change requests"),
    "dataset.keep_files": SourceKey("flag", True, "see dlio-hpc datasets remove"),
    "dataset.generation_buffer_size": SourceKey("number", 0, "affects generation only"),
    "storage.storage_type": SourceKey("text", "local_fs"),
    "storage.storage_root": SourceKey("text", "", _FOLDER),
    "storage.storage_options": SourceKey("any", None, _CREDENTIALS),
    "reader.data_loader": SourceKey("text", ""),
    "reader.batch_size": SourceKey("count", 1),
    "reader.batch_size_eval": SourceKey("count", 1),
    "reader.read_threads": SourceKey("count", 1),
    "reader.computation_threads": SourceKey("count", 1),
    "reader.prefetch_size": SourceKey("count", 2),
    "reader.file_shuffle": SourceKey("text", "off"),
    "reader.sample_shuffle": SourceKey("text", "off"),
    "reader.shuffle_size": SourceKey("count", 1024, "a buffer in memory; requests keep their order"),
    "reader.transfer_size": SourceKey("count", None),
    "reader.read_type": SourceKey("text", "on_demand"),
    "reader.file_access": SourceKey("text", "multi", _UNUSED),
    "reader.odirect": SourceKey("flag", False),
    "reader.multiprocessing_context": SourceKey("text", "fork"),
    "reader.preprocess_time": SourceKey("any", 0),
    "reader.preprocess_time_stdev": SourceKey("number", None),
    "reader.dont_use_mmap": SourceKey("flag", False, _UNUSED),
    "reader.pin_memory": SourceKey("flag", True, _MEMORY),
    "reader.transformed_record_dims": SourceKey("any", None),
    "reader.transformed_record_element_type": SourceKey("text", "uint8"),
    "reader.data_loader_sampler": SourceKey("text", "", _CUSTOM),
    "reader.data_loader_classname": SourceKey("text", ""),
    "reader.reader_classname": SourceKey("text", ""),
    "train.epochs": SourceKey("count", 1),
    "train.total_training_steps": SourceKey("number", -1),
    "train.computation_time": SourceKey("any", 0),
    "train.computation_time_stdev": SourceKey("number", None),
    "train.seed": SourceKey("count", 123),
    "train.seed_change_epoch": SourceKey("flag", True),
    "evaluation.eval_time": SourceKey("any", 0),
    "evaluation.eval_time_stdev": SourceKey("number", None),
    "evaluation.eval_after_epoch": SourceKey("count", 1),
    "evaluation.epochs_between_evals": SourceKey("count", 1),
    "checkpoint.checkpoint_folder": SourceKey("text", "", "checkpoints are stored next to the dataset"),
    "checkpoint.checkpoint_after_epoch": SourceKey("count", 1),
    "checkpoint.epochs_between_checkpoints": SourceKey("count", 1),
    "checkpoint.steps_between_checkpoints": SourceKey("number", -1),
    "checkpoint.type": SourceKey("text", "rank_zero", f"{_UNUSED}: rank 0 writes"),
    "checkpoint.mode": SourceKey("text", "default"),
    "checkpoint.fsync": SourceKey("flag", False, f"{_UNUSED}: it never calls fsync"),
    "checkpoint.checkpoint_mechanism_classname": SourceKey("text", ""),
    "checkpoint.time_between_checkpoints": SourceKey("number", -1, _ALONE),
    "checkpoint.num_checkpoints_write": SourceKey("number", -1, _ALONE),
    "checkpoint.num_checkpoints_read": SourceKey("number", -1, _ALONE),
    "checkpoint.rank_sync": SourceKey("flag", False, _ALONE),
    "checkpoint.recovery_rank_shift": SourceKey("flag", False, _ALONE),
    "checkpoint.randomize_tensor": SourceKey("flag", True, _MEMORY),
    "checkpoint.ksm": SourceKey("any", None, _MEMORY),
    "model.name": SourceKey("text", "", _REPORT),
    "model.type": SourceKey("text", "", "only for the layers of a model"),
    "model.model_size_bytes": SourceKey("number", 10240),
    "model.num_layers": SourceKey("number", -1),
    "model.layer_parameters": SourceKey("any", None),
    "model.optimization_groups": SourceKey("any", None),
    "model.model_datatype": SourceKey("text", "fp16", "only for the layers of a model"),
    "model.optimizer_datatype": SourceKey("text", "fp32", "only for the layers of a model"),
    "model.parallelism.tensor": SourceKey("count", 1),
    "model.parallelism.pipeline": SourceKey("count", 1),
    "model.parallelism.data": SourceKey("number", -1),
    "model.parallelism.zero_stage": SourceKey("count", 0),
    "model.transformer.vocab_size": SourceKey("count", 32000, "only for the layers of a model"),
    "model.transformer.hidden_size": SourceKey("count", 2048, "only for the layers of a model"),
    "model.transformer.ffn_hidden_size": SourceKey("count", 8192, "only for the layers of a model"),
    "model.transformer.num_attention_heads": SourceKey("count", 32, "only for the layers of a model"),
    "model.transformer.num_kv_heads": SourceKey("count", 8, "only for the layers of a model"),
    "profiling.profiler": SourceKey("text", "iostat", "see dlio-submit --darshan"),
    "profiling.iostat_devices": SourceKey("any", None, _REPORT),
    "output.folder": SourceKey("text", "", _REPORT),
    "output.log_file": SourceKey("text", "", _REPORT),
    "output.metric.exclude_start_steps": SourceKey("count", 1, _REPORT),
    "output.metric.exclude_end_steps": SourceKey("count", 0, _REPORT),
    "metric.au": SourceKey("number", 0.9, "set min_au in a criteria file"),
}  # fmt: skip

# Names of keys in dlio_benchmark before February 2025, as in MLPerf Storage v0.5 and v1.0.
OLD_NAMES = {
    "model": "model.name",
    "dataset.record_length": "dataset.record_length_bytes",
    "dataset.record_length_stdev": "dataset.record_length_bytes_stdev",
    "dataset.record_length_resize": "dataset.record_length_bytes_resize",
    "checkpoint.model_size": "model.model_size_bytes",
    "checkpoint.num_layers": "model.num_layers",
    "checkpoint.layer_parameters": "model.layer_parameters",
    "checkpoint.optimization_groups": "model.optimization_groups",
}

# Bytes of the types that a record's elements may have.
ELEMENT_BYTES = {
    "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8,
    "uint64": 8, "float64": 8,
}  # fmt: skip
