"""job.json: what was submitted, and every state seen, with times. The files in the job's folder are the only memory."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs

from dlio_hpc import document, spelling, units
from dlio_hpc.batch.schedulers import ENDED, State
from dlio_hpc.config.site import SchedulerName
from dlio_hpc.errors import ConfigError, InfrastructureError, InvalidRun, unreadable
from dlio_hpc.files import rundir, safe_folders
from dlio_hpc.plan.plan import Plan


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


def planned(plan: Plan, command: str, after: tuple[str, ...]) -> Job:
    """A job that nothing has been told of yet."""
    sighting = Sighting("planned", units.utc_now())
    site = plan.site
    return Job(plan.job, plan.study, site.name, site.scheduler, host(), command, None, (sighting,), after)


def seen(job: Job, state: State, words: str = "") -> Job:
    """The job with `state` as its newest, if it is news."""
    if job.state == state:
        return job
    return structs.replace(job, states=(*job.states, Sighting(state, units.utc_now(), words)))


def save(directory: Path, job: Job) -> None:
    rundir.write(directory / rundir.JOB, document.encode(job))


def load(directory: Path) -> Job:
    """The job in `directory`; ConfigError when there is none, InvalidRun when its record is damaged."""
    return decode(content(directory, rundir.JOB), str(directory / rundir.JOB))


def decode(content: bytes, source: str) -> Job:
    """A job.json; InvalidRun when it is none."""
    record = document.decode(content, Job, source, InvalidRun)
    document.check_moments(record.states, ("time",), source)
    return record


def load_plan(directory: Path) -> Plan:
    """The plan of the job in `directory`; ConfigError when there is none, InvalidRun when it is damaged."""
    return document.decode(content(directory, rundir.PLAN), Plan, str(directory / rundir.PLAN), InvalidRun)


def content(directory: Path, name: str) -> bytes:
    """A file that every job's directory has; ConfigError when this one has not."""
    try:
        return safe_folders.content(directory / name, rundir.LARGEST_DOCUMENT)
    except OSError as fault:
        if not os.path.lexists(directory):
            raise unknown(directory) from None
        raise unreadable(fault, directory / name, advice=f"; {directory} is no job's directory") from fault


def unknown(path: Path, archive: Path | None = None, remembered: Sequence[str] = ()) -> ConfigError:
    """Build the error for a name that no job or study has. archive: a further folder that was searched. remembered:
    names that its history knows.
    """
    folder = path.parent
    names = [place.parent.name for file in (rundir.JOB, rundir.STUDY) for place in folder.glob(f"*/{file}")]
    elsewhere = f" and {archive}" if archive is not None and archive.parent != folder else ""
    meant = spelling.hint(path.name, [*names, *remembered])
    return ConfigError(
        f"no job or study {path.name!r} in {folder}{elsewhere}; {meant}give its name there, or the path of its "
        "directory or archive (dlio-hpc status lists jobs)"
    )


def host() -> str:
    return os.uname().nodename


def require_host(job: Job) -> None:
    """InfrastructureError where a job of this computer's own can be asked about elsewhere only."""
    if job.scheduler == "local" and job.host != host():
        raise InfrastructureError(f"job {job.job} runs on {job.host}; ask about it there")
