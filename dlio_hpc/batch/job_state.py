"""State of a job. It is determined from the files in the job directory or, if these do not suffice, by a query to the
batch system. If the batch system does not answer, the recorded state is kept.
"""

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.command import Unanswered
from dlio_hpc.base.errors import ConfigError, DlioError, Unexpected
from dlio_hpc.batch.job_record import Job, host, load, reference, require_host, save, with_state
from dlio_hpc.batch.schedulers.scheduler import ENDED, JobRef, JobStatus, Scheduler, State, is_unknown
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.files import rundir, safe_folders

# Values that job.sh writes to exit_status in addition to 0 and the exit codes of failures.
_TIME_LIMIT, _CANCELLED = 124, 143
# Largest size of the file exit_status in bytes.
_LONGEST_STATUS = 64
# Values of exit_status that explain why the job ended: success, or an exit code of dlio-hpc. For other values, such as
# those of signals, only the batch system knows whether a node failed, memory ran out, or the job was cancelled.
_SAYS_ALL = {0, 2, 3, 6, Unexpected.exit_code}
# Age of the file exit_status in seconds. If the file is older and the batch system does not answer, the job's end is
# accepted without an explanation.
_STALE_S = 3600.0
# Longest wait for a batch system to clean up after a job, and first interval between queries, in seconds.
_CLEAR_S, _LOOK_S = 60.0, 0.5
# Last messages of batch systems in job.err and job.out, and the states that they mean. Messages about memory come from
# slurmstepd (cgroups, OverMemoryKill), srun, and PBS with its cgroup hook; messages about the end of the job, from
# slurmstepd and PBS's MOM.
_LAST_WORDS: tuple[tuple[re.Pattern[bytes], State], ...] = (
    (
        re.compile(
            rb"Detected \d+ oom[_-]kill event|Out Of Memory|OOM Killed|mem limit exceeded|xceeded (job )?memory limit"
        ),
        "out_of_memory",
    ),
    (re.compile(rb"PBS: job killed: v?mem \S+ exceeded limit"), "out_of_memory"),
    (re.compile(rb"PBS: job killed: (walltime|cput) \S+ exceeded limit"), "timeout"),
    (re.compile(rb"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+ DUE TO TIME LIMIT"), "timeout"),
    (re.compile(rb"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+ DUE TO NODE FAILURE"), "node_fail"),
    (re.compile(rb"\*\*\* JOB \d+ ON \S+ CANCELLED AT "), "cancelled"),
)
# Endings that a batch system may report as a failure: Slurm if a single rank lacked memory, PBS before 22.05 (job.h)
# also at the time limit.
_HIDDEN = {"out_of_memory", "timeout"}
_TAIL_BYTES = 1 << 16
_ATTEMPT = b"== attempt "
# Number of characters that are kept of a message of the batch system.
_MESSAGE = 200
FORGOTTEN = "the batch system no longer knows it"
# A job that the batch system does not know counts as lost only after this delay in seconds, because shared file systems
# show new files late.
_LATE_S = 1.0
# Seconds after the end of a job during which the batch system may requeue the job.
_REQUEUE_S = 86400.0


class JobSnapshot(NamedTuple):
    """The current state of a job. fault: reason why the state could not be updated; None if it was updated. never: the
    batch system's reason why a queued job can never run; None if there is no such reason. advice: what the user can do
    about a job that waits or is suspended; empty if the job needs nothing. stuck: whether the batch system keeps the
    job forever although it has failed.
    """

    directory: Path
    job: Job
    fault: DlioError | None
    never: str | None = None
    advice: str = ""
    stuck: bool = False


def refresh(directory: Path) -> Job:
    """Determine the state of a job and return the job. If the state is new, record it in job.json. Raise an error if
    the batch system does not answer.
    """
    return _answered(directory).job


def _answered(directory: Path) -> JobSnapshot:
    (look,) = refresh_all([directory])
    if look.fault is not None:
        raise look.fault
    return look


def delete_stuck(look: JobSnapshot) -> None:
    """Delete a failed job that the batch system would keep forever. Jobs that wait for the end of this job can then
    start.
    """
    if look.stuck:
        SCHEDULERS[look.job.scheduler].cancel(reference(look.directory, look.job))


def settle(directory: Path) -> Job:
    """Do what refresh() does, and delete the job if it has failed but the batch system would keep it forever."""
    look = _answered(directory)
    delete_stuck(look)
    return look.job


