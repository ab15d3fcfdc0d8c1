"""What is shown of a run while it goes on, from what its ranks write."""

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base import serialization
from dlio_hpc.batch import live_runs
from dlio_hpc.batch.job_record import Job, Sighting
from dlio_hpc.batch.job_watch import Watched
from dlio_hpc.batch.live_runs import LiveRun, RunRates, Slowest
from dlio_hpc.cli import live_view
from dlio_hpc.cli.live_view import LiveView
from dlio_hpc.config import site, workload
from dlio_hpc.core import clock
from dlio_hpc.core.distributions import BYTES, COMPUTED, READY, STARTED, SYNCED
from dlio_hpc.core.live_writer import LiveWriter
from dlio_hpc.core.merge import Host
from dlio_hpc.core.progress import Progress
from dlio_hpc.documents.jobs import LiveDocument
from dlio_hpc.files import filesystem, rundir
from dlio_hpc.plan import packing, study
from dlio_hpc.plan.mix import MixKeys
from dlio_hpc.results import live_state
from dlio_hpc.results.live_state import RankState
from tests.conftest import Run

_HOSTS = [Host("a", "1"), Host("b", "2"), Host("a", "1")]
# Three ranks that have done different numbers of steps. Rank 1 never waits for the others.
_STEPS = (
    RankState(0, "a", 1000.0, "steps", 7, 20, "steps", 1, 2, 10.0, 700, 3.0, 4.0, 3.0, 100, 500),
    RankState(1, "b", 1000.5, "steps", 6, 20, "steps", 1, 2, 12.0, 600, 6.0, 4.0, 0.0, 50, 400),
    RankState(2, "a", 1000.2, "checkpoint", 8, 20, "steps", 1, 2, 11.0, 800, 1.0, 4.0, 5.0, 0, 100),
)


def _job(folder: Path, states: tuple[RankState, ...], run: str = "01-measure") -> Path:
    live = folder / rundir.RUNS / run / rundir.LIVE
    live.mkdir(parents=True)
    for host in {state.host for state in states}:
        mine = [state for state in states if state.host == host]
        path = live / live_state.file_name(mine[0].rank)
        path.write_bytes(b"".join(live_state.line(state) for state in mine))
    return folder


def _of(folder: Path) -> LiveRun:
    run = live_runs.of(folder)
    assert run is not None
    return run


def test_a_run_is_as_far_as_its_last_rank(tmp_path: Path) -> None:
    run = _of(_job(tmp_path, _STEPS))
    assert (run.name, run.number, run.runs, run.ranks) == ("01-measure", 0, 0, 3), "there is no plan"
    assert (run.done, run.total, run.unit, run.epoch, run.epochs, run.phase) == (6, 20, "steps", 1, 2, "steps")
    assert (run.bytes, run.elapsed_s, run.newest) == (2100, 12.0, 1000.5)
    assert (run.wait, run.compute, run.sync) == pytest.approx((10 / 30, 12 / 30, 8 / 30))
    assert run.from_storage == pytest.approx(150 / 1000)
    assert run.slowest == Slowest(1, "b", 8 / 20), "ranks 0 and 2 wait 8 s of their 20 s"
    assert run.mean_rate == pytest.approx(175)
    assert run.left_s == pytest.approx(12 * 14 / 6)


def test_files_of_all_ranks_are_counted(tmp_path: Path) -> None:
    states = (
        RankState(0, "a", 5.0, "generate", 3, 4, "files", elapsed_s=2.0, bytes=30),
        RankState(1, "b", 6.0, "generate", 1, 3, "files", elapsed_s=3.0, bytes=10),
        RankState(2, "a", 7.0, "generate", 2, 3, "files", elapsed_s=4.0, bytes=20),
    )
    run = _of(_job(tmp_path, states, "00-generate"))
    assert (run.done, run.total, run.bytes, run.epochs, run.wait, run.from_storage) == (6, 10, 60, 0, None, None)
    assert run.slowest == Slowest(1, "b", 1 / 3)
    assert run.mean_rate == pytest.approx(15)


def test_bytes_from_storage_are_unknown_if_a_rank_does_not_know_them(tmp_path: Path) -> None:
    unknown = RankState(3, "c", 1000.0, "steps", 7, 20, "steps", 1, 2, 10.0, asked=100)
    assert _of(_job(tmp_path, (*_STEPS, unknown))).from_storage is None


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    job = _job(tmp_path, _STEPS)
    path = next(job.glob(f"runs/*/live/{live_state.file_name(0)}"))
    path.write_bytes(path.read_bytes()[:-100] + b"\0" * 99 + b"\n\xff{}\n[1]\n")
    assert [state.rank for state in live_state.read(path.parent)] == [0, 1, 2], "blanks end a line"
    path.write_bytes(path.read_bytes()[:700])
    assert [state.rank for state in live_state.read(path.parent)] == [0, 1]
    os.mkfifo(path.with_name("node-7"))
    assert [state.rank for state in live_state.read(path.parent)] == [0, 1], "a pipe does not block"


