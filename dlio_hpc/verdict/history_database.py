"""SQLite file of a history: schema, locking, and errors.

Writers take a lock file in the same folder, because SQLite's own locks are not reliable on all file systems. SQLite's
write-ahead log needs memory that is shared between all processes that use the file (sqlite.org/wal.html). It is
therefore used on local file systems only; on other file systems, SQLite uses its rollback journal.
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

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.files import filesystem, rundir, safe_folders
from dlio_hpc.verdict.history_entry import Entry, carried

_TIMEOUT_S = 60
# Suffixes of the files that SQLite creates in addition to the database.
SUFFIXES = ("-wal", "-shm", "-journal")


def _jobs(database: sqlite3.Connection) -> None:
    """Create the tables of schema 1. The column `document` holds the Entry as canonical JSON; the other columns are for
    filters and for SQL queries by users.
    """
    database.execute(
        "CREATE TABLE jobs (job TEXT PRIMARY KEY, study TEXT NOT NULL, site TEXT NOT NULL, state TEXT NOT NULL, "
        "created TEXT NOT NULL, ended TEXT NOT NULL, exit_code INTEGER NOT NULL, document BLOB NOT NULL)"
    )
    database.execute("CREATE INDEX jobs_ended ON jobs (ended)")


def _runs(database: sqlite3.Connection) -> None:
    """Migrate to schema 2: add tables for the runs with their metrics, for decisions, and for the archives from which
    jobs were read.
    """
    database.execute(
        "CREATE TABLE runs (job TEXT NOT NULL REFERENCES jobs, run TEXT NOT NULL, kind TEXT NOT NULL, "
        "key TEXT NOT NULL, workload TEXT NOT NULL, nodes INTEGER NOT NULL, ranks_per_node INTEGER NOT NULL, "
        "fault TEXT, metrics TEXT NOT NULL, PRIMARY KEY (job, run))"
    )
    database.execute("CREATE INDEX runs_workload ON runs (workload, nodes)")
    database.execute("CREATE TABLE decisions (file TEXT PRIMARY KEY, document BLOB NOT NULL)")
    database.execute("CREATE TABLE archives (file TEXT PRIMARY KEY, bytes INTEGER NOT NULL, mtime_ns INTEGER NOT NULL)")
    for (content,) in database.execute("SELECT document FROM jobs").fetchall():
        enter_runs(database, decode(content))


def _disturbances(database: sqlite3.Connection) -> None:
    """Migrate to schema 3: add to every entry the field for other activity on the nodes. The field is null for older
    jobs, because they did not record such activity.
    """
    for job, content in database.execute("SELECT job, document FROM jobs").fetchall():
        database.execute("UPDATE jobs SET document = ? WHERE job = ?", (canonical(decode(content)), job))


def _carried_keys(database: sqlite3.Connection) -> None:
    """Migrate to schema 4: measurement keys have the file system of checkpoints, and digests of settings no longer
    depend on keys that have their defaults. The runs are entered again with these measurement keys.
    """
    database.execute("DELETE FROM runs")
    for job, content in database.execute("SELECT job, document FROM jobs").fetchall():
        entry = decode(content)
        database.execute("UPDATE jobs SET document = ? WHERE job = ?", (canonical(entry), job))
        enter_runs(database, entry)


def canonical(entry: Entry) -> bytes:
    """Return the bytes that the history stores for an entry. Equal entries give equal bytes."""
    return compact(serialization.encode(entry))


def compact(content: bytes) -> bytes:
    """Return the JSON text without whitespace, with sorted keys."""
    return msgspec.json.encode(msgspec.json.decode(content), order="sorted")


def enter_runs(database: sqlite3.Connection, entry: Entry) -> None:
    database.executemany(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                entry.job, run.run, run.kind, run.key.digest, run.key.workload, run.key.nodes, run.key.ranks_per_node,
                run.fault, json.dumps(run.metrics, sort_keys=True),
            )
            for run in entry.measurements
        ],
    )  # fmt: skip


def decode(content: bytes) -> Entry:
    """Return the entry that `content` holds, with the measurement keys of this version."""
    return carried(serialization.decode(content, Entry, "the history (dlio-hpc history --rebuild rebuilds it)"))


# Step N migrates from schema N to schema N + 1. Never change a step that was released; add a new step instead.
_STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = (_jobs, _runs, _disturbances, _carried_keys)
SCHEMA = len(_STEPS)


def migrate(database: sqlite3.Connection, path: Path) -> None:
    """Migrate the database to the current schema, within the caller's transaction. Raise ConfigError if its schema is
    newer than the current one.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise ConfigError(
            f"{path} was written by a newer dlio-hpc (schema {version}; this version supports {SCHEMA}); use the newer "
            "version"
        )
    for step in _STEPS[version:]:
        step(database)
    database.execute(f"PRAGMA user_version = {SCHEMA}")


