"""Watching the states of jobs and the progress of their runs, with little load on the batch system."""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base import units
from dlio_hpc.base.errors import DlioError, Incomplete, InfrastructureError
from dlio_hpc.batch import job_record, job_state, live_runs
from dlio_hpc.batch.live_runs import LiveRun
from dlio_hpc.files import rundir

_LINE = re.compile(rb"^(?P<run>\d\d+-\S+) (?P<done>\d+)/(?P<total>\d+) (?P<unit>\w+)(?:, (?P<rest>.*))?$", re.MULTILINE)
_TAIL_BYTES = 4096
_FIRST_S, _LONGEST_S = 0.1, 1.0
_ASK_FIRST_S, _ASK_LONGEST_S = 1.0, 60.0
# _LOST_S: seconds for which a job is still watched although its batch system does not know it, because NFS shows new
# files up to a minute late. _SILENT_S: seconds for which a job is still watched although the batch system does not
# answer about it, for example because the controller has purged the job and accounting does not answer.
_LOST_S, _SILENT_S = 60.0, 7200.0


class JobProgress(NamedTuple):
    """The newest line of progress that the ranks printed to job.out. done, total: counts in `unit`. rest: further text
    of the line.
    """

    run: str
    done: int
    total: int
    unit: str
    rest: str


class Watched(NamedTuple):
    """A job as observed at its last check. progress: newest progress; None if no progress is known. live: the current
    run; None if its ranks have written no state. fault: reason why the job's state could not be determined, or why the
    job cannot be watched further; None if there is no such reason. is_final: whether this was the last check of the
    job. advice: what the user can do about a job that waits.
    """

    directory: Path
    job: job_record.Job
    progress: JobProgress | None
    fault: DlioError | None
    is_final: bool
    advice: str = ""
    live: LiveRun | None = None


def watch(directories: Sequence[Path]) -> Iterator[Watched]:
    """Watch jobs until all have ended. Yield every job at every check. In the last item of a job, `is_final` is set:
    either the job has ended, or `fault` is the reason why the job cannot be watched further.

    Files are checked at least every second. The batch system is queried at increasing intervals, which increase faster
    while the batch system does not answer. A job is no longer watched if it can never run; the batch system's reason is
    then reported. A job is also no longer watched if nothing new was learned about it for two hours.
    """
    answered = dict.fromkeys(directories, time.monotonic())
    known = {directory: job_record.load(directory) for directory in directories}
    live = list(known)
    pause, patience, due = _FIRST_S, _ASK_FIRST_S, 0.0
    while True:
        asks = time.monotonic() >= due
        yield from (_gone(directory, known[directory]) for directory in live if not _is_there(directory))
        looks = _looks([directory for directory in live if _is_there(directory)], asks)
        unanswered = any(look.fault for look in looks)
        for look in looks:
            job_state.delete_stuck(look)
            known[look.directory] = look.job
            if asks and look.fault is None:
                answered[look.directory] = time.monotonic()
        silent = {path for path, since in answered.items() if asks and time.monotonic() - since > _SILENT_S}
        is_live = {look.directory: _is_live(look, look.directory in silent) for look in looks}
        yield from (_watched(look, not is_live[look.directory]) for look in looks)
        live = [directory for directory, goes_on in is_live.items() if goes_on]
        if not live:
            return
        if asks and any(look.job.scheduler != "local" for look in looks):
            due = time.monotonic() + patience
            patience = min(_ASK_LONGEST_S, patience * (2 if unanswered else 1.5))
        time.sleep(pause)
        pause = min(_LONGEST_S, pause * 1.2)


def _is_there(directory: Path) -> bool:
    return (directory / rundir.JOB).exists()


def _gone(directory: Path, last: job_record.Job) -> Watched:
    return Watched(directory, last, None, Incomplete(f"{directory} was removed; job {last.job} was {last.state}"), True)


def _looks(directories: list[Path], ask: bool) -> list[job_state.JobSnapshot]:
    try:
        return job_state.refresh_all(directories, ask=ask)
    except OSError:  # a directory was removed in the meantime
        return job_state.refresh_all([directory for directory in directories if _is_there(directory)], ask=ask)


def _watched(look: job_state.JobSnapshot, is_final: bool) -> Watched:
    record = look.job
    fault = look.fault
    if look.never is not None:
        fault = InfrastructureError(
            f"job {record.job} is still queued; the batch system reports: {look.never}"
            f"{f' ({look.advice})' if look.advice else ''}; "
            f"cancel it with dlio-hpc cancel {look.directory}, or wait again when this has changed"
        )
    elif _is_stray(look):
        fault = Incomplete(
            f"job {record.job} was never submitted to the batch system: its submission was interrupted; "
            f"submit it again, or cancel it: dlio-hpc cancel {look.directory}"
        )
    live = live_runs.of(look.directory) if not record.ended else None
    return Watched(look.directory, record, progress(look.directory), fault, is_final, look.advice, live)


def _is_live(look: job_state.JobSnapshot, is_silent: bool) -> bool:
    """Return whether the job must be checked again. is_silent: whether the batch system has not answered about the job
    for two hours.
    """
    if look.job.state == "lost" and look.job.scheduler != "local":
        return time.time() - units.timestamp(look.job.states[-1].time) < _LOST_S
    return not (look.job.ended or _is_stray(look) or look.never is not None or is_silent)


def _is_stray(look: job_state.JobSnapshot) -> bool:
    if look.job.batch_id is not None or look.job.ended or look.fault is not None:
        return False
    return not job_state.is_handed_over(look.directory, look.job)


def progress(directory: Path) -> JobProgress | None:
    """Return the progress of the job's current run. Return None if no progress line was printed yet, or if job.out
    cannot be read.
    """
    try:
        with (directory / rundir.STDOUT).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = list(_LINE.finditer(file.read()))
    except OSError:
        return None
    if not lines:
        return None
    run, done, total, unit, rest = (part.decode(errors="replace") for part in lines[-1].groups(b""))
    return JobProgress(run, int(done), int(total), unit, rest)
