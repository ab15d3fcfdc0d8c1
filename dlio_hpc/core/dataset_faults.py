"""Errors about files of a dataset. The advice in a message depends on whether the dataset was generated or existed
already.
"""

import errno
import os
import stat

from dlio_hpc.base.errors import ABSENT, DlioError, InvalidRun, of_system, unreadable

GENERATE_AGAIN = "remove the dataset's folder and generate it again"
SCAN_AGAIN = "submit the workload again, which scans the dataset again"
# Error numbers of calls on folders, pipes, sockets and devices that regular files do not have, or have for O_DIRECT.
_OF_OTHER_KINDS = {errno.EISDIR, errno.ESPIPE, errno.ENXIO, errno.EINVAL}


class UnplannedFile(InvalidRun):
    """A file of the dataset is missing, corrupted, or not as planned. The message of the exception is written for a
    generated dataset. existing: message for a dataset that existed already.
    """

    def __init__(self, generated: str, existing: str = "") -> None:
        super().__init__(generated)  # the only argument, because workers send exceptions by their arguments
        self.existing = existing


def unplanned(fact: str) -> UnplannedFile:
    """Return the error for a file that is not as planned. fact: name of the file, and what is wrong."""
    return UnplannedFile(f"{fact}; {GENERATE_AGAIN}", f"{fact}; {SCAN_AGAIN}")


def damaged(path: str, fault: object) -> UnplannedFile:
    """Return the error for a file that cannot be read because it is corrupted or does not belong to the dataset."""
    return UnplannedFile(
        f"{path} {FOREIGN}: {fault}; {GENERATE_AGAIN}",
        f"{path} is corrupted, or has changed since the dataset was scanned: {fault}; {SCAN_AGAIN}",
    )


def irregular(path: str, fault: OSError) -> UnplannedFile | None:
    """Return the error for a path that is not a regular file, if a call failed for this reason. Otherwise, return
    None.
    """
    if fault.errno not in _OF_OTHER_KINDS:
        return None
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return None
    return None if is_file else unplanned(f"{path} is not a regular file")


def unopened(path: str, fault: OSError) -> DlioError:
    """Return the error for a file that cannot be opened or read."""
    if (other_kind := irregular(path, fault)) is not None:
        return other_kind
    if fault.errno not in ABSENT:
        return unreadable(fault, path)
    fact = f"cannot read {of_system(fault, path)}"
    return UnplannedFile(
        f"{fact}; the dataset may have been removed or never generated",
        f"{fact}; the file existed when the dataset was scanned: {SCAN_AGAIN}",
    )


# Part of messages about a file that cannot be read.
FOREIGN = "is not a dlio-hpc dataset file, or is corrupted"
