"""job.json: what was submitted, and every state seen, with times. The files in the job's folder are the only memory."""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, structs

from dlio_hpc import document, rundir, units
from dlio_hpc.batch.schedulers import ENDED, SCHEDULERS, Known, Scheduler, Sight, State
from dlio_hpc.errors import ConfigError, DlioError, InfrastructureError
from dlio_hpc.plan import Plan
from dlio_hpc.site import SchedulerName

# What job.sh leaves in exit_status, beside 0 and the failures.
_TIME_LIMIT, _CANCELLED = 124, 143
# With which job.sh has said all: done, one of our own exit codes, or over its time. Of others, such as a signal's, only
# the batch system knows the reason: a node, memory, somebody's cancel.
_SAYS_ALL = {0, 2, 3, 6, _TIME_LIMIT}
# From when on an ending without a reason is believed although the batch system does not answer.
_STALE_S = 3600.0
# How long a batch system may clear up after a job.
_CLEAR_S, _LOOK_S = 60.0, 0.5
# Before a job that the batch system has forgotten counts as lost: shared file systems show new files late.
_LATE_S = 1.0


class Sighting(Struct, frozen=True, omit_defaults=True):
    """A state and when it was first seen (UTC); `words`: the batch system's own for it."""

    state: State
    time: str
    words: str = ""


class Job(Struct, frozen=True):
    """One batch job. `after`: batch ids of the jobs that it waits for. `cancel_asked`: when, if ever (UTC)."""

    job: str
    study: str
    site: str
    scheduler: SchedulerName
    host: str
    command: str
    batch_id: str | None
    states: Annotated[tuple[Sighting, ...], Meta(min_length=1)]
    after: tuple[str, ...] = ()
    cancel_asked: str | None = None
    schema: int = 1

    @property
    def state(self) -> State:
        return self.states[-1].state

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class Look(NamedTuple):
    """A job as of now. `fault`: why its state is the last one known, not today's."""

    directory: Path
    job: Job
    fault: DlioError | None


def planned(plan: Plan, command: str, after: tuple[str, ...]) -> Job:
    """A job that nothing has been told of yet."""
    sighting = Sighting("planned", units.utc_now())
    site = plan.site
    return Job(plan.job, plan.study, site.name, site.scheduler, _host(), command, None, (sighting,), after)


def seen(job: Job, state: State, words: str = "") -> Job:
    """The job with `state` as its newest, if it is news."""
    if job.state == state:
        return job
    return structs.replace(job, states=(*job.states, Sighting(state, units.utc_now(), words)))


def save(directory: Path, job: Job) -> None:
    rundir.write(directory / rundir.JOB, document.encode(job))


def load(directory: Path) -> Job:
    """The job in `directory`; ConfigError when there is none."""
    return document.decode(content(directory, rundir.JOB), Job, str(directory / rundir.JOB))


def load_plan(directory: Path) -> Plan:
    """The plan of the job in `directory`; ConfigError when there is none."""
    return document.decode(content(directory, rundir.PLAN), Plan, str(directory / rundir.PLAN))


def content(directory: Path, name: str) -> bytes:
    """A file that every job's directory has; ConfigError when this one has not."""
    try:
        return (directory / name).read_bytes()
    except OSError as fault:
        raise ConfigError(f"{directory} is no job's directory: cannot read {name}: {fault.strerror}") from fault


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
    if job.ended and (job.state != "lost" or (job.scheduler == "local" and job.host != _host())):
        return False
    status = exit_status(directory)
    return status is None or (status not in _SAYS_ALL and SCHEDULERS[job.scheduler].is_queue)


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
            _require_host(job)
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
    return answers | {
        path: _Answer(one.batch_id, sights.get(one.batch_id), None) for path, one in known.items()
    }  # fmt: skip


