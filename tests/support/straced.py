"""The system calls of ranks, seen from outside: strace makes a Darshan log on computers without libdarshan.

Unlike the stand-in of libdarshan, strace sees the calls of C libraries and of Python's own files.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

from dlio_hpc.files import rundir
from tests.conftest import BIN
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced

_TRACED = "openat,close,lseek,read,pread64,preadv,preadv2,write,pwrite64,fadvise64"
# Of those that say where in the file: which of their numbers does.
_AT = {"pread64": -1, "preadv": -1, "preadv2": -2, "pwrite64": -1}
# Time, name, descriptor and path of the file, other parameters, result, and the path of a file that was opened.
_LINE = re.compile(r"^(\d+[.]\d+) (\w+)\((?:(\d+)<(/[^>]*)>(?:, )?)?(.*)\) += (\d+)(?:<(/[^>]*)>)?$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")
_OF_ACCOUNTING = re.compile(r"(?<!O_NOCTTY\|)O_NONBLOCK|O_PATH")
# Names of files of samples, and of files in the folders that are stores, also of existing ones.
_SAMPLES = re.compile(r"/(\d{8}|[abc])[.]\w+(/[^/]+)*")

# Rows of offset, length, start, end.
Rows = list[tuple[int, int, float, float]]


class _Call(NamedTuple):
    """A system call. thread: name of its file of lines. parameters: those after the file. result: number of bytes, or
    the place in the file.
    """

    at: float
    thread: str
    name: str
    descriptor: str
    path: str
    parameters: str
    result: int


def _calls(job: Path, processes: str) -> list[_Call]:
    """Return the calls of processes in order of time. Each thread has a file of lines. processes: pattern."""
    calls = []
    for part in job.glob(f"trace.{processes}"):
        for at, name, number, path, parameters, result, opened in _LINE.findall(part.read_text(errors="replace")):
            of_file = (result, opened) if name == "openat" else (number, path)
            calls.append(_Call(float(at), part.name, name, *of_file, parameters, int(result)))
    return sorted(calls, key=lambda call: call.at)


def needed() -> None:
    """Skip the test where there is no strace."""
    if shutil.which("strace") is None or subprocess.run(["strace", "-o", "/dev/null", "true"], check=False).returncode:
        assert "CI" not in os.environ, "strace has to work where changes are checked"
        pytest.skip("no strace here, or it may not trace: apt-get install strace")


def core(job: Path, ranks: int, run: int, log: Path | None = None) -> None:
    """Run a run of the job, whose plan lies in its folder. log: run it under strace, and write a log of the calls on
    files below the job's own folders.
    """
    command = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", rundir.PLAN, "--run", str(run)]
    if log is not None:
        traced = f"exec strace -ff --seccomp-bpf -y -ttt -s 0 -e signal=none -e trace={_TRACED} -o trace.$PMI_RANK"
        command = ["sh", "-c", f'{traced} "$@"', "sh", *command]
    done = subprocess.run(
        [BIN / "mpiexec", "-n", str(ranks), *command], cwd=job, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if log is not None:
        traces = [trace for rank in range(ranks) for trace in _traces(job, rank)]
        darshanlog.write(log, ranks, traces, counted=[_counted(trace) for trace in traces])


def requests(job: Path, ranks: int, folder: str) -> list[int]:
    """Return the bytes of each read of the files of samples in `folder`, in the run traced by core()."""
    traces = [trace for rank in range(ranks) for trace in _traces(job, rank)]
    of_samples = [trace for trace in traces if _is_of_samples(trace.path, folder)]
    return [row[1] for trace in of_samples for row in trace.reads]


def _is_of_samples(path: str, folder: str) -> bool:
    return path.startswith(folder) and _SAMPLES.search(path, len(folder)) is not None


def opens(job: Path, ranks: int, folder: str) -> int:
    """Return how many times ranks opened a file of samples in `folder` to read it, in the run traced by core()."""
    return sum(_opens(_calls(job, f"{rank}.*"), folder) for rank in range(ranks))


def _opens(calls: list[_Call], folder: str) -> int:
    """Return the number of opens of files of samples, without those of the accounting of the page cache, which read
    nothing: these have O_NONBLOCK without O_NOCTTY, or O_PATH, or are followed by posix_fadvise().
    """
    of_samples = [call for call in calls if _is_of_samples(call.path, folder)]
    to_read = [call for call in of_samples if call.name == "openat" and not _OF_ACCOUNTING.search(call.parameters)]
    return len(to_read) - sum(call.name == "fadvise64" for call in of_samples)


def writes(job: Path, ranks: int, folder: str) -> dict[str, list[int]]:
    """Return the bytes of each write to the files in `folder`, by file name, in the run traced by core()."""
    traces = [trace for rank in range(ranks) for trace in _traces(job, rank)]
    return {
        Path(trace.path).name: [row[1] for row in trace.writes] for trace in traces if trace.path.startswith(folder)
    }


def transfers(job: Path, ranks: int, folder: str) -> tuple[list[int], list[int]]:
    """Return the bytes of each read and of each write of the files below `folder`, in the run traced by core()."""
    traces = [trace for rank in range(ranks) for trace in _traces(job, rank) if trace.path.startswith(f"{folder}/")]
    reads, writes = ([row[1] for trace in traces for row in getattr(trace, name)] for name in ("reads", "writes"))
    return reads, writes


def seeds(job: Path) -> int:
    """Return the number of reads of /dev/urandom by threads."""
    return sum((call.name, call.path) == ("read", "/dev/urandom") for call in _calls(job, "*"))


def _traces(job: Path, rank: int) -> list[Traced]:
    """Return the traces of files below the job's folder."""
    calls = _calls(job, f"{rank}.*")
    reads: dict[str, Rows] = defaultdict(list)
    writes: dict[str, Rows] = defaultdict(list)
    stands: Counter[str] = Counter()
    begin = min((call.at for call in calls), default=0.0)
    for call in calls:
        if call.name == "openat":
            stands[call.path] = 0
        elif call.name == "lseek":
            stands[call.path] = call.result
        elif call.name not in ("close", "fadvise64") and call.path.startswith(f"{job}/"):
            if call.name in _AT:
                offset = int(_NUMBER.findall(call.parameters)[_AT[call.name]])
            else:
                offset = stands[call.path]
                stands[call.path] += call.result
            seconds = call.at - begin
            (writes if "write" in call.name else reads)[call.path].append((offset, call.result, seconds, seconds))
    return [Traced(path, rank, reads[path], writes[path]) for path in sorted({*reads, *writes})]


def _counted(trace: Traced) -> tuple[str, int, dict[str, float]]:
    """Count as Darshan does: a sequential request begins after the last byte of the one before, a consecutive one
    directly after it.
    """
    ((path, rank, values),) = darshanlog.counters_of([trace])
    for rows, name in ((trace.reads, "READS"), (trace.writes, "WRITES")):
        last = 0
        for offset, length, _, _ in rows:
            values[f"SEQ_{name}"] = values.get(f"SEQ_{name}", 0) + (offset > last)
            values[f"CONSEC_{name}"] = values.get(f"CONSEC_{name}", 0) + (offset == last + 1)
            last = offset + length - 1
    return path, rank, values


def bytes_read(job: Path, ranks: int, folder: str) -> int:
    """Return the bytes that ranks read from files in `folder`, in the run of the job that was traced last."""
    return sum(
        length
        for rank in range(ranks)
        for trace in _traces(job, rank)
        if os.path.dirname(trace.path) == folder
        for _, length, _, _ in trace.reads
    )
