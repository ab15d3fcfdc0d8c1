"""Collection of jobs that have ended: write the archive of a job, and its entry in the history of the folder of
archives.
"""

from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.errors import DlioError
from dlio_hpc.batch.collect import Collected, collect
from dlio_hpc.records import job_outcome
from dlio_hpc.verdict import history, history_entry


class Archived(NamedTuple):
    """Archive of a job. is_new: True if it was written by this call, False if it already existed. notes: lines for the
    user.
    """

    archive: Path
    is_new: bool
    notes: list[str]


def archive(directory: Path) -> Archived:
    """Archive the job in `directory`, and add it to the history of the folder that holds the archive."""
    collected = collect(directory)
    return Archived(collected.archive, collected.fresh, [*collected.notes, *_record(directory, collected)])


def _record(directory: Path, collected: Collected) -> list[str]:
    """Add the job to the history, unless the history already has its archive. If this fails, return a note for the
    user; a later command then adds the archive.
    """
    folder = collected.archive.parent
    try:
        if collected.fresh:
            history.enter(folder, history_entry.of(job_outcome.load(directory)))
        elif not history.knows(collected.archive):
            history.enter(folder, history_entry.of(job_outcome.load(collected.archive)))
    except (DlioError, OSError) as fault:
        return [f"the job is not in the history yet: {fault}"]
    return []
