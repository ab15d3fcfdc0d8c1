"""Processes of jobs on this node, and files in its shared memory."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHM = Path("/dev/shm")
DAY_S = 86400.0
OTHER_USER = 12345
# Programs that map a file, or have it open.
MAP = "import mmap, sys; file = open(sys.argv[1], 'r+b'); m = mmap.mmap(file.fileno(), 4096); file.close()"
OPEN = "import sys; file = open(sys.argv[1], 'r+b')"


def aged(path: Path, age_s: float = DAY_S, mode: int = 0o600) -> Path:
    """Make a file that was changed `age_s` seconds ago."""
    path.write_bytes(bytes(4096))
    path.chmod(mode)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@contextmanager
def holding(code: str, *arguments: object, python: Path = Path(sys.executable)) -> "Iterator[subprocess.Popen[str]]":
    """Run Python code with arguments in a process that lives until the end of the `with` block."""
    command = [str(python), "-c", f"{code}\nprint('ready', flush=True)\nsys.stdin.read()", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def foreign_segments() -> Iterator[None]:
    """Put segments of others into /dev/shm: one that a process maps, a recent one and, for root, one of another user.
    Check that they are still there at the end.
    """
    paths = [SHM / f"mpich_shm_dlio{os.getpid()}_{number}" for number in range(3)]
    mapped = aged(paths[0], mode=0o700)
    aged(paths[1], -DAY_S)
    if os.geteuid() == 0:
        os.chown(aged(paths[2], mode=0o700), OTHER_USER, OTHER_USER)
    try:
        with holding(MAP, mapped):
            yield
            assert [path.exists() for path in paths] == [True, True, os.geteuid() == 0]
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def kill(number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)


def processes(directory: Path, word: bytes = b"") -> list[int]:
    """Return the processes that work in a directory and have `word` in their command line."""
    numbers = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if Path(os.readlink(process / "cwd")) == directory and word in (process / "cmdline").read_bytes():
                numbers.append(int(process.name))
    return numbers


def ranks(directory: Path) -> list[int]:
    """Return the ranks of a job, without their launchers and the processes that they started."""
    numbers = [number for number in processes(directory, b"dlio_hpc.core") if "python" in _name(number)]
    return [number for number in numbers if _parent(number) not in numbers]


def _name(number: int) -> str:
    return Path(f"/proc/{number}/comm").read_text()


def _parent(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def shared(directory: Path) -> list[Path]:
    """Return the files in shared memory that processes of a job map."""
    maps = "".join(Path(f"/proc/{number}/maps").read_text() for number in processes(directory, b"dlio_hpc.core"))
    fields = [line.split(maxsplit=5) for line in maps.splitlines()]
    paths = {Path(field[5]) for field in fields if field[5:] and field[5].startswith(f"{SHM}/")}
    return sorted(path for path in paths if path.exists())
