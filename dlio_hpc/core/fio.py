"""Runs of fio on the files of a dataset, where fio is installed on the node."""

import json
import os
import shutil
import subprocess
from typing import NamedTuple

from dlio_hpc.config.reader_keys import BLOCK
from dlio_hpc.results.probe_result import Pattern

# Time that fio may take beyond the requested one, in seconds.
_GRACE_S = 30.0
# Maximum length of the option filename in bytes (PATH_MAX).
_LONGEST = 4000
_OPERATIONS: dict[Pattern, str] = {"sequential": "read", "random": "randread"}


class FioThread(NamedTuple):
    """A thread of fio. paths: paths of the files that the thread reads. offset: fraction of each file, at its
    beginning, that the thread skips.
    """

    paths: list[str]
    offset: float

    @property
    def largest_request(self) -> int:
        """Size in bytes of the largest request, in whole blocks, that fits into each file after the offset; 0 if a file
        is too small. fio rounds the offset to a multiple of the request size.
        """
        smallest = min(os.stat(path).st_size for path in self.paths)
        room = smallest * (1 - self.offset) / 2 if self.offset else smallest
        return int(room) // BLOCK * BLOCK


class Count(NamedTuple):
    """Result of a run of fio. version: version of fio, such as fio-3.36. why_not: reason why fio did not run; None if
    it ran.
    """

    version: str
    bytes_read: int
    seconds: float
    why_not: str | None


def run(jobs: list[FioThread], pattern: Pattern, request: int, seconds: float) -> Count:
    """Run fio for `seconds`, with a thread for each job. The threads read in requests of `request` bytes with O_DIRECT.
    fio never writes or creates a file, and does not drop files from the page cache.
    """
    program = shutil.which("fio")
    if program is None:
        return Count("", 0, 0.0, "fio is not installed on the node")
    if not request:
        return Count("", 0, 0.0, "a file is smaller than a block of O_DIRECT")
    try:
        done = subprocess.run(
            [program, *arguments(jobs, pattern, request, seconds)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds + _GRACE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as fault:
        return Count("", 0, 0.0, f"fio: {fault}")
    return counted(done.stdout, done.stderr, done.returncode)


def arguments(jobs: list[FioThread], pattern: Pattern, request: int, seconds: float) -> list[str]:
    """Return the arguments of fio(1)."""
    common = [
        "--output-format=json", "--readonly", "--allow_file_create=0", "--invalidate=0", "--direct=1", "--thread",
        "--ioengine=psync", f"--rw={_OPERATIONS[pattern]}", f"--bs={request}", "--time_based",
        f"--runtime={round(1000 * seconds)}ms", "--group_reporting", "--file_service_type=sequential",
    ]  # fmt: skip
    for number, job in enumerate(jobs):
        common += [f"--name=thread{number}", f"--filename={_joined(job.paths)}"]
        common += [f"--offset={int(100 * job.offset)}%"] if job.offset else []
    return common


def _joined(paths: list[str]) -> str:
    """Return the argument of fio's option --filename: as many of the paths as fit into the length that fio allows."""
    text = ""
    for path in paths:
        name = path.replace("\\", "\\\\").replace(":", "\\:")
        if text and len(os.fsencode(text)) + len(os.fsencode(name)) >= _LONGEST:
            break
        text += f":{name}" if text else name
    return text


def counted(output: str, errors: str, exit_code: int) -> Count:
    """Parse the output of fio, and return the result of the run. fio may print warnings before the JSON document."""
    try:
        report = json.loads(output[output.index("{") :])
        group = report["jobs"][0]
        count, took = int(group["read"]["io_bytes"]), group["read"]["runtime"] / 1000
        version, error = str(report["fio version"]), int(group["error"])
    except (ValueError, LookupError, TypeError):
        version, count, took, error = "", 0, 0.0, 0
    if exit_code or error or not count or not took:
        lines = [line for line in errors.splitlines() if line.strip()] or [f"it ended with exit code {exit_code}"]
        return Count("", 0, 0.0, f"fio: {lines[-1]}")
    return Count(version, count, took, None)
