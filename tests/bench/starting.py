"""The costs before the first sample: the set-up of an epoch, the start of the commands, the launch of ranks."""

import resource
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader, Shuffle
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.dataset.sample_order import Order
from tests.bench.table import ROUNDS, row, seconds

BIN = Path(sys.executable).parent
SHUFFLED = Reader(batch_size=8, shuffle=Shuffle(True, True, 1))


def bench() -> None:
    _tool()
    _set_up()
    _commands()
    _launch()


def _tool() -> None:
    made = Workload("null", Dataset("null", 1000, 100, Sample(bytes=Size(1 << 20))), reader=SHUFFLED)
    loader = NativeLoader(made, FORMATS["null"].reader(made, str, None), 1000)
    steps = made.dataset.samples // 8
    order = Order(made.dataset, SHUFFLED, 0)
    took = seconds(lambda: deque(loader.epoch(order, 0, made.dataset.samples, steps), maxlen=0))
    loader.close()
    row("the tool itself, a step of 8 null samples", f"{took / steps * 1e6:.0f} us")


def _set_up() -> None:
    """Measure time and memory, in fresh processes, until the first 64 samples of an epoch are known."""
    large, small = _first_samples(10**6), _first_samples(1)
    for place, (what, unit) in enumerate((("time", "us"), ("memory", "KiB"))):
        name = f"order of 1e9 samples / of 1e3, {what}"
        row(name, f"{large[place]:.0f} {unit}", f"{small[place]:.0f} {unit}", large[place] / small[place], "flat")


def _first_samples(files: int) -> tuple[float, float]:
    program = f"""
import statistics, time
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.config.dataset_keys import Sample
from dlio_hpc.config.reader_keys import Reader, Shuffle
from dlio_hpc.config.workload import Dataset
took = []
for _ in range(50):
    started = time.perf_counter()
    order = Order(Dataset("npz", {files}, 1000, Sample(shape=(1,))), Reader(shuffle=Shuffle(True, True, 1)), 0)
    order.samples({files} * 500, {files} * 500 + 64)
    took.append(time.perf_counter() - started)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(statistics.median(took) * 1e6, peak)
"""
    figures = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    return float(figures[0]), float(figures[1])


def _commands() -> None:
    """Compare our commands with a program that imports only the libraries that a dry run needs."""
    libraries = [sys.executable, "-c", "import click, jinja2, msgspec, yaml"]
    for arguments in (["demo", "-s", "local", "--dry-run"], ["--version"]):
        pairs = [(cpu_ms([BIN / "dlio-submit", *arguments]), cpu_ms(libraries)) for _ in range(15)]
        mine, bare = (min(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        what = "CPU: dlio-submit " + " ".join(arguments) + " / its four libraries"
        row(what, f"{mine:.0f} ms", f"{bare:.0f} ms", ratio, "<= 1.15")


def cpu_ms(command: Sequence[str | Path], folder: Path | None = None) -> float:
    """Return the user and system time of a run of a command. folder: where it runs; None for the current folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def _launch() -> None:
    """Compare a null job of one step on two ranks, from mpiexec to the end, with a program that only starts MPI."""
    with tempfile.TemporaryDirectory() as name:
        options = ["--ppn", "2", "-S", "train.steps=1", "-o", name, "--wait", "--json", "--quiet"]
        command: list[str | Path] = [BIN / "dlio-submit", "null", "-s", "local", *options]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        (directory,) = (path.parent for path in Path(name).glob("*/plan.json"))
        mpiexec: list[str | Path] = [BIN / "mpiexec", "-n", "2", sys.executable]

        def core() -> None:
            run = [*mpiexec, "-m", "mpi4py", "-m", "dlio_hpc.core", "plan.json", "--run", "0"]
            subprocess.run(run, cwd=directory, stdout=subprocess.DEVNULL, check=True)

        def bare() -> None:
            subprocess.run([*mpiexec, "-c", "from mpi4py import MPI"], check=True)

        pairs = [(seconds(core), seconds(bare)) for _ in range(ROUNDS)]
        mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        row("2 ranks, launch to the end of one null step", f"{mine:.2f} s", f"{theirs:.2f} s", mine / theirs, "<= 1 s")
        row("each of them, resident", f"{_resident(directory):.0f} MiB", "", None, "< 100 MB")


def _resident(directory: Path) -> float:
    """Return the MiB of the largest process of such a run. A separate process measures it."""
    program = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    core = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", "plan.json", "--run", "0"]
    command = [sys.executable, "-c", program, str(BIN / "mpiexec"), "-n", "2", *core]
    return int(subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout) / 1024
