"""Time that was not measured is said: stops of the ranks, computation beyond what was asked, and outlying epochs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from dlio_hpc.analysis import disturbance_check
from dlio_hpc.base.errors import Incomplete
from dlio_hpc.batch import job_record, job_state
from dlio_hpc.batch.schedulers import pbs, slurm
from dlio_hpc.config import site, workload
from dlio_hpc.core import clock, interruptions
from dlio_hpc.core.distributions import COMPUTED, READY, STARTED, SYNCED
from dlio_hpc.core.interruptions import Stops, StopWatch
from dlio_hpc.core.merge import Merged
from dlio_hpc.plan.plan import Plan
from dlio_hpc.records import job_outcome
from dlio_hpc.reports import job_banner
from dlio_hpc.results.run_result import Disturbance, Epoch, Interruption, Level, Result
from tests.conftest import Run
from tests.support import planning, recordings

_NOTHING = Stops([], 0.0)


def _plan(folder: Path) -> Plan:
    work = workload.load("demo")
    work = replace(work, train=replace(work.train, epochs=1))
    return planning.make(work, site.load("local"), planning.Request(runs=folder))


def _made(folder: Path, ranks: int = 3) -> Merged:
    merged = recordings.merged(_plan(folder))
    return merged._replace(steps=merged.steps[:ranks], offsets=merged.offsets[:ranks])


def _delayed(merged: Merged, rank: int | slice, step: int, phase: int, seconds: float) -> Merged:
    """Return the recordings with a phase of a step that takes longer, and all that follows later."""
    steps = merged.steps.copy()
    steps[rank, step, phase + 1 : SYNCED + 1] += seconds
    steps[rank, step + 1 :, STARTED : SYNCED + 1] += seconds
    return merged._replace(steps=steps)


def test_a_run_without_a_stop_has_no_interruption(tmp_path: Path) -> None:
    assert interruptions.of_run(_made(tmp_path), 5, [_NOTHING] * 3) == []


def test_computation_beyond_what_was_asked_is_a_stop_if_all_ranks_have_it(tmp_path: Path) -> None:
    made = _made(tmp_path)
    (stop,) = interruptions.of_run(_delayed(made, slice(None), 7, READY, 15.0), 5, [_NOTHING] * 3)
    assert (stop.kind, stop.epoch, stop.step, stop.ranks, stop.asked_s) == ("stopped", 2, 3, 3, 0.05)
    assert stop.seconds == pytest.approx(15.0, abs=0.01)
    (slow,) = interruptions.of_run(_delayed(made, 1, 7, READY, 3.7), 5, [_NOTHING] * 3)
    assert (slow.kind, slow.ranks) == ("compute", 1)
    alone = made._replace(steps=made.steps[:1], offsets=made.offsets[:1])
    (one,) = interruptions.of_run(_delayed(alone, 0, 7, READY, 3.7), 5, [_NOTHING])
    assert one.kind == "compute", "one rank alone does not show whether it was stopped"
    assert interruptions.of_run(_delayed(made, slice(None), 7, READY, 0.4), 5, [_NOTHING] * 3) == []


@pytest.mark.parametrize("phase", [STARTED, READY, COMPUTED])
def test_a_rank_that_was_continued_was_stopped_whatever_it_did(tmp_path: Path, phase: int) -> None:
    made = _made(tmp_path)._replace(offsets=np.array([[100.0], [0.0], [-7.0]]))
    delayed = _delayed(made, slice(None), 4, phase, 2.5)
    moment = float(delayed.steps[2, 4, phase + 1]) - 0.001 + 7.0  # on the clock of rank 2
    (stop,) = interruptions.of_run(delayed, 5, [_NOTHING, _NOTHING, Stops([moment], 0.0)])
    assert (stop.kind, stop.epoch, stop.step) == ("stopped", 1, 5)
    assert stop.seconds == pytest.approx(2.5, abs=0.02)
    if phase != READY:
        assert interruptions.of_run(delayed, 5, [_NOTHING] * 3) == [], "storage may have been slow"
    early = Stops([float(made.steps[2, 1, STARTED]) + 7.01], 0.0)
    assert interruptions.of_run(made, 5, [_NOTHING, _NOTHING, early]) == [], "the signal alone stops nothing"


def test_a_suspended_node_is_an_interruption(tmp_path: Path) -> None:
    (stop,) = interruptions.of_run(_made(tmp_path), 5, [_NOTHING, Stops([], 61.0), _NOTHING])
    assert (stop.kind, stop.seconds, stop.step) == ("suspended", 61.0, 0)
    assert interruptions.of_run(_made(tmp_path), 5, [Stops([], 0.1)] * 3) == []


def test_times_in_which_no_thread_ran_are_interruptions_wherever_they_are(tmp_path: Path) -> None:
    made = _made(tmp_path)
    delayed = _delayed(made, slice(None), 4, STARTED, 2.5)
    within = Stops([], 0.0, [(float(delayed.steps[0, 4, READY]) - 0.001, 2.4)])
    end, first = float(delayed.steps[2, -1, SYNCED]), float(made.steps[2, 0, STARTED])
    after = Stops([], 0.0, [(first - 0.01, 5.0), (end + 9.0, 3.0), (end + 20, 1.5)])
    outside, step = interruptions.of_run(delayed, 5, [within, _NOTHING, after])
    assert (outside.kind, outside.epoch, outside.step, outside.ranks) == ("stopped", 0, 0, 1)
    assert outside.seconds == pytest.approx(4.5)
    assert (step.kind, step.epoch, step.step, step.seconds) == ("stopped", 1, 5, 2.4)


def test_the_heartbeat_notices_when_it_slept_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last late beat is none of a stopped process: other threads used a processor meanwhile."""
    times = iter([10.0, 10.05, 10.11, 13.16, 13.21, 13.8, 16.85])
    used = iter([1.0, 1.05, 1.10, 1.65, 1.7, 1.75, 2.4])
    monkeypatch.setattr(clock, "now", lambda: next(times))
    monkeypatch.setattr(time, "process_time", lambda: next(used))
    monkeypatch.setattr(interruptions, "_waited", lambda: None)
    watch = StopWatch(has_heartbeat=True)
    beats = iter([False] * 6 + [True])
    monkeypatch.setattr(watch._ended, "wait", lambda _: next(beats))
    watch._beat()
    assert [end for end, _ in watch._gaps] == [13.16, 13.8]
    assert [length for _, length in watch._gaps] == pytest.approx([3.0, 0.54])


