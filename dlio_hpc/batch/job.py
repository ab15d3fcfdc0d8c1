"""job.json: what was submitted, and every state seen, with times. The files in the job's folder are the only memory."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from dlio_hpc import document, rundir, units
from dlio_hpc.batch.schedulers import ENDED, SCHEDULERS, State
from dlio_hpc.errors import ConfigError, InfrastructureError
from dlio_hpc.plan import Plan

# What job.sh leaves in exit_status, beside 0 and the failures.
_TIME_LIMIT, _CANCELLED = 124, 143


class Sighting(Struct, frozen=True):
    """A state and when it was first seen (UTC)."""

    state: State
    time: str


class Job(Struct, frozen=True):
    """One batch job."""

    job: str
    study: str
    site: str
    scheduler: Literal["local"]
    host: str
    command: str
    batch_id: str | None
    states: Annotated[tuple[Sighting, ...], Meta(min_length=1)]
    schema: int = 1

    @property
    def state(self) -> State:
        return self.states[-1].state

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def planned(plan: Plan, command: str) -> Job:
    """A job that nothing has been told of yet."""
    sighting = Sighting("planned", units.utc_now())
    return Job(plan.job, plan.study, plan.site.name, plan.site.scheduler, _host(), command, None, (sighting,))


def seen(job: Job, state: State) -> Job:
    """The job with `state` as its newest, if it is news."""
    if job.state == state:
        return job
    return structs.replace(job, states=(*job.states, Sighting(state, units.utc_now())))


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
    """The job with its state as of now, recorded when it is news."""
    load(directory)
    with rundir.locked(directory):
        return refresh_locked(directory)


def refresh_locked(directory: Path) -> Job:
    """As refresh(), for who holds the lock. exit_status comes first: what was lost may turn up, a script may be run
    again by hand; then the batch system, whose silence means lost.
    """
    job = load(directory)
    state = _exit_state(directory)
    if state is None and job.ended:
        state = "running" if job.state == "lost" and _scheduler_state(job) else job.state
    state = state or _scheduler_state(job) or _exit_state(directory) or "lost"
    if state != job.state:
        job = seen(job, state)
        with suppress(OSError):  # somebody else's job, or one on read-only storage: looking is free
            save(directory, job)
    return job


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
    SCHEDULERS[job.scheduler].cancel(job.batch_id)
    return job


def exit_status(directory: Path) -> int | None:
    """What the job script ended with; None when it has not, or was killed before it could say."""
    try:
        return int((directory / rundir.EXIT_STATUS).read_text())
    except (OSError, ValueError):
        return None


def _exit_state(directory: Path) -> State | None:
    status = exit_status(directory)
    if status is None:
        return None
    if status == 0:
        return "completed"
    return {_TIME_LIMIT: "timeout", _CANCELLED: "cancelled"}.get(status, "failed")  # type: ignore[return-value]


def _scheduler_state(job: Job) -> State | None:
    if job.batch_id is None:
        return job.state  # submission was interrupted before its answer was written down
    if job.ended and job.host != _host():
        return None  # an old job, seen from elsewhere
    _require_host(job)
    return SCHEDULERS[job.scheduler].state(job.batch_id)


def _require_host(job: Job) -> None:
    if job.scheduler == "local" and job.host != _host():
        raise InfrastructureError(f"job {job.job} runs on {job.host}; ask about it there")


def _host() -> str:
    return os.uname().nodename
