"""Steps of two ranks of a job, each with its barrier, compared with two bare preadv loops over the same file. The file
lies in the page cache.

python -m tests.bench.steps prints the rows.
"""

import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from dlio_hpc.base import serialization
from dlio_hpc.config import site, workload
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan
from dlio_hpc.results import run_result
from tests.bench.requests import KIB, MIB, Case, Ranks, bare
from tests.bench.table import heading, row
from tests.support import planning, written

RANKS, EPOCHS, ROUNDS = 2, 9, 5
CASES = (
    Case("raw 1 MiB, batch 4", "raw", MIB, 1, 1024, 4, ">= 0.85"),
    Case("raw 4 KiB, batch 64", "raw", 4 * KIB, 1, 65536, 64, ">= 0.6"),
)


def bench(rounds: int = ROUNDS, shrink: int = 1) -> None:
    """Print a row for each case. shrink: factor by which datasets are smaller."""
    for case in CASES:
        with tempfile.TemporaryDirectory() as name:
            _compare(Path(name), case.smaller(shrink), rounds)


def _compare(folder: Path, case: Case, rounds: int) -> None:
    plan = _plan(folder, case)
    loops = Ranks(partial(bare, Path(plan.runs[0].dataset), case), RANKS)
    ratios, ours, theirs = list[float](), list[float](), list[float]()
    for number in range(rounds):
        around = [loops.seconds() for _ in range(EPOCHS)]
        ours.append(case.per_file / _epoch_s(folder / str(number), plan))
        around += [loops.seconds() for _ in range(EPOCHS)]
        theirs.append(RANKS * case.per_file / statistics.median(around))
        ratios.append(ours[-1] / theirs[-1])
    loops.close()
    what = f"{case.what}, {RANKS} ranks of a job, with barriers"
    our_rate, bare_rate = (f"{statistics.median(rates):,.0f}/s" for rates in (ours, theirs))
    row(what, our_rate, bare_rate, statistics.median(ratios), case.goal)


def _plan(folder: Path, case: Case) -> Plan:
    """Write a dataset, and return the plan of a job that reads it."""
    keys = (
        "dataset.format=raw", f"dataset.sample.bytes={case.size}", "dataset.files=1",
        f"dataset.samples_per_file={case.per_file}", f"reader.batch_size={case.batch}", f"train.epochs={EPOCHS}",
        "train.steps=null", "compute.time=0", "reader.prefetch=0", "reader.read_threads=1", "reader.transfer_size=null",
    )  # fmt: skip
    request = planning.Request(runs=folder, data=folder / "data", ranks_per_node=RANKS, generate="never")
    made = planning.make(workload.load("null", keys), site.load("local"), request)
    run = made.runs[0]
    Path(run.dataset).mkdir(parents=True)
    written.write(dataset_folder.file_path(run.stored, 0), run.workload.dataset, 0)
    dataset_folder.mark(run.stored, complete=True)
    Path(run.dataset, "0").symlink_to(dataset_folder.file_path(run.stored, 0))
    return made


def _epoch_s(directory: Path, plan: Plan) -> float:
    """Run the job on all ranks, and return the median seconds of its epochs."""
    directory.mkdir()
    (directory / rundir.PLAN).write_bytes(serialization.encode(plan))
    mpiexec = str(Path(sys.executable).with_name("mpiexec"))
    core = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", rundir.PLAN, "--run", "0"]
    subprocess.run([mpiexec, "-n", str(plan.ranks), *core], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    result = rundir.run_directory(directory, plan.runs[0].number, plan.runs[0].name) / rundir.RESULT
    return statistics.median(epoch.wall_s for epoch in run_result.decode(result.read_bytes(), str(result)).epochs)


if __name__ == "__main__":
    heading()
    bench()
