"""Reading through the native loader in posix mode, compared with two limits: a bare preadv loop into aligned memory,
and fio where it is installed. Files lie in the page cache, except for reads with O_DIRECT.

Each side runs in a process per rank, which is started before the first round. In a round, the sides run one after the
other, and all ranks of a side at the same time.
"""

import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import TAR_BLOCK, Dataset, Sample
from dlio_hpc.config.reader_keys import Reader, Shuffle
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import buffers
from dlio_hpc.core.formats import npz, tfrecord
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.dataset import stored_parts
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.dataset.sample_order import Order
from tests.bench.table import ROUNDS, row
from tests.support import rings, written

KIB, MIB = 1 << 10, 1 << 20


class Case(NamedTuple):
    """A comparison. what: its name. size: bytes of a sample. per_file: samples of a file. fio: options with which fio
    makes the same requests; empty if it cannot.
    """

    what: str
    kind: str
    size: int
    files: int
    per_file: int
    batch: int
    goal: str
    prefetch: int = 0
    engine: str = "preadv"
    direct: bool = False
    depth: int | None = None
    fio: tuple[str, ...] = ()

    def smaller(self, factor: int) -> "Case":
        files, per_file = max(1, self.files // factor), max(1, self.per_file // factor)
        return self._replace(files=files, per_file=per_file)

    def dataset(self) -> Dataset:
        return Dataset(self.kind, self.files, self.per_file, Sample(bytes=Size(self.size)))  # type: ignore[arg-type]

    def reader(self) -> Reader:
        return Reader(
            batch_size=self.batch, prefetch=self.prefetch, shuffle=Shuffle(True, True, 1), direct=self.direct,
            engine=self.engine, queue_depth=self.depth,  # type: ignore[arg-type]
        )  # fmt: skip


_OF_MANY = ("npz", "npy", "hdf5", "tfrecord", "tar", "indexed")
PSYNC = ("--ioengine=psync",)
RING = ("--ioengine=io_uring", "--direct=1")
CASES = (
    *(Case(f"{kind} 1 MiB, batch 4", kind, MIB, 16, 16, 4, ">= 0.85") for kind in _OF_MANY),
    Case("raw 1 MiB, batch 4", "raw", MIB, 1, 256, 4, ">= 0.85", fio=PSYNC),
    Case("raw 1 MiB, batch 4, prefetch 2", "raw", MIB, 1, 256, 4, "", prefetch=2, fio=PSYNC),
    Case("raw 64 KiB, batch 64", "raw", 64 * KIB, 1, 2048, 64, ">= 0.8", fio=PSYNC),
    Case("raw 64 KiB, batch 64, prefetch 2", "raw", 64 * KIB, 1, 2048, 64, "", prefetch=2, fio=PSYNC),
    Case("indexed 16 KiB, batch 64", "indexed", 16 * KIB, 1, 8192, 64, ""),
    Case("raw 4 KiB, batch 64", "raw", 4 * KIB, 1, 32768, 64, ">= 0.6", fio=PSYNC),
    Case("raw 4 KiB, batch 64, prefetch 2", "raw", 4 * KIB, 1, 32768, 64, "", prefetch=2, fio=PSYNC),
    Case("raw 4 KiB, batch 64, 64 files", "raw", 4 * KIB, 64, 512, 64, ""),
    Case("raw 4 KiB, batch 1", "raw", 4 * KIB, 1, 16384, 1, "", fio=PSYNC),
    Case("raw 4 KiB, batch 1, prefetch 2", "raw", 4 * KIB, 1, 16384, 1, "", prefetch=2, fio=PSYNC),
    Case("open, read, close of 100 KiB files, batch 8", "raw", 100 * KIB, 2000, 1, 8, ">= 0.8"),
)
DIRECT = tuple(
    Case(
        f"O_DIRECT 4 KiB, batch 128, {depth} in flight, io_uring", "raw", 4 * KIB, 1, 32768, 128, ">= 0.7 of fio",
        engine="io_uring", direct=True, depth=depth, fio=(*RING, f"--iodepth={depth}"),
    )
    for depth in (16, 64)
)  # fmt: skip


def bench(folder: Path, rounds: int = ROUNDS, shrink: int = 1) -> None:
    """Print a row for each case and number of ranks. shrink: factor by which datasets are smaller."""
    for case in CASES:
        _bench(folder, case, (1, 2), rounds, shrink)
    if reason := rings.refusal():
        print(f"io_uring is not measured: {reason}")
        return
    for case in DIRECT:
        _bench(folder, case, (1,), rounds, shrink)


def _bench(folder: Path, case: Case, ranks: tuple[int, ...], rounds: int, shrink: int) -> None:
    case = case.smaller(shrink)
    here = folder / "requests"
    here.mkdir()
    written.write_all(here, case.dataset())
    for count in ranks:
        _compare(here, case, count, rounds)
    shutil.rmtree(here)


def _compare(folder: Path, case: Case, ranks: int, rounds: int) -> None:
    """Print a row. The rates are in samples per second, of all ranks together."""
    mine, theirs = (Ranks(partial(side, folder, case), ranks) for side in (ours, bare))
    rates: list[tuple[float, float, float]] = []
    for number in range(rounds):
        sides = [mine.seconds, theirs.seconds]
        first = number % 2
        took = {side: sides[side]() for side in (first, 1 - first)}
        samples = ranks * case.files * case.per_file
        rates.append((samples / took[0], samples / took[1], _fio(folder, case, ranks)))
    mine.close()
    theirs.close()
    our_rate, bare_rate, of_fio = (statistics.median(side) for side in zip(*rates, strict=True))
    ratio = statistics.median(one / other for one, other, _ in rates)
    against_fio = statistics.median(one / other for one, _, other in rates) if of_fio else None
    what = case.what + (f", {ranks} ranks" if ranks > 1 else "")
    row(what, _rate(our_rate), _rate(bare_rate), ratio, case.goal, _rate(of_fio) if of_fio else "", against_fio)


def _rate(samples_per_s: float) -> str:
    return f"{samples_per_s:,.0f}/s"


class Ranks:
    """Processes that run a loop when they are asked to, all at the same time."""

    def __init__(self, made: Callable[[], Callable[[], None]], count: int) -> None:
        context = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        for _ in range(count):
            mine, theirs = context.Pipe()
            context.Process(target=_serve, args=(made, theirs), daemon=True).start()
            self._pipes.append(mine)
        self.seconds()

    def seconds(self) -> float:
        """Return the seconds that the slowest rank takes for a run of the loop."""
        for pipe in self._pipes:
            pipe.send(True)
        return max(float(pipe.recv()) for pipe in self._pipes)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(False)


def _serve(made: Callable[[], Callable[[], None]], pipe: Connection) -> None:
    loop = made()
    while pipe.recv():
        started = time.perf_counter()
        loop()
        pipe.send(time.perf_counter() - started)


def ours(folder: Path, case: Case) -> Callable[[], None]:
    dataset, keys = case.dataset(), case.reader()
    made = Workload("bench", dataset, reader=keys)
    steps = -(-dataset.samples // case.batch)
    reader = FORMATS[case.kind].reader(made, lambda number: f"{folder}/{number}", None)
    loader = NativeLoader(made, reader, steps)
    order = Order(dataset, keys, 0)

    def epoch() -> None:
        read = sum(len(batch.rows) for batch in loader.epoch(order, 0, dataset.samples, steps))
        assert read == dataset.samples

    return epoch


def bare(folder: Path, case: Case) -> Callable[[], None]:
    """Return a loop that makes the same requests, in the same order, and does nothing else."""
    dataset = case.dataset()
    places = SampleLayout(dataset).of(Order(dataset, case.reader(), 0).samples(0, dataset.samples))
    start, gap = _start(folder, case)
    offsets = (places.offset + start + places.within * gap).tolist()
    files, views = places.file.tolist(), buffers.allocate(case.batch, case.size).views
    targets = [views[number % case.batch] for number in range(dataset.samples)]
    stored = range(stored_parts.total(dataset))
    samples = {written.first_part(dataset, number) for number in range(case.files)}
    paths = [str(folder / str(number)) for number in stored if number in samples]
    indexes = [str(folder / str(number)) for number in stored if number not in samples]

    def whole_files() -> None:
        for path in indexes:
            _read_whole(path)
        for file, target in zip(files, targets, strict=True):
            descriptor = os.open(paths[file], os.O_RDONLY)
            os.preadv(descriptor, target, start)
            os.close(descriptor)

    def loop() -> None:
        flags = os.O_RDONLY | (os.O_DIRECT if case.direct else 0)
        descriptors = [os.open(path, flags) for path in paths]
        preadv = os.preadv
        for path in indexes:
            _read_whole(path)
        for file, offset, target in zip(files, offsets, targets, strict=True):
            preadv(descriptors[file], target, offset)
        for descriptor in descriptors:
            os.close(descriptor)

    return whole_files if case.per_file == 1 else loop


def _read_whole(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.preadv(descriptor, [bytearray(os.fstat(descriptor).st_size)], 0)
    os.close(descriptor)


def _start(folder: Path, case: Case) -> tuple[int, int]:
    """Return the offset of the first sample and the bytes between two samples."""
    if case.kind == "hdf5":
        import h5py

        with h5py.File(folder / "0") as file:
            return file["x"].id.get_offset(), 0
    starts = {
        "npz": (npz.DATA_OFFSET, 0), "npy": (128, 0), "tfrecord": (tfrecord.HEAD, tfrecord.FRAME),
        "tar": (TAR_BLOCK, TAR_BLOCK),
    }  # fmt: skip
    return starts.get(case.kind, (0, 0))


def _fio(folder: Path, case: Case, ranks: int) -> float:
    """Return the requests per second of fio, of all ranks together, or 0 if fio is not installed or not wanted."""
    if not case.fio or shutil.which("fio") is None:
        return 0.0
    options: list[str] = [
        "--name=bench", f"--filename={folder / '0'}", "--rw=randread", f"--bs={case.size}", "--iomem_align=4k",
        f"--numjobs={ranks}", "--group_reporting", "--time_based", "--runtime=0.4", "--invalidate=0",
        "--norandommap", "--readonly", "--output-format=json", *case.fio,
    ]  # fmt: skip
    done = subprocess.run(["fio", *options], check=True, capture_output=True, text=True)
    report: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return float(report["jobs"][0]["read"]["iops"])