def test_the_last_run_counts_and_no_state_is_no_run(tmp_path: Path) -> None:
    assert live_runs.of(tmp_path) is None
    _job(tmp_path, _STEPS, "02-measure")
    _job(tmp_path, _STEPS[:1], "10-measure")
    assert _of(tmp_path).name == "10-measure"


def _seen_at(moment: float, count: int, name: str = "01-measure") -> LiveRun:
    return LiveRun(
        name, 2, 3, 3, "steps", 6, 20, "steps", 1, 2, moment, count, 0.25, 0.5, 0.25, None, moment, None
    )  # fmt: skip


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = RunRates()
    assert rates.now is None
    for moment, count in ((0.0, 0), (1.0, 10), (1.5, 99), (2.0, 30), (7.0, 530)):
        rates.add(_seen_at(moment, count))
    assert list(rates.history) == pytest.approx([10, 15, 100]), "a state that is newer by half a second does not count"
    rates.add(_seen_at(8.0, 530))
    assert rates.now == pytest.approx(500 / 6)
    rates.add(_seen_at(9.0, 5, "02-measure"))
    assert rates.now is None, "another run"


class _Steps:
    """Two epochs of three steps, of which four are done: a wait of 1 s, 2 s of compute and 4 s for the other ranks."""

    phase = "evaluation"

    def __init__(self) -> None:
        self.steps, self.done = np.zeros((2, 3, BYTES + 1)), 0
        rows = self.steps.reshape(6, -1)
        for number in range(4):
            begins = 100 + 7 * number
            rows[number, [STARTED, READY, COMPUTED, SYNCED]] = begins, begins + 1, begins + 3, begins + 7
            rows[number, BYTES] = 50

    def from_storage(self) -> tuple[int | None, int]:
        return 40, 150


