"""Watch for storage that does not respond. A rank that waits for storage in a system call reaches no barrier, and the
time limit would end the job without a result. A thread of each rank therefore checks at intervals in which call its
rank waits. If the time limit is near, the ranks write this call and their finished epochs to files, and one rank writes
the result and ends all ranks. Ranks that wait for storage cannot communicate by MPI.
"""

import io
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import blocked_calls, clock, compute, merge
from dlio_hpc.core.auxiliary_files import Counts
from dlio_hpc.core.blocked_calls import Call, Since
from dlio_hpc.core.distributions import ReadLog
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.live_writer import LiveWriter
from dlio_hpc.core.merge import Host, Merged
from dlio_hpc.core.read_activity import TimeBins
from dlio_hpc.core.train import Recorder, Recording
from dlio_hpc.files import filesystem, rundir, safe_folders

# A rank looks at most once in _LOOK_S, and at its system calls only after it has made no step for _QUIET_S.
_LOOK_S, _QUIET_S = 1.0, 5.0
# Storage does not answer if a call lasts for a third of the warning time, or for _PATIENCE_S. Ranks whose call only
# takes long, such as an fsync of a large file, shall stop by themselves: nothing is written before half of the warning
# time is over. Ranks that then write nothing are waited for during a tenth of the warning time, or for _LATE_S.
_PATIENCE_S, _LATE_S = 20.0, 5.0

# What a rank does: it waits in a call for storage, waits for other ranks, computes, or does something else.
Doing = Literal["storage", "ranks", "compute", "other"]


class RankSighting(Struct, frozen=True):
    """State of a rank that may wait for storage. call: description of the system call in which the rank waits. seconds:
    seconds for which the rank is known to wait. since: UTC time since which the rank is known to wait.
    """

    rank: int
    doing: Doing
    call: str = ""
    seconds: float = 0.0
    since: str = ""


class HangTimes(NamedTuple):
    """Times in seconds. patience: time of waiting after which storage is regarded as not responding. notice: time that
    ranks have, after the order to stop, to stop by themselves. late: time to wait for other ranks. look: time between
    two checks.
    """

    patience: float
    notice: float
    late: float
    look: float


def limits(warning_time: float) -> HangTimes:
    """Return the times for a job. warning_time: seconds between the order to stop and the time limit."""
    patience = min(warning_time / 3, _PATIENCE_S)
    return HangTimes(patience, warning_time / 2, min(warning_time / 10, _LATE_S), min(_LOOK_S, patience / 4))


