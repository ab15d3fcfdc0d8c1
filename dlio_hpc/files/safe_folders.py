"""Safe access to folders that other users may write to. A folder is opened once and then accessed by its descriptor, so
it does not matter if another user replaces the folder.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlio_hpc.base.errors import ConfigError, about

# Error numbers that open(2) returns if the path is a link or not a folder.
_NO_FOLDER = {errno.ELOOP, errno.ENOTDIR}


@contextmanager
def opened(path: str | Path) -> Iterator[int]:
    """Open the folder at `path` and yield its descriptor. Raise ConfigError if `path` is a link or not a folder.
    OSErrors raised in the `with` block name the folder by its path, not by its descriptor.
    """
    try:
        descriptor = entered(path)
    except OSError as fault:
        if fault.errno not in _NO_FOLDER:
            raise
        raise ConfigError(f"{path} is a link or not a folder; remove it, or choose another --data") from fault
    try:
        with about(path, alias=held(descriptor)):
            yield descriptor
    finally:
        close(descriptor)


def entered(path: str | Path, above: int | None = None) -> int:
    """Open a folder and return its descriptor. Raise OSError if `path` is a link or not a folder. above: descriptor of
    the folder to which `path` is relative.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)


# Largest number of links on a path, as in the kernel.
_MOST_LINKS = 40


