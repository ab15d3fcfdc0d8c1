"""Collection of jobs that have ended: the archive, and the entry in the history beside it."""

from pathlib import Path
from typing import NamedTuple

from dlio_hpc.batch.collect import Collected, collect
from dlio_hpc.errors import DlioError
from dlio_hpc.records import job_outcome
from dlio_hpc.verdict import history, history_entry


class Archived(NamedTuple):
    """An archive. is_new: it was not there before. notes: lines for the user."""

    archive: Path
    is_new: bool
    notes: list[str]


def archive(directory: Path) -> Archived:
    """Archive the job in `directory` and enter it into the history beside the archive."""
    collected = collect(directory)
    return Archived(collected.archive, collected.fresh, [*collected.notes, *_record(directory, collected)])


def _record(directory: Path, collected: Collected) -> list[str]:
    """Enter the job into the history. Return a note where that fails; the history adds the archive later."""
    folder = collected.archive.parent
    try:
        if collected.fresh:
            history.enter(folder, history_entry.of(job_outcome.load(directory)))
        elif not history.knows(collected.archive):
            history.enter(folder, history_entry.of(job_outcome.load(collected.archive)))
    except (DlioError, OSError) as fault:
        return [f"the job is not in the history yet: {fault}"]
    return []
