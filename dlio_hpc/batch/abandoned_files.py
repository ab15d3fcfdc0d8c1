"""Leftovers of jobs and commands that were killed: directories of jobs that never started, partial files, and folders
with files that runs write.
"""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError, DlioError, InfrastructureError, of_system
from dlio_hpc.base.units import listed
from dlio_hpc.batch import job_record, job_state
from dlio_hpc.files import run_outputs, rundir
from dlio_hpc.plan.plan import Plan

# Age in seconds above which a partial file of another host counts as a leftover. No command takes that long to write a
# file.
_LONG_S = 86400.0


class Debris(NamedTuple):
    """A leftover file or directory that may be removed. what: description of the file or directory, such as "a
    half-written job.json". job: name of the job if the directory is its folder of outputs, which check() looks through;
    otherwise None.
    """

    path: Path
    what: str
    job: str | None = None


def rests(folder: Path) -> Iterator[Debris]:
    """Yield the partial files and partial job directories that killed commands left in `folder`. Yield nothing if
    `folder` is not readable.
    """
    with suppress(OSError):
        yield from _rests(folder)


def _rests(folder: Path) -> Iterator[Debris]:
    for path in sorted(folder.iterdir()):
        name = rundir.rest_of(path.name)
        if name is None or (rundir.is_being_written(path.name) and not _is_old(path)):
            continue
        description = f"a submission of {name} that was killed" if path.is_dir() else f"a half-written {name}"
        yield Debris(path, description)


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > _LONG_S
    except OSError:
        return False


def _job_folders(runs: Path) -> list[Path]:
    return [path.parent for path in sorted(runs.glob(rundir.JOBS)) if not path.parent.is_symlink()]


def never_started(runs: Path, unknown: list[DlioError]) -> Iterator[Debris]:
    """Yield the directories in `runs` that belong to jobs that were never submitted and have no output. unknown:
    receives an error for each job whose state the batch system does not tell; such a job is left out. Local jobs of
    other hosts are left out, too.
    """
    for folder in _job_folders(runs):
        try:
            record = job_record.load(folder)
            if record.batch_id is not None or job_state.has_output(folder) or _is_elsewhere(record):
                continue
            record = job_state.refresh(folder)
        except InfrastructureError as fault:  # the batch system does not answer
            unknown.append(InfrastructureError(f"{folder} is left out: {fault}"))
            continue
        except DlioError:  # unreadable
            continue
        if record.batch_id is None and not job_state.has_output(folder) and not rundir.is_locked(folder):
            yield Debris(folder, f"job {record.job} never started ({record.state})")


def outputs(runs: Path, unknown: list[DlioError]) -> Iterator[Debris]:
    """Yield the folders with checkpoints and other files of jobs in `runs` that have ended. A run removes this folder
    at its end, unless it was killed. The batch system is queried for jobs whose end is not recorded. A job whose script
    still runs is left out: in another PID namespace, such as a container, its processes look as if they had ended.
    unknown: as for never_started().
    """
    left: dict[Path, list[Debris]] = {}
    for folder in _job_folders(runs):
        with suppress(DlioError):  # unreadable: it is unknown what the job used
            left[folder] = list(_outputs(job_record.load(folder).job, job_record.load_plan(folder)))
    for look in job_state.refresh_all([folder for folder, debris in left.items() if debris]):
        if look.fault is not None and not _is_elsewhere(look.job):
            unknown.append(InfrastructureError(f"{look.directory} is left out: {look.fault}"))
        elif look.fault is None and look.job.ended and not rundir.is_running(look.directory):
            yield from left[look.directory]


def _is_elsewhere(job: job_record.Job) -> bool:
    """Return whether a job runs without a batch system on another host."""
    return job.scheduler == "local" and job.host != job_record.host()


def _outputs(job: str, plan: Plan) -> Iterator[Debris]:
    """Yield the folders of this user with files that the runs of a job wrote, one for each data directory."""
    for place in sorted({Path(run.outputs) for run in plan.runs if run.workload.writes_outputs}):
        own, dot, load = place.name.rpartition(".node")  # loads of a mix have a folder each
        if f"outputs-{job}" in (place.name, own if dot and load else "") and _is_mine(place):
            yield Debris(place, f"files of job {job}, which was killed", job)


def check(debris: Debris) -> None:
    """Raise ConfigError if a folder of outputs contains entries that no run made, as run_outputs.foreign() says."""
    if debris.job is None:
        return
    try:
        foreign = run_outputs.foreign(debris.path)
    except OSError as fault:
        raise InfrastructureError(f"cannot list {of_system(fault, debris.path)}") from fault
    if foreign:
        raise ConfigError(
            f"nothing of {debris.path} was removed: it contains files that are not of job {debris.job}. Move these "
            f"files away: {listed(foreign)}"
        )


def _is_mine(folder: Path) -> bool:
    """Return whether a path is a folder of this user and no link."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def remove(debris: Debris) -> None:
    """Remove a file, or a directory with its contents. In a folder of outputs, remove only what runs made. Links are
    not followed. For a partial job directory, also remove the empty directory that reserved the name of the job. Raise
    InfrastructureError if a file or directory cannot be removed.
    """
    path = debris.path
    try:
        if debris.job is not None:
            run_outputs.remove(path)
            return
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path)
        name = rundir.rest_of(path.name)
        if name is not None and (taken := path.with_name(name)).is_dir() and not any(taken.iterdir()):
            taken.rmdir()  # the empty directory that reserved the job's name
    except OSError as fault:
        raise InfrastructureError(f"cannot remove {of_system(fault, path)}") from fault
