"""make bench: every figure as a ratio to its bare counterpart, both measured in this run, alternating.

Files lie in the page cache: what is compared is the cost of the tool, not of a storage system.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dlio_hpc.core import content
from dlio_hpc.core.formats import FORMATS, npz
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.core.order import Order
from dlio_hpc.units import Size
from dlio_hpc.workload import Dataset, Reader, Sample, Shuffle, Workload

BIN = Path(sys.executable).parent
ROUNDS = 7
DATASET = Dataset("npz", 16, 16, Sample(bytes=Size(1 << 20)))


def main() -> None:
    print(
        f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, NumPy {np.__version__}; medians of {ROUNDS} rounds\n"
    )
    print(f"{'what':46}{'ours':>14}{'bare':>14}{'ratio':>8}  goal")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _generation(folder)
        _reading(folder, "floor", _bare_preadv, ">= 0.8")
        _reading(folder, "framework", _bare_load, ">= 0.9")
    _tool()
    _set_up()
    _start_up()
    _launch()


def _compare(what: str, ours: Callable[[], object], bare: Callable[[], object], size: int, goal: str) -> None:
    """Rates of both in MB/s and ours over bare, from runs that alternate."""
    pairs = [(_seconds(ours), _seconds(bare)) for _ in range(ROUNDS)]
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    print(f"{what:46}{size / mine / 1e6:9.0f} MB/s{size / theirs / 1e6:9.0f} MB/s{ratio:8.2f}  {goal}")


def _seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _generation(folder: Path) -> None:
    size = DATASET.samples_per_file * DATASET.sample.size
    block = np.random.PCG64(1).random_raw(content.BLOCK // 8).tobytes()

    def ours() -> None:
        for number in range(DATASET.files):
            npz.write(str(folder / f"{number}.npz"), DATASET, content.pieces(number * size, size))

    def bare() -> None:
        for number in range(DATASET.files):
            with (folder / f"{number}.raw").open("wb", buffering=0) as file:
                for _ in range(size // content.BLOCK):
                    file.write(block)
                os.fsync(file.fileno())

    _compare("generate npz / write the same bytes (fsync)", ours, bare, DATASET.size, ">= 0.5")


def _reading(folder: Path, mode: str, bare: Callable[[Path], None], goal: str) -> None:
    keys = Reader(mode=mode, batch_size=4, read_threads=1, prefetch=0)  # type: ignore[arg-type]
    made = Workload("bench", DATASET, reader=keys)

    def ours() -> None:
        reader = FORMATS["npz"].reader(made, lambda number: str(folder / f"{number}.npz"))
        loader = NativeLoader(made, reader, 1000)
        order = Order(DATASET, Shuffle(), 0)
        read = sum(batch.tally.bytes_read for batch in loader.epoch(order, 0, DATASET.samples, DATASET.samples // 4))
        assert read == DATASET.size
        loader.close()

    _compare(f"read npz, {mode} mode, 1 thread", ours, lambda: bare(folder), DATASET.size, goal)


def _bare_preadv(folder: Path) -> None:
    buffer = np.empty((4, DATASET.sample.size), np.uint8)
    for number in range(DATASET.files):
        descriptor = os.open(folder / f"{number}.npz", os.O_RDONLY)
        for sample in range(DATASET.samples_per_file):
            os.preadv(descriptor, [buffer[sample % 4].data], npz.DATA_OFFSET + sample * DATASET.sample.size)
        os.close(descriptor)


def _bare_load(folder: Path) -> None:
    row = np.empty(DATASET.sample.size, np.uint8)
    for number in range(DATASET.files):
        with np.load(folder / f"{number}.npz") as archive:
            for sample in archive["x"]:
                row[:] = sample


def _tool() -> None:
    made = Workload("null", Dataset("null", 1000, 100, Sample(bytes=Size(1 << 20))), reader=Reader(batch_size=8))
    loader = NativeLoader(made, FORMATS["null"].reader(made, str), 1000)
    order = Order(made.dataset, Shuffle(True, True, 1), 0)
    steps = made.dataset.samples // 8
    took = _seconds(lambda: deque(loader.epoch(order, 0, made.dataset.samples, steps), maxlen=0))
    loader.close()
    print(f"{'the tool itself, a step of 8 null samples':46}{took / steps * 1e6:11.0f} us")


def _set_up() -> None:
    def microseconds(files: int) -> float:
        def first_samples() -> None:
            order = Order(Dataset("npz", files, 1000, Sample(bytes=Size(1))), Shuffle(True, True, 1), 0)
            order.samples(files * 500, files * 500 + 64)

        return statistics.median(_seconds(first_samples) for _ in range(50)) * 1e6

    small, large = microseconds(1), microseconds(10**6)
    what = "order: 1e9 samples / 1e3, until the first 64"
    print(f"{what:46}{large:11.0f} us{small:11.0f} us{large / small:8.2f}  flat")


def _start_up() -> None:
    """Beside importing the libraries that a dry run cannot do without: what is above that is ours."""
    libraries = "import click, jinja2, msgspec, yaml"
    commands: tuple[tuple[tuple[str, ...], str, str], ...] = (
        (("demo", "-s", "local", "--dry-run"), libraries, "<= 120 ms"),
        (("--version",), "", "<= 60 ms"),
    )
    for arguments, program, goal in commands:
        mine, bare = _cpu_ms([BIN / "dlio-submit", *arguments]), _cpu_ms([sys.executable, "-c", program])
        print(f"{'CPU: dlio-submit ' + ' '.join(arguments):46}{mine:11.0f} ms{bare:11.0f} ms{mine / bare:8.2f}  {goal}")


def _cpu_ms(command: list[str | Path]) -> float:
    """User and system time of a command, the least of 15: what is above it is the machine's other work."""
    took = []
    for _ in range(15):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(took) * 1e3


def _launch() -> None:
    """A null job of one step on two ranks, from mpiexec to the end; beside it a program that only starts MPI."""
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

        pairs = [(_seconds(core), _seconds(bare)) for _ in range(ROUNDS)]
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(
        f"{'2 ranks, launch to the end of one null step':46}{mine:12.2f} s{theirs:12.2f} s{mine / theirs:8.1f}  <= 1 s"
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{'largest process so far, resident':46}{peak:10.0f} MiB{'':22}  < 100 MB")


if __name__ == "__main__":
    main()
