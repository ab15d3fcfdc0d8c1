"""Looking on: a job's state and how far its run is, as often as it is fair to ask."""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc import rundir
from dlio_hpc.batch import job, state
from dlio_hpc.errors import DlioError, Incomplete

_LINE = re.compile(rb"^(?P<run>\d\d+-\S+) (?P<done>\d+)/(?P<total>\d+) (?P<unit>\w+)(?:, (?P<rest>.*))?$", re.MULTILINE)
_TAIL_BYTES = 4096
_FIRST_S, _LONGEST_S = 0.1, 1.0
_ASK_FIRST_S, _ASK_LONGEST_S = 1.0, 60.0


class Progress(NamedTuple):
    """The newest progress line of the ranks in job.out."""

    run: str
    done: int
    total: int
    unit: str
    rest: str


class Watched(NamedTuple):
    """A job as it was last seen. `fault`: why nothing new is known of it."""

    directory: Path
    job: job.Job
    progress: Progress | None
    fault: DlioError | None


def watch(directories: Sequence[Path]) -> Iterator[Watched]:
    """Each job again and again until it has ended; the last one given of each has, or its fault says why it cannot.

    Files are looked at every second, the batch system with growing pauses, longer ones where it does not answer.
    """
    known = {directory: job.load(directory) for directory in directories}
    live = list(known)
    pause, patience, due = _FIRST_S, _ASK_FIRST_S, 0.0
    while True:
        asks = time.monotonic() >= due
        yield from (_gone(directory, known[directory]) for directory in live if not _is_there(directory))
        looks = _looks([directory for directory in live if _is_there(directory)], asks)
        unanswered = any(look.fault for look in looks)
        for look in looks:
            known[look.directory] = look.job
            yield _watched(look)
        live = [look.directory for look in looks if not look.job.ended and not _is_stray(look)]
        if not live:
            return
        if asks and any(look.job.scheduler != "local" for look in looks):
            due = time.monotonic() + patience
            patience = min(_ASK_LONGEST_S, patience * (2 if unanswered else 1.5))
        time.sleep(pause)
        pause = min(_LONGEST_S, pause * 1.2)


def _is_there(directory: Path) -> bool:
    return (directory / rundir.JOB).exists()


def _gone(directory: Path, last: job.Job) -> Watched:
    return Watched(directory, last, None, Incomplete(f"{directory} is gone; job {last.job} was {last.state}"))


def _looks(directories: list[Path], ask: bool) -> list[state.Look]:
    try:
        return state.refresh_all(directories, ask=ask)
    except OSError:  # one vanished just now
        return state.refresh_all([directory for directory in directories if _is_there(directory)], ask=ask)


def _watched(look: state.Look) -> Watched:
    record = look.job
    fault = look.fault
    if _is_stray(look):
        fault = Incomplete(
            f"job {record.job} was never handed to the batch system, its submission was interrupted; "
            f"submit it anew, or: dlio-hpc cancel {look.directory}"
        )
    return Watched(look.directory, record, progress(look.directory), fault)


def _is_stray(look: state.Look) -> bool:
    if look.job.batch_id is not None or look.job.ended or look.fault is not None:
        return False
    return not state.is_handed_over(look.directory, look.job)


def progress(directory: Path) -> Progress | None:
    """How far the job's current run is; None when it has not said yet."""
    try:
        with (directory / rundir.STDOUT).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = list(_LINE.finditer(file.read()))
    except FileNotFoundError:
        return None
    if not lines:
        return None
    run, done, total, unit, rest = (part.decode(errors="replace") for part in lines[-1].groups(b""))
    return Progress(run, int(done), int(total), unit, rest)
