"""The rates of a metadata workload, held against mdtest, or against bare loops where there is no mdtest, in turns.

MDTEST=PATH python -m tests.bench.metadata [FILES [DIR...]] prints the rows; DIR are folders of different file systems.
MDTEST names the program, which must be built for the MPI of the ranks. FRESH is a command that makes DIR a new file
system before each measurement, which then has no repeats: for minutes after many files were unlinked, ext4 creates
files slowly (recently_deleted() in ialloc.c).
"""

import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlio_hpc.files import filesystem, rundir
from dlio_hpc.results import run_result
from tests.bench.starting import BIN
from tests.bench.table import heading, row

_FILES, _RANKS, _ROUNDS, _REPEATS = 20_000, 2, 5, 3
# Names of the phases in mdtest's summary, and the share of the rate of mdtest that is the goal on a file system in
# memory. Where an operation takes more than 20 us, the goal is _SLOW.
_PHASES = {
    "create": ("File creation", 0.85), "stat": ("File stat", 0.7), "open_read_close": ("File read", 0.85),
    "unlink": ("File removal", 0.85),
}  # fmt: skip
_SLOW, _SLOW_S = 0.95, 20e-6
_WORKLOAD = """\
name: beside
metadata: {{files: {files}, phases: [create, stat, open_read_close, unlink], shuffle: false}}
train: {{epochs: {repeats}}}
"""
Rates = dict[str, float]


def bench(folders: list[Path], files: int = _FILES) -> None:
    """Print the rates of each phase on each file system. folders: a folder of each file system. files: number of files
    of a rank.
    """
    program = os.environ.get("MDTEST") or shutil.which("mdtest")
    for folder in folders:
        place = folder / "metadata-rates"
        try:
            _bench(place, files, program)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _bench(place: Path, files: int, program: str | None) -> None:
    kind, fresh = filesystem.of(place.parent).kind, os.environ.get("FRESH")
    ours: list[Rates] = []
    others: list[Rates] = []
    repeats = 1 if fresh else _REPEATS
    for number in range(_ROUNDS):
        sides: list[tuple[list[Rates], Callable[[], Rates]]] = [
            (ours, lambda: _ours(place, files, repeats)),
            (others, lambda: _of_mdtest(place, files, repeats, program) if program else _bare(place, files)),
        ]
        for rates, measure in sides if number % 2 else reversed(sides):
            if fresh:
                subprocess.run(fresh, shell=True, check=True)
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            rates.append(measure())
    for phase, (_, goal) in _PHASES.items():
        mine, theirs = (statistics.median(rates[phase] for rates in side) for side in (ours, others))
        ratio = statistics.median(a[phase] / b[phase] for a, b in zip(ours, others, strict=True))
        wanted = _SLOW if _RANKS / theirs > _SLOW_S else goal
        name = f"{kind}: {phase}, beside {'mdtest' if program else 'a bare loop'}"
        row(name, f"{mine:,.0f}/s", f"{theirs:,.0f}/s", ratio, f">= {wanted}" if program else "")


def _ours(place: Path, files: int, repeats: int) -> Rates:
    """Return the median rates of a job with a measured run."""
    (place / "beside.yaml").write_text(_WORKLOAD.format(files=files, repeats=repeats), encoding="utf-8")
    submit = [BIN / "dlio-submit", place / "beside.yaml", "-s", "local", "--ppn", _RANKS, "-d", place / "data"]
    runs = place / "runs"
    subprocess.run([*map(str, submit), "-o", str(runs), "--wait", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    (path,) = runs.glob(f"*/runs/*-measure/{rundir.RESULT}")
    summary = run_result.decode(path.read_bytes(), str(path)).summary
    assert summary is not None
    return {phase.phase: phase.per_s for phase in summary.metadata}


def _of_mdtest(place: Path, files: int, repeats: int, program: str) -> Rates:
    """Return the mean rates that mdtest prints, with the same ranks, files, phases and repeats."""
    launch = [str(BIN / "mpiexec"), "-n", str(_RANKS), program, "-n", str(files), "-F", "-C", "-T", "-E", "-r", "-u"]
    command = [*launch, "-i", str(repeats), "-d", str(place / "mdtest")]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rates = {}
    for phase, (name, _) in _PHASES.items():
        match = re.search(rf"{name}\s+\S+\s+\S+\s+(\S+)", printed)
        assert match is not None, printed
        rates[phase] = float(match[1])
    return rates


def _create(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))


def _open_read_close(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


_LOOPS: dict[str, Callable[[str], object]] = {
    "create": _create, "stat": os.stat, "open_read_close": _open_read_close, "unlink": os.unlink,
}  # fmt: skip


def _bare(place: Path, files: int) -> Rates:
    """Return the rates of loops of the same calls, by as many processes."""
    rates: Rates = {}
    for phase, call in _LOOPS.items():
        ready: Any = multiprocessing.Barrier(_RANKS)
        ends: Any = multiprocessing.Queue()
        arguments = [(place / f"bare-{rank}", files, call, ready, ends) for rank in range(_RANKS)]
        processes = [multiprocessing.Process(target=_loop, args=one) for one in arguments]
        for process in processes:
            process.start()
        spans = [ends.get() for _ in processes]
        for process in processes:
            process.join()
        rates[phase] = _RANKS * files / (max(end for _, end in spans) - min(begin for begin, _ in spans))
    return rates


def _loop(folder: Path, files: int, call: Callable[[str], object], ready: Any, ends: Any) -> None:
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    ready.wait()
    began = time.perf_counter()
    for number in range(files):
        call(f"f{number}")
    ends.put((began, time.perf_counter()))


if __name__ == "__main__":
    heading("mdtest")
    where = list(map(Path, sys.argv[2:])) or [Path("/dev/shm"), Path.cwd()]
    bench(where, int(sys.argv[1]) if sys.argv[1:] else _FILES)
