"""The history of a folder of archives: every job in it, as verdicts see it, in one SQLite file beside them.

It is an index. The archives and the decision files are the truth, and it can be made anew from these alone.
"""

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dlio_hpc.errors import DlioError
from dlio_hpc.files import archive, rundir, safe_folders
from dlio_hpc.records import job_outcome
from dlio_hpc.verdict import history_database
from dlio_hpc.verdict import history_entry as entries_
from dlio_hpc.verdict.history_entry import Entry


class Taken(NamedTuple):
    """What a look at the folder brought: jobs that were not known, and what a person should know of the others."""

    jobs: tuple[str, ...]
    notes: tuple[str, ...]


class Where(NamedTuple):
    """Which jobs are wanted; None: all. job: a pattern as shells have it. since, until: of their end, such as
    2026-11-21; until: that day too.
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
    """An archive's entry, or why there is none."""

    path: Path
    entry: Entry | None
    fault: str | None


def _read(path: Path) -> _Read:
    try:
        entry = entries_.of(job_outcome.load_archive(path))
    except (DlioError, OSError) as fault:
        return _Read(path, None, f"left out: {fault}")
    except Exception as fault:  # noqa: BLE001 - what one archive holds must not keep the others from being read
        return _Read(path, None, f"left out: {path} cannot be understood: {type(fault).__name__}: {fault}")
    if path.name != entry.job + archive.SUFFIX:  # it would stand for that job
        return _Read(path, None, f"left out: {path} holds the job {entry.job!r}; give the archive its job's name")
    return _Read(path, entry, None)


def enter(folder: Path, entry: Entry) -> None:
    """The job into the history of `folder`; what was known of it is replaced."""
    with history_database.writing(folder) as db:
        _enter(db, entry)
        _stamp(db, folder / (entry.job + archive.SUFFIX))


def knows(path: Path) -> bool:
    """Is the job in an archive in the history beside it, as the archive is now?"""
    with _reading(path.parent) as db:
        return _is_known(db, path)


def take_in(folder: Path) -> Taken:
    """Archives and decisions in `folder` that the history does not know yet."""
    with _reading(folder) as db:
        news = _news(db, folder)
    if not news.archives and not news.decisions:
        return Taken((), ())
    read = [_read(path) for path in news.archives]
    with history_database.writing(folder) as db:
        return _take_in(db, folder, read)


def rebuild(folder: Path) -> Taken:
    """The history made anew from archives and decisions alone, whatever is there now. Who reads it meanwhile sees the
    old one or the new one; only a damaged file is replaced.
    """
    history_database.check_folder(folder)
    read = [_read(path) for path in _archives(folder)]
    try:
        with history_database.writing(folder) as db:
            for table in ("runs", "jobs", "decisions", "archives"):
                db.execute(f"DELETE FROM {table}")
            return _take_in(db, folder, read)
    except DlioError:
        return _replaced(folder, read)


def _replaced(folder: Path, read: Sequence[_Read]) -> Taken:
    """A new file in the place of one that cannot be used."""
    target = folder / rundir.HISTORY
    with history_database.locked(folder), rundir.replacing(target) as temporary:
        with (
            history_database.told(temporary),
            closing(history_database.opened(temporary)) as db,
            history_database.transaction(db),
        ):
            history_database.migrate(db, temporary)
            taken = _take_in(db, folder, read)
        for suffix in history_database.SUFFIXES:
            with suppress(FileNotFoundError):
                os.unlink(f"{target}{suffix}")  # of the file that is replaced
    return taken


def is_writable(folder: Path) -> bool:
    """May this user enter jobs? Who may not reads all the same."""
    return history_database.is_writable(folder)


def check_writable(folder: Path) -> None:
    """ConfigError where this user may not enter jobs; InfrastructureError where the file system fails."""
    history_database.check_writable(folder)


class _News(NamedTuple):
    archives: tuple[Path, ...]
    decisions: tuple[Path, ...]


