"""The requests that a workload is predicted to make are those that it makes, and their traits tell orders apart."""

from pathlib import Path

import numpy as np
import pytest

from dlio_hpc.analysis.log import requests as requests_of
from dlio_hpc.base import serialization, units
from dlio_hpc.config import site
from dlio_hpc.config import workload as workloads
from dlio_hpc.darshan import log_reader
from dlio_hpc.files import rundir
from dlio_hpc.programs.characterize import candidates, prediction, traits
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.characterize.prediction import Integers, RequestColumns
from dlio_hpc.programs.files import extents
from tests.support import planning, straced

_SMALL = (
    "dataset.files=5", "dataset.samples_per_file=12", "dataset.sample={bytes: 40000}", "reader.batch_size=4",
    "reader.shuffle={}", "reader.read_threads=1", "reader.prefetch=0", "train.epochs=1", "compute.time=0",
)  # fmt: skip
# Smallest request for samples, which is larger than any for headers.
_LEAST = 5000
_SHUFFLED = ("reader.shuffle.files=true", "reader.shuffle.samples=true")


@pytest.mark.strace
@pytest.mark.job
@pytest.mark.parametrize(
    "settings",
    [
        ("dataset.format=raw",),
        ("dataset.format=raw", "reader.transfer_size=10000", *_SHUFFLED),
        ("dataset.format=npz", "reader.interleave=2"),
        ("dataset.format=npz", "dataset.arrays=[10000, 30000]", "reader.array_order=[1, 0]"),
        ("dataset.format=hdf5", "dataset.arrays=[10000, 25000, 5000]", "reader.array_order=[1, 2, 0]"),
        ("dataset.format=tfrecord", "reader.mode=framework", "reader.transfer_size=65536"),
        ("dataset.format=hdf5", "dataset.chunk=20000", "reader.mode=framework", "reader.shuffle.samples=true"),
        ("dataset.format=hdf5", "dataset.sample={bytes: 10000}", "reader.mode=framework"),
        ("dataset.format=hdf5", "dataset.sample={bytes: 10000}", "reader.mode=framework", _SHUFFLED[1]),
        ("dataset.format=hdf5", "dataset.arrays=[10000, 30000]", "reader.mode=framework", *_SHUFFLED),
        ("dataset.format=hdf5", "dataset.arrays=[20000, 20000]", "reader.mode=framework", "reader.by_array=true"),
        ("dataset.format=npz", "dataset.arrays=[10000, 30000]", "reader.by_array=true", _SHUFFLED[1]),
        ("dataset.format=raw", "reader.reopen=true", *_SHUFFLED),
        ("dataset.format=hdf5", "dataset.sample={bytes: 10000}", "reader.mode=framework", "reader.reopen=true"),
        ("dataset.format=hdf5", "dataset.chunk=80000", "reader.mode=framework", "reader.reopen=true"),
        ("dataset.format=hdf5", "dataset.arrays=[10000, 30000]", "reader.mode=framework", "reader.reopen=true"),
        ("dataset.format=raw", "reader.shuffle.block=5", _SHUFFLED[1]),
    ],
)
def test_predicted_requests_are_those_that_are_made(settings: tuple[str, ...], tmp_path: Path) -> None:
    straced.needed()
    workload = workloads.load("demo", (*_SMALL, *settings))
    request = planning.Request(tmp_path, data=tmp_path / "data", walltime=units.walltime("1h"), ranks_per_node=2)
    plan = planning.make(workload, site.load("local"), request)
    (tmp_path / rundir.PLAN).write_bytes(serialization.encode(plan))
    *before, last = plan.runs
    for run in before:
        straced.core(tmp_path, 2, run.number)
    straced.core(tmp_path, 2, last.number, tmp_path / "run.darshan")
    log = log_reader.load(tmp_path / "run.darshan")
    made = requests_of.of_log(log, "DXT_POSIX", lambda path: Path(path).stem.isdigit(), None)
    paths = sorted(path for path in made.paths if Path(path).stem.isdigit())
    reads = extents.reads_of(made, dict.fromkeys(paths, 1 << 30))
    is_varied = workload.dataset.sample.bytes == 10_000 or workload.dataset.arrays is not None
    reads = extents.chosen(reads, reads.length >= _LEAST) if is_varied else extents.payload(reads, True)
    for rank in (0, 1):
        (expected,) = prediction.of_epoch(workload, 2, rank, 0, 10_000)
        mine = reads.rank == rank
        assert reads.length[mine].tolist() == expected.length.tolist()
        assert reads.file[mine].tolist() == expected.file.tolist()


