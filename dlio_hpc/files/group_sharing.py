"""Sharing of a folder of archives with a group, so that its members collect, compare and accept baselines together."""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.errors import ConfigError, about
from dlio_hpc.files import rundir

# Files that members of the group write to. They replace other files, or only read them.
_WRITTEN = (rundir.HISTORY, rundir.HISTORY_LOCK, *(f"{rundir.HISTORY}-{name}" for name in ("wal", "shm", "journal")))
_FOLDERS = (rundir.BASELINES, rundir.ENTRIES)


class Sharing(NamedTuple):
    """Result of share(). changed: files and folders whose group or permissions were changed. others: files and folders
    that need a change but belong to another user, each with the command for this user.
    """

    changed: tuple[Path, ...]
    others: tuple[tuple[str, str], ...]


def share(folder: Path, group: str) -> Sharing:
    """Give the members of a group the permission to use a folder of archives together. The folder is created if it does
    not exist. New files in it belong to the group, because of the set-group-ID bit. Raise ConfigError if the group is
    unknown, or if this user is not a member.
    """
    number = _member_of(group)
    with about(folder):
        folder.mkdir(exist_ok=True)
        for name in _FOLDERS:
            (folder / name).mkdir(exist_ok=True)
    owner = folder.stat().st_uid
    if os.geteuid() not in (0, owner) and folder.stat().st_gid != number:
        raise ConfigError(
            f"{folder} belongs to user {_name(owner)}, who alone can share it with {group}; nothing is changed"
        )
    changed, others = [], []
    for path, wanted in _wanted(folder):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if status.st_gid == number and mode & wanted == wanted:
            continue
        if status.st_uid != os.geteuid() and os.geteuid():
            others.append((_name(status.st_uid), f"chgrp {group} '{path}' && chmod {mode | wanted:o} '{path}'"))
            continue
        with about(path):
            os.chown(path, -1, number, follow_symlinks=False)
            os.chmod(path, mode | wanted)  # after chown, which clears the set-group-ID bit
        changed.append(path)
    return Sharing(tuple(changed), tuple(others))


def _member_of(group: str) -> int:
    try:
        number = grp.getgrnam(group).gr_gid
    except KeyError as fault:
        raise ConfigError(f"--group {group}: there is no such group here; the command id lists yours") from fault
    if os.geteuid() and number not in {os.getegid(), *os.getgroups()}:
        raise ConfigError(f"--group {group}: you are not a member of this group; the command id lists yours")
    return number


def _wanted(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield each file and folder with the permissions that it needs."""
    writing = stat.S_IRGRP | stat.S_IWGRP
    for path in (folder, *(folder / name for name in _FOLDERS)):
        yield path, writing | stat.S_IXGRP | stat.S_ISGID
        for inside in rundir.matching(path, "[!.]*"):
            if stat.S_ISREG(inside.lstat().st_mode):
                yield inside, writing if inside.name in _WRITTEN else stat.S_IRGRP


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"number {user}"