def refresh_all(directories: Sequence[Path], ask: bool = True) -> list[JobSnapshot]:
    """Determine the states of jobs and return all of them. Record new states in job.json. Query each batch system once,
    and in Slurm each cluster once, for all jobs with a state that does not follow from the job's files. ask: False to
    use the files only. Raise ConfigError if a directory is not a job directory.
    """
    jobs = {directory: load(directory) for directory in directories}
    answers = _ask({directory: job for directory, job in jobs.items() if _must_ask(directory, job)} if ask else {})
    return [
        JobSnapshot(directory, job, None)
        if is_handed_over(directory, job)
        else _settled(directory, answers.get(directory))
        for directory, job in jobs.items()
    ]


def is_handed_over(directory: Path, job: Job) -> bool:
    """Return whether another process is submitting the job at this moment."""
    return job.batch_id is None and not job.ended and rundir.is_locked(directory)


class _Answer(NamedTuple):
    """The batch system's answer about a job. known: the job with its batch id; None if the batch id is unknown. sight:
    state of the job; None if the batch system does not know the job or did not answer. fault: error that prevented an
    answer; None if the batch system answered.
    """

    known: JobRef | None
    sight: JobStatus | None
    fault: DlioError | None


def _must_ask(directory: Path, job: Job) -> bool:
    """Return whether the batch system must be queried, because the state of the job does not follow from the files of
    the job.
    """
    if is_handed_over(directory, job):
        return False
    if _is_settled(directory, job) and not _may_return(directory, job):
        return False
    if job.ended and job.scheduler == "local" and job.host != host():
        return False
    status = exit_status(directory)
    return status is None or (not _says_all(directory, status) and SCHEDULERS[job.scheduler].is_queue)


def _says_all(directory: Path, status: int) -> bool:
    """Return whether an exit status explains why the job ended. The script writes 124 in two cases: the time limit was
    announced (the file `stop` exists), or the script was killed after its own clock had reached the limit. In the
    second case, the job may have been cancelled after its limit was raised.
    """
    return status in _SAYS_ALL or (status == _TIME_LIMIT and (directory / rundir.STOP).exists())


def _is_settled(directory: Path, job: Job) -> bool:
    """Return whether the recorded state of the job is final. It is final if the job has ended and its files do not show
    that its script was started again since. The state `lost` is never final, because the job may reappear.
    """
    return job.ended and job.state != "lost" and not ran_since(directory, job)


def ran_since(directory: Path, job: Job) -> bool:
    """Return whether the script of the job was started again, by a requeue or by hand, after its latest state was
    recorded.
    """
    starts = [path.stat().st_mtime for path in rundir.attempts(directory)]
    return max(starts, default=0.0) > units.timestamp(job.states[-1].time) + 1  # the recorded time is in whole seconds


def _may_return(directory: Path, job: Job) -> bool:
    """Return whether a job that has ended may run again. A batch system may requeue a job within a day of its end. The
    script of a requeued job removes the file exit_status.
    """
    if not SCHEDULERS[job.scheduler].is_queue or job.batch_id is None or exit_status(directory) is not None:
        return False
    return time.time() - units.timestamp(job.states[-1].time) < _REQUEUE_S


def _ask(jobs: dict[Path, Job]) -> dict[Path, _Answer]:
    answers: dict[Path, _Answer] = {}
    for name, cluster in dict.fromkeys((job.scheduler, job.cluster) for job in jobs.values()):  # one may not answer
        own = {path: job for path, job in jobs.items() if (job.scheduler, job.cluster) == (name, cluster)}
        answers |= _ask_scheduler(SCHEDULERS[name], own)
    return answers


def _ask_scheduler(scheduler: Scheduler, jobs: dict[Path, Job]) -> dict[Path, _Answer]:
    answers: dict[Path, _Answer] = {}
    known: dict[Path, JobRef] = {}
    for directory, job in jobs.items():
        asked = reference(directory, job)
        try:
            require_host(job)
            named = asked if asked.batch_id else scheduler.find(asked)
        except DlioError as fault:
            answers[directory] = _Answer(None, None, fault)
            continue
        if named is None:
            answers[directory] = _Answer(None, None, None)
        else:
            known[directory] = named
    try:
        sights = scheduler.states(list(known.values())) if known else {}
    except DlioError as fault:
        return answers | {path: _Answer(job, None, fault) for path, job in known.items()}
    elsewhere = _elsewhere(scheduler, {path: jobs[path] for path, job in known.items() if is_unknown(sights.get(job))})
    return answers | {path: _Answer(job, sights.get(job), elsewhere.get(path)) for path, job in known.items()}