def _read(offset: Integers, size: int = 100) -> RequestColumns:
    return RequestColumns(np.zeros(len(offset), np.int64), offset, np.full(len(offset), size))


def test_two_arrays_read_in_turn_are_in_order() -> None:
    """Images from the front of a file, and their masks from its middle."""
    in_turn = np.stack([np.arange(50) * 100, 10_000 + np.arange(50) * 100], axis=1).reshape(-1)
    shown = traits.of(_read(in_turn))
    assert [shown.forward, shown.run] == pytest.approx([1.0, 1.0])
    shuffled = traits.of(_read(np.random.default_rng(0).permutation(in_turn)))
    assert (shuffled.forward or 1.0) < 0.7


def test_several_passes_in_order_are_in_order() -> None:
    shown = traits.of(_read(np.tile(np.arange(50) * 100, 3)))
    assert shown.forward == pytest.approx(1.0, abs=0.02)
    assert shown.run == pytest.approx(1.0)


def _keys(**changes: object) -> dict[str, DerivedValue]:
    values = {
        "dataset.format": "raw", "dataset.file_access": "multi", "dataset.files": 8, "dataset.samples_per_file": 32,
        "dataset.sample.bytes": 4096, "reader.mode": "posix", "reader.batch_size": 4, "reader.transfer_size": 4096,
        "reader.shard": True, **changes,
    }  # fmt: skip
    return {key: DerivedValue(value, "high", "") for key, value in values.items()}


_UNKNOWN = DerivedValue(None, "unknown", "")


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("samples", [False, True])
def test_the_order_of_a_log_is_recognised(files: bool, samples: bool) -> None:
    settings = {"reader.shuffle.files": files, "reader.shuffle.samples": samples, "reader.shuffle.seed": 5}
    flat = {key: value.value for key, value in _keys().items()} | settings
    workload = candidates._workload(flat)
    logged = [traits.of(columns) for rank in (0, 1) for columns in prediction.of_epoch(workload, 2, rank, 3, 10_000)]
    made = candidates.order(_keys(), _UNKNOWN, logged, 2, False)
    assert (made["reader.shuffle.files"].value, made["reader.shuffle.samples"].value) == (files, samples)
    assert {made[key].confidence for key in ("reader.shuffle.files", "reader.shuffle.samples")} <= {"high", "medium"}


def test_evidence_compares_the_log_with_the_best_two_candidates() -> None:
    workload = candidates._workload({key: value.value for key, value in _keys().items()})
    logged = [traits.of(columns) for columns in prediction.of_epoch(workload, 2, 0, 3, 10_000)]
    in_turn = DerivedValue(None, "high", "every read continues the read before")
    made = candidates.order(_keys(), in_turn, logged, 2, False)
    assert made["reader.interleave"] == in_turn
    assert made["reader.shuffle.samples"].evidence == (
        "share of a file that is read without a step back: 100%, predicted 100%, with true 25%; predicted requests "
        "agree with the log to 1.00, with true to 0.80"
    )


def test_requests_that_no_candidate_explains_have_low_confidence() -> None:
    random = np.random.default_rng(2)
    columns = RequestColumns(random.integers(0, 3, 300), random.integers(0, 10**9, 300), random.integers(1, 10**7, 300))
    made = candidates.order(_keys(), _UNKNOWN, [traits.of(columns)], 1, False)
    assert {value.confidence for value in made.values()} <= {"low", "unknown"}
