"""History of a folder of archives: one SQLite file in that folder, with an entry for each job.

The file is only an index: it can be rebuilt from the archives and the decisions on baselines.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dlio_hpc.base import serialization
from dlio_hpc.base.counted_progress import CountedProgress, Report
from dlio_hpc.base.errors import DlioError, InvalidRun
from dlio_hpc.files import archive, rundir, safe_folders
from dlio_hpc.records import job_outcome
from dlio_hpc.verdict import history_database
from dlio_hpc.verdict import history_entry as entries_
from dlio_hpc.verdict.history_entry import Entry

# Suffix of the files in the folder ENTRIES.
_ENTRY = ".json"


class Taken(NamedTuple):
    """Result of an update of the history. jobs: jobs that were added. notes: archives and decision files that were
    skipped, each with the reason.
    """

    jobs: tuple[str, ...]
    notes: tuple[str, ...]


class Where(NamedTuple):
    """Filter of jobs. A field that is None does not restrict the selection. job: shell pattern that the name of the job
    must match. since, until: first and last date on which a job may have ended, such as 2026-11-21.
    """

    job: str | None = None
    study: str | None = None
    site: str | None = None
    workload: str | None = None
    nodes: int | None = None
    state: str | None = None
    since: str | None = None
    until: str | None = None


EVERYTHING = Where()


class _Read(NamedTuple):
    """Result of reading an archive. entry: the entry of its job; None if the archive cannot be used. fault: reason why
    the archive cannot be used; None if it can be used.
    """

    path: Path
    entry: Entry | None
    fault: str | None


def _read(path: Path) -> _Read:
    """Read an archive, or the entry that was kept when an archive was removed."""
    is_entry = path.suffix == _ENTRY
    try:
        entry = _kept_entry(path) if is_entry else entries_.of(job_outcome.load_archive(path))
    except (DlioError, OSError) as fault:
        return _Read(path, None, f"skipped: {fault}")
    except Exception as fault:  # noqa: BLE001 - a corrupted archive must not prevent the others from being read
        return _Read(path, None, f"skipped: {path} cannot be read: {type(fault).__name__}: {fault}")
    if path.name != entry.job + (_ENTRY if is_entry else archive.SUFFIX):
        return _Read(path, None, f"skipped: {path} contains the job {entry.job!r}; rename the file to match its job")
    return _Read(path, entry, None)


def _kept_entry(path: Path) -> Entry:
    content = safe_folders.content(path, rundir.LARGEST_DOCUMENT)
    return entries_.carried(serialization.decode(content, Entry, str(path), InvalidRun))


def enter(folder: Path, entry: Entry) -> None:
    """Write a job into the history of `folder`. An existing entry of the same job is replaced."""
    with history_database.writing(folder) as db:
        _enter(db, entry)
        _stamp(db, folder / (entry.job + archive.SUFFIX))


def knows(path: Path) -> bool:
    """Return whether the history has an entry that was read from this archive, and whether the archive is unchanged
    since then.
    """
    with _reading(path.parent) as db:
        return _is_known(db, path)


def take_in(folder: Path, report: Report = lambda _: None) -> Taken:
    """Add to the history of `folder` the archives and decisions in `folder` that the history lacks. report: function
    that is called with lines of progress.
    """
    with _reading(folder) as db:
        news = _news(db, folder)
    if not news.archives and not news.decisions:
        return Taken((), ())
    read = _read_all(news.archives, report)
    with history_database.writing(folder) as db:
        return _take_in(db, folder, read)


def _read_all(paths: Sequence[Path], report: Report) -> list[_Read]:
    progress = CountedProgress(report, "history", "archives read", len(paths))
    read: list[_Read] = []
    for path in paths:
        progress(len(read))
        read.append(_read(path))
    return read


def rebuild(folder: Path, report: Report = lambda _: None) -> Taken:
    """Rebuild the history from the archives and decisions. If the archive of a job exists but cannot be read, the job
    keeps its present entry. Concurrent readers see either the old or the new history. report: function that is called
    with lines of progress.

    Only the content of the history file is replaced. If the file cannot be used, it is replaced by a new file.
    """
    history_database.check_folder(folder)
    read = _read_all(list(_archives(folder)), report)
    try:
        with history_database.writing(folder) as db:
            present = _entries(db, [_job(result.path) for result in read if result.entry is None])
            for table in ("runs", "jobs", "decisions", "archives"):
                db.execute(f"DELETE FROM {table}")
            taken = _take_in(db, folder, read)
            for entry in present:
                if entry.job not in taken.jobs:
                    _enter(db, entry)
            return taken
    except DlioError:
        return _replaced(folder, read)


def _job(path: Path) -> str:
    """Return the name of a job from the path of its archive, or from the path of the entry that was kept when the
    archive was removed. The name of a job may contain dots.
    """
    return path.name.removesuffix(archive.SUFFIX).removesuffix(_ENTRY)


def _entries(db: sqlite3.Connection, jobs: Sequence[str]) -> list[Entry]:
    """Return the entries of these jobs. Jobs that are not in the history are left out."""
    rows = [db.execute("SELECT document FROM jobs WHERE job = ?", (job,)).fetchone() for job in jobs]
    return [history_database.decode(row[0]) for row in rows if row is not None]


def _replaced(folder: Path, read: Sequence[_Read]) -> Taken:
    """Write a new history file in place of the present one, which cannot be used. read: results of reading all
    archives.
    """
    target = folder / rundir.HISTORY
    with history_database.locked(folder), rundir.replacing(target) as temporary:
        with (
            history_database.explained(temporary),
            closing(history_database.opened(temporary)) as db,
            history_database.transaction(db),
        ):
            history_database.migrate(db, temporary)
            taken = _take_in(db, folder, read)
        for suffix in history_database.SUFFIXES:
            with suppress(FileNotFoundError):
                os.unlink(f"{target}{suffix}")  # belongs to the replaced file
    return taken


def is_writable(folder: Path) -> bool:
    """Return whether this user has permission to write the history of the folder. A user without this permission can
    still read the history.
    """
    return history_database.is_writable(folder)


def check_writable(folder: Path) -> None:
    """Raise ConfigError if this user has no permission to write the history, and InfrastructureError if the file system
    fails.
    """
    history_database.check_writable(folder)


class _News(NamedTuple):
    archives: tuple[Path, ...]
    decisions: tuple[Path, ...]


def _news(db: sqlite3.Connection, folder: Path) -> _News:
    known = {name for (name,) in db.execute("SELECT file FROM decisions")}
    sizes = {file: (size, mtime_ns) for file, size, mtime_ns in db.execute("SELECT * FROM archives")}
    return _News(
        tuple(path for path in _archives(folder) if path.name not in sizes or not _has_size(path, sizes[path.name])),
        tuple(path for path in _decisions(folder) if path.name not in known),
    )


def _has_size(path: Path, known: tuple[int, int]) -> bool:
    """Return whether a file exists and has this size and modification time."""
    try:
        return _size(path) == known
    except FileNotFoundError:
        return False


def _archives(folder: Path) -> list[Path]:
    """Return the archives, and the entries of jobs whose archives were removed."""
    archives = list(rundir.matching(folder, f"[!.]*{archive.SUFFIX}"))
    jobs = {path.name.removesuffix(archive.SUFFIX) for path in archives}
    entries = rundir.matching(folder, f"{rundir.ENTRIES}/[!.]*{_ENTRY}")
    return archives + [path for path in entries if path.name.removesuffix(_ENTRY) not in jobs]


def _decisions(folder: Path) -> list[Path]:
    return list(rundir.matching(folder, f"{rundir.BASELINES}/[!.]*.json"))


def _is_known(db: sqlite3.Connection, path: Path) -> bool:
    """Return whether the history has the archive with its present size and modification time."""
    row = db.execute("SELECT bytes, mtime_ns FROM archives WHERE file = ?", (path.name,)).fetchone()
    return row is not None and _has_size(path, tuple(row))


def _take_in(db: sqlite3.Connection, folder: Path, read: Sequence[_Read]) -> Taken:
    for result in read:
        if result.entry is not None:
            _enter(db, result.entry)
            _stamp(db, result.path)
    notes = [result.fault for result in read if result.fault is not None]
    for path in _decisions(folder):
        try:
            content = history_database.compact(safe_folders.content(path, rundir.LARGEST_DOCUMENT))
        except (DlioError, OSError, msgspec.DecodeError, RecursionError) as fault:
            notes.append(f"skipped: {path} is not a record of a baseline: {fault}")
            continue
        db.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?)", (path.name, content))
    return Taken(tuple(result.entry.job for result in read if result.entry is not None), tuple(notes))


def _enter(db: sqlite3.Connection, entry: Entry) -> None:
    db.execute("DELETE FROM runs WHERE job = ?", (entry.job,))
    db.execute(
        "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entry.job, entry.study, entry.site, entry.state, entry.created, entry.ended, entry.exit_code,
            history_database.canonical(entry),
        ),
    )  # fmt: skip
    history_database.enter_runs(db, entry)


def _stamp(db: sqlite3.Connection, path: Path) -> None:
    """Record the size and modification time of the archive that the job was read from, so that a replacement of the
    archive is detected.
    """
    if path.exists():
        db.execute("INSERT OR REPLACE INTO archives VALUES (?, ?, ?)", (path.name, *_size(path)))


def _size(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def entries(folder: Path, where: Where = EVERYTHING) -> tuple[Entry, ...]:
    """Return the entries of the selected jobs, ordered by the time at which the jobs ended."""
    clauses, values = _clauses(where)
    query = f"SELECT document FROM jobs {'WHERE ' if clauses else ''}{' AND '.join(clauses)} ORDER BY ended, job"
    with _reading(folder) as db:
        decoded = [history_database.decode(content) for (content,) in db.execute(query, values)]
    return entries_.without_copies(entries_.located(decoded))


def _clauses(where: Where) -> tuple[list[str], list[Any]]:
    """Return the SQL conditions of a filter, and the values of their placeholders."""
    of_run = "job IN (SELECT job FROM runs WHERE {} = ?)"
    filters = [
        ("job GLOB ?", where.job),
        ("study = ?", where.study),
        ("site = ?", where.site),
        ("state = ?", where.state),
        (of_run.format("workload"), where.workload),
        (of_run.format("nodes"), where.nodes),
        ("ended >= ?", where.since),
        ("ended < ?", None if where.until is None else where.until + "~"),  # sorts after every time of that day
    ]
    kept = [(clause, value) for clause, value in filters if value is not None]
    return [clause for clause, _ in kept], [value for _, value in kept]


def export(folder: Path) -> bytes:
    """Return the history as lines of JSON: first jobs, then decisions, each sorted by name. Equal archives and
    decisions give equal bytes.
    """
    with _reading(folder) as db:
        jobs = db.execute("SELECT document FROM jobs ORDER BY job").fetchall()
        decisions = db.execute("SELECT file, document FROM decisions ORDER BY file").fetchall()
    documents = [history_database.canonical(history_database.decode(content)) for (content,) in jobs]
    lines = [b'{"job":' + content + b"}\n" for content in documents]
    lines += [b'{"decision":' + content + b',"file":' + history_database.compact(json.dumps(file).encode()) + b"}\n"
              for file, content in decisions]  # fmt: skip
    return b"".join(lines)


@contextmanager
def _reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the history for reading, migrated to the current schema. If this user has no permission to write to the
    folder, open a copy of the history in memory, and add to the copy the archives that the history lacks.
    """
    history_database.check_folder(folder)
    path = folder / rundir.HISTORY
    if history_database.is_writable(folder):
        if not history_database.is_current(path):
            with history_database.writing(folder):
                pass
        with history_database.explained(path), closing(history_database.opened(path)) as db:
            yield db
        return
    with history_database.explained(path), closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        if path.exists():
            history_database.copy(path, memory)
        history_database.migrate(memory, path)
        _take_in(memory, folder, [_read(archive_path) for archive_path in _news(memory, folder).archives])
        yield memory
