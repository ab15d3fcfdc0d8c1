"""A derived value keeps its confidence only if the log tells it from its alternatives."""

from collections.abc import Mapping
from typing import Any

import pytest

from dlio_hpc.programs.characterize import candidates, other_candidates
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.characterize.other_candidates import Observed

_KEYS = {
    "dataset.format": "raw", "dataset.file_access": "multi", "dataset.files": 8, "dataset.samples_per_file": 32,
    "dataset.sample.bytes": 32768, "reader.mode": "posix", "reader.batch_size": 4, "reader.transfer_size": None,
    "reader.shard": True, "reader.read_threads": 2, "reader.load": "on_demand", "train.epochs": 3,
    "reader.shuffle.files": False, "reader.shuffle.samples": False,
}  # fmt: skip
_HDF5 = {"dataset.format": "hdf5", "reader.mode": "framework", "dataset.chunk": 32768}


def _derived(changes: Mapping[str, Any]) -> dict[str, DerivedValue]:
    return {key: DerivedValue(value, "high", "seen") for key, value in {**_KEYS, **changes}.items()}


def _observed(changes: Mapping[str, Any], **others: Any) -> Observed:
    """Return what the log of a program with these keys shows."""
    values = {**_KEYS, **changes}
    program = candidates.predicted(values, 2)
    assert program is not None
    shown = {
        "in_flight": values["reader.read_threads"], "passes": values["train.epochs"], "after": 0.0,
        "has_indexes": "dataset.chunk" in values,
    }  # fmt: skip
    return Observed(program.traits, 2, program.step_bytes, **(shown | others))


def _confidence(changes: Mapping[str, Any], key: str, loads_files: bool = False, **others: Any) -> str:
    made = other_candidates.judged(_derived(changes), _observed(changes, **others), loads_files)
    return made[key].confidence


def test_values_that_a_log_shows_keep_their_confidence() -> None:
    made = other_candidates.judged(_derived({}), _observed({}), False)
    assert {value.confidence for value in made.values()} == {"high"}
    assert set(made) == {
        "dataset.sample.bytes", "dataset.samples_per_file", "reader.batch_size", "reader.read_threads", "reader.load",
    }  # fmt: skip
    assert made["reader.batch_size"].evidence.endswith("bytes of a step: agreement 1.00, with batches of 8 0.50")


@pytest.mark.parametrize(("shuffled", "confidence"), [(False, "low"), (True, "high")])
def test_a_chunk_may_hold_several_samples(shuffled: bool, confidence: str) -> None:
    """In random order, a chunk with several samples is read once for each of them."""
    changes = {**_HDF5, "reader.shuffle.samples": shuffled}
    assert _confidence(changes, "dataset.sample.bytes") == confidence


def test_an_archive_may_hold_several_samples() -> None:
    changes = {"dataset.format": "npz", "reader.mode": "framework", "dataset.samples_per_file": 1}
    assert _confidence(changes, "dataset.samples_per_file", loads_files=True) == "low"
    arrays = {**changes, "dataset.arrays": [32000, 768]}
    assert _confidence(arrays, "dataset.samples_per_file", loads_files=True) == "low"


def test_a_request_may_hold_a_batch() -> None:
    made = other_candidates.judged(_derived({"reader.batch_size": 1}), _observed({"reader.batch_size": 1}), False)
    assert made["dataset.sample.bytes"].confidence == "low"
    assert "a step that reads several samples in a request" in made["dataset.sample.bytes"].evidence


@pytest.mark.parametrize(("shuffled", "confidence"), [(False, "low"), (True, "high")])
def test_pieces_of_a_file_that_a_step_reads_may_be_arrays(shuffled: bool, confidence: str) -> None:
    changes = {"dataset.format": "npz", "dataset.samples_per_file": 32, "reader.batch_size": 32}
    assert _confidence({**changes, "reader.shuffle.samples": shuffled}, "dataset.samples_per_file") == confidence


def test_other_batches_read_other_bytes_in_a_step() -> None:
    """Without steps, no batch is told from another."""
    shown = _observed({})
    for step_bytes in (None, 1.41 * (shown.step_bytes or 0)):
        made = other_candidates.judged(_derived({}), shown._replace(step_bytes=step_bytes), False)
        assert made["reader.batch_size"].confidence == "low"


def test_index_reads_tell_chunks_from_contiguous_data() -> None:
    large = {**_HDF5, "dataset.chunk": 131072, "dataset.sample.bytes": 131072}
    assert _confidence(large, "dataset.chunk") == "high"
    assert _confidence(large, "dataset.chunk", has_indexes=False) == "low"
    small = {**_HDF5, "dataset.chunk": 8192, "dataset.sample.bytes": 8192}
    assert _confidence(small, "dataset.chunk", has_indexes=False) == "high", "contiguous data are read through a buffer"


def test_threads_that_never_overlap_are_not_told_apart() -> None:
    assert _confidence({}, "reader.read_threads") == "high"
    assert _confidence({}, "reader.read_threads", in_flight=None) == "low"


@pytest.mark.parametrize(
    ("load", "epochs", "passes", "after", "confidence"),
    [
        ("on_demand", 3, 3.0, 0.0, "high"),
        ("on_demand", 1, 1.0, 0.0, "high"),
        ("on_demand", 1, 1.0, 0.3, "low"),
        ("memory", 3, 1.0, 0.9, "high"),
        ("memory", 1, 1.0, 0.9, "high"),
    ],
)
def test_passes_and_time_tell_memory_from_demand(
    load: str, epochs: int, passes: float, after: float, confidence: str
) -> None:
    changes = {"reader.load": load, "train.epochs": epochs}
    assert _confidence(changes, "reader.load", passes=passes, after=after) == confidence


def test_an_invalid_workload_has_no_alternatives() -> None:
    """Values that are not allowed together are corrected later (fitting.py). Nothing is said about them here."""
    assert other_candidates.judged(_derived({"dataset.arrays": [1, 2]}), _observed({}), False) == {}


def test_low_confidence_stays() -> None:
    keys = {key: value._replace(confidence="low") for key, value in _derived({}).items()}
    made = other_candidates.judged(keys, _observed({}), False)
    assert {value.confidence for value in made.values()} == {"low"}
    assert made["reader.batch_size"].evidence == "seen"
