"""The costs of ranks that share cores, and the files that a rank looks up before it works.

python -m tests.bench.ranks prints them.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base import serialization
from dlio_hpc.batch import jobscript
from dlio_hpc.config import site, workload
from dlio_hpc.files import rundir
from tests.bench.table import heading, row, seconds
from tests.support import planning

RANKS, STEPS, ROUNDS = (1, 2, 4, 8), 100, 3
SHARING = 4
# Folders of the kernel. Their files are in memory, on every node.
_KERNEL = ("/dev/", "/proc/", "/sys/")
_CALL = re.compile(r'^\d+ +(?:open|openat|(newfstatat|stat|lstat|statx|access|readlink))\([^"]*"([^"]+)"', re.MULTILINE)


class Cost(NamedTuple):
    """CPU seconds of all ranks and of the launcher, and seconds until the end of the last job."""

    cpu: float
    wall: float


def bench(rounds: int = ROUNDS) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        single = cost([_job(folder, 1)], rounds)
        row(f"null job of {STEPS} steps, 1 rank: CPU, wall", f"{single.cpu:.2f} s", f"{single.wall:.2f} s")
        for ranks in RANKS[1:]:
            took, goal = cost([_job(folder, ranks)], rounds), "<= 1.3" if ranks == SHARING else ""
            many = ranks * single.cpu
            row(f"{ranks} ranks, CPU / {ranks} x 1 rank", f"{took.cpu:.2f} s", f"{many:.2f} s", took.cpu / many, goal)
            row(f"{ranks} ranks on {os.cpu_count()} cores, wall", f"{took.wall:.2f} s")
        alone, both = (
            cost([_job(folder, SHARING)], rounds),
            cost([_job(folder, SHARING), _job(folder, SHARING)], rounds),
        )
        title = f"{SHARING} ranks beside such a job / alone"
        row(f"{title}, CPU", f"{both.cpu / 2:.2f} s", f"{alone.cpu:.2f} s", both.cpu / 2 / alone.cpu)
        row(f"{title}, wall", f"{both.wall:.2f} s", f"{alone.wall:.2f} s", both.wall / alone.wall)
        if shutil.which("strace"):
            opens, stats = lookups(_job(folder, 1))
            row("files that a null rank opens; looks up", str(opens), str(stats))


def _job(folder: Path, ranks: int) -> Path:
    """Write the directory of a null job, and return it."""
    request = planning.Request(runs=folder, data=folder, ranks_per_node=ranks)
    made = planning.make(workload.load("null", (f"train.steps={STEPS}",)), site.load("local"), request)
    directory = Path(made.directory)
    directory.mkdir(parents=True)
    (directory / rundir.PLAN).write_bytes(serialization.encode(made))
    (directory / rundir.SCRIPT).write_text(jobscript.render(made), encoding="utf-8")
    return directory


def cost(directories: list[Path], rounds: int) -> Cost:
    """Return the least costs of some rounds, in each of which all these jobs run at the same time."""
    costs = [_cost(directories) for _ in range(rounds)]
    return Cost(min(once.cpu for once in costs), min(once.wall for once in costs))


def _cost(directories: list[Path]) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = seconds(lambda: _run(directories))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def _run(directories: list[Path]) -> None:
    """Run the scripts of the jobs and wait for all of them."""
    commands = [["bash", str(directory / rundir.SCRIPT)] for directory in directories]
    jobs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands]
    assert [job.wait() for job in jobs] == [0] * len(jobs)


def lookups(directory: Path) -> tuple[int, int]:
    """Run a job on one rank under strace. Return how many files it opens, and how many it looks up in other ways (stat,
    access, readlink). Failed calls count, files of the kernel do not.
    """
    trace = directory / "trace"
    core = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", rundir.PLAN, "--run", "0"]
    command = [str(Path(sys.executable).with_name("mpiexec")), "-n", "1", "strace", "-f", "-qq", "-o", str(trace)]
    traced = [*command, "-e", "trace=%file", "-e", "signal=none", *core]
    subprocess.run(traced, cwd=directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    calls = _CALL.findall(trace.read_text(errors="replace"))
    kinds = [kind for kind, path in calls if not path.startswith(_KERNEL)]
    return kinds.count(""), len(kinds) - kinds.count("")


if __name__ == "__main__":
    heading()
    bench()
