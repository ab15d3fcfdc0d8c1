"""Lines that a job printed."""

import re
from collections.abc import Sequence

# Beginnings of lines of launchers, which follow those of the program that failed, and of frames of a traceback.
_LITTLE_SAID = re.compile(r"\[(mpiexec|proxy:)|srun: |mpirun |Primary job |(prte|orte)run\b|[=-]{3}|[=|] |\s|=$|[~^]")


def telling_line(lines: Sequence[str]) -> str:
    """Return the last line that is neither of a launcher nor a frame of a traceback. If there is none, return the first
    line; for no lines, return an empty text.
    """
    return next((line for line in reversed(lines) if not _LITTLE_SAID.match(line)), lines[0] if lines else "").strip()