@contextmanager
def writing(folder: Path) -> Iterator[sqlite3.Connection]:
    """Open the history for one transaction in a `with` block, and hold the lock file meanwhile. If the block raises an
    error, no change is committed.
    """
    check_folder(folder)
    path = folder / rundir.HISTORY
    with locked(folder), explained(path), closing(opened(path)) as database, transaction(database):
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


# Error codes that mean that this user may not write.
_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    path = folder / rundir.HISTORY_LOCK
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666))
        safe_folders.let_group_write(path)
    except OSError as fault:
        raise InfrastructureError(f"cannot write {path}: {fault.strerror}") from fault
    with rundir.locked_file(path):
        yield


def opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_TIMEOUT_S, isolation_level=None)
    try:
        is_local = filesystem.of(path.parent).kind in filesystem.LOCAL
        database.execute(f"PRAGMA journal_mode = {'WAL' if is_local else 'DELETE'}")
        database.execute(f"PRAGMA synchronous = {'NORMAL' if is_local else 'FULL'}")
        if path.is_file():  # SQLite gives the files beside the database the permissions of the database
            safe_folders.let_group_write(path)
    except BaseException:
        database.close()
        raise
    return database


def is_writable(folder: Path) -> bool:
    path = folder / rundir.HISTORY
    return os.access(folder, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def check_writable(folder: Path) -> None:
    """Raise ConfigError if this user has no permission to write a history in the folder, and InfrastructureError if the
    file system fails.
    """
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
        raise ConfigError(
            f"cannot write to {folder}: {reason}; the owner of the folder can rebuild the history, "
            "or share the folder with a group (dlio-hpc archive share)"
        )


def is_current(path: Path) -> bool:
    if not path.exists():
        return False
    with explained(path), closing(opened(path)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
    return bool(version == SCHEMA)


def copy(path: Path, memory: sqlite3.Connection) -> None:
    """Copy the database at `path` into the database `memory`. This also works in folders to which the user has no
    permission to write, although SQLite normally creates files there even for reading.
    """
    for rest in ("mode=ro", "mode=ro&immutable=1"):
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{rest}", uri=True, timeout=_TIMEOUT_S)) as file:
                file.backup(memory)
                return
        except sqlite3.OperationalError:
            if "immutable" in rest:
                raise


def check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a directory of archives; give it with --archive")
    for name in (rundir.HISTORY, rundir.HISTORY_LOCK, *(rundir.HISTORY + suffix for suffix in SUFFIXES)):
        if (folder / name).is_symlink():  # others may write to the folder
            raise ConfigError(f"{folder / name} is a symbolic link, which is not followed; remove it")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Convert errors of SQLite in a `with` block to InfrastructureError. The message names the command that rebuilds
    the history.
    """
    command = f"dlio-hpc history --rebuild --archive {path.parent}"
    try:
        yield
    except sqlite3.OperationalError as fault:
        for needed, mode in ((path, os.R_OK), (path.parent, os.R_OK | os.X_OK)):
            if needed.exists() and not os.access(needed, mode):
                raise InfrastructureError(
                    f"cannot read {needed}: Permission denied; its owner can give a group permission: dlio-hpc archive "
                    f"share {path.parent}"
                ) from fault
        raise InfrastructureError(f"cannot use {path}: {fault}; if this persists, run: {command}") from fault
    except sqlite3.DatabaseError as fault:
        raise InfrastructureError(
            f"{path} is corrupted ({fault}); nothing is lost; rebuild it from the archives: {command}"
        ) from fault
