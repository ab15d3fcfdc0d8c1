"""Storage that does not answer: the report names the rank, call and file, and keeps the epochs that ended."""

import fcntl
import io
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from msgspec.structs import replace

from dlio_hpc.config import site, workload
from dlio_hpc.core import blocked_calls, clock, hang_watch, merge
from dlio_hpc.core.auxiliary_files import Counts
from dlio_hpc.core.blocked_calls import Call, Since, Waiting
from dlio_hpc.core.distributions import ASKED, COLUMNS, COMPUTED, READY, STARTED, SYNCED
from dlio_hpc.core.hang_watch import RankSighting
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.core.merge import Host
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.train import Recorder, Recording
from dlio_hpc.files import filesystem
from dlio_hpc.plan.plan import Run as PlanRun
from tests.conftest import Run
from tests.support import planning

_READ = Call("pread64", "/data/7.raw", 4096)


def test_the_time_of_a_call_counts_from_when_it_was_first_noticed() -> None:
    now = 100.0
    calls = [Waiting((1, "a"), _READ)]
    since = Since(lambda: now, lambda: calls)
    assert since.longest() == (_READ, 0.0)
    now = 128.0
    calls.append(Waiting((2, "a"), Call("fsync", "/data/8.raw", None)))
    assert since.longest() == (_READ, 28.0)
    calls[0] = Waiting((1, "b"), _READ)
    now = 130.0
    assert since.longest() == (Call("fsync", "/data/8.raw", None), 2.0), "thread 1 has made the same call again"
    calls.clear()
    assert since.longest() is None
    calls.append(Waiting((2, "a"), _READ))
    assert since.longest() == (_READ, 0.0)
    now = 140.0
    since.forget()
    assert since.longest() == (_READ, 0.0)


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    yield path
    writer = os.open(path, os.O_RDWR)  # lets blocked threads end
    os.write(writer, b"....")
    time.sleep(0.05)
    os.close(writer)


def _waits_in(path: Path) -> list[Call]:
    return [one.call for one in blocked_calls.waiting() if one.call.path == str(path)]


