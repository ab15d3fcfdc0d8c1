"""Record of the part of a dataset that a verification has checked, so that an interrupted verification is continued.

The record is in the user's own cache folder, because the user may have no permission to write to the dataset, and
because other users cannot write to it. It is kept for a day.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.dataset.dataset_folder import FINGERPRINT_FILE
from dlio_hpc.files import rundir, safe_folders, user_folders

# Maximum size of a record in bytes.
_LONGEST = 4096
_KEPT_S, _INTERVAL_S = 86400.0, 2.0


class VerifiedPart(Struct, frozen=True):
    """Files of a dataset that have no fault. identity: identity of the dataset; see _identity(). quick: whether only
    names and sizes were checked. files: their number; auxiliary files come first, then sample files by number. bytes:
    their total size. began: time at which the first one was checked, in seconds since 1970.
    """

    identity: tuple[int, ...]
    quick: bool
    files: int
    bytes: int
    began: float
    schema: int = 1

    @property
    def generated_ns(self) -> int:
        """Time at which the generation of the dataset was completed, in nanoseconds since 1970. It is of the clock of
        the file system, as are the times of the other files of the dataset.
        """
        return self.identity[-1]

    @property
    def since(self) -> str:
        """Time at which the first file was checked, in the format of utc_now()."""
        return units.utc(self.began)


class VerificationRecord:
    """The record for one dataset. folder: the dataset's folder. quick: whether only names and sizes are checked."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self._identity, self._quick = _identity(folder), quick
        cache = user_folders.private_cache()
        name = hashlib.sha256(os.path.realpath(folder).encode("utf-8", "surrogateescape")).hexdigest()[:24]
        kind = "names-" if quick else ""
        self._file = None if cache is None else cache / f"verified-{kind}{name}.json"
        self._began, self._due = time.time(), time.monotonic() + _INTERVAL_S

    def load(self, files: int) -> VerifiedPart | None:
        """Return the part that an interrupted verification has checked. Return None if there is none, if another user
        wrote it, if it is older than a day, or if the dataset was generated again since. files: number of files of the
        dataset.
        """
        if self._file is None:
            return None
        try:
            part = serialization.decode(safe_folders.own_content(self._file, _LONGEST), VerifiedPart, str(self._file))
        except (OSError, ConfigError):
            return None
        is_recent = 0 <= time.time() - part.began < _KEPT_S
        is_same = part.identity == self._identity and part.quick == self._quick and 0 < part.files <= files
        if not (is_same and is_recent):
            return None
        self._began = part.began
        return part

    def save(self, files: int, size: int) -> None:
        """Record that the first files have no fault, at most once in some seconds. files, size: their number and their
        total size in bytes. A record that cannot be written is left out.
        """
        if self._file is None or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _INTERVAL_S
        part = VerifiedPart(self._identity, self._quick, files, size, self._began)
        with suppress(OSError), rundir.replacing(self._file) as temporary:
            temporary.chmod(0o600)
            temporary.write_bytes(serialization.encode(part))

    def clear(self) -> None:
        """Remove the record: the verification is complete."""
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink(missing_ok=True)


def _identity(folder: Path) -> tuple[int, ...]:
    """Return the inode numbers of the folder and of its fingerprint file, and the time of the last change of the latter
    in nanoseconds (ctime, which no program can set). They change when the dataset is generated again. Device numbers
    may differ between login nodes.
    """
    place, file = folder.stat(), (folder / FINGERPRINT_FILE).stat()
    return place.st_ino, file.st_ino, file.st_ctime_ns