def test_ranks_write_what_they_have_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [200.0]
    monkeypatch.setattr(clock, "now", lambda: moment[0])
    steps: Any = _Steps()
    writers = [LiveWriter(tmp_path, _HOSTS, rank, Progress("test", speaks=False)) for rank in range(3)]
    for writer in writers:
        writer.watch(steps)
    for done in (1, 4):
        steps.done = done
        for writer in writers:
            writer.look()
        moment[0] += 0.5
        for writer in writers:
            writer.look()  # not due
        moment[0] += 0.5
    states = live_state.read(tmp_path)
    assert [(state.rank, state.host) for state in states] == [(0, "a"), (1, "b"), (2, "a")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node-0", "node-1"]
    first = states[0]
    assert (first.done, first.total, first.unit, first.epoch, first.epochs) == (4, 6, "steps", 2, 2)
    assert (first.wait_s, first.compute_s, first.sync_s, first.bytes) == (4.0, 8.0, 16.0, 200)
    assert (first.elapsed_s, first.phase, first.arrived, first.asked) == (101.0, "evaluation", 40, 150)
    for writer in writers:
        writer.close()
    assert [writer._file for writer in writers] == [-1] * 3


def test_a_run_does_not_depend_on_its_state(tmp_path: Path) -> None:
    writer = LiveWriter(tmp_path / "missing", _HOSTS, 0, Progress("test", speaks=False))
    writer.look()
    (tmp_path / "missing").mkdir()
    writer.look()
    assert live_state.read(tmp_path / "missing") == [], "the first failure is the last attempt"
    writer.close()


def test_many_nodes_write_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [0.0]
    monkeypatch.setattr(clock, "now", lambda: moment[0])
    hosts = [Host(f"n{number}", str(number)) for number in range(640)]
    writer = LiveWriter(tmp_path, hosts, 639, Progress("test", speaks=False))
    written = []
    monkeypatch.setattr(LiveWriter, "_write", lambda _self, _line: written.append(moment[0]))
    for second in range(25):
        moment[0] = float(second + 1)
        writer.look()
    assert written == [1.0, 11.0, 21.0], "64 files a second"


def test_pages_are_written_where_others_would_not_see_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    for kind, count in (("ext4", 0), ("nfs", 1)):
        monkeypatch.setattr(filesystem, "of", lambda _path, kind=kind: type("On", (), {"kind": kind}))
        for rank in range(3):
            writer = LiveWriter(tmp_path, _HOSTS[:1] * 3, rank, Progress("test", speaks=False))
            writer.look()
            writer.close()
        assert len(synced) == count, "one rank of the node"


def _watched(folder: Path, name: str, state: str, run: LiveRun | None) -> Watched:
    sightings = (Sighting(state, "2026-11-28T02:00:00Z"),)  # type: ignore[arg-type]
    job = Job(name, name, "local", "local", "here", "sh job.sh", "7", sightings)
    return Watched(folder / name, job, None, None, False, live=run)


def test_the_screen_has_the_width_and_height_of_the_terminal(tmp_path: Path) -> None:
    for is_ascii in (True, False):
        view = LiveView(is_ascii)
        run = structs.replace(_of(_job(tmp_path / str(is_ascii), _STEPS)), number=2, runs=3)
        jobs = [_watched(tmp_path, f"{'long' * 12}-{number}\x1b[31m", "running", run) for number in range(4)]
        jobs += [_watched(tmp_path, "done", "completed", None), _watched(tmp_path, "next", "queued", None)]
        for moment in range(60):
            for watched in jobs:
                view.add(watched._replace(live=structs.replace(run, newest=2000.0 + moment, bytes=moment * 50_000_000)))
        for width in (80, 120):
            lines = view.screen(jobs[::-1], width, 50)
            assert max(map(len, lines)) <= width
            assert lines[-2:] == ["next  queued", "done  completed"]
            assert "\x1b" not in "".join(lines)
            assert all(text.isascii() for text in lines) is is_ascii
        lines = view.screen(jobs, 80, 15)
        assert len(lines) <= 14
        assert lines[-1] == "and 4 more jobs"


def test_a_line_has_all_that_the_screen_has(tmp_path: Path) -> None:
    run = structs.replace(_of(_job(tmp_path, _STEPS)), number=2, runs=3, bytes=2_100_000_000)
    view = LiveView(is_ascii=True)
    watched = _watched(tmp_path, "job", "running", run)
    view.add(watched)
    view.add(watched._replace(live=structs.replace(run, newest=1002.5, bytes=2_900_000_000)))
    assert view.line(watched) == (
        "job: run 2 of 3: 01-measure, 6 of 20 steps, epoch 1 of 2, about 28 s left, read 175 MB/s so far, "
        "400 MB/s now, wait 33%, compute 40%, sync 27%, slowest: rank 1 (b), others wait for it 40% of the time, "
        "15% of bytes came from storage so far"
    )


@pytest.mark.job
def test_a_job_is_shown_while_it_runs(run: Run, tmp_path: Path) -> None:
    keys = ("-S", "dataset.files=6", "-S", "compute.time=0.2", "-S", "train.epochs=2", "-S", "reader.batch_size=1")
    assert run("dlio-submit", "demo", "-s", "local", "--ppn", "2", *keys).code == 0
    shown = run("dlio-hpc", "top", "--json", "--every", "0.2")
    assert shown.code == 0
    documents = [msgspec.json.decode(line, type=LiveDocument) for line in shown.out.splitlines()]
    assert documents[-1].state == "completed"
    assert documents[-1].run is None
    runs = [document.run for document in documents if document.run is not None]
    measured = [one for one in runs if one.name.endswith("measure") and one.done]
    assert measured, "the run takes seconds"
    assert {one.ranks for one in measured} == {2}
    assert [one.done for one in measured] == sorted(one.done for one in measured)
    assert all(one.bytes > 0 and one.wait is not None and one.elapsed_s > 0 for one in measured)
    assert list(tmp_path.glob("dlio-runs/*/runs/*/live")) == []
    again = run("dlio-hpc", "top")
    assert (again.code, again.out) == (0, "")
    assert "no job of dlio-runs waits or runs" in again.err


@pytest.mark.parametrize("content", [
    '{"rank": 0, "host": "n1", "time": 1e300, "phase": "steps", "done": 1, "total": 2, "unit": "steps"}',
    '{"rank": 0, "host": "n1", "time": 1, "phase": "steps", "done": 1000000000000000, "total": 1, "unit": "steps"}',
    '{"rank": 0, "host": "n1", "time": 1, "phase": "steps", "done": -1, "total": 1, "unit": "steps"}',
    '{"rank": 0, "host": "n1\\nGood: all", "time": 1, "phase": "steps", "done": 1, "total": 2, "unit": "steps"}',
    '{"rank": 0, "host": "n1", "time": 1, "phase": "steps", "done": 1, "total": 2, "unit": "steps\\nGood: "}',
])  # fmt: skip
def test_a_state_that_no_rank_wrote_is_left_out(tmp_path: Path, content: str) -> None:
    for name in ("old-01", "00-generate", "x"):
        folder = tmp_path / "runs" / name / "live"
        folder.mkdir(parents=True)
        (folder / "node-0").write_text(content + "\n")
    assert live_runs.of(tmp_path) is None


@pytest.mark.parametrize("until", ["first", "last"])
def test_a_load_that_starts_again_has_no_end(tmp_path: Path, until: Any) -> None:
    machine = structs.replace(site.load("local"), ranks_per_node=2)
    parts = [
        study.PartRequest(workload.draft(name, ()), machine, name=name, mix="busy", share=0.5)
        for name in ("demo", "metadata_own")
    ]
    request = study.JobRequest(tmp_path / "runs", data=tmp_path / "data", seed=1)
    (plan,) = packing.plans(study.make("mixed", parts, request, study.About(mixes=MixKeys(until=until))))
    (tmp_path / rundir.PLAN).write_bytes(serialization.encode(plan))
    load = plan.runs[-1]
    shown = _of(_job(tmp_path, _STEPS, rundir.run_name(load.number, load.name)))
    assert (shown.total, shown.epochs) == ((20, 2) if until == "first" else (0, 1))
    assert (shown.left_s is None) == (until == "last")
    texts = list(live_view._counts(shown))
    assert texts[0] == ("6 of 20 steps" if until == "first" else "6 steps so far")
    assert live_runs._planned(tmp_path / "absent") == {}
