"""TFRecord in framework mode: files are streams, which ranks share whole and threads read one by one. How much is read,
and in which order, is strace's word.
"""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc import cost, document, packing, plan, recipe, rundir, site, study, turns, units, volume, workload
from dlio_hpc.core.formats import FORMATS
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.order import Order
from dlio_hpc.plan import Plan
from dlio_hpc.results import Result
from dlio_hpc.units import Size
from dlio_hpc.workload import Dataset, Reader, Sample, Shuffle, Train, Workload
from tests import planning, straced
from tests.conftest import BIN, Run

_SHUFFLES = [Shuffle(files, samples, 3) for files in (False, True) for samples in (False, True)]
_WAYS = list(product((1, 2, 4, 8), (1, 2, 8), (8, 16, 64), _SHUFFLES))
_MOST = 1.02
_READ = re.compile(r"(?:pread64|preadv2?|read)\(\d+<([^>]*)>.* = (\d+)$")


def _made(files: int, per_file: int, size: int, **keys: Any) -> Workload:
    return Workload("w", Dataset("tfrecord", files, per_file, Sample(bytes=Size(size))), reader=Reader(**keys))


def _write(folder: Path, dataset: Dataset) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(dataset.files):
        FORMATS["tfrecord"].write(str(folder / str(number)), dataset, number)


# What follows up to the first test runs under strace.


def _path(folder: Path, number: int) -> str:
    return str(folder / str(number))


def _way(loader: Any, threads: int, files: int, shuffle: Shuffle, **keys: Any) -> Workload:
    keys = {"batch_size": 8, "transfer_size": Size(4096), "read_threads": threads, "prefetch": 2 * threads} | keys
    return _made(files, 8, 2000, loader=loader, mode="framework", shuffle=shuffle, **keys)


def read_everything(folder: Path, loader: str, begin: int, step: int) -> None:
    """An epoch of every way, with all of its ranks one after the other; each way begins with a look at its name."""
    for number, (ranks, *rest) in list(enumerate(_WAYS))[begin::step]:
        _epoch(folder, _way(loader, *rest), ranks, number)


def _epoch(folder: Path, made: Workload, ranks: int, number: int) -> None:
    os.path.exists(folder / "way" / str(number))
    steps = plan.steps_per_epoch(made, ranks)
    order = Order(made.dataset, made.reader, 0, ranks=ranks)
    paths = partial(_path, folder / str(made.dataset.files))
    samples = 0
    for rank in range(ranks):
        if made.reader.loader == "tensorflow":
            from dlio_hpc.core.loaders.tensorflow import TensorFlowLoader

            loader: Any = TensorFlowLoader(made, paths)
        else:
            loader = NativeLoader(made, FORMATS["tfrecord"].reader(made, paths, None), steps)
        samples += sum(len(batch.rows) for batch in loader.epoch(order, *plan.positions(made, ranks, rank, 1), steps))
        loader.close()
    assert samples == plan.samples_per_epoch(made, ranks)


def _traced(folder: Path, name: str, call: str) -> list[str]:
    """Lines of strace's account of a call of this module's, in the order of what happened."""
    straced.needed()
    command = ["strace", "-f", "-qq", "--seccomp-bpf", "-y", "-s", "0", "-e", "signal=none", "-o", str(folder / name)]
    calls = "trace=read,pread64,preadv,preadv2,?newfstatat,?stat,?statx"
    program = f"from pathlib import Path; import tests.test_streams as streams; streams.{call}"
    done = subprocess.run(
        [*command, "-e", calls, sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return _whole((folder / name).read_text(errors="replace").splitlines())


def _whole(lines: list[str]) -> list[str]:
    """Calls that another thread interrupted in the account put together, where they ended."""
    begun: dict[str, str] = {}
    whole = []
    for line in lines:
        thread, call = line.split(maxsplit=1)
        if call.endswith("<unfinished ...>"):
            begun[thread] = call.removesuffix("<unfinished ...>")
        elif call.startswith("<... "):
            whole.append(begun.pop(thread, "") + call.partition(" resumed>")[2])
        else:
            whole.append(call)
    return whole


def _read_by_way(folder: Path, lines: list[str]) -> dict[int, int]:
    """Bytes of the dataset's files that each way read."""
    read: dict[int, int] = {}
    way = -1
    for line in lines:
        if f'"{folder}/way/' in line:
            way = int(line.partition(f'"{folder}/way/')[2].partition('"')[0])
            read[way] = 0
        elif (call := _READ.match(line)) and call[1].startswith(f"{folder}/"):
            read[way] += int(call[2])
    return read


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        for files in {way[2] for way in _WAYS}:
            _write(folder / str(files), _made(files, 8, 2000).dataset)
    return folder


@pytest.mark.timeout(900)  # half a minute, of a computer with nothing else to do
@pytest.mark.parametrize("loader", ["native", "tensorflow"])
def test_ranks_together_read_the_dataset_once(stored: Path, loader: str) -> None:
    """1, 2, 4, 8 ranks x 1, 2, 8 threads x 8, 16, 64 files x files shuffled or not, samples shuffled or not."""
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    calls = [f"read_everything(Path({str(stored)!r}), {loader!r}, {begin}, 2)" for begin in range(2)]
    with ThreadPoolExecutor() as both:
        traces = both.map(partial(_traced, stored), ("trace-0", "trace-1"), calls)
        read = {way: count for lines in traces for way, count in _read_by_way(stored, lines).items()}
    assert len(read) == len(_WAYS) == 144
    factors = {way: read[number] / (way[2] * 8 * 2000) for number, way in enumerate(_WAYS)}
    wrong = {way: factor for way, factor in factors.items() if not 1 <= factor <= _MOST}
    assert not wrong
