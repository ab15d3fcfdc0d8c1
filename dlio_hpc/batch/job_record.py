"""The file job.json: a job as it was submitted, and each of its states with the time at which the state was first
observed. Everything that is known about a job is in its directory.
"""

import fnmatch
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, DlioError, InfrastructureError, InvalidRun, name_hint, unreadable
from dlio_hpc.batch.schedulers.scheduler import ENDED, JobRef, State
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.config import shipped
from dlio_hpc.config.scheduler_facts import SchedulerName
from dlio_hpc.files import path_kinds, rundir, safe_folders
from dlio_hpc.plan import night_chain
from dlio_hpc.plan.plan import Plan, archive_folder

# Folder of archives beside the directories of jobs, unless the plan names another one.
_ARCHIVES = "archive"


class Sighting(Struct, frozen=True, omit_defaults=True):
    """A state of a job, and the time (UTC) at which it was first observed. If the job script wrote exit_status, the
    time of the end is the time of that file. text: newest name of the state in the batch system, such as the reason why
    a job waits. suspended: whether the job was suspended. text_since: time (UTC) at which `text` was first observed;
    empty if it was observed together with the state.
    """

    state: State
    time: str
    text: str = ""
    suspended: bool = False
    text_since: str = ""

    @property
    def since(self) -> str:
        """The time (UTC) since which `text` applies."""
        return self.text_since or self.time


class Job(Struct, frozen=True):
    """A batch job. states: observed states, oldest first. after: batch ids of the jobs that this job waits for.
    cancel_asked: time (UTC) at which cancellation was requested; None if it was not requested. cluster: the cluster of
    Slurm that has the job; empty for the cluster of the login node. Before the batch id is known, it may be a list of
    clusters. home: the instance of the batch system that the job was submitted to; empty if it is not known. remarks:
    what the batch system printed when it accepted the job, such as a limit that a filter changed. night: number of the
    night of the study that the job belongs to, counted from 1. nights: number of nights of the study. begins: time
    (UTC) before which the job does not start; empty if it was not set.
    """

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
    cluster: str = ""
    home: str = ""
    remarks: str = ""
    night: int = 1
    nights: int = 1
    begins: str = ""

    @property
    def state(self) -> State:
        return self.states[-1].state

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def described(self) -> str:
        """The newest state with the batch system's words, such as "queued (PENDING Priority)"."""
        newest = self.states[-1]
        state = f"{newest.state}, suspended" if newest.suspended and newest.text != "suspended" else newest.state
        return f"{state} ({newest.text})" if newest.text else state

    def night_text(self) -> str:
        """The night of the job, such as "night 3 of 5, begins 2026-11-28 02:00 CET"; empty if the study has a single
        night.
        """
        return night_chain.described(self.night, self.nights, "" if self.ended else self.begins)


def planned(plan: Plan, command: str, after: tuple[str, ...], cluster: str = "") -> Job:
    """Return the record of a job that has not been submitted yet. command: command that submits the job. after: batch
    ids of the jobs that the job waits for. cluster: cluster that the job is submitted to, as in Job.
    """
    sighting = Sighting("planned", units.utc_now())
    site = plan.site
    return Job(
        plan.job, plan.study, site.name, site.scheduler, host(), command, None, (sighting,), after, cluster=cluster,
        night=plan.night, nights=plan.nights, begins=plan.begins,
    )  # fmt: skip


def with_state(job: Job, state: State, text: str = "", suspended: bool = False, began: str | None = None) -> Job:
    """Return the job with `state` appended to its states. If `state` is already its newest state, only the text of this
    state is replaced. text: name of the state in the batch system. suspended: whether the job stands still. began: time
    (UTC) at which the state began; None for the current time. A time in the future, or before the newest state, comes
    from another clock and is ignored.
    """
    newest = job.states[-1]
    if (newest.state, newest.suspended) != (state, suspended):
        now = units.utc_now()
        moment = began if began is not None and newest.time <= began <= now else now
        return structs.replace(job, states=(*job.states, Sighting(state, moment, text, suspended)))
    if newest.text == text or (job.ended and not text):
        return job
    since = newest.text_since if _reason(newest.text) == _reason(text) else units.utc_now()
    return structs.replace(job, states=(*job.states[:-1], structs.replace(newest, text=text, text_since=since)))


