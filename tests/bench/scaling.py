"""A job of 8192 ranks that never ran: its plan, its scripts, its merged recordings and its report, in fresh processes.

python -m tests.bench.scaling PART FOLDER prints seconds and peak memory of one part.
"""

import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base import serialization, units
from dlio_hpc.config import site, workload
from dlio_hpc.plan import plan, site_limits
from tests.bench.table import row, seconds
from tests.support import planning

NODES, PPN, STEPS = 2048, 4, 1000
FEW = 128  # fewer nodes theta does not give
SITES = ("theta", "slurm", "pbs")
ROOT = Path(__file__).parents[2]


class Cost(NamedTuple):
    """The time of a part in a process of its own, and the peak of its resident memory."""

    seconds: float
    mebibytes: float


def bench() -> None:
    ranks = f"{NODES * PPN} ranks"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = (min(cost("plan", folder, nodes) for _ in range(5)) for nodes in (FEW, NODES))
        for what, of_many, of_few, unit in (
            ("plan, three scripts", many.seconds * 1e3, few.seconds * 1e3, "ms"),
            ("the same, resident", many.mebibytes, few.mebibytes, "MiB"),
        ):
            title = f"{what}: {ranks} / {FEW * PPN}"
            row(title, f"{of_many:.0f} {unit}", f"{of_few:.0f} {unit}", of_many / of_few, "flat")
        merged, reported = cost("merge", folder), cost("report", folder)
        row(f"merge {ranks} x {STEPS} steps, write", f"{merged.seconds:.1f} s")
        row("the same, resident; the recordings alone", f"{merged.mebibytes:.0f} MiB", "438 MiB", None, "<= 1500 MB")
        size = (folder / "report.html").stat().st_size / 1e6
        row("report of it as HTML", f"{reported.seconds:.1f} s", "", None, "<= 60 s")
        row("the same, resident; the page", f"{reported.mebibytes:.0f} MiB", f"{size:.2f} MB", None, "<= 1500, < 5 MB")


def cost(part: str, folder: Path, nodes: int = NODES) -> Cost:
    """Measure a part. The report reads what an earlier part merged into `folder`."""
    command = [sys.executable, "-m", "tests.bench.scaling", part, str(folder), str(nodes)]
    figures = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return Cost(float(figures[-2]), float(figures[-1]))


def planned(folder: Path, name: str, nodes: int) -> plan.Plan:
    """Return a plan for site `name`: each rank reads a sample of 1 MiB in each of STEPS steps, one file per sample."""
    files = f"dataset.files={nodes * PPN * STEPS}"
    keys = (files, "dataset.samples_per_file=1", "reader.batch_size=1", "compute.time=50 ms", "train.epochs=1")
    request = planning.Request(
        runs=folder, data=folder, nodes=nodes, ranks_per_node=PPN, account="proj", walltime=units.walltime("2h"),
        generate="never",
    )  # fmt: skip
    return planning.make(workload.load("demo", keys), site.load(name), request)


def _plan(folder: Path, nodes: int) -> float:
    return seconds(lambda: _plans(folder, nodes))


def _plans(folder: Path, nodes: int) -> None:
    from dlio_hpc.batch import jobscript

    for name in SITES:
        made = planned(folder, name, nodes)
        site_limits.check([made])
        serialization.encode(made)
        jobscript.render(made)


def _merge(folder: Path, nodes: int) -> float:
    """Return the seconds of the merge. They do not include making the recordings."""
    from tests.support import recordings

    made = planned(folder, "slurm", nodes)
    merged = recordings.merged(made)
    return seconds(lambda: recordings.leave(folder / "job", made, merged))


def _report(folder: Path, nodes: int) -> float:
    """Return the seconds of the report command, called as a user calls it."""
    from dlio_hpc.cli.command_line import main

    sys.argv = ["dlio-hpc", "report", str(folder / "job"), "--html", str(folder / "report.html")]
    with redirect_stdout(io.StringIO()):
        return seconds(lambda: _ended(main))


def _ended(program: Callable[[], None]) -> None:
    with suppress(SystemExit):
        program()


PARTS: dict[str, Callable[[Path, int], float]] = {"plan": _plan, "merge": _merge, "report": _report}


def main() -> None:
    part, folder, nodes = sys.argv[1:]
    took = PARTS[part](Path(folder), int(nodes))
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    print(took, peak / 1024)


if __name__ == "__main__":
    main()