def test_the_heartbeat_notices_short_stops_but_no_wait_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats are late by 0.3, 0.09, 0.3 and 0.11 s. In the third, the thread waited for a processor for 0.2 s."""
    times, waited = iter([10.0, 10.35, 10.49, 10.84, 11.0]), iter([0.0, 0.0, 0.0, 0.2, 0.24])
    monkeypatch.setattr(clock, "now", lambda: next(times))
    monkeypatch.setattr(time, "process_time", lambda: 1.0)
    monkeypatch.setattr(interruptions, "_waited", lambda: next(waited))
    watch = StopWatch(has_heartbeat=True)
    beats = iter([False] * 4 + [True])
    monkeypatch.setattr(watch._ended, "wait", lambda _: next(beats))
    watch._beat()
    assert [end for end, _ in watch._gaps] == [10.35, 11.0]
    assert [length for _, length in watch._gaps] == pytest.approx([0.3, 0.11])


def test_the_kernel_counts_how_long_a_thread_waits_for_a_processor() -> None:
    """Two threads of a process share a processor: each waits for about half of the time."""
    program = (
        "import os, threading, time\n"
        "from dlio_hpc.core import interruptions\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "if os.fork() == 0:\n"
        "    end = time.time() + 2\n"
        "    while time.time() < end: pass\n"
        "    os._exit(0)\n"
        "before, began = interruptions._waited(), time.monotonic()\n"
        "while time.monotonic() < began + 1: pass\n"
        "print(interruptions._waited() - before)\n"
        "os.wait()\n"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert float(printed) > 0.2


def test_stops_in_a_step_are_added(tmp_path: Path) -> None:
    """Rank 1 was stopped three times in a step, rank 2 once: the step lost the time of rank 1."""
    made = _delayed(_made(tmp_path), slice(None), 4, STARTED, 2.5)
    at = [float(made.steps[rank, 4, READY]) - 1 for rank in range(3)]
    stops = [_NOTHING, Stops([], 0.0, [(at[1], 0.3), (at[1] + 0.001, 0.2), (at[1] + 0.002, 0.15)])]
    (stop,) = interruptions.of_run(made, 5, [*stops, Stops([], 0.0, [(at[2], 0.4)])])
    assert (stop.kind, stop.epoch, stop.step, stop.ranks) == ("stopped", 1, 5, 2)
    assert stop.seconds == pytest.approx(0.65)


def test_the_time_of_all_stops_counts_although_only_the_longest_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruptions, "_MOST", 4)
    made = _made(tmp_path)
    gaps = [(float(ready) - 0.0001, 0.0002) for ready in made.steps[0, :, READY]] * 3
    last = float(made.steps[0, -1, SYNCED])
    listed = interruptions.of_run(made, 5, [Stops([], 0.0, [*gaps, (last + 9, 1.0)]), _NOTHING, _NOTHING])
    assert len(listed) == 4
    assert sum(one.seconds for one in listed) == pytest.approx(1.0 + 0.0006 * len(made.steps[0]))
    assert (listed[-1].kind, listed[-1].step) == ("stopped", 0)


def test_sigcont_is_noted_and_its_handler_restored() -> None:
    before = signal.getsignal(signal.SIGCONT)
    with StopWatch() as watch:
        os.kill(os.getpid(), signal.SIGCONT)
        assert len(watch.stops().continued) == 1
        assert watch.stops().suspended_s == pytest.approx(0.0, abs=0.1)
    assert signal.getsignal(signal.SIGCONT) == before


def _outcome(folder: Path, *listed: Interruption) -> job_outcome.JobOutcome:
    made = _plan(folder)
    recordings.leave(folder / made.job, made, recordings.merged(made))
    outcome = job_outcome.load(folder / made.job)
    runs = [
        run if run.result is None or run.result.summary is None else run._replace(
            result=replace(run.result, summary=replace(run.result.summary, interruptions=list(listed)))
        )
        for run in outcome.runs
    ]  # fmt: skip
    return outcome._replace(runs=runs)


def test_a_stopped_run_is_no_measurement(tmp_path: Path) -> None:
    stop = Interruption("stopped", 2, 3, 15.0, 2)
    outcome = _outcome(tmp_path, stop)
    fault = job_outcome.run_fault(outcome, outcome.runs[-1])
    assert isinstance(fault, Incomplete)
    banner = job_banner.of_jobs([outcome])
    assert banner.state == "not measured"
    assert "its ranks were stopped for 15 s, and its epochs took " in banner.text
    assert "(epoch 2, step 3, 2 ranks stood still)" in banner.text


def test_interruptions_of_less_than_a_hundredth_do_not_matter(tmp_path: Path) -> None:
    wall = _outcome(tmp_path).runs[-1].result
    assert wall is not None
    assert wall.summary is not None
    for share, matters in ((0.009, False), (0.011, True)):
        summary = replace(wall.summary, interruptions=[Interruption("stopped", 1, 1, share * wall.summary.wall_s, 4)])
        assert (disturbance_check.stop(replace(wall, summary=summary)) is not None) == matters


def test_computation_beyond_what_was_asked_makes_a_run_inconclusive(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path, Interruption("compute", 1, 4, 3.7, 1, 0.05))
    (text,) = disturbance_check.remarks(outcome.runs[-1].result)  # type: ignore[arg-type]
    assert "(epoch 1, step 4: 75 x the 50 ms asked, 1 rank)" in text
    assert job_outcome.run_fault(outcome, outcome.runs[-1]) is None


def _result(*walls: float) -> Result:
    made = [Epoch(n, wall, 10, 100, 10**6, wall / 2, wall / 4, wall / 8) for n, wall in enumerate(walls, 1)]
    return Result(
        "01-measure", "measure", "", "", "", 1, 1, 1, None, [], {}, made, None  # type: ignore[arg-type]
    )  # fmt: skip


def test_an_epoch_that_took_far_longer_than_the_others_is_named() -> None:
    (text,) = disturbance_check.remarks(_result(1.0, 1.1, 28.0, 0.9))
    assert text == "epoch 3 took 28 s, 28 x the median of the others (waiting for data 14 s)"
    assert disturbance_check.remarks(_result(1.0, 1.9, 1.1)) == []
    assert disturbance_check.remarks(_result(0.1, 0.9, 0.1)) == [], "less than a second longer"
    assert len(disturbance_check.remarks(_result(1.0, 5.0))) == 1
    assert len(disturbance_check.remarks(_result(1.0, 28.0))) == 1, "of two epochs, the slow one"
    assert disturbance_check.remarks(_result(3.0, 1.0)) == [], "the first of two epochs opens files"
    assert disturbance_check.remarks(_result(9.0)) == []
    (text,) = disturbance_check.remarks(_result(0.9, 9.0, 10.0, 11.0))
    assert text.startswith("epoch 1 took 900 ms, 0.09 x the median of the others"), "storage became slower"
    assert disturbance_check.remarks(_result(5.2, 9.0, 10.0, 11.0)) == []
    assert len(disturbance_check.remarks(_result(1.0, 1.1, 28.0))) == 1
    cut = _result(10.0, 10.0, 30.0)
    short = replace(cut, epochs=[*cut.epochs[:2], replace(cut.epochs[2], steps=4)])
    assert disturbance_check.remarks(short) == [], "time ran out in it"


def test_a_run_without_stops_has_none_whatever_its_time(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path)
    result = outcome.runs[-1].result
    assert result is not None
    assert result.summary is not None
    assert disturbance_check.stop(replace(result, summary=replace(result.summary, wall_s=-5.0))) is None


def test_a_cpu_quota_that_stopped_the_ranks_is_named() -> None:
    calm = Disturbance(9.0, 8, None, None, None, None, None, None, throttled=Level(0.01, 0.04, "n2"))
    assert disturbance_check.remarks(replace(_result(1.0), disturbance=calm)) == []
    assert disturbance_check.remarks(replace(_result(1.0), disturbance=replace(calm, throttled=None))) == []
    stopped = replace(_result(1.0), disturbance=replace(calm, throttled=Level(0.3, 0.81, "n2")))
    (text,) = disturbance_check.remarks(stopped)
    assert "a CPU quota stopped the ranks in 81 % of its periods on n2" in text


def test_batch_systems_say_that_a_job_is_suspended() -> None:
    assert slurm._status("7", "SUSPENDED", "None").suspended
    assert slurm._status("7", "RUNNING", "None").suspended is False
    for letter, is_suspended in (("S", True), ("U", True), ("R", False), ("Q", False)):
        assert pbs.sight({"job_state": letter}).suspended is is_suspended


def test_a_suspension_that_was_seen_is_kept_with_its_time(tmp_path: Path) -> None:
    outcome = _outcome(tmp_path)
    record = job_record.with_state(job_record.planned(outcome.plan, "", ()), "running", "RUNNING")
    record = job_record.with_state(record, "running", "SUSPENDED", suspended=True)
    assert job_record.with_state(record, "running", "SUSPENDED", suspended=True) is record
    during = job_record.with_state(record, "running", "RUNNING")
    assert [one.suspended for one in during.states] == [False, False, True, False]
    result = outcome.runs[-1].result
    assert result is not None
    meanwhile = tuple(replace(one, time=result.ended) for one in during.states)
    assert isinstance(job_outcome.fault(outcome._replace(job=replace(during, states=meanwhile))), Incomplete)
    long_ago = [replace(one, time="2020-01-01T00:00:00Z") for one in during.states]
    assert job_outcome.fault(outcome._replace(job=replace(during, states=tuple(long_ago), batch_id="1"))) is None


@pytest.mark.job
def test_ranks_that_are_stopped_leave_no_measurement(run: Run, tmp_path: Path, small: Path) -> None:
    """Both ranks get SIGSTOP in the middle of the measured run, and SIGCONT after two seconds."""
    done = run(
        "dlio-submit", small, "-s", "local", "--ppn", 2, "--json", "--generate", "auto", "-S", "train.epochs=16",
        "-S", "compute.time=200 ms",
    )  # fmt: skip
    folder = Path(done.job["directory"])
    wait_until(lambda: len(ranks_of(folder)) == 2)
    ranks = ranks_of(folder)
    time.sleep(3)  # until they are in their steps, which take 13 s
    for number in ranks:
        os.kill(number, signal.SIGSTOP)
    time.sleep(2)
    for number in ranks:
        os.kill(number, signal.SIGCONT)
    waited = run("dlio-hpc", "wait", folder)
    assert waited.code == 7
    (job,) = [job_outcome.load(folder)]
    assert job.runs[-1].result is not None
    assert job.runs[-1].result.summary is not None
    (stop, *_) = job.runs[-1].result.summary.interruptions
    assert (stop.kind, stop.ranks) == ("stopped", 2)
    assert 1.5 < stop.seconds < 30
    report = run("dlio-hpc", "report", folder)
    assert report.out.startswith("Not measured: Incomplete: 01-measure is not a measurement: its ranks were stopped")
    assert job_state.exit_status(folder) == 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ranks_of(folder: Path) -> list[int]:
    """Return the processes of the ranks of a job's measured run."""
    listed = subprocess.run(["pgrep", "-f", "dlio_hpc.core .*--run 1"], capture_output=True, text=True, check=False)
    return [number for number in map(int, listed.stdout.split()) if _is_rank(Path("/proc", str(number)), folder)]


def _is_rank(process: Path, folder: Path) -> bool:
    try:
        is_python = os.readlink(process / "exe").rpartition("/")[2].startswith("python")
        return is_python and os.readlink(process / "cwd") == str(folder.resolve())
    except OSError:
        return False  # it has ended