def _reason(text: str) -> str:
    """Return the text with its numbers removed, because PBS counts free resources in the reason why a job waits."""
    return re.sub(r"\d+", "", text)


def remarks(job: Job) -> list[str]:
    """Return the messages of the batch system when it accepted the job, such as a limit that a filter of the site
    changed.
    """
    return [f"{SCHEDULERS[job.scheduler].program} says: {job.remarks}"] if job.remarks else []


def reference(directory: Path, job: Job) -> JobRef:
    """Return the reference by which a batch system is queried about the job."""
    return JobRef(job.batch_id or "", directory, job.job, job.cluster)


def save(directory: Path, job: Job) -> None:
    rundir.write(directory / rundir.JOB, serialization.encode(job))


def load(directory: Path) -> Job:
    """Read job.json in `directory`. Raise ConfigError if it does not exist, and InvalidRun if it is corrupted."""
    with naming_archive(directory):
        return decode(content(directory, rundir.JOB), str(directory / rundir.JOB))


def decode(content: bytes, source: str) -> Job:
    """Decode the content of a job.json. Raise InvalidRun if `content` is not valid. source: name of the file, for
    messages.
    """
    record = serialization.decode(content, Job, source, InvalidRun)
    serialization.check_moments(record.states, ("time",), source)
    serialization.check_moments([record] if record.begins else [], ("begins",), source)
    if record.job in {"", ".", ".."} or "/" in record.job or "\0" in record.job:
        raise InvalidRun(f"{source}: job: {record.job!r} is not the name of a job; archives get this name")
    return record


def load_plan(directory: Path) -> Plan:
    """Read plan.json in `directory`. Raise ConfigError if it does not exist, and InvalidRun if it is corrupted."""
    with naming_archive(directory):
        return _plan(directory)


def _plan(directory: Path) -> Plan:
    return serialization.decode(content(directory, rundir.PLAN), Plan, str(directory / rundir.PLAN), InvalidRun)


@contextmanager
def naming_archive(directory: Path) -> Iterator[None]:
    """If the body raises InvalidRun, because a file of a job is damaged, and the job has an archive, add to the message
    the command that reports the job from its archive. directory: directory of the job.
    """
    try:
        yield
    except InvalidRun as fault:
        folder = directory.parent / _ARCHIVES
        with suppress(DlioError):
            folder = archive_folder(_plan(directory), directory)
        kept = folder / f"{directory.name}{rundir.ARCHIVE_SUFFIX}"
        if not kept.is_file() or str(kept) in str(fault):
            raise
        command = f"dlio-hpc report {shlex.quote(str(kept))}"
        raise type(fault)(f"{fault}; the archive has the job as it was collected: {command}") from fault


def content(directory: Path, name: str) -> bytes:
    """Return the content of `name`, a file that exists in every job directory. Raise ConfigError if the file or the
    directory does not exist.
    """
    try:
        return safe_folders.content(directory / name, rundir.LARGEST_DOCUMENT)
    except OSError as fault:
        if not os.path.lexists(directory):
            raise unknown(directory) from None
        if isinstance(fault, FileNotFoundError | NotADirectoryError):
            path_kinds.refuse_other(directory, "a job of dlio-hpc")
        advice = f"; {directory} is not a job directory: give the name of a job, see dlio-hpc status"
        raise unreadable(fault, directory / name, advice=advice) from fault


