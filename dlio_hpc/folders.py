"""Folders that others may write to as well: opened once, then used by descriptor, whatever becomes of their names."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlio_hpc.errors import ConfigError, about

# What says that a folder is none, or a link.
_NO_FOLDER = {errno.ELOOP, errno.ENOTDIR}


@contextmanager
def opened(path: str | Path) -> Iterator[int]:
    """A descriptor of the folder at `path`; ConfigError where that is a link or no folder. A fault in the block
    names the folder by its path.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as fault:
        if fault.errno not in _NO_FOLDER:
            raise
        raise ConfigError(f"{path} is a link, or no folder; remove it, or choose another --data") from fault
    try:
        with about(path, alias=held(descriptor)):
            yield descriptor
    finally:
        close(descriptor)


def close(descriptor: int) -> None:
    """Close a descriptor through which nothing was written: a fault of closing it loses nothing."""
    with suppress(OSError):
        os.close(descriptor)


def held(descriptor: int) -> Path:
    """The path of an open file or folder by its descriptor, in this process; nobody can put another one there."""
    return Path(f"/proc/self/fd/{descriptor}")


def created(folder: int, name: str) -> int:
    """A descriptor, to read and to write, of the file `name` in an open folder, which is new or has what was written to
    it before. ConfigError where a link, a file with other names, or no file has that name.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o666, dir_fd=folder)
    except OSError as fault:
        if not _is_foreign(folder, name):
            raise
        raise _foreign(folder, name) from fault
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        close(descriptor)
        raise _foreign(folder, name)
    return descriptor


def _is_foreign(folder: int, name: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _foreign(folder: int, name: str) -> ConfigError:
    path = os.path.join(os.readlink(held(folder)), name)
    return ConfigError(f"{path} is a link or no plain file, nothing is written through it; remove it")


def content(path: Path, longest: int) -> bytes:
    """The bytes of a file that somebody else may have put there; ConfigError where it is none, or has more than
    `longest` bytes. A pipe is not waited for.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ConfigError(f"{path} is no file")
        with open(descriptor, "rb", closefd=False) as file:
            data: bytes = file.read(longest + 1)
    finally:
        close(descriptor)
    if len(data) > longest:
        raise ConfigError(f"{path} has more than {longest} bytes; it is none of ours")
    return data


def is_mine(folder: int) -> bool:
    """Does an open folder belong to this user? File systems may give files another owner than their user, such as
    nobody for root: a new file tells.
    """
    owner = os.fstat(folder).st_uid
    if owner == os.geteuid():
        return True
    name = f".{os.urandom(8).hex()}.tmp"
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    except OSError:
        return False
    try:
        return os.fstat(descriptor).st_uid == owner
    finally:
        close(descriptor)
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)


def is_shared(folder: int, above: Path) -> bool:
    """Was it asked for that this user's group shares what lies in the folder `above`, and so an open folder there? That
    one is asked for with chmod g+ws.
    """
    upper, inner = os.stat(above), os.fstat(folder)
    asked = stat.S_ISGID | stat.S_IWGRP
    return (
        upper.st_mode & (asked | stat.S_IWOTH) == asked
        and inner.st_mode & (stat.S_IWGRP | stat.S_IWOTH) == stat.S_IWGRP
        and inner.st_gid == upper.st_gid
        and inner.st_gid in {os.getegid(), *os.getgroups()}
    )


def owner(folder: int) -> str:
    """The name of whom an open folder belongs to, or its number where it has none."""
    import pwd

    number = os.fstat(folder).st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"number {number}"


def make(path: str) -> None:
    """Make a folder, and those above it that are missing. OSError where that fails, and where the path is a file.

    os.makedirs(exist_ok=True) says "File exists" of a folder that it cannot look at.
    """
    try:
        os.makedirs(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise


def discard(path: str | Path) -> None:
    """Remove a folder with all that is in it, as far as that is possible.

    shutil.rmtree(ignore_errors=True) does not ignore a folder that cannot be looked at once it is open.
    """
    with suppress(OSError):
        shutil.rmtree(path, ignore_errors=True)
