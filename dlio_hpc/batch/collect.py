"""A job that has ended becomes an archive, once."""

import os
from pathlib import Path
from typing import NamedTuple

from dlio_hpc import archive
from dlio_hpc.batch import job
from dlio_hpc.errors import Incomplete, InfrastructureError


class Collected(NamedTuple):
    """`fresh`: the archive was made now, not found. `notes`: what a person should know about it."""

    archive: Path
    fresh: bool
    notes: list[str]


def collect(directory: Path) -> Collected:
    """Archive the job in `directory`; a sound archive that is there already is left as it is.

    Incomplete while the job goes on. Whenever this is interrupted, the directory is whole and can be collected again.
    """
    record = job.refresh(directory)
    if not record.ended:
        raise Incomplete(
            f"job {record.job} is {record.state}; collect it when it has ended (dlio-hpc wait {directory})"
        )
    plan = job.load_plan(directory)
    target = Path(plan.archive, record.job + archive.SUFFIX)
    notes = _notes(target, Path(plan.data))
    if target.exists():
        if not archive.faults(target):
            return Collected(target, False, notes)
        notes.append(f"{target} was broken and has been made anew")
    try:
        archive.create(directory, target)
    except OSError as fault:
        raise InfrastructureError(
            f"cannot write {target}: {fault.strerror}; the job's directory is untouched"
        ) from fault
    return Collected(target, True, notes)


def _notes(target: Path, data: Path) -> list[str]:
    if _device(target.parent) == _device(data):
        return ["the archive lies on the file system under test; keep it elsewhere with --archive"]
    return []


def _device(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return os.stat(path).st_dev
