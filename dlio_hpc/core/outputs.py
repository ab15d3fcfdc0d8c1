"""Files that a run writes in addition to its dataset, in a folder of its own that is gone when it has ended."""

import os
from contextlib import AbstractContextManager, suppress
from typing import Any

from dlio_hpc import folders
from dlio_hpc.core import descriptors
from dlio_hpc.errors import ConfigError


class Outputs:
    """One rank's access to the folder, which is made and opened when it is first used."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder: int | None = None

    def path(self, name: str) -> str:
        """For messages."""
        return os.path.join(self._path, name)

    def opened(self, name: str, mode: str) -> AbstractContextManager[Any]:
        """A file without a buffer, closed after the block; ConfigError where the folder is a link or another user's.

        Darshan is told the file's path: it does not know a name that belongs to a descriptor.
        """
        folder = self._opened_folder()
        if descriptors.is_watched():
            return descriptors.opened(self.path(name), mode, 0, lambda path, flags: _opened(path, flags, None))
        return descriptors.opened(name, mode, 0, lambda path, flags: _opened(path, flags, folder))

    def _opened_folder(self) -> int:
        if self._folder is None:
            folders.make(os.path.dirname(self._path))
            with suppress(FileExistsError):
                os.mkdir(self._path, 0o700)  # nobody else puts anything into it
            with folders.opened(self._path) as folder:
                if not folders.is_mine(folder):
                    raise ConfigError(
                        f"{self._path} belongs to user {folders.owner(folder)}, nothing is written there; choose "
                        "another --data"
                    )
                self._folder = os.dup(folder)
        return self._folder

    def close(self) -> None:
        if self._folder is not None:
            folders.close(self._folder)
            self._folder = None


def _opened(path: str, flags: int, folder: int | None) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666, **({} if folder is None else {"dir_fd": folder}))
