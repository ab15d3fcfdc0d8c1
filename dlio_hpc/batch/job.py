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
    return [_settled(directory, answers.get(directory)) for directory in directories]


class _Answer(NamedTuple):
    """What the batch system said of a job: `sight` None, it does not know it; `fault`, it said nothing."""

    batch_id: str | None
    sight: Sight | None
    fault: DlioError | None


def _must_ask(directory: Path, job: Job) -> bool:
    """exit_status comes first; but why a job ended badly, only its batch system knows."""
    if job.ended and (job.state != "lost" or (job.scheduler == "local" and job.host != _host())):
        return False
    status = exit_status(directory)
    return status is None or (status not in {0, _TIME_LIMIT} and SCHEDULERS[job.scheduler].is_queue)


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
    if status in {0, _TIME_LIMIT}:
        return Sight("timeout" if status else "completed")
    if job.ended and job.state not in {"lost", "completed"}:
        return Sight(job.state)
    if answer is None and SCHEDULERS[job.scheduler].is_queue:
        return None  # not asked yet
    if answer is not None and answer.sight is not None:
        over = answer.sight.state in ENDED
        # The batch system still clears up; what it says when it has done so may be another reason than a failure.
        return answer.sight if over and answer.sight.state != "completed" else None if not over else Sight("failed")
    return Sight("cancelled" if status == _CANCELLED else "failed")


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
    if job.batch_id is None:
        if (directory / rundir.STDOUT).exists():
            raise InfrastructureError(
                f"job {job.job} may be running, though its submission was interrupted; look for its processes by hand"
            )
        job = seen(job, "cancelled")
        save(directory, job)
        return job
    _require_host(job)
    with rundir.locked(directory):
        save(directory, structs.replace(load(directory), cancel_asked=units.utc_now()))
    SCHEDULERS[job.scheduler].cancel(job.batch_id)
    return job


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