def _elsewhere(scheduler: Scheduler, jobs: dict[Path, Job]) -> dict[Path, DlioError]:
    """Return an error for each job that was submitted to another instance of the batch system than the one that answers
    here. This instance does not know the job, or has given its id to another job, but the job may still be alive.
    """
    here = scheduler.home() if any(job.home and not job.cluster for job in jobs.values()) else ""
    return {
        path: Unanswered(
            f"job {job.job} was submitted to {job.home}, but {here} answers here; "
            "run this command where the job was submitted"
        )
        for path, job in jobs.items()
        if here and job.home and not job.cluster and job.home != here
    }


def _settled(directory: Path, answer: _Answer | None) -> JobSnapshot:
    with rundir.locked(directory):
        job = known = load(directory)
        if answer and answer.known and job.batch_id is None:  # the submitter died before it recorded the id
            job = structs.replace(job, batch_id=answer.known.batch_id, cluster=answer.known.cluster)
        sight = _state_from_files(directory, job, answer) or _state_from_answer(directory, job, answer)
        if sight is not None and _is_unexplained(job, sight):
            message = _last_words(directory)
            sight = message if message is not None and message.state in _HIDDEN else sight
        fault = answer.fault if answer and sight is None and not _is_settled(directory, job) else None
        if sight is not None:
            began = _end(directory) if sight.state in ENDED else None
            job = with_state(job, sight.state, sight.text, sight.suspended, began)
        if job is not known:
            with suppress(OSError):  # another user's job, or read-only storage
                save(directory, job)
    if sight is None and answer is not None and answer.sight is not None and answer.sight.stuck:
        sight = answer.sight  # its state has been recorded
    if sight is None:
        return JobSnapshot(directory, job, fault)
    return JobSnapshot(directory, job, fault, sight.text if sight.never else None, sight.advice, sight.stuck)


def _end(directory: Path) -> str | None:
    """Return the time (UTC) at which the job script ended, or None if it is not known. A user may query the state days
    later.
    """
    for path in (directory / rundir.EXIT_STATUS, rundir.spare(directory) / rundir.EXIT_STATUS):
        with suppress(OSError):
            return units.utc(path.stat().st_mtime)
    return None


def _is_unexplained(job: Job, sight: JobStatus) -> bool:
    """Return whether the job may have been killed because of its memory use or its time limit although the batch
    system does not say so. Slurm reports such jobs as FAILED, or as CANCELLED if its daemon killed the script.
    """
    return sight.state == "failed" or (sight.state == "cancelled" and job.cancel_asked is None)


def _state_from_files(directory: Path, job: Job, answer: _Answer | None) -> JobStatus | None:
    """Return the state that follows from the file exit_status. Return None if the file is missing, or if the state does
    not follow from it alone. A state from this file replaces the recorded state, because lost jobs may reappear and
    scripts may be run again by hand.
    """
    status = exit_status(directory)
    if status is None:
        return None
    if status == _TIME_LIMIT and job.cancel_asked:
        return JobStatus("cancelled")  # it was cancelled after its time-limit warning
    if _says_all(directory, status):
        return JobStatus({0: "completed", _TIME_LIMIT: "timeout"}.get(status, "failed"))  # type: ignore[arg-type]
    if _is_settled(directory, job) and job.state != "completed":
        return JobStatus(job.state)
    guess = _guess(directory, job, status)
    return _failure_state(directory, answer, guess) if SCHEDULERS[job.scheduler].is_queue else guess


def _guess(directory: Path, job: Job, status: int) -> JobStatus:
    """Return the state that an exit status suggests. A rank that was killed may also end with 143. The job was
    cancelled only if the trap of the script left the file `terminated`.
    """
    if status == _TIME_LIMIT:
        return JobStatus("timeout")
    if status == _CANCELLED and (job.cancel_asked or (directory / rundir.TERMINATED).exists()):
        return JobStatus("cancelled")
    return JobStatus("failed", f"exit status {status}")


def _failure_state(directory: Path, answer: _Answer | None, guess: JobStatus) -> JobStatus | None:
    """Return the state that the batch system reports for a failed job, such as `node_fail`. If the batch system reports
    no state that is more specific than `guess`, return `guess`. If it no longer knows the job, use its last messages.
    Return None if the batch system has not answered yet or is still cleaning up; the state is then determined later.
    """
    if answer is None or (answer.fault is not None and not _is_stale(directory)):
        return None
    if answer.sight is None or is_unknown(answer.sight):
        return _last_words(directory) or guess
    if answer.sight.state == "completed" or (answer.sight.state == "failed" and guess.state == "timeout"):
        return guess
    return answer.sight if answer.sight.state in ENDED else None  # None while the batch system cleans up