def walked(path: Path) -> int:
    """Open a folder component by component, and return its descriptor (O_PATH). Follow only links that root or this
    user made, because another user could place a link above the folder and change it at any time. Raise ConfigError for
    such a link.
    """
    pending, links = [*reversed(Path(os.path.abspath(path)).parts)], 0
    folder = os.open(pending[-1], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    while pending:
        inner = os.open(pending.pop(), os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        status = os.fstat(inner)
        if not stat.S_ISLNK(status.st_mode):
            close(folder)
            folder = inner
            continue
        place, target = os.readlink(held(inner)), os.readlink("", dir_fd=inner)
        close(inner)
        links += 1
        if links > _MOST_LINKS:
            close(folder)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if status.st_uid not in (0, os.geteuid()):
            close(folder)
            leads = os.path.realpath(place)
            raise ConfigError(f"{place} is a link of another user, which is not followed; it leads to {leads}")
        pending.extend(reversed(Path(target).parts))
    return folder


def close(descriptor: int) -> None:
    """Close a descriptor and ignore errors. Use it only for descriptors to which nothing was written, because an error
    after writing could mean lost data.
    """
    with suppress(OSError):
        os.close(descriptor)


def held(descriptor: int) -> Path:
    """Return a path that leads through a descriptor to an open file or folder. No other user can change what this path
    refers to.
    """
    return Path(f"/proc/self/fd/{descriptor}")


def created(folder: int, name: str) -> int:
    """Open the file `name` in an open folder for reading and writing, and create it if it does not exist. Return its
    descriptor. Raise ConfigError if `name` is a link, a file with several links, or not a regular file.
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


def writable(folder: int, name: str) -> tuple[int, bool]:
    """Open the file `name` in an open folder for writing, and create it if it does not exist. Return its descriptor,
    and whether it is new; otherwise it keeps its content. Raise ConfigError in the same cases as created().
    """
    try:
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder), True
    except FileExistsError:
        return created(folder, name), False


def _is_foreign(folder: int, name: str) -> bool:
    try:
        return not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _foreign(folder: int, name: str) -> ConfigError:
    path = os.path.join(os.readlink(held(folder)), name)
    return ConfigError(f"{path} is a link or not a regular file; nothing was written; remove it")


def content(path: Path, longest: int) -> bytes:
    """Return the content of a file in a folder that other users may write to. If the file is a pipe, do not block.
    Raise ConfigError if it is not a regular file, or if it has more than `longest` bytes.
    """
    return _content(path, longest, 0)


def own_content(path: Path, longest: int) -> bytes:
    """Return the content of a file that only this user can have written. Raise ConfigError also if another user owns
    the file or may write to it. A link is not followed.
    """
    return _content(path, longest, os.O_NOFOLLOW)


def _content(path: Path, longest: int, flags: int) -> bytes:
    """Return the content of a file. flags: O_NOFOLLOW if only this user may have written it; otherwise 0."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is not a regular file")
        if flags & os.O_NOFOLLOW and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise ConfigError(f"{path} is of another user, or other users may write to it")
        with open(descriptor, "rb", closefd=False) as file:
            data: bytes = file.read(longest + 1)
    finally:
        close(descriptor)
    if len(data) > longest:
        raise ConfigError(f"{path} has more than {longest} bytes; dlio-hpc does not write such files")
    return data


def is_mine(folder: int) -> bool:
    """Return whether an open folder belongs to this user. A file system may show a user's files under another owner,
    for example files of root under the owner nobody. If the folder's owner differs from this user, a temporary file is
    therefore created in the folder, and its owner is compared with the owner of the folder.
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
    """Return whether a folder, given by its descriptor, is shared with a group of this user. It is shared if its parent
    folder `above` was shared by chmod g+ws and the folder inherited this.
    """
    upper, inner = os.stat(above), os.fstat(folder)
    shared = stat.S_ISGID | stat.S_IWGRP
    return (
        upper.st_mode & (shared | stat.S_IWOTH) == shared
        and inner.st_mode & (stat.S_IWGRP | stat.S_IWOTH) == stat.S_IWGRP
        and inner.st_gid == upper.st_gid
        and inner.st_gid in {os.getegid(), *os.getgroups()}
    )


def is_of_group(path: str | Path) -> bool:
    """Return whether a folder is shared with a group, as by chmod g+ws, but not with all users."""
    mode = os.stat(path).st_mode
    shared = stat.S_ISGID | stat.S_IWGRP
    return mode & (shared | stat.S_IWOTH) == shared


def let_group_read(descriptor: int, folder: str | Path) -> None:
    """Give the group of a new file read permission, if the folder is shared with this group. Otherwise the umask of a
    user could prevent the others from reading the file.
    """
    status = os.fstat(descriptor)
    if is_of_group(folder) and status.st_uid == os.geteuid() and not status.st_mode & stat.S_IRGRP:
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) | stat.S_IRGRP)


def let_group_write(path: str | Path) -> None:
    """Give the group of a file or folder all permissions that its owner has, if the folder above is shared with this
    group and the file belongs to this user. A file with several links is left as it is, because it may have a name
    elsewhere. Raise ConfigError if the path is a link, unless the path leads through a descriptor (held()).
    """
    followed = 0 if os.path.dirname(path) == str(held(0).parent) else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, os.O_RDONLY | followed | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise ConfigError(
                f"{path} is a link, which dlio-hpc never makes; nothing was written; remove it"
            ) from fault
        raise
    try:
        status = os.fstat(descriptor)
        is_folder = stat.S_ISDIR(status.st_mode)
        mode = stat.S_IMODE(status.st_mode)
        wanted = mode | (mode & stat.S_IRWXU) >> 3 | (stat.S_ISGID if is_folder else 0)
        if mode == wanted or status.st_uid != os.geteuid() or (status.st_nlink > 1 and not is_folder):
            return
        if is_of_group(os.path.dirname(os.path.abspath(path))):
            os.fchmod(descriptor, wanted)
    finally:
        close(descriptor)


def owner(folder: int) -> str:
    """Return the name of the owner of an open folder, or "number N" if the user with id N has no name."""
    import pwd

    number = os.fstat(folder).st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"number {number}"


def make(path: str) -> None:
    """Create a folder and its missing parents. Raise OSError if that fails, or if the path is a file.

    os.makedirs(exist_ok=True) is not used, because it reports "File exists" for a folder whose state this user may not
    read.
    """
    try:
        os.makedirs(path)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise


def discard(path: str | Path) -> None:
    """Remove a folder and its content as far as possible, without raising an error.

    shutil.rmtree(ignore_errors=True) still raises an error if fstat of an open folder fails; this error is suppressed.
    """
    with suppress(OSError):
        shutil.rmtree(path, ignore_errors=True)
