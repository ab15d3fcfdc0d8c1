"""Verdicts on the Darshan log of a run, from logs whose bytes are known, and counts that are written out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.config import site, workload
from dlio_hpc.darshan import clock_alignment, run_check, run_logs, setup
from dlio_hpc.darshan.verdict_file import Bytes, LogVerdict
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan, Run
from dlio_hpc.results import run_result
from tests.support import planning, recordings
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced

_BEGIN = 1_700_000_000.0
# Two ranks read two of four files each, three samples of 1,000 bytes a file, in two epochs.
_KEYS = (
    "dataset={format: raw, files: 4, samples_per_file: 3, sample: {bytes: 1000}}",
    "reader={batch_size: 1, read_threads: 1, shuffle: {files: false, samples: false}}",
    "train.epochs=2", "compute.time=0", "checkpoint=null",
)  # fmt: skip
_COUNTED = (12_000, 12_000)


class _Job:
    """The directory of a job whose measured run has left a result, a timeline and a log."""

    def __init__(self, folder: Path, *keys: str) -> None:
        request = planning.Request(folder, data=folder / "data", walltime=units.walltime("10m"), ranks_per_node=2)
        self.folder = folder
        self.plan: Plan = planning.make(workload.load("demo", (*_KEYS, *keys)), site.load("local"), request)
        self.run: Run = self.plan.runs[-1]
        recordings.leave(folder, self.plan, recordings.merged(self.plan))
        self.at = rundir.run_directory(folder, self.run.number, self.run.name)
        (self.at / rundir.DARSHAN).mkdir()
        self.result(started="2023-11-14T22:13:20Z", ended="2023-11-14T22:13:40Z")
        self.steps(12, planned=12)
        self.timeline(_COUNTED)

    def result(self, **changes: Any) -> None:
        path = self.at / rundir.RESULT
        known = run_result.decode(path.read_bytes(), str(path))
        run_result.write(path, structs.replace(known, **changes))

    def steps(self, done: int, planned: int) -> None:
        known = run_result.decode((self.at / rundir.RESULT).read_bytes(), "result").summary
        assert known is not None
        self.result(summary=structs.replace(known, steps=done, steps_planned=planned))

    def timeline(self, counted: Sequence[int], overhead: Sequence[int] = (0, 0)) -> None:
        with h5py.File(self.at / rundir.TIMELINE, "w") as file:
            file["ranks/bytes_read"], file["ranks/overhead_bytes"] = counted, overhead

    def traces(self) -> list[Traced]:
        """Return the reads of both ranks: rank 0 reads files 0 and 1, rank 1 reads files 2 and 3."""
        reads = [(1000 * (read % 3), 1000, 1.0 + read, 1.5 + read) for read in range(6)]
        return [
            Traced(dataset_folder.file_path(self.run.stored, number), number // 2, reads=list(reads))
            for number in range(4)
        ]

    def log(self, traces: list[Traced], **settings: Any) -> None:
        darshanlog.write(self.at / rundir.DARSHAN / "job.darshan", 2, traces, started=_BEGIN, seconds=20.0, **settings)

    def judged(self) -> LogVerdict:
        return run_check.judge(self.folder, self.plan, self.run)


@pytest.fixture
def job(tmp_path: Path) -> _Job:
    return _Job(tmp_path)


def test_a_log_that_agrees_with_ranks_and_plan(job: _Job) -> None:
    job.log(job.traces())
    verdict = job.judged()
    assert (verdict.log, verdict.faults, verdict.differences) == ("job.darshan", (), ())
    assert verdict.bytes == Bytes(24_000, 24_000, 24_000)
    assert verdict.clock_error_s is None, "no marker was read"


def test_the_newest_attempts_log_counts(job: _Job) -> None:
    job.log(job.traces())
    darshanlog.write(job.at / rundir.DARSHAN / "a.darshan", 2, job.traces()[:1], started=_BEGIN, seconds=20.0)
    assert job.judged().bytes == Bytes(24_000, 24_000, 24_000)


def test_a_rank_and_a_file_with_too_few_bytes_are_named(job: _Job) -> None:
    traces = job.traces()
    traces[3] = traces[3]._replace(reads=traces[3].reads[:5])
    job.log(traces)
    (difference,) = job.judged().differences
    name = dataset_folder.file_path(job.run.stored, 3).rpartition("/")[2]
    assert difference == (
        "rank 1: Darshan recorded 11000 bytes, but the rank counted 12000; "
        f"Darshan recorded 5000 bytes of {name}, but 6000 were planned"
    )


def test_a_byte_more_or_less_than_the_rank_counted_is_a_difference(job: _Job) -> None:
    job.log(job.traces())
    for counted in (11_999, 12_001):
        job.timeline((12_000, counted))
        assert job.judged().differences == (
            f"rank 1: Darshan recorded 12000 bytes, but the rank counted {counted}",
        )  # fmt: skip
    job.timeline((11_000, 11_500), overhead=(1000, 500))
    assert job.judged().differences == (), "overhead is read, too"


def test_a_file_that_nobody_missed_is_named(job: _Job) -> None:
    """The ranks counted what Darshan recorded, but a file of the plan was not read."""
    job.log(job.traces()[:3])
    job.timeline((12_000, 6000))
    name = dataset_folder.file_path(job.run.stored, 3).rpartition("/")[2]
    assert job.judged().differences == (f"rank 1: Darshan recorded 0 bytes of {name}, but 6000 were planned",)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_file_that_a_library_keeps_in_memory_may_be_read_less(tmp_path: Path, keeps: bool) -> None:
    """HDF5 keeps chunks of a file that stays open from epoch to epoch."""
    job = _Job(
        tmp_path,
        "dataset.format=hdf5",
        "dataset.chunk=1000",
        "reader.mode=framework",
        f"reader.keep_open={str(keeps).lower()}",
    )
    traces = job.traces()
    traces[3] = traces[3]._replace(reads=traces[3].reads[:5])
    job.log(traces)
    job.timeline((12_000, 11_000))
    assert len(job.judged().differences) == (0 if keeps else 1)


def test_a_run_that_stopped_early_may_have_read_more_than_it_used(job: _Job) -> None:
    job.steps(3, planned=12)
    job.log(job.traces())
    job.timeline((6000, 11_000))
    verdict = job.judged()
    assert (verdict.differences, verdict.bytes) == ((), Bytes(24_000, 17_000, None))
    job.timeline((12_001, 11_000))
    (difference,) = job.judged().differences
    assert difference == "rank 0: Darshan recorded 12000 bytes, but the rank counted 12001"


@pytest.mark.parametrize(
    ("keys", "tolerated"),
    [
        (("reader.loader=native",), 0),
        (("dataset.format=hdf5",), 4096),
        (("reader.mode=framework",), 4096),
        (("reader.mode=framework", "reader.loader=tensorflow"), 120 + (1 << 20)),
        (("dataset.format=hdf5", "reader.access=collective"), 0),
        (("dataset.format=hdf5", "reader.access=collective", "reader.mode=framework"), np.iinfo(np.int64).max),
    ],
)
def test_how_far_counts_may_differ(tmp_path: Path, keys: tuple[str, ...], tolerated: int) -> None:
    one_file = (
        ("dataset.files=1", "dataset.samples_per_file=12", "dataset.file_access=shared")
        if "reader.access=collective" in keys
        else ()
    )
    run = _Job(tmp_path, *one_file, *keys).run
    assert run_check._tolerance(run, np.array([12_000, 12_099])).tolist() == [tolerated] * 2


def test_files_that_tensorflows_threads_open_may_be_lost(tmp_path: Path) -> None:
    job = _Job(tmp_path, "dataset.format=npz", "reader.loader=tensorflow", "reader.read_threads=2")
    job.log(job.traces()[:3])
    job.timeline((60_000, 60_000))
    verdict = job.judged()
    assert verdict.differences == ()
    assert {fault.name for fault in verdict.faults} == {"counters disagree"}
    assert run_check._may_lose_files(job.run)
    assert not run_check._may_lose_files(_Job(tmp_path / "one", "reader.loader=tensorflow").run)


def test_generated_bytes(job: _Job) -> None:
    """Fewer bytes than the samples have are a difference; more are not."""
    generate = job.plan.runs[0]
    generated = run_result.Generated(False, job.run.dataset, 4, 12_000, 1.0, 0.012)
    folder = rundir.run_directory(job.folder, generate.number, generate.name)
    folder.mkdir(parents=True)
    (folder / rundir.DARSHAN).mkdir()
    known = run_result.decode((job.at / rundir.RESULT).read_bytes(), "result")
    for length, differences in ((3000, 0), (2999, 1), (3100, 0)):
        traces = [trace._replace(reads=[], writes=[(0, length, 1.0, 2.0)]) for trace in job.traces()]
        run_result.write(folder / rundir.RESULT, structs.replace(known, summary=None, generated=generated))
        darshanlog.write(folder / rundir.DARSHAN / "job.darshan", 2, traces, started=_BEGIN, seconds=20.0)
        verdict = run_check.judge(job.folder, job.plan, generate)
        assert (len(verdict.differences), verdict.bytes) == (differences, Bytes(4 * length, 12_000, 12_000))
    assert verdict.differences == ()
    reused = structs.replace(generated, reused=True)
    run_result.write(folder / rundir.RESULT, structs.replace(known, summary=None, generated=reused))
    assert run_check.judge(job.folder, job.plan, generate).bytes is None


def test_a_log_without_a_result_or_of_another_time(job: _Job) -> None:
    job.log(job.traces())
    job.result(started="2023-11-14T23:13:20Z", ended="2023-11-14T23:13:40Z")
    assert job.judged().faults
    (job.at / rundir.RESULT).unlink()
    verdict = job.judged()
    assert (verdict.bytes, verdict.faults, verdict.library) == (None, (), "3.5.0")
    (job.at / rundir.DARSHAN / "job.darshan").write_bytes(b"no log")
    assert [fault.name for fault in job.judged().faults] == ["unreadable"]


def test_why_there_is_no_log(job: _Job) -> None:
    assert job.judged() == LogVerdict(None, "the ranks left no log")
    (job.folder / rundir.STDERR).touch()
    assert job.judged().why_not == "the ranks left no log"
    (job.folder / rundir.STDERR).write_text("a word\n")
    assert job.judged().why_not == f"the ranks left no log; see {rundir.STDERR}"
    live = job.at / rundir.DARSHAN / rundir.LIVE
    live.mkdir()
    for number in range(3):
        (live / f"{number}").touch()
    assert "counters of 3 processes are kept" in (job.judged().why_not or "")


def _marked(job: _Job, instants: Any) -> None:
    with h5py.File(job.at / rundir.TIMELINE, "a") as file:
        group = file.create_group(clock_alignment.GROUP)
        group["instants"] = instants
        group.attrs["path"] = "/job/marker"


def test_clocks_are_aligned_by_the_marker(job: _Job) -> None:
    """Rank 0's Darshan began at 100 s of the timeline's clock, rank 1's at 200 s. A mark bounds each offset."""
    length = setup.MARKER_BYTES
    traces = [
        Traced("/job/marker", 0, [(0, length, 9.0, 9.5), (0, length, 1.0, 1.25)], [(0, length, 0.0, 0.5)]),
        Traced("/job/marker", 1, [(0, 55, 0.5, 0.75), (0, length, 2.0, 2.5), (0, length, 8.0, 8.25)]),
    ]
    _marked(job, [[(100.9, 101.45), (108.75, 109.6)], [(201.75, 202.75), (207.5, 208.45)]])
    job.log([*job.traces(), *traces])
    # Rank 0: from 100.9 - 1.0 to 109.6 - 9.5. Rank 1: from 201.75 - 2.0 to 208.45 - 8.25.
    log = run_logs.load(job.at / rundir.DARSHAN / "job.darshan")
    with h5py.File(job.at / rundir.TIMELINE) as file:
        marks = clock_alignment.read(file)
    aligned = clock_alignment.align(log, marks)
    assert aligned is not None
    assert aligned.offset_s == pytest.approx([100.0, 199.975])
    assert aligned.error_s == pytest.approx([0.1, 0.225])
    assert job.judged().clock_error_s == pytest.approx(0.225)
    assert clock_alignment.align(log, None) is None
    assert clock_alignment.align(log._replace(workers=1), marks) is None
    assert clock_alignment.align(log._replace(traced={}), marks) is None
    for shape in ((2, 3, 2), (3, 2, 2)):  # a mark or a rank is missing
        assert clock_alignment.align(log, clock_alignment.Marks(np.zeros(shape), "/job/marker")) is None
