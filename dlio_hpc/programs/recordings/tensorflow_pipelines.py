"""Settings of a recorded tf.data pipeline, as settings of a workload."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dlio_hpc.config.workload import TENSORFLOW_BUFFER
from dlio_hpc.programs.recordings.recorded_program import PipelineStage, chain, chain_name

_READERS = {"TFRecordDatasetV2": "tfrecord", "FixedLengthRecordDatasetV2": "raw", "TextLineDatasetV2": "csv"}
_BATCHES = ("batch", "padded_batch", "ragged_batch")
# Stages behind which an element is a sample and no file.
_OPENING = ("interleave", "flat_map", *_READERS)


class Pipeline(NamedTuple):
    """A pipeline. format: format of the files that it reads; empty if a function of the program reads them. files:
    files that it names. batch: samples per batch. interleave: number of files that are read in turn. threads: None if
    TensorFlow chooses. ahead: number of batches that are ready or in a shuffle buffer; None if TensorFlow chooses.
    buffer: bytes of a request. repeats: passes of the pipeline over its files in one pass of its iterator; None if the
    pipeline repeats its files without an end.
    """

    format: str
    files: list[str]
    batch: int | None
    drop_last: bool
    interleave: int | None
    threads: int | None
    ahead: int | None
    buffer: int
    repeats: int | None
    shuffles_files: bool
    shuffles_samples: int
    is_cached: bool
    caches_in_file: bool


def of(stages: Mapping[int, PipelineStage], name: str) -> Pipeline | None:
    """Return the pipeline with this name, or None if there is none."""
    last = next((number for number in reversed(list(stages)) if chain_name(chain(stages, number)) == name), None)
    if last is None:
        return None
    parts = chain(stages, last)
    readers = [stage for stage in stages.values() if stage.name in _READERS]
    opens = _OPENING if readers else (*_OPENING, "map")
    opening = next((at for at, stage in enumerate(parts) if stage.name in opens), len(parts))
    size = _batch(parts)
    shuffled = [_setting(stage, "0", "buffer_size") for stage in parts[opening:] if stage.name == "shuffle"]
    ahead = [_setting(stage, "0", "buffer_size") for stage in parts if stage.name == "prefetch"]
    inner = next((stage for stage in parts if stage.name == "interleave"), None)
    opened_by = inner or next((stage for stage in parts if stage.name == "map" and not readers), None)
    place = "3" if opened_by is inner else "1"
    threads = 1 if opened_by is None else _setting(opened_by, place, "num_parallel_calls") or 1
    buffer = _setting(readers[0], "2", "buffer_size") if readers else None
    return Pipeline(
        _READERS[readers[0].name] if readers else "",
        next((stage.files for stage in [*parts, *readers] if stage.files), []),
        size,
        any(_setting(stage, "1", "drop_remainder") for stage in parts if stage.name == "batch"),
        None if inner is None else _setting(inner, "1", "cycle_length") or None,
        threads if threads > 0 else None,
        _ahead(ahead, shuffled, size),
        buffer or TENSORFLOW_BUFFER,
        _repeats(parts),
        _shuffles_files(parts[:opening]),
        max(filter(None, shuffled), default=0),
        any(stage.name == "cache" for stage in parts[opening:]),
        any(stage.settings.get("filename", stage.settings.get("0")) for stage in parts if stage.name == "cache"),
    )


def _batch(parts: Sequence[PipelineStage]) -> int | None:
    """Return the samples per batch. Nested batch stages multiply. Stages before unbatch() are ignored."""
    sizes: list[int | None] = []
    for stage in parts:
        if stage.name in _BATCHES:
            sizes.append(_setting(stage, "0", "batch_size"))
        elif stage.name == "unbatch":
            sizes.clear()
    known = [size for size in sizes if size is not None]
    return math.prod(known) if known and len(known) == len(sizes) else None


def _setting(stage: PipelineStage, place: str, key: str) -> int | None:
    """Return a setting that is a whole number or a truth value, otherwise None."""
    value = stage.settings.get(key, stage.settings.get(place))
    return value if isinstance(value, int) else None


def _ahead(prefetched: Sequence[Any], shuffled: Sequence[Any], batch: int | None) -> int | None:
    """Return the number of batches that are ready or in a shuffle buffer."""
    if any(count is None or count < 0 for count in [*prefetched, *shuffled]):
        return None
    return sum(map(int, prefetched)) + sum(math.ceil(int(count) / max(batch or 1, 1)) for count in shuffled)


def _repeats(parts: Sequence[PipelineStage]) -> int | None:
    counts = [_setting(stage, "0", "count") for stage in parts if stage.name == "repeat"]
    known = [count for count in counts if count is not None and count >= 0]
    return math.prod(known) if len(known) == len(counts) else None


def _shuffles_files(parts: Sequence[PipelineStage]) -> bool:
    """Return whether the names of files are shuffled. list_files shuffles by default."""
    is_listed = any(stage.name == "list_files" and _setting(stage, "1", "shuffle") is not False for stage in parts)
    return is_listed or any(stage.name == "shuffle" for stage in parts)