def _news(db: sqlite3.Connection, folder: Path) -> _News:
    known = {name for (name,) in db.execute("SELECT file FROM decisions")}
    return _News(
        tuple(path for path in _archives(folder) if not _is_known(db, path)),
        tuple(path for path in _decisions(folder) if path.name not in known),
    )


def _archives(folder: Path) -> list[Path]:
    return list(rundir.matching(folder, f"[!.]*{archive.SUFFIX}"))


def _decisions(folder: Path) -> list[Path]:
    return list(rundir.matching(folder, f"{rundir.BASELINES}/[!.]*.json"))


def _is_known(db: sqlite3.Connection, path: Path) -> bool:
    """The archive as it is now?"""
    found = db.execute("SELECT bytes, mtime_ns FROM archives WHERE file = ?", (path.name,)).fetchone()
    return found is not None and path.exists() and tuple(found) == _size(path)


def _take_in(db: sqlite3.Connection, folder: Path, read: Sequence[_Read]) -> Taken:
    for each in read:
        if each.entry is not None:
            _enter(db, each.entry)
            _stamp(db, each.path)
    notes = [each.fault for each in read if each.fault is not None]
    for path in _decisions(folder):
        try:
            content = history_database.compact(safe_folders.content(path, rundir.LARGEST_DOCUMENT))
        except (DlioError, OSError, msgspec.DecodeError) as fault:
            notes.append(f"left out: {path} is no decision: {fault}")
            continue
        db.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?)", (path.name, content))
    return Taken(tuple(each.entry.job for each in read if each.entry is not None), tuple(notes))


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
    """Which file the job was read from, so that another one in its place is seen."""
    if path.exists():
        db.execute("INSERT OR REPLACE INTO archives VALUES (?, ?, ?)", (path.name, *_size(path)))


def _size(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def entries(folder: Path, where: Where = EVERYTHING) -> tuple[Entry, ...]:
    """The jobs that are wanted, in the order in which they ended."""
    clauses, values = _clauses(where)
    asked = f"SELECT document FROM jobs {'WHERE ' if clauses else ''}{' AND '.join(clauses)} ORDER BY ended, job"
    with _reading(folder) as db:
        return tuple(history_database.decode(content) for (content,) in db.execute(asked, values))


def _clauses(where: Where) -> tuple[list[str], list[Any]]:
    run = "job IN (SELECT job FROM runs WHERE {} = ?)"
    told = [
        ("job GLOB ?", where.job),
        ("study = ?", where.study),
        ("site = ?", where.site),
        ("state = ?", where.state),
        (run.format("workload"), where.workload),
        (run.format("nodes"), where.nodes),
        ("ended >= ?", where.since),
        ("ended < ?", None if where.until is None else where.until + "~"),  # behind every time of that day
    ]
    kept = [(clause, value) for clause, value in told if value is not None]
    return [clause for clause, _ in kept], [value for _, value in kept]


def export(folder: Path) -> bytes:
    """The history as lines of JSON, jobs and then decisions, each in the order of their names: the same bytes for the
    same archives and decisions.
    """
    with _reading(folder) as db:
        jobs = db.execute("SELECT document FROM jobs ORDER BY job").fetchall()
        decisions = db.execute("SELECT file, document FROM decisions ORDER BY file").fetchall()
    lines = [b'{"job":' + content + b"}\n" for (content,) in jobs]
    lines += [b'{"decision":' + content + b',"file":' + history_database.compact(json.dumps(file).encode()) + b"}\n"
              for file, content in decisions]  # fmt: skip
    return b"".join(lines)


@contextmanager
def _reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """The history at this schema. Who may not write the folder gets a copy in memory, with what is new in it."""
    history_database.check_folder(folder)
    path = folder / rundir.HISTORY
    if history_database.is_writable(folder):
        if not history_database.is_current(path):
            with history_database.writing(folder):
                pass
        with history_database.told(path), closing(history_database.opened(path)) as db:
            yield db
        return
    with history_database.told(path), closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        if path.exists():
            history_database.copy(path, memory)
        history_database.migrate(memory, path)
        _take_in(memory, folder, [_read(each) for each in _news(memory, folder).archives])
        yield memory
