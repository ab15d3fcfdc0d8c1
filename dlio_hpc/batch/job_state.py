"""What state a job is in: its own files tell first, then its batch system, whose silence tells nothing."""

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from dlio_hpc import units
from dlio_hpc.batch.job_record import Job, host, load, require_host, save, seen
from dlio_hpc.batch.schedulers import ENDED, SCHEDULERS, Known, Scheduler, Sight
from dlio_hpc.errors import DlioError, Unexpected
from dlio_hpc.files import rundir

# What job.sh leaves in exit_status, beside 0 and the failures.
_TIME_LIMIT, _CANCELLED = 124, 143
# With which job.sh has said all: done, one of our own exit codes, or over its time. Of others, such as a signal's, only
# the batch system knows the reason: a node, memory, somebody's cancel.
_SAYS_ALL = {0, 2, 3, 6, Unexpected.exit_code, _TIME_LIMIT}
# From when on an ending without a reason is believed although the batch system does not answer.
_STALE_S = 3600.0
# How long a batch system may clear up after a job.
_CLEAR_S, _LOOK_S = 60.0, 0.5
# In job.err, by slurmstepd (cgroups, OverMemoryKill), srun, and PBS's cgroup hook.
_MEMORY = re.compile(rb"oom[_-]kill|Out Of Memory|OOM Killed|Cgroup mem limit exceeded|xceeded (job )?memory limit")
_TAIL_BYTES = 1 << 16
_ATTEMPT = b"== attempt "
# Before a job that the batch system has forgotten counts as lost: shared file systems show new files late.
_LATE_S = 1.0
# How long after its end a job may be requeued.
_REQUEUE_S = 86400.0


class Look(NamedTuple):
    """A job as of now. `fault`: why its state is the last one known, not today's. never: the batch system's reason why
    the job, which waits, can never run.
    """

    directory: Path
    job: Job
    fault: DlioError | None
    never: str | None = None


def refresh(directory: Path) -> Job:
    """The job with its state as of now, recorded when it is news; raises when the batch system does not answer."""
    (look,) = refresh_all([directory])
    if look.fault is not None:
        raise look.fault
    return look.job


def refresh_all(directories: Sequence[Path], ask: bool = True) -> list[Look]:
    """All jobs as of now, each batch system asked once for all of its jobs that their files do not tell about; with
    `ask` false, what the files tell. ConfigError when one is no job's directory.
    """
    jobs = {directory: load(directory) for directory in directories}
    answers = _ask({directory: job for directory, job in jobs.items() if _must_ask(directory, job)} if ask else {})
    return [
        Look(directory, job, None) if is_handed_over(directory, job) else _settled(directory, answers.get(directory))
        for directory, job in jobs.items()
    ]


def is_handed_over(directory: Path, job: Job) -> bool:
    """Is its submission under way just now, by another process?"""
    return job.batch_id is None and not job.ended and rundir.is_locked(directory)


class _Answer(NamedTuple):
    """What the batch system said of a job: `sight` None, it does not know it; `fault`, it said nothing."""

    batch_id: str | None
    sight: Sight | None
    fault: DlioError | None


def _must_ask(directory: Path, job: Job) -> bool:
    """exit_status comes first."""
    if is_handed_over(directory, job):
        return False
    if _is_settled(directory, job) and not _may_return(directory, job):
        return False
    if job.ended and job.scheduler == "local" and job.host != host():
        return False
    status = exit_status(directory)
    return status is None or (status not in _SAYS_ALL and SCHEDULERS[job.scheduler].is_queue)


def _is_settled(directory: Path, job: Job) -> bool:
    """Whether the recorded end is the job's last one as far as its files tell; what was lost may turn up."""
    return job.ended and job.state != "lost" and not ran_since(directory, job)


def ran_since(directory: Path, job: Job) -> bool:
    """Whether the script was started again, requeued or by hand, since the job's state was recorded."""
    starts = [path.stat().st_mtime for path in rundir.attempts(directory)]
    return max(starts, default=0.0) > units.timestamp(job.states[-1].time) + 1  # which has whole seconds


def _may_return(directory: Path, job: Job) -> bool:
    """Whether a job that has ended can be live again: a batch system requeues jobs, whose script then removes
    exit_status.
    """
    if not SCHEDULERS[job.scheduler].is_queue or job.batch_id is None or exit_status(directory) is not None:
        return False
    return time.time() - units.timestamp(job.states[-1].time) < _REQUEUE_S


def _ask(jobs: dict[Path, Job]) -> dict[Path, _Answer]:
    answers: dict[Path, _Answer] = {}
    for name, scheduler in SCHEDULERS.items():
        asked = {directory: job for directory, job in jobs.items() if job.scheduler == name}
        answers |= _ask_one(scheduler, asked) if asked else {}
    return answers


def _ask_one(scheduler: Scheduler, jobs: dict[Path, Job]) -> dict[Path, _Answer]:
    answers: dict[Path, _Answer] = {}
    known: dict[Path, Known] = {}
    for directory, job in jobs.items():
        try:
            require_host(job)
            if batch_id := job.batch_id or scheduler.find(job.job):
                known[directory] = Known(batch_id, directory)
            else:
                answers[directory] = _Answer(None, None, None)
        except DlioError as fault:
            answers[directory] = _Answer(None, None, fault)
    try:
        sights = scheduler.states(list(known.values())) if known else {}
    except DlioError as fault:
        return answers | {path: _Answer(one.batch_id, None, fault) for path, one in known.items()}
    return answers | {path: _Answer(one.batch_id, sights.get(one.batch_id), None) for path, one in known.items()}