def _until_waiting(path: Path) -> list[Call]:
    deadline = time.monotonic() + 20
    while not (calls := _waits_in(path)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return calls


def test_a_thread_that_waits_in_open_is_named_with_its_file(fifo: Path) -> None:
    def opened() -> None:
        os.close(os.open(fifo, os.O_RDONLY))

    threading.Thread(target=opened, daemon=True).start()
    (call,) = _until_waiting(fifo)
    assert (call.name, call.text) == ("openat", f"openat of {fifo}")
    marks = {one.mark for one in blocked_calls.waiting() if one.call.path == str(fifo)}
    assert len(marks | {one.mark for one in blocked_calls.waiting() if one.call.path == str(fifo)}) == 1


def test_a_thread_that_opens_a_pipe_is_released(fifo: Path) -> None:
    thread = threading.Thread(target=lambda: os.close(os.open(fifo, os.O_RDONLY)), daemon=True)
    thread.start()
    (call,) = _until_waiting(fifo)
    blocked_calls.unblock(Call("read", str(fifo), None))
    blocked_calls.unblock(Call("openat", str(fifo.with_name("other")), None))
    assert thread.is_alive()
    blocked_calls.unblock(call)
    thread.join(20)
    assert not thread.is_alive()


def test_a_thread_that_waits_in_read_is_named_with_its_file(fifo: Path) -> None:
    descriptor = os.open(fifo, os.O_RDWR)
    threading.Thread(target=os.read, args=(descriptor, 1), daemon=True).start()
    (call,) = _until_waiting(fifo)
    assert (call.name, call.path) == ("read", str(fifo))
    os.write(descriptor, b".")
    deadline = time.monotonic() + 20
    while _waits_in(fifo):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_child_processes_are_looked_at(fifo: Path) -> None:
    child = os.fork()
    if child == 0:
        os.open(fifo, os.O_RDONLY)
        os._exit(0)
    try:
        assert _until_waiting(fifo)[0].name == "openat"
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_threads_that_wait_for_others_are_no_hang() -> None:
    before = {waiting.mark[:2] for waiting in blocked_calls.waiting()}  # threads that other tests left
    reads, writes = os.pipe()
    event = threading.Event()
    threading.Thread(target=os.read, args=(reads, 1), daemon=True).start()
    threading.Thread(target=event.wait, daemon=True).start()
    time.sleep(0.1)
    assert {waiting.mark[:2] for waiting in blocked_calls.waiting()} <= before
    os.write(writes, b".")
    event.set()


def _blocked(rank: int, seconds: float) -> RankSighting:
    return RankSighting(rank, "storage", _READ.text, seconds, "2026-11-25T04:00:00Z")


def test_the_message_names_rank_call_file_and_time() -> None:
    others = [RankSighting(0, "ranks", seconds=28.0), RankSighting(2, "compute")]
    first = (
        "storage did not answer: rank 1 (b) waits in pread64 of /data/7.raw at byte 4096 since 2026-11-25T04:00:00Z "
        "(28 s)"
    )
    assert hang_watch.message([*others, _blocked(1, 28.0)], ["a", "b", "c"]) == (first, 1)
    text, rank = hang_watch.message([others[0], _blocked(1, 28.0), _blocked(2, 27.0)], ["a", "b", "c"]) or ("", 0)
    assert (text, rank) == (first + ", and 1 other rank in other calls", 1)
    text, rank = hang_watch.message([others[0], _blocked(1, 28.0)], ["a", "b", "c"]) or ("", 0)
    assert text == first + "; rank 2 (c) does not respond: stopped, or waiting in a library call"


def test_without_a_rank_that_waits_for_storage_the_job_goes_on() -> None:
    waiting = [RankSighting(rank, "ranks", seconds=20.0 + rank) for rank in range(2)]
    assert hang_watch.message([*waiting, RankSighting(2, "compute")], ["a", "b", "c"]) is None
    assert hang_watch.message([*waiting, RankSighting(2, "other")], ["a", "b", "c"]) is None
    assert hang_watch.message([waiting[0], RankSighting(2, "compute")], ["a", "b", "c"]) is None
    text, rank = hang_watch.message(waiting, ["a", "b", "c"]) or ("", 0)
    assert rank == 2
    assert text == (
        "rank 2 (c) does not respond: stopped, or waiting in a library call; all other ranks have waited for 20 s"
    )


def test_ranks_act_before_the_limit() -> None:
    for warning in (1, 2, 15, 60, 3600):
        times = hang_watch.limits(warning)
        assert max(times.notice, times.patience) + times.look + times.late < 0.8 * warning
        assert times.patience <= 20


def _run(folder: Path, epochs: int) -> PlanRun:
    work = workload.load("demo")
    work = replace(work, train=replace(work.train, epochs=epochs))
    return planning.make(work, site.load("local"), planning.Request(runs=folder)).runs[-1]


def _record(recorder: Recorder, epochs: int, more: int, clock: float) -> None:
    """Record `epochs` epochs and `more` steps of the next. clock: seconds by which the rank's clock is ahead."""
    steps = recorder.steps.shape[1]
    for number in range(epochs * steps + more):
        epoch, step = divmod(number, steps)
        row = recorder.steps[epoch].reshape(-1).data[step * COLUMNS : (step + 1) * COLUMNS]
        begins = 1000 + clock + number / 10
        row[STARTED], row[READY], row[COMPUTED], row[SYNCED] = begins, begins + 0.02, begins + 0.08, begins + 0.1
        row[ASKED] = 0.06
        tally = Tally()
        tally.starts, tally.ends, tally.sizes, tally.bytes_read = [begins], [begins + 0.01], [100], 100
        tally.requests = tally.opens = 1
        recorder.step(epoch, row, Batch(None, np.zeros((1, 100), np.uint8), tally))  # type: ignore[arg-type]
        recorder.after_step(epoch, 1e-5, 0.0, 0)
        if step == steps - 1:
            recorder.arrived((100.0 * steps, 0.0, 0.0, 0.0, 0.0, 0.0), 100.0 * steps)
            recorder.disturbed(np.array([steps / 10, 0.1, 2, 0.1, 0, 0.5, 0, 0, 0, 0, 0]))
            recorder.keep(Counts())


def _kept(run: PlanRun, epochs: int, more: int, clock: float = 0.0) -> dict[int, Recording]:
    recorder = Recorder(run, Progress("test", speaks=False))
    _record(recorder, epochs, more, clock)
    return recorder.finished(run.workload)


def test_epochs_that_ended_are_merged_without_those_that_did_not(tmp_path: Path) -> None:
    run = _run(tmp_path, 4)
    assert _kept(run, 0, 2) == {}
    ahead, behind = _kept(run, 3, 0, clock=50.0), _kept(run, 2, 1)
    assert (sorted(ahead), sorted(behind)) == ([2, 3], [1, 2])
    saved = [hang_watch._decoded(hang_watch._encoded(one)) for one in (behind[2], ahead[2])]
    hosts = [Host("a", "1"), Host("b", "2")]
    merged = merge.of_recordings(hosts, saved)
    summary, epochs = merge.summary(merged, run), merge.epochs(merged, run)
    steps = 2 * run.steps_per_epoch
    assert (summary.steps, summary.steps_planned, len(epochs)) == (steps, 2 * steps, 2)
    assert summary.samples == summary.reads == summary.opens == 2 * steps, "two ranks, one sample a step"
    assert summary.bytes_read == 200 * steps == summary.storage_bytes_read
    assert summary.wall_s == pytest.approx(steps / 10, abs=1e-6), "the clocks differ by 50 s"
    assert merged.offsets[:, 0].tolist() == pytest.approx([0.0, -50.0])
    assert summary.io_time_s == pytest.approx(steps / 100)
    assert merge.disturbed(merged).seconds == pytest.approx(steps / 10)
    assert merged.activity[:, 0].sum() == pytest.approx(200 * steps)
    assert merged.marks.size == 0, "ranks that stop early make no marker reads"


def test_a_file_system_that_does_not_answer_is_not_waited_for(fifo: Path) -> None:
    assert filesystem.answered(lambda: 3, 20.0) == 3
    assert filesystem.answered(lambda: os.stat("/nothing/there").st_size, 20.0) is None
    assert filesystem.answered(lambda: os.open(fifo, os.O_RDONLY), 0.05) is None


@pytest.mark.job
@pytest.mark.parametrize("when", ["before", "during"])
def test_a_job_whose_storage_hangs_keeps_the_epochs_that_ended(run: Run, small: Path, when: str) -> None:
    """A lease holds a file of the dataset: open() waits."""
    keys = ("dataset.format=raw", "compute.time=100 ms", "train.epochs=12", "reader.read_threads=1")
    settings = [word for key in keys for word in ("-S", key)]
    options = (small, "--ppn", 2, "-t", "12s", "-d", small.parent / "data", "--json", *settings)
    made = run("dlio-submit", *options, "--generate", "only", "--wait")
    assert made.code == 0, made.err
    file = sorted((small.parent / "data").glob("*/*.raw"))[3]
    held = [_held(file)] if when == "before" else []
    folder = Path(run("dlio-submit", *options, "--generate", "never").job["directory"])
    if when == "during":
        deadline = time.monotonic() + 30
        while not re.search(r"/\d+ steps, epoch [3-9]", (folder / "job.out").read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        held.append(_held(file))
    assert run("dlio-hpc", "wait", folder).code == 7
    os.close(held[0])
    report = run("dlio-hpc", "report", folder, "--json")
    assert (report.code, report.job["state"]) == (7, "timeout")
    assert (folder / "exit_status").read_text() == "124\n"
    (measured,) = report.job["runs"]
    error, result = measured["error"], measured["result"]
    assert (error["kind"], error["exit_code"]) == ("Incomplete", 7)
    assert f"(vm) waits in openat of {file} since ".replace("vm", os.uname().nodename) in error["message"]
    text = run("dlio-hpc", "report", folder).out
    assert text.startswith("Not measured: Incomplete: 00-measure: storage did not answer: rank ")
    assert not (folder / "runs" / "00-measure" / "hangs").exists()
    if when == "before":
        assert result is None
        assert error["message"].endswith("no epoch had ended")
        return
    ended, steps = len(result["epochs"]), result["summary"]["steps"]
    assert ended >= 2
    assert error["message"].endswith(f"{ended} epochs had ended and are kept")
    assert all(epoch["steps"] == result["epochs"][0]["steps"] for epoch in result["epochs"])
    assert steps == sum(epoch["steps"] for epoch in result["epochs"])
    assert result["summary"]["cut_short"].startswith(f"{steps} of ")
    assert result["summary"]["bytes_read"] == sum(epoch["bytes_read"] for epoch in result["epochs"])
    assert result["summary"]["reads"] == result["summary"]["samples"] > 0
    assert (folder / "runs" / "00-measure" / "timeline.h5").exists()


def _held(file: Path) -> int:
    """Replace a file by its copy, and take a lease on the copy (fcntl(2)). Whoever opens it waits until the descriptor
    that is returned is closed, or for 45 seconds, as with a storage server that does not respond.
    """
    copy = file.with_suffix(".copy")
    shutil.copy(file, copy)
    descriptor = os.open(copy, os.O_RDWR)
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    copy.replace(file)
    return descriptor


@pytest.mark.job
@pytest.mark.parametrize("keys", [(), ("-S", "reader.direct=true"), ("-S", "reader.mode=framework")])
def test_a_pipe_in_the_place_of_a_sample_file_is_damaged_data(run: Run, small: Path, keys: tuple[str, ...]) -> None:
    options = (small, "-d", small.parent / "data", "-S", "dataset.format=raw", *keys)
    made = run("dlio-submit", *options, "--generate", "only", "--wait")
    assert made.code == 0, made.err
    file = sorted((small.parent / "data").glob("*/*.raw"))[3]
    file.unlink()
    os.mkfifo(file)
    done = run("dlio-submit", *options, "--generate", "never", "--wait")
    assert done.code == 3
    assert file.name in done.err
    assert ("is not a regular file" in done.err) == ("reader.mode=framework" not in keys), "NumPy finds no data"


class _Request:
    """A request of MPI that completes at the second look. places: what the watch sees at each look."""

    def __init__(self) -> None:
        self.places: list[Any] = []

    def Test(self) -> bool:  # noqa: N802 - the name of mpi4py
        self.places.append(hang_watch._doing(sys._getframe()))
        return len(self.places) == 2


def test_the_watch_keeps_nothing_of_a_function_that_has_returned() -> None:
    buffer = bytearray(9)

    def reads() -> Any:
        view = memoryview(buffer)
        return len(view), hang_watch._doing(sys._getframe())

    def waits() -> Any:
        view, request = memoryview(buffer), _Request()
        clock.wait(cast(Any, request))
        return len(view), request.places

    length, (doing, place) = reads()
    assert (length, doing) == (9, "other")
    assert place is not None
    (_, first), (_, second) = waits(), waits()
    assert [name for name, _ in (*first, *second)] == ["ranks"] * 4
    assert first[0] == first[1] != second[0] == second[1], "another wait is progress"
    buffer.clear()  # raises BufferError while a view exists


def test_progress_is_of_the_steps_of_all_epochs(tmp_path: Path) -> None:
    run, printed = _run(tmp_path, 4), io.StringIO()
    _record(Recorder(run, Progress("test", speaks=True, to=printed)), 1, 0, 0.0)
    assert printed.getvalue().startswith(f"test 1/{4 * run.steps_per_epoch} steps, epoch 1 of 4")