class HangWatch:
    """Context manager that watches this rank in a thread. directory, folder: folders of the job and of the run. finish:
    function that one rank calls to report. It has four arguments: the reason; a text that says what is kept; the rank
    that has been hanging longest; and the merged epochs that have ended on all ranks, or None if no epoch has ended.
    The function must end all ranks. live: writer of the state of this rank.
    """

    def __init__(
        self,
        directory: Path,
        folder: Path,
        rank: int,
        hosts: list[Host],
        workload: Workload,
        times: HangTimes,
        finish: Callable[[str, str, int, Merged | None], None],
        live: LiveWriter,
    ) -> None:
        self._stop, self._error, self._folder = directory / rundir.STOP, folder / rundir.ERROR, folder / rundir.HANGS
        self._rank, self._hosts, self._workload, self._times, self._finish = rank, hosts, workload, times, finish
        self._live = live
        self._recorder: Recorder | None = None
        self._calls = Since(clock.now)
        self._unblocked: Call | None = None
        self._place: _Place | None = None
        self._done, self._progress, self._same = -1, 0.0, 0.0
        self._stopping = self._first = math.inf
        self._written: RankSighting | None = None
        self._ended = threading.Event()
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="hang-watch", daemon=True)

    def __enter__(self) -> "HangWatch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()  # if it reports, it ends this process
        self._live.close()
        if self._rank == 0:
            safe_folders.discard(self._folder)

    def watch(self, recorder: Recorder) -> None:
        """Keep the epochs of this recorder if storage does not respond, and let `live` write the state of the
        recorder.
        """
        self._recorder = recorder
        self._live.watch(recorder)

    def _run(self) -> None:
        while not self._ended.wait(self._times.look):
            self._live.look()
            try:
                self._look(clock.now())
            except OSError as fault:  # the folder of runs: the next look tries again
                print(f"dlio-hpc: rank {self._rank}: {fault}", file=sys.stderr)

    def _look(self, now: float) -> None:
        """Check what this rank does. If the job was told to stop, and this rank or another rank makes no progress,
        write the state of this rank. Once the other ranks have had time to write their states, call _report().
        """
        doing, lasts = self._doing(now)
        longest = self._calls.longest() if doing == "other" and lasts >= min(_QUIET_S, self._times.patience) else None
        if doing != "other":
            self._calls.forget()
        if longest is not None:
            self._unblock(longest[0])
        if self._stopping == math.inf and self._stop.exists():
            self._stopping = now
        if now - self._stopping < self._times.notice or self._error.exists():
            return
        sighting = RankSighting(self._rank, doing, seconds=lasts)
        if longest is not None and longest[1] >= self._times.patience:
            call, seconds = longest
            sighting = RankSighting(self._rank, "storage", call.text, seconds, units.utc(time.time() - seconds))
        is_hanging = sighting.doing == "storage" or (doing == "ranks" and lasts >= self._times.patience)
        if is_hanging or self._folder.is_dir():
            self._write(sighting, now)
        if now - self._first >= self._times.late:
            self._report()

    def _unblock(self, call: Call) -> None:
        """Let a call return that opens a pipe in the place of a sample file. Try it once, because another call on the
        same path does not return either if storage does not respond.
        """
        if call != self._unblocked:
            self._unblocked = call
            filesystem.answered(lambda: blocked_calls.unblock(call), self._times.look)

    def _doing(self, now: float) -> tuple[Doing, float]:
        """Return what the main thread does, and the seconds for which the main thread has made no progress."""
        frame = sys._current_frames().get(self._main)
        doing, place = _doing(frame)
        done = self._recorder.done if self._recorder is not None else 0
        if place is None or done != self._done or place != self._place:
            self._progress = now
        self._done, self._place = done, place
        return doing, now - self._progress

    def _write(self, sighting: RankSighting, now: float) -> None:
        """Write to files what this rank does and, at the first call, the epochs that have ended."""
        self._folder.mkdir(exist_ok=True)
        if self._written is None:
            finished = self._recorder.finished(self._workload) if self._recorder is not None else {}
            for epochs, recording in finished.items():
                rundir.write(self._folder / _recording_name(self._rank, epochs), _encoded(recording))
        if self._written is None or self._written.doing != sighting.doing or self._written.call != sighting.call:
            rundir.write(self._folder / _sighting_name(self._rank), serialization.encode(sighting))
            self._written = sighting
            self._first = min(self._first, now)

    def _report(self) -> None:
        """If storage does not respond, write the report on the lowest rank that has written its state. The other ranks
        continue.
        """
        if any((self._folder / _sighting_name(rank)).exists() for rank in range(self._rank)):
            return
        reason = message(_sightings(self._folder, len(self._hosts)), [host.name for host in self._hosts])
        if reason is None:
            return
        try:
            (self._folder / _CLAIM).open("xb").close()
        except FileExistsError:
            return
        text, rank = reason
        epochs, merged = self._merged()
        kept = f"{epochs} epoch{'s' * (epochs > 1)} had ended and {'are' if epochs > 1 else 'is'} kept"
        self._finish(text, kept if epochs else "no epoch had ended", rank, merged)

    def _merged(self) -> tuple[int, Merged | None]:
        """Return the number of epochs that have ended on all ranks, and the merged recordings of these epochs. The
        recordings are None if no epoch has ended on all ranks.
        """
        names = os.listdir(self._folder)
        for epochs in sorted({int(name.split("-")[2][:-4]) for name in names if name.endswith(".npz")}, reverse=True):
            wanted = [_recording_name(rank, epochs) for rank in range(len(self._hosts))]
            if set(wanted) <= set(names):
                recordings = [_decoded((self._folder / name).read_bytes()) for name in wanted]
                return epochs, merge.of_recordings(self._hosts, _common(recordings))
        return 0, None


# Place in the program where a thread is: the number of a wait, or of a stack frame and its instruction.
_Place = tuple[int, int]


def _doing(frame: FrameType | None) -> tuple[Doing, _Place | None]:
    """Return what a thread does, and the place where the thread is. frame: innermost stack frame of the thread.

    A frame that is kept keeps its variables and those of its callers, too, after their functions have returned: buffers
    could then not be closed or resized. Therefore, no frame is kept. A later frame may have the same number; then the
    thread seems to make no progress, and its system calls are looked at, whose times are measured independently.
    """
    inner = frame
    while frame is not None:
        if frame.f_code in _WAITS:
            return "ranks", (clock.waits[0], 0)
        if frame.f_code is compute.emulate.__code__:
            return "compute", (id(frame), 0)
        frame = frame.f_back
    return "other", (id(inner), inner.f_lasti) if inner is not None else None