def _settled(directory: Path, answer: _Answer | None) -> Look:
    with rundir.locked(directory):
        job = load(directory)
        if answer and answer.batch_id and job.batch_id is None:
            job = structs.replace(job, batch_id=answer.batch_id)  # whoever submitted it did not live to write it down
        sight = _from_files(directory, job, answer) or _from_answer(directory, job, answer)
        if sight is not None and _is_unexplained(job, sight) and _ran_out_of_memory(directory):
            sight = Sight("out_of_memory", sight.words)
        fault = answer.fault if answer and sight is None and not _is_settled(directory, job) else None
        if sight is not None and sight.state != job.state:
            job = seen(job, sight.state, sight.words)
            with suppress(OSError):  # somebody else's job, or one on read-only storage: looking is free
                save(directory, job)
    return Look(directory, job, fault, sight.words if sight is not None and sight.never else None)


def _is_unexplained(job: Job, sight: Sight) -> bool:
    """Slurm says FAILED or, where its daemon killed the job's script, CANCELLED of a job that was killed for memory."""
    return sight.state == "failed" or (sight.state == "cancelled" and job.cancel_asked is None)


def _from_files(directory: Path, job: Job, answer: _Answer | None) -> Sight | None:
    """What exit_status tells: it comes first, what was lost may turn up, a script may be run again by hand."""
    status = exit_status(directory)
    if status is None:
        return None
    if status == _TIME_LIMIT and job.cancel_asked:
        return Sight("cancelled")  # while the job was told that its time is over
    if status in _SAYS_ALL:
        return Sight({0: "completed", _TIME_LIMIT: "timeout"}.get(status, "failed"))  # type: ignore[arg-type]
    if _is_settled(directory, job) and job.state != "completed":
        return Sight(job.state)
    guess = Sight("cancelled" if status == _CANCELLED else "failed")
    return _reason(directory, answer, guess) if SCHEDULERS[job.scheduler].is_queue else guess


def _reason(directory: Path, answer: _Answer | None, guess: Sight) -> Sight | None:
    """Why a job ended badly, by its batch system; None as long as that is still to be told."""
    if answer is None or (answer.fault is not None and not _is_stale(directory)):
        return None
    if answer.sight is None or answer.sight.state == "completed":
        return guess
    return answer.sight if answer.sight.state in ENDED else None  # or it still clears up


def _ran_out_of_memory(directory: Path) -> bool:
    """A rank that was killed for its memory is just a failed step to Slurm; its daemon tells in the job's errors."""
    if exit_status(directory) in _SAYS_ALL:
        return False
    try:
        with (directory / rundir.STDERR).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            of_attempt = file.read().rpartition(_ATTEMPT)[2]  # batch systems append to what an earlier one printed
            return _MEMORY.search(of_attempt) is not None
    except OSError:
        return False


def _is_stale(directory: Path) -> bool:
    return time.time() - (directory / rundir.EXIT_STATUS).stat().st_mtime > _STALE_S


def _from_answer(directory: Path, job: Job, answer: _Answer | None) -> Sight | None:
    """What the batch system tells of a job without exit_status; None where nothing new is known."""
    if answer is None or answer.fault is not None:
        return None
    if answer.batch_id is None:
        return Sight("lost", "its submission was interrupted") if _has_begun(directory) and not job.ended else None
    if _is_settled(directory, job):  # its end stands, unless it was requeued
        return answer.sight if answer.sight is not None and answer.sight.state not in ENDED else None
    return answer.sight or _forgotten(directory, job, answer)


def _forgotten(directory: Path, job: Job, answer: _Answer) -> Sight:
    """The end of a job that its batch system does not know any more."""
    if SCHEDULERS[job.scheduler].is_queue and job.state != "lost":
        time.sleep(_LATE_S)
        os.listdir(directory)  # makes NFS look again
    if (sight := _from_files(directory, job, answer)) is not None:
        return sight
    if job.cancel_asked:
        return Sight("cancelled", "forgotten")
    return Sight("timeout" if (directory / rundir.STOP).exists() else "lost", "forgotten")


def _has_begun(directory: Path) -> bool:
    """Has the job's script begun, whether or not its id was noted?"""
    return (directory / rundir.STDOUT).exists()


def await_release(directory: Path) -> None:
    """Wait until the batch system is through with a job that has ended: it may still bring output, or write its log."""
    job = load(directory)
    scheduler = SCHEDULERS[job.scheduler]
    if not scheduler.is_queue or job.batch_id is None:
        return
    known = Known(job.batch_id, directory)
    deadline = time.monotonic() + _CLEAR_S
    with suppress(DlioError):  # one that does not answer is not waited for
        pause = _LOOK_S
        while time.monotonic() < deadline:
            sight = scheduler.states([known]).get(known.batch_id)
            if sight is None or sight.state in ENDED:
                return
            time.sleep(pause)
            pause = min(2 * pause, 10.0)


def exit_status(directory: Path) -> int | None:
    """What the job script ended with; None when it has not, or was killed before it could say."""
    try:
        return int((directory / rundir.EXIT_STATUS).read_text())
    except (OSError, ValueError):
        return None
