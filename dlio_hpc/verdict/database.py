"""The file of a history: its schema, who writes it when, and what is said when it is damaged.

Several processes write at a time: each in turn, by a lock file beside it, so that SQLite's own locks are not the only
guard where a file system's are doubtful. Write-ahead logging needs memory that all nodes share (sqlite.org/wal.html),
so it is for file systems of one node; elsewhere SQLite keeps its rollback journal.
"""

import errno
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from dlio_hpc import document, filesystem, rundir
from dlio_hpc.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.verdict.entry import Entry

_LOCAL = frozenset({"ext4", "xfs", "btrfs", "tmpfs", "zfs", "overlay"})
_PATIENCE_S = 60
# Of the files that SQLite keeps beside its own.
SUFFIXES = ("-wal", "-shm", "-journal")


def _jobs(database: sqlite3.Connection) -> None:
    """Schema 1. document: the Entry as canonical JSON; the columns are for whoever asks with SQL, and for filters."""
    database.execute(
        "CREATE TABLE jobs (job TEXT PRIMARY KEY, study TEXT NOT NULL, site TEXT NOT NULL, state TEXT NOT NULL, "
        "created TEXT NOT NULL, ended TEXT NOT NULL, exit_code INTEGER NOT NULL, document BLOB NOT NULL)"
    )
    database.execute("CREATE INDEX jobs_ended ON jobs (ended)")


def _runs(database: sqlite3.Connection) -> None:
    """Schema 2: runs with their figures, decisions, and which file a job was read from."""
    database.execute(
        "CREATE TABLE runs (job TEXT NOT NULL REFERENCES jobs, run TEXT NOT NULL, kind TEXT NOT NULL, "
        "key TEXT NOT NULL, workload TEXT NOT NULL, nodes INTEGER NOT NULL, ranks_per_node INTEGER NOT NULL, "
        "fault TEXT, figures TEXT NOT NULL, PRIMARY KEY (job, run))"
    )
    database.execute("CREATE INDEX runs_workload ON runs (workload, nodes)")
    database.execute("CREATE TABLE decisions (file TEXT PRIMARY KEY, document BLOB NOT NULL)")
    database.execute("CREATE TABLE archives (file TEXT PRIMARY KEY, bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL)")
    for (content,) in database.execute("SELECT document FROM jobs").fetchall():
        enter_runs(database, decode(content))


def _disturbances(database: sqlite3.Connection) -> None:
    """Schema 3: entries have the other activity on the nodes; null for older jobs, which did not record it."""
    for job, content in database.execute("SELECT job, document FROM jobs").fetchall():
        database.execute("UPDATE jobs SET document = ? WHERE job = ?", (canonical(decode(content)), job))


def canonical(entry: Entry) -> bytes:
    """The entry as the history keeps it; the same bytes for the same entry."""
    return compact(document.encode(entry))


def compact(content: bytes) -> bytes:
    """The JSON text without blanks, with sorted keys."""
    return msgspec.json.encode(msgspec.json.decode(content), order="sorted")


def enter_runs(database: sqlite3.Connection, entry: Entry) -> None:
    database.executemany(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                entry.job, run.run, run.kind, run.key.digest, run.key.workload, run.key.nodes, run.key.ranks_per_node,
                run.fault, json.dumps(run.figures, sort_keys=True),
            )
            for run in entry.measurements
        ],
    )  # fmt: skip


def decode(content: bytes) -> Entry:
    return document.decode(content, Entry, "the history (dlio-hpc history --rebuild makes it anew)")


# What makes each schema of the one before it. Never change one that was released: add another.
_STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_jobs, _runs, _disturbances)
SCHEMA = len(_STEPS)


def migrate(database: sqlite3.Connection, path: Path) -> None:
    """To this schema, within the caller's transaction."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise ConfigError(
            f"{path} was written by a newer dlio-hpc (schema {version}, this one knows {SCHEMA}): use that one"
        )
    for step in _STEPS[version:]:
        step(database)
    database.execute(f"PRAGMA user_version = {SCHEMA}")


@contextmanager
def writing(folder: Path) -> Iterator[sqlite3.Connection]:
    """A transaction of whoever has the lock; all of it is kept, or nothing."""
    check_folder(folder)
    path = folder / rundir.HISTORY
    with locked(folder), told(path), closing(opened(path)) as database, transaction(database):
        migrate(database, path)
        yield database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.rollback()
        raise
    database.commit()


# What the system says where this user may not write.
_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    path = folder / rundir.HISTORY_LOCK
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666))
    except OSError as fault:
        raise InfrastructureError(f"cannot write {path}: {fault.strerror}") from fault
    with rundir.locked_file(path):
        yield


def opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)
    try:
        is_local = filesystem.of(path.parent).kind in _LOCAL
        database.execute(f"PRAGMA journal_mode = {'WAL' if is_local else 'DELETE'}")
        database.execute(f"PRAGMA synchronous = {'NORMAL' if is_local else 'FULL'}")
    except BaseException:
        database.close()
        raise
    return database


def is_writable(folder: Path) -> bool:
    path = folder / rundir.HISTORY
    return os.access(folder, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def check_writable(folder: Path) -> None:
    """ConfigError where this user may not write a history there; InfrastructureError where the file system fails."""
    if is_writable(folder):
        return
    reason = os.strerror(errno.EACCES)
    try:
        with tempfile.TemporaryFile(dir=folder):
            is_refused = not is_writable(folder)
    except OSError as fault:
        reason = os.strerror(fault.errno or errno.EACCES)
        is_refused = fault.errno in _REFUSALS
        if not is_refused:
            raise InfrastructureError(f"cannot write to {of_system(fault, folder)}") from fault
    if is_refused:
        raise ConfigError(f"cannot write to {folder}: {reason}; the owner of the folder can rebuild its history")


def is_current(path: Path) -> bool:
    if not path.exists():
        return False
    with told(path), closing(opened(path)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
    return bool(version == SCHEMA)


def copy(path: Path, memory: sqlite3.Connection) -> None:
    """Of a file in a folder where nothing may be written, SQLite's own notes on readers neither."""
    for rest in ("mode=ro", "mode=ro&immutable=1"):
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{rest}", uri=True, timeout=_PATIENCE_S)) as file:
                file.backup(memory)
                return
        except sqlite3.OperationalError:
            if "immutable" in rest:
                raise


def check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder of archives; say with --archive where they lie")
    for name in (rundir.HISTORY, rundir.HISTORY_LOCK, *(rundir.HISTORY + suffix for suffix in SUFFIXES)):
        if (folder / name).is_symlink():  # others may write to the folder
            raise ConfigError(f"{folder / name} is a link, nothing is written through it; remove it")


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What SQLite says, with what to do about it."""
    again = f"dlio-hpc history --rebuild --archive {path.parent}"
    try:
        yield
    except sqlite3.OperationalError as fault:
        raise InfrastructureError(f"cannot use {path}: {fault}; if that stays so: {again}") from fault
    except sqlite3.DatabaseError as fault:
        raise InfrastructureError(
            f"{path} is damaged ({fault}); nothing is lost, make it anew from the archives: {again}"
        ) from fault
