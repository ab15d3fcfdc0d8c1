"""Removal of old archives. The history keeps the entries of their jobs, in the folder `entries` beside the archives."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base import units
from dlio_hpc.base.errors import InfrastructureError, about, of_system
from dlio_hpc.files import archive, rundir, safe_folders
from dlio_hpc.verdict import baselines, history, history_database
from dlio_hpc.verdict.history_entry import Entry


class Retention(NamedTuple):
    """Rules for keeping archives. days: number of days for which an archive is kept after the end of its job. last: at
    least 1; for each measurement, the archives of this number of newest jobs are kept regardless of their age.
    """

    days: int
    last: int


class Choice(NamedTuple):
    """Archives of a folder. removed: archives to remove, with the entries of their jobs. kept: number of archives that
    are kept for each reason.
    """

    removed: tuple[tuple[Path, Entry], ...]
    kept: dict[str, int]

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path, _ in self.removed)


def choose(folder: Path, terms: Retention) -> Choice:
    """Choose the archives to remove. The jobs of a study are kept or removed together."""
    entries = {entry.job: entry for entry in history.entries(folder)}
    archives = list(rundir.matching(folder, f"[!.]*{archive.SUFFIX}"))
    read = {path: entries[job] for path in archives if (job := _job(path)) in entries and history.knows(path)}
    reasons = _reasons(list(read.values()), baselines.active(baselines.read(folder)), terms)
    removed, kept = [], defaultdict[str, int](int)
    for path in archives:
        entry = read.get(path)
        reason = "unreadable" if entry is None else reasons.get(entry.study)
        if entry is None or reason is not None:
            kept[str(reason)] += 1
        else:
            removed.append((path, entry))
    return Choice(tuple(removed), dict(kept))


def _job(path: Path) -> str:
    return path.name.removesuffix(archive.SUFFIX)


def _reasons(entries: Sequence[Entry], active: Iterable[baselines.Accepted], terms: Retention) -> dict[str, str]:
    """Return the reason for each study whose archives are kept. entries: entries of the archives that can be read."""
    newest = defaultdict[str, list[Entry]](list)
    for entry in sorted(entries, key=lambda entry: entry.ended, reverse=True):
        for key in {f"{run.key.digest} {run.title}" for run in entry.measurements if run.is_good}:
            newest[key].append(entry)
    oldest = units.utc(time.time() - 86400 * terms.days)
    recent = {entry.study: "recent" for entry in entries if entry.ended >= oldest}
    last = {entry.study: "newest of a measurement" for jobs in newest.values() for entry in jobs[: terms.last]}
    return last | recent | {accepted.group.study: "active baseline" for accepted in active}


def remove(folder: Path, choice: Choice) -> None:
    """Save the entry of each job in a file, then remove the chosen archives. Raise InfrastructureError if this fails.
    In that case, the history still has the entries of the archives that were already removed.
    """
    kept = folder / rundir.ENTRIES
    for path, entry in choice.removed:
        try:
            kept.mkdir(exist_ok=True)
            safe_folders.let_group_write(kept)
            rundir.write(kept / f"{entry.job}.json", history_database.canonical(entry))
            with about(path):
                path.unlink()
        except OSError as fault:
            raise InfrastructureError(f"cannot remove {path}: {of_system(fault, path)}") from fault
    history.take_in(folder)