def unknown(path: Path, archive: Path | None = None, remembered: Sequence[str] = ()) -> ConfigError:
    """Return the error for a path that is neither a job nor a study. Its message suggests a similar name. archive: a
    further folder that was searched; None if there is none. remembered: names from the history that may also be
    suggested.
    """
    folder = path.parent
    if path.name.endswith(rundir.ARCHIVE_SUFFIX):
        return ConfigError(_no_archive(path))
    kept = (archive or folder / _ARCHIVES) / f"{path.name}{rundir.ARCHIVE_SUFFIX}"
    if kept.is_file():
        return ConfigError(
            f"job {path.name} has ended, and its directory was removed; dlio-hpc report {path.name} shows its archive, "
            f"{kept}"
        )
    names = [place.parent.name for file in (rundir.JOB, rundir.STUDY) for place in folder.glob(f"*/{file}")]
    elsewhere = f" and {archive}" if archive is not None and archive.parent != folder else ""
    if folder.exists() and not folder.is_dir():
        return ConfigError(f"{folder} is a file; give the folder of jobs with --runs, such as dlio-runs")
    meant = _of_pattern(path, names) or _of_batch_id(path) or _of_workload(path, names)
    meant = meant or name_hint(path.name, [*names, *remembered])
    advice = "dlio-hpc status lists jobs" if folder.exists() else "that folder does not exist"
    return ConfigError(
        f"no job or study {path.name!r} in {folder}{elsewhere}; {meant}give a name in that folder, or the path "
        f"of a directory or archive ({advice})"
    )


# Kinds of files whose names users give in place of the names of their jobs.
_SUBMITTED = {shipped.WORKLOADS: "a workload", shipped.STUDIES: "a study file", shipped.SUITES: "a suite"}


def _of_workload(path: Path, names: Sequence[str]) -> str:
    """Return advice if the name of a path is that of a workload, study or suite: its newest job in the same folder.
    names: names of jobs and studies in this folder.
    """
    kind = next((text for kind, text in _SUBMITTED.items() if path.name in shipped.names(kind)), None)
    if kind is None:
        return ""
    archived = [file.name for file in (path.parent / _ARCHIVES).glob(f"*{rundir.ARCHIVE_SUFFIX}")]
    pattern = re.compile(rf"{re.escape(path.name)}-(\d{{8}}-\d{{6}}\S*)")
    own = [name.removesuffix(rundir.ARCHIVE_SUFFIX) for name in (*names, *archived) if pattern.match(name)]
    if not own:
        return f"{path.name!r} is {kind}, which has no job there; "
    return f"{path.name!r} is {kind}; its newest job in {path.parent} is {max(own)}; "


def _of_batch_id(path: Path) -> str:
    """Return advice if the name of a path is the id that the batch system gave to a job in the same folder."""
    if not path.name[:1].isdigit():
        return ""
    for file in path.parent.glob(rundir.JOBS):
        with suppress(DlioError, OSError):
            if load(file.parent).batch_id == path.name:
                return f"did you mean {file.parent.name!r}, which has this id in the batch system? "
    return ""


def _of_pattern(path: Path, names: Sequence[str]) -> str:
    """Return advice if a path that does not exist is a pattern that matches names of jobs or studies in its folder."""
    if not fnmatch.filter(names, path.name):
        return ""
    return f"it is a pattern: write {path} without quotes, so that the shell expands it, or "


def _no_archive(path: Path) -> str:
    """Return the message for an archive that does not exist. It suggests a similar name."""
    folders = (path.parent, path.parent / _ARCHIVES)
    names = [file.name for folder in folders for file in folder.glob(f"*{rundir.ARCHIVE_SUFFIX}")]
    return (
        f"no archive {path.name!r} in {path.parent}; {name_hint(path.name, names)}copy it from where the job was "
        f"collected, or archive the job with dlio-hpc collect {path.name.removesuffix(rundir.ARCHIVE_SUFFIX)}"
    )


def host() -> str:
    return os.uname().nodename


def require_host(job: Job) -> None:
    """Raise InfrastructureError if this is a job of the local site that was started on another host."""
    if job.scheduler == "local" and job.host != host():
        raise InfrastructureError(f"job {job.job} runs on {job.host}; run this command there")