def _last_words(directory: Path) -> JobStatus | None:
    """Return the state that the batch system's messages in job.err and job.out report, with the message. Return None if
    there are none. If a single rank was killed because of its memory use, Slurm's job states do not show this: only the
    job step of the ranks has failed.
    """
    if exit_status(directory) in _SAYS_ALL:
        return None
    for name in (rundir.STDERR, rundir.STDOUT):
        tail = _tail(directory / name)
        for pattern, state in _LAST_WORDS:
            if match := pattern.search(tail):
                line = tail[tail.rfind(b"\n", 0, match.start()) + 1 :].partition(b"\n")[0]
                return JobStatus(state, " ".join(line.decode(errors="replace").split())[:_MESSAGE])
    return None


def _tail(path: Path) -> bytes:
    """Return the end of an output file of the job's newest attempt. Batch systems append to the output of earlier
    attempts.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().rpartition(_ATTEMPT)[2]
    except OSError:
        return b""


def _is_stale(directory: Path) -> bool:
    return time.time() - (directory / rundir.EXIT_STATUS).stat().st_mtime > _STALE_S


def _state_from_answer(directory: Path, job: Job, answer: _Answer | None) -> JobStatus | None:
    """Return the state that the batch system reports for a job that has no file exit_status. Return None if the
    recorded state remains valid.
    """
    if answer is None or answer.fault is not None:
        return None
    if answer.known is None:
        return (
            JobStatus("lost", "its submission was interrupted") if _has_started(directory) and not job.ended else None
        )
    if _is_settled(directory, job):  # the end is final unless the job was requeued
        return answer.sight if answer.sight is not None and answer.sight.state not in ENDED else None
    if is_unknown(answer.sight):
        return _state_if_unknown(directory, job, answer)
    return answer.sight


def _state_if_unknown(directory: Path, job: Job, answer: _Answer) -> JobStatus:
    """Return the state of a job that its batch system no longer knows. This is the state that follows from the job's
    files, or from the batch system's last messages. If these do not suffice, it is `cancelled`, `timeout` or `lost`. A
    job that waited for others and never started was deleted, because one of these failed. Wait one second before
    reading the files, because shared file systems show new files late.
    """
    if SCHEDULERS[job.scheduler].is_queue and job.state != "lost":
        time.sleep(_LATE_S)
        os.listdir(directory)  # makes NFS revalidate its cache
    if (sight := _state_from_files(directory, job, answer)) is not None:
        return sight
    if job.cancel_asked:
        return JobStatus("cancelled", FORGOTTEN)
    if (message := _last_words(directory)) is not None:
        return message
    if job.after and not has_output(directory):
        return JobStatus("cancelled", f"deleted before it started; it waited for {', '.join(job.after)}")
    if (directory / rundir.STOP).exists():
        return JobStatus("timeout", FORGOTTEN)
    return answer.sight or JobStatus("lost", FORGOTTEN)


def _has_started(directory: Path) -> bool:
    """Return whether the script of the job has started. The answer is correct even if the batch id of the job was not
    recorded.
    """
    return (directory / rundir.STDOUT).exists()


def has_output(directory: Path) -> bool:
    """Return whether the job has left any file. PBS may copy job.out only after the job's end."""
    return any((directory / name).exists() for name in (rundir.STDOUT, rundir.EXIT_STATUS, rundir.ENVIRONMENT))


def await_release(directory: Path) -> None:
    """Wait until the batch system has cleaned up after a job that has ended, for at most 60 s. Until then, the batch
    system may still copy output or write its log.
    """
    job = load(directory)
    scheduler = SCHEDULERS[job.scheduler]
    if not scheduler.is_queue or job.batch_id is None:
        return
    known = reference(directory, job)
    deadline = time.monotonic() + _CLEAR_S
    with suppress(DlioError):  # do not wait for a batch system that does not answer
        pause = _LOOK_S
        while time.monotonic() < deadline:
            sight = scheduler.states([known]).get(known)
            if sight is None or sight.state in ENDED:
                return
            time.sleep(pause)
            pause = min(2 * pause, 10.0)


def exit_status(directory: Path) -> int | None:
    """Return the exit status of the job script. Return None if the script has not ended, or if the script was killed
    before it wrote the file exit_status. If the file system is full, the script writes the file to the spare folder of
    its node.
    """
    try:
        return int(safe_folders.content(directory / rundir.EXIT_STATUS, _LONGEST_STATUS))
    except FileNotFoundError:
        kept = rundir.spare_content(directory, rundir.EXIT_STATUS)
    except (OSError, ValueError, ConfigError):
        return None
    return int(kept) if kept is not None and kept.strip().isdigit() else None
