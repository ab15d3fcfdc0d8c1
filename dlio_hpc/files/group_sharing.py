"""Sharing of a folder of archives with a group, so that its members collect, compare and accept baselines together."""

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError, about
from dlio_hpc.files import rundir, safe_folders

# Files that members of the group write to. They replace other files, or only read them.
_WRITTEN = (rundir.HISTORY, rundir.HISTORY_LOCK, *(f"{rundir.HISTORY}-{name}" for name in ("wal", "shm", "journal")))
_FOLDERS = (rundir.BASELINES, rundir.ENTRIES)
# Flags that open a folder, and a file without permission to read it. No link is followed; O_PATH opens the link itself.
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Sharing(NamedTuple):
    """Result of share(). changed: files and folders whose group or permissions were changed. others: files and folders
    that need a change but belong to another user, each with the command for this user. refused: a line for each link,
    and for each file that may have a name outside the folder. Links and such files are not changed.
    """

    changed: tuple[Path, ...]
    others: tuple[tuple[str, str], ...]
    refused: tuple[str, ...]


# Result if everything is shared already.
UNCHANGED = Sharing((), (), ())


class _Part(NamedTuple):
    """An open file or folder of the archives, with the permissions that it needs."""

    path: Path
    descriptor: int
    wanted: int


def share(folder: Path, group: str) -> Sharing:
    """Give the members of a group the permission to use a folder of archives together. The folder is created if it does
    not exist. New files in it belong to the group, because of the set-group-ID bit. Members of the group may write to
    the folder, and so may put links there. No link is followed: each file and folder is opened below the open folder,
    and changed by its descriptor. Raise ConfigError if the folder is a link or is reached through a link of another
    user, if the group is unknown, or if this user is not a member.
    """
    number = _member_of(group)
    changed: list[Path] = []
    others: list[tuple[str, str]] = []
    refused: list[str] = []
    with _folder(folder) as descriptor:
        top = os.fstat(descriptor)
        if os.geteuid() not in (0, top.st_uid) and top.st_gid != number:
            raise ConfigError(
                f"{folder} belongs to user {_name(top.st_uid)}, who alone can share it with {group}; nothing is changed"
            )
        for part in _parts(folder, descriptor, refused):
            with about(part.path):
                status = os.fstat(part.descriptor)
                mode = stat.S_IMODE(status.st_mode)
                if status.st_gid == number and mode & part.wanted == part.wanted:
                    continue
                if status.st_uid != os.geteuid() and os.geteuid():
                    command = f"chgrp {group} '{part.path}' && chmod {mode | part.wanted:o} '{part.path}'"
                    others.append((_name(status.st_uid), command))
                    continue
                held = safe_folders.held(part.descriptor)  # fchmod() needs files that this user may read
                os.chown(held, -1, number)
                os.chmod(held, mode | part.wanted)  # after chown, which clears the set-group-ID bit
            changed.append(part.path)
    return Sharing(tuple(changed), tuple(others), tuple(refused))


def _member_of(group: str) -> int:
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError as fault:
        raise ConfigError(f"--group {group}: there is no such group here; the command id lists yours") from fault
    if os.geteuid() and number not in {os.getegid(), *os.getgroups()}:
        raise ConfigError(f"--group {group}: you are not a member of this group; the command id lists yours")
    return number


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    """Open the folder of the archives and yield its descriptor. Create the folder if it is missing. Raise ConfigError
    if it is a link or not a folder, or if a link of another user leads to it.
    """
    path = Path(os.path.abspath(path))
    with about(path):
        above = safe_folders.walked(path.parent)
        with suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=above)
    try:
        descriptor = os.open(path.name, _OPEN_FOLDER, dir_fd=above)
    except OSError as fault:
        if fault.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise ConfigError(f"cannot open {path}: {fault.strerror}") from fault
        target = (
            f"; to share the folder that it leads to, give that path: {path.resolve()}" if path.is_symlink() else ""
        )
        raise ConfigError(f"{path} is a link or not a folder; nothing is changed{target}") from fault
    finally:
        safe_folders.close(above)
    try:
        yield descriptor
    finally:
        safe_folders.close(descriptor)


def _parts(folder: Path, top: int, refused: list[str]) -> Iterator[_Part]:
    """Yield each file and folder of the archives, open while it is in use. top: descriptor of `folder`. refused: list
    to which lines about links and other files that are left alone are added.
    """
    writing = stat.S_IRGRP | stat.S_IWGRP
    yield _Part(folder, top, writing | stat.S_IXGRP | stat.S_ISGID)
    yield from _files(folder, top, refused)
    for name in _FOLDERS:
        with about(folder / name):
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=top)
            descriptor = _opened(folder / name, top, stat.S_IFDIR, refused)
        if descriptor is None:
            continue
        try:
            yield _Part(folder / name, descriptor, writing | stat.S_IXGRP | stat.S_ISGID)
            yield from _files(folder / name, descriptor, refused)
        finally:
            safe_folders.close(descriptor)


def _files(folder: Path, above: int, refused: list[str]) -> Iterator[_Part]:
    """Yield each file in an open folder, like _parts(). above: descriptor of `folder`."""
    with about(folder):
        names = sorted(name for name in os.listdir(above) if not name.startswith(".") and name not in _FOLDERS)
    for name in names:
        path = folder / name
        with about(path):
            descriptor = _opened(path, above, stat.S_IFREG, refused)
        if descriptor is None:
            continue
        try:
            if (links := os.fstat(descriptor).st_nlink) > 1:
                refused.append(
                    f"{path} has {links} hard links, so it may also be a file outside of the archives; it was not "
                    "changed. If it is an archive, replace it by a copy of itself; otherwise remove this link"
                )
                continue
            written = stat.S_IRGRP | (stat.S_IWGRP if name in _WRITTEN else 0)
            yield _Part(path, descriptor, written)
        finally:
            safe_folders.close(descriptor)


def _opened(path: Path, above: int, kind: int, refused: list[str]) -> int | None:
    """Open a file or folder in an open folder, without following links. Return its descriptor, or None if it is of
    another kind or gone. above: descriptor of the folder. kind: S_IFREG or S_IFDIR.
    """
    try:
        if _is_refused(path, os.stat(path.name, dir_fd=above, follow_symlinks=False), kind, refused):
            return None
        descriptor = os.open(path.name, _OPEN_FOLDER if kind == stat.S_IFDIR else _OPEN_FILE, dir_fd=above)
    except FileNotFoundError:
        return None
    except OSError as fault:
        if fault.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        refused.append(_planted(path))  # a link took the place of the folder since stat()
        return None
    if _is_refused(path, os.fstat(descriptor), kind, refused):
        safe_folders.close(descriptor)
        return None
    return descriptor


def _is_refused(path: Path, status: os.stat_result, kind: int, refused: list[str]) -> bool:
    """Return whether a file is not of the expected kind. If it is a link, or a folder of the archives is missing, add a
    line to `refused`. Other folders and special files among the archives are ignored.
    """
    actual = stat.S_IFMT(status.st_mode)
    if actual == stat.S_IFLNK:
        refused.append(_planted(path))
    elif actual != kind and kind == stat.S_IFDIR:
        refused.append(f"{path} is not a folder: it is left as it is; remove it")
    return actual != kind


def _planted(path: Path) -> str:
    return f"{path} is a link, which dlio-hpc never makes: neither it nor what it leads to is changed; remove it"


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"number {user}"
