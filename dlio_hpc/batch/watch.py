"""Looking on: a job's state and how far its run is, as often as it is fair to ask."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dlio_hpc import rundir
from dlio_hpc.batch import job
from dlio_hpc.errors import Incomplete

_LINE = re.compile(rb"^(?P<run>\d\d+-\S+) (?P<done>\d+)/(?P<total>\d+) (?P<unit>\w+)(?:, (?P<rest>.*))?$", re.MULTILINE)
_TAIL_BYTES = 4096
_FIRST_S, _LONGEST_S = 0.1, 1.0


class Progress(NamedTuple):
    """The newest progress line of the ranks in job.out."""

    run: str
    done: int
    total: int
    unit: str
    rest: str


def watch(directory: Path) -> Iterator[tuple[job.Job, Progress | None]]:
    """The job again and again until it has ended; the last one given has. The pause grows to a second."""
    pause = _FIRST_S
    while True:
        record = job.refresh(directory)
        yield record, progress(directory)
        if record.ended:
            return
        if record.batch_id is None:
            raise Incomplete(
                f"job {record.job} was never handed to the batch system, its submission was interrupted; "
                f"submit it anew, or: dlio-hpc cancel {directory}"
            )
        time.sleep(pause)
        pause = min(_LONGEST_S, pause * 1.2)


def progress(directory: Path) -> Progress | None:
    """How far the job's current run is; None when it has not said yet."""
    try:
        with (directory / rundir.STDOUT).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = list(_LINE.finditer(file.read()))
    except FileNotFoundError:
        return None
    if not lines:
        return None
    run, done, total, unit, rest = (part.decode(errors="replace") for part in lines[-1].groups(b""))
    return Progress(run, int(done), int(total), unit, rest)
