"""Lines of site.setup that failed in a job. The job script records them and continues."""

from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.files import rundir, safe_folders

# Exit statuses of a shell that tell more than a number.
_MEANINGS = {126: "not executable", 127: "no such command"}


class SetupFailure(NamedTuple):
    """A line of site.setup that failed. status: its exit status."""

    status: int
    line: str

    def text(self) -> str:
        meaning = f" ({_MEANINGS[self.status]})" if self.status in _MEANINGS else ""
        return f"site.setup: the line {self.line!r} failed with exit status {self.status}{meaning}"


def decode(content: bytes) -> tuple[SetupFailure, ...]:
    """Return the failures that a job script recorded, without repetitions. content: rows with an exit status and the
    text of the line. Rows that are not of this form are left out.
    """
    rows = (row.partition(" ") for row in content.decode(errors="replace").splitlines())
    failures = (SetupFailure(int(status), line.strip()) for status, _, line in rows if status.isdigit())
    return tuple(dict.fromkeys(failures))


def of_job(directory: Path) -> tuple[SetupFailure, ...]:
    """Return the failures of a job; none if they cannot be read. directory: directory of the job."""
    try:
        return decode(safe_folders.content(directory / rundir.SETUP_FAILURES, rundir.LARGEST_DOCUMENT))
    except (OSError, ConfigError):
        return ()
