"""Files that a run writes in addition to its dataset. They are in a folder of their own, which is removed when the run
ends.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.core import clock, darshan_fd_gate
from dlio_hpc.core.rank_zero import on_root
from dlio_hpc.files import run_outputs, safe_folders

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


@contextmanager
def made(path: str) -> Iterator[int]:
    """Create the output folder if it does not exist, open it, and yield its descriptor. Raise ConfigError if it is a
    link or belongs to another user.
    """
    safe_folders.make(os.path.dirname(path))
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)  # no other user can add files
    with safe_folders.opened(path) as folder:
        if not safe_folders.is_mine(folder):
            raise ConfigError(
                f"{path} belongs to user {safe_folders.owner(folder)}, so nothing is written to it; choose another "
                "--data"
            )
        yield folder


def enter_together(comm: "Intracomm", path: str) -> None:
    """Make the output folder the working directory of all ranks. Rank 0 creates it, and removes what a killed run has
    left in it. All ranks must call this. Raise InfrastructureError if the file system fails.
    """
    clock.assemble(comm)
    if comm.rank == 0:
        _enter(path, is_emptied=True)
    clock.assemble(comm)
    if comm.rank:
        _enter(path)


def _enter(path: str, is_emptied: bool = False) -> None:
    try:
        if is_emptied:
            with made(path):
                run_outputs.remove(Path(path))
        with made(path) as folder:
            os.fchdir(folder)
    except OSError as fault:
        raise InfrastructureError(f"cannot use {of_system(fault, path)}; choose another --data") from fault


def make_for_all(comm: "Intracomm", path: str) -> None:
    """Create the output folder on rank 0, and wait until it exists. All ranks must call this. On GlusterFS, a folder
    that two nodes create at the same time may not exist yet for one of them. Raise the errors of made(), except
    OSError: the ranks report it when they open their first file.
    """

    def make() -> None:
        with suppress(OSError), made(path):
            pass

    on_root(comm, make)


class OutputFolder:
    """Access of a rank to the output folder. The folder is created, if needed, and opened on first use."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder: int | None = None

    def path(self, name: str) -> str:
        """Return the path of a file in the folder, for messages."""
        return os.path.join(self._path, name)

    def held(self, name: str) -> str:
        """Return a path by which a library can open a file in the folder. The path leads through the folder's
        descriptor, so that no other user can make it lead to another file. Under Darshan, the full path is returned,
        for the same reason as in opened(). Raise ConfigError if the folder is a link or belongs to another user.
        """
        folder = self._opened_folder()
        return self.path(name) if darshan_fd_gate.is_watched() else str(safe_folders.held(folder) / name)

    def opened(self, name: str, mode: str, more: int = 0) -> AbstractContextManager[Any]:
        """Open a file in the folder, unbuffered, for a `with` block. more: flags of open(2), such as O_DIRECT. Raise
        ConfigError if the folder is a link or belongs to another user.

        Under Darshan, the file is opened by its full path, because Darshan does not resolve names relative to a
        directory descriptor.
        """
        folder = self._opened_folder()
        if darshan_fd_gate.is_watched():
            path, within = self.path(name), None
        else:
            path, within = name, folder
        return darshan_fd_gate.opened(path, mode, 0, lambda path, flags: _opened(path, flags | more, within))

    def _opened_folder(self) -> int:
        if self._folder is None:
            with made(self._path) as folder:
                self._folder = os.dup(folder)
        return self._folder

    def close(self) -> None:
        if self._folder is not None:
            safe_folders.close(self._folder)
            self._folder = None


def _opened(path: str, flags: int, folder: int | None) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666, **({} if folder is None else {"dir_fd": folder}))