def _settled(directory: Path, answer: _Answer | None) -> Look:
    with rundir.locked(directory):
        job = load(directory)
        if answer and answer.batch_id and job.batch_id is None:
            job = structs.replace(job, batch_id=answer.batch_id)  # whoever submitted it did not live to write it down
        sight = _from_files(directory, job, answer) or _from_answer(directory, job, answer)
        fault = answer.fault if answer and sight is None else None
        if sight is not None and sight.state != job.state:
            job = seen(job, sight.state, sight.words)
            with suppress(OSError):  # somebody else's job, or one on read-only storage: looking is free
                save(directory, job)
    return Look(directory, job, fault)


def _from_files(directory: Path, job: Job, answer: _Answer | None) -> Sight | None:
    """What exit_status tells: it comes first, what was lost may turn up, a script may be run again by hand."""
    status = exit_status(directory)
    if status is None:
        return None
    if status in _SAYS_ALL:
        return Sight({0: "completed", _TIME_LIMIT: "timeout"}.get(status, "failed"))  # type: ignore[arg-type]
    if job.ended and job.state not in {"lost", "completed"}:
        return Sight(job.state)
    if SCHEDULERS[job.scheduler].is_queue:
        if answer is None or (answer.fault is not None and not _is_stale(directory)):
            return None  # the reason is still to be told
        if answer.sight is not None and answer.sight.state != "completed":
            return answer.sight if answer.sight.state in ENDED else None  # or it still clears up
    return Sight("cancelled" if status == _CANCELLED else "failed")


def _is_stale(directory: Path) -> bool:
    return time.time() - (directory / rundir.EXIT_STATUS).stat().st_mtime > _STALE_S


def _from_answer(directory: Path, job: Job, answer: _Answer | None) -> Sight | None:
    """What the batch system tells of a job without exit_status; None where nothing new is known."""
    if answer is None or answer.fault is not None or answer.batch_id is None:
        return None
    if answer.sight is not None:
        return answer.sight
    if SCHEDULERS[job.scheduler].is_queue:
        time.sleep(_LATE_S)
        os.listdir(directory)  # makes NFS look again
    if (sight := _from_files(directory, job, answer)) is not None:
        return sight
    if job.cancel_asked:
        return Sight("cancelled", "forgotten")
    return Sight("timeout" if (directory / rundir.STOP).exists() else "lost", "forgotten")


def cancel(directory: Path) -> Job:
    """Ask the batch system to end the job, unless it has ended by itself; one that it never got is cancelled here."""
    job = refresh(directory)
    if job.ended:
        return job
    if job.batch_id is None and (directory / rundir.STDOUT).exists() and not rundir.is_locked(directory):
        raise InfrastructureError(
            f"job {job.job} may be running, though its submission was interrupted; look for its processes by hand"
        )
    with rundir.locked(directory):  # a submission under way comes first
        job = load(directory)
        if job.batch_id is None:
            job = seen(job, "cancelled")
            save(directory, job)
            return job
        save(directory, structs.replace(job, cancel_asked=units.utc_now()))
    _require_host(job)
    SCHEDULERS[job.scheduler].cancel(job.batch_id)
    return job


def await_release(directory: Path) -> None:
    """Wait until the batch system is through with a job that has ended: it may still bring output, or write its log."""
    job = load(directory)
    scheduler = SCHEDULERS[job.scheduler]
    if not scheduler.is_queue or job.batch_id is None:
        return
    known = Known(job.batch_id, directory)
    deadline = time.monotonic() + _CLEAR_S
    with suppress(DlioError):  # one that does not answer is not waited for
        while time.monotonic() < deadline:
            sight = scheduler.states([known]).get(known.batch_id)
            if sight is None or sight.state in ENDED:
                return
            time.sleep(_LOOK_S)


def exit_status(directory: Path) -> int | None:
    """What the job script ended with; None when it has not, or was killed before it could say."""
    try:
        return int((directory / rundir.EXIT_STATUS).read_text())
    except (OSError, ValueError):
        return None


def _require_host(job: Job) -> None:
    if job.scheduler == "local" and job.host != _host():
        raise InfrastructureError(f"job {job.job} runs on {job.host}; ask about it there")


def _host() -> str:
    return os.uname().nodename
