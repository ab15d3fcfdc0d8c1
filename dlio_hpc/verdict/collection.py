"""Collection of jobs that have ended: write a job's archive, and its entry in the history of the archives' folder."""

from pathlib import Path
from typing import NamedTuple

from dlio_hpc.batch.collect import Collected, collect
from dlio_hpc.errors import DlioError
from dlio_hpc.records import job_outcome
from dlio_hpc.verdict import history, history_entry


class Archived(NamedTuple):
    """Archive of a job. is_new: whether it was written now; False if it already existed. notes: lines for the user."""

    archive: Path
    is_new: bool
    notes: list[str]


def archive(directory: Path) -> Archived:
    """Archive the job in `directory`, and enter it into the history of the folder that the archive is in."""
    collected = collect(directory)
    return Archived(collected.archive, collected.fresh, [*collected.notes, *_record(directory, collected)])


def _record(directory: Path, collected: Collected) -> list[str]:
    """Enter the job into the history if it lacks the archive. If that fails, return a note: the archive is added to the
    history later.
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
