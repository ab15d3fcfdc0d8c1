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

from dlio_hpc.base.errors import DlioError, InfrastructureError
from dlio_hpc.batch import job_record, job_state
from dlio_hpc.files import rundir

# Age in seconds above which a partial file of another host counts as a leftover. No command takes that long to write a
# file.
_LONG_S = 86400.0


class Debris(NamedTuple):
    """A leftover file or directory that may be removed. what: description of the file or directory, such as "a
    half-written job.json".
    """

    path: Path
    what: str


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


def never_started(runs: Path) -> Iterator[Debris]:
    """Yield the directories in `runs` that belong to jobs that were never submitted and have no output."""
    for folder in _job_folders(runs):
        try:
            record = job_record.load(folder)
            if record.batch_id is not None or job_state.has_output(folder):
                continue
            record = job_state.refresh(folder)
        except DlioError:  # unreadable, or the batch system does not answer: the state is unknown
            continue
        if record.batch_id is None and not job_state.has_output(folder) and not rundir.is_locked(folder):
            yield Debris(folder, f"job {record.job} never started ({record.state})")


def outputs(runs: Path) -> Iterator[Debris]:
    """Yield the folders with checkpoints and other files of jobs in `runs` that have ended. A run removes this folder
    at its end, unless it was killed.
    """
    for folder in _job_folders(runs):
        try:
            record = job_record.load(folder)
            if not record.ended:
                continue
            planned = job_record.load_plan(folder).runs
        except DlioError:  # unreadable: it is unknown what the job used
            continue
        for place in sorted({Path(run.outputs) for run in planned if run.workload.writes_outputs}):
            if place.name == f"outputs-{record.job}" and _is_mine(place):
                yield Debris(place, f"files of job {record.job}, which was killed")


def _is_mine(folder: Path) -> bool:
    """Return whether a path is a folder of this user and no link."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def remove(path: Path) -> None:
    """Remove a file, or a directory with its contents. Links are not followed. For a partial job directory, also remove
    the empty directory that reserved the name of the job. Raise InfrastructureError if a file or directory cannot be
    removed.
    """
    try:
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path)
        name = rundir.rest_of(path.name)
        if name is not None and (taken := path.with_name(name)).is_dir() and not any(taken.iterdir()):
            taken.rmdir()  # the empty directory that reserved the job's name
    except OSError as fault:
        raise InfrastructureError(f"cannot remove {fault.filename or path}: {fault.strerror}") from fault
