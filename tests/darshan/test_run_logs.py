"""Darshan's logs of worker processes, beside the log of the ranks."""

import os
from pathlib import Path

import numpy as np
import pytest

from dlio_hpc.base.units import Size
from dlio_hpc.config import site, workload
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Train, Workload
from dlio_hpc.core import darshan_workers
from dlio_hpc.darshan import log_faults, run_logs
from dlio_hpc.dataset import rank_shares
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.files import rundir
from dlio_hpc.plan import darshan_needs
from tests.support import planning
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced

_STARTED = 1_700_000_000.0


def _logs(folder: Path) -> Path:
    """Write a log of two ranks, and the logs of a worker of each. Return the path of the first."""
    (folder / rundir.WORKERS).mkdir()
    path = folder / "job.darshan"
    darshanlog.write(path, 2, [Traced("/d/saved", 1, writes=[(0, 7, 1.0, 1.5)])], started=_STARTED)
    for rank, reads in enumerate(([(0, 10, 0.5, 0.75)], [(10, 20, 0.25, 0.5), (30, 20, 0.5, 0.75)])):
        worker = folder / rundir.WORKERS / f"rank-{rank}-epoch-1-worker-0.darshan"
        darshanlog.write(worker, 1, [Traced("/d/0", 0, reads)], started=_STARTED + 2)
    (folder / rundir.WORKERS / "rank-0-unnamed").write_bytes(b"of a worker that never began")
    return path


def test_workers_belong_to_their_ranks(tmp_path: Path) -> None:
    log = run_logs.load(_logs(tmp_path))
    assert (log.workers, log.job.ranks, log.faults) == (2, 2, [])
    records = log.counted["POSIX"]
    rows = {(log.names[number], rank): read for number, rank, read in records[["id", "rank", "BYTES_READ"]].tolist()}
    assert rows == {("/d/saved", 1): 0, ("/d/0", 0): 10, ("/d/0", 1): 40}
    segments = log.traced["DXT_POSIX"].segments
    assert segments["start"].tolist() == [1.0, 2.5, 2.25, 2.5]
    assert segments["process"].tolist() == [0, 1, 1, 1]
    assert log_faults.judge(log, log_faults.Expected(2, _STARTED - 1, _STARTED + 20, 2)) == []


def test_every_worker_must_have_left_a_log(tmp_path: Path) -> None:
    log = run_logs.load(_logs(tmp_path))
    (fault,) = log_faults.judge(log, log_faults.Expected(2, workers=3))
    assert str(fault).startswith("workers missing: 2 of 3 worker processes left a log")
    assert not log_faults.has_whole_counters([fault])


def test_a_worker_log_of_several_processes_is_a_fault(tmp_path: Path) -> None:
    path = _logs(tmp_path)
    darshanlog.write(tmp_path / rundir.WORKERS / "rank-1-epoch-1-worker-1.darshan", 2, [], started=_STARTED)
    assert [fault.name for fault in run_logs.load(path).faults] == ["rank count"]


def _workload(**keys: object) -> Workload:
    reader = Reader(**({"loader": "pytorch", "read_threads": 2, "multiprocessing_context": "spawn"} | keys))  # type: ignore[arg-type]
    return Workload("w", Dataset("npz", 8, 8, Sample(bytes=Size(100))), reader=reader, train=Train(epochs=3))


def test_variables_are_those_of_workers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darshan_workers, "is_watched", lambda: True)
    for name in ("DARSHAN_ENABLE_NONMPI", "DARSHAN_APP_EXCLUDE", "DARSHAN_APP_INCLUDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DARSHAN_LOGFILE", str(tmp_path / "job.darshan"))
    monkeypatch.setenv("LD_PRELOAD", "/opt/a.so:/opt/libdarshan.so:/opt/b.so")
    before = dict(os.environ)
    logs = darshan_workers.of_rank(3, _workload())
    assert logs is not None
    with logs.recorded():
        assert os.environ["DARSHAN_ENABLE_NONMPI"] == "1"
        assert os.environ["DARSHAN_LOGFILE"] != before["DARSHAN_LOGFILE"], "which only the ranks write"
    assert dict(os.environ) == before
    logs.named(2)(1)
    assert os.environ["DARSHAN_LOGFILE"] == str(tmp_path / "workers/rank-3-epoch-2-worker-1.darshan")
    assert os.environ["LD_PRELOAD"] == "/opt/a.so:/opt/b.so"


@pytest.mark.parametrize("keys", [{"multiprocessing_context": "fork"}, {"prefetch": 0, "read_threads": 1}], ids=str)
def test_others_have_no_logs_of_workers(monkeypatch: pytest.MonkeyPatch, keys: dict[str, object]) -> None:
    monkeypatch.setattr(darshan_workers, "is_watched", lambda: True)
    monkeypatch.setenv("DARSHAN_LOGFILE", "/nowhere/job.darshan")
    assert darshan_workers.of_rank(0, _workload(**keys)) is None


@pytest.mark.parametrize("shuffle", ["{}", "{files: true, samples: true}"])
@pytest.mark.parametrize(("files", "per_file"), [(40, 60), (2000, 1), (1, 3000)])
def test_a_trace_has_room_for_all_that_a_worker_reads(files: int, per_file: int, shuffle: str) -> None:
    """Darshan reserves 64 requests for a file and doubles that as needed; a worker reads every second batch."""
    keys = (
        f"dataset={{format: npz, files: {files}, samples_per_file: {per_file}, sample: {{bytes: 2000}}}}",
        f"reader={{loader: pytorch, read_threads: 2, batch_size: 3, shuffle: {shuffle}}}",
        "reader.multiprocessing_context=spawn", "reader.transfer_size=100", "train.epochs=3",
    )  # fmt: skip
    request = planning.Request(runs=Path("/r"), data=Path("/d"), ranks_per_node=2, generate="never")
    (made,) = planning.plans(workload.load("demo", keys), site.load("local"), request)
    run = made.runs[0]
    need = darshan_needs.memory(made, run)
    assert need.trace_kib == need.wanted_kib < darshan_needs.most_trace_kib(made)
    first, last = rank_shares.positions(run.workload, 2, 0, 2)
    samples = Order(run.workload.dataset, run.workload.reader, 0, 0, 2).samples(first, last)
    mine = samples[np.arange(len(samples)) // 3 % 2 == 0]
    requests = np.bincount((mine // np.uint64(per_file)).astype(int)) * 20
    touched = requests[requests > 0].tolist()
    assert sum(104 + 40 * max(64, 1 << (count - 1).bit_length()) for count in touched) <= need.wanted_kib << 10
    assert len(touched) <= need.records


def test_the_plan_knows_how_many_workers_leave_a_log() -> None:
    assert darshan_needs.worker_logs(_workload(), 4, 3) == 24
    assert darshan_needs.worker_logs(_workload(load="memory"), 4, 3) == 8
    assert darshan_needs.worker_logs(_workload(prefetch=0, read_threads=1), 4, 3) == 0
    local = site.load("local")
    assert darshan_needs.hidden(local, _workload(), 4) is None
    why, remedy = darshan_needs.hidden(local, _workload(), 1000) or ("", "")
    assert "6000 logs are more than 4096" in why
    assert "reader.prefetch: 0" in remedy