_WAITS = {clock.wait.__code__, clock.assemble.__code__}


def message(sightings: list[RankSighting], hosts: list[str]) -> tuple[str, int] | None:
    """Return a text about a rank that hangs, and the number of this rank. If ranks are known to wait for storage, the
    text names the call in which one of them waits. Otherwise, if a rank has written nothing and all others wait for it,
    the text names this rank. Otherwise, return None. hosts: for each rank, the name of its node.
    """
    waiting = sorted((one for one in sightings if one.doing == "storage"), key=lambda one: -one.seconds)
    silent = sorted(set(range(len(hosts))) - {one.rank for one in sightings})
    without = f"rank {silent[0]} ({hosts[silent[0]]})" if silent else ""
    if len(silent) > 1:
        without += f" and {len(silent) - 1} other rank{'s' * (len(silent) > 2)}"
    held = f"{without} {'does' if len(silent) == 1 else 'do'} not respond: stopped, or waiting in a library call"
    if not waiting:
        if not silent or any(one.doing != "ranks" for one in sightings):
            return None
        seconds = min(one.seconds for one in sightings)
        return f"{held}; all other ranks have waited for {units.format_seconds(seconds)}", silent[0]
    first = waiting[0]
    text = (
        f"storage did not answer: rank {first.rank} ({hosts[first.rank]}) waits in {first.call} since {first.since} "
        f"({units.format_seconds(first.seconds)})"
    )
    if len(waiting) > 1:
        text += f", and {len(waiting) - 1} other rank{'s' * (len(waiting) > 2)} in other calls"
    return (f"{text}; {held}" if silent else text), first.rank


_CLAIM = "reported"


def _sighting_name(rank: int) -> str:
    return f"rank-{rank}.json"


def _recording_name(rank: int, epochs: int) -> str:
    return f"rank-{rank}-{epochs}.npz"


def _sightings(folder: Path, ranks: int) -> list[RankSighting]:
    """Return the states that the ranks have written, by rank."""
    listed = []
    for rank in range(ranks):
        path = folder / _sighting_name(rank)
        if path.exists():
            listed.append(serialization.decode(path.read_bytes(), RankSighting, str(path), InvalidRun))
    return listed


def _encoded(recording: Recording) -> bytes:
    """Return a recording as the content of an npz file."""
    reads, counts = recording.reads, recording.counts
    arrays: dict[str, Any] = {name: getattr(recording, name) for name in _ARRAYS}
    arrays |= {f"reads_{name}": getattr(reads, name) for name in _READS}
    arrays |= {f"counts_{name}": getattr(counts, name) for name in _COUNTS}
    arrays |= {"amounts": reads.activity.amounts, "time_bins": np.array(reads.activity.time_bins)}
    arrays |= {"own_s": recording.own_s, "auxiliary_files": np.array(recording.auxiliary_files)}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def _decoded(content: bytes) -> Recording:
    """Return the recording in `content`, the result of _encoded()."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        reads, counts = ReadLog(), Tally()
        for name in _READS:
            setattr(reads, name, arrays[f"reads_{name}"][()])
        for name in _COUNTS:
            setattr(counts, name, arrays[f"counts_{name}"][()])
        width, first, bins = arrays["time_bins"].tolist()
        reads.activity.time_bins, reads.activity.amounts = TimeBins(width, int(first), int(bins)), arrays["amounts"]
        return Recording(
            **{name: arrays[name] for name in _ARRAYS}, reads=reads, counts=counts, own_s=float(arrays["own_s"]),
            auxiliary_files=Counts(*arrays["auxiliary_files"].tolist()), stopped=True,
        )  # fmt: skip


_ARRAYS = (
    "steps",
    "arrivals",
    "checkpoints",
    "restored",
    "evaluated",
    "verified",
    "disturbances",
    "phases",
    "latencies",
    "served",
    "served_times",
)
_READS = ("histograms", "sums", "sizes", "io_s", "hidden_s", "waited_s")
_COUNTS = ("opens", "overhead_bytes", "requests", "preprocess_s", "major_faults", "minor_faults")


def _common(recordings: list[Recording]) -> list[Recording]:
    """Return the recordings with only those checkpoints and evaluation passes that all ranks have recorded."""
    for name in ("checkpoints", "restored", "evaluated"):
        least = min(len(getattr(recording, name)) for recording in recordings)
        recordings = [recording._replace(**{name: getattr(recording, name)[:least]}) for recording in recordings]
    return recordings
