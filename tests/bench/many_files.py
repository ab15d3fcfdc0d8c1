"""Datasets of many small files, held against bare loops that make the same calls, both by two processes.

python -m tests.bench.many_files [FILES [DIR...]] prints the rows; DIR are folders of different file systems.
"""

import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from dlio_hpc.core import write_back
from dlio_hpc.files import filesystem, rundir, safe_folders
from dlio_hpc.results import run_result
from tests.bench.starting import BIN
from tests.bench.table import heading, row

_FILES, _SIZE, _RANKS, _FOLDERS = 100_000, 4096, 2, 100
_WORKLOAD = """\
name: many
dataset: {{format: raw, files: {files}, samples_per_file: 1, sample: {{bytes: 4 KiB}}, subfolders: {folders}}}
reader: {{batch_size: 1024, shuffle: {{files: true, samples: true}}}}
compute: {{time: 0 ms}}
train: {{epochs: 1}}
"""


def bench(folders: list[Path], files: int = _FILES) -> None:
    """Print the rates of generation, reading, verification and removal on each file system. folders: a folder of each
    file system. files: number of files of the dataset.
    """
    for folder in folders:
        place = folder / "many-files"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        try:
            _bench(place, files, filesystem.of(folder).kind)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def _bench(place: Path, files: int, kind: str) -> None:
    # Files are unlinked at the end: after many were unlinked, ext4 creates files slowly for minutes (ialloc.c).
    bare = {name: _bare(place / "bare", files, work) for name, work in _LOOPS.items() if name != "unlink"}
    (place / "many.yaml").write_text(_WORKLOAD.format(files=files, folders=_FOLDERS), encoding="utf-8")
    submit = [BIN / "dlio-submit", place / "many.yaml", "-s", "local", "--ppn", _RANKS, "-d", place / "data"]
    command = [*map(str, submit), "-o", str(place / "runs"), "--wait", "--quiet"]
    peak = _peak_mebibytes(command)
    (written,) = _results(place, "*-generate")
    (read,) = _results(place, "*-measure")
    assert written.generated is not None
    assert read.summary is not None
    ours = {
        "create, write, close, sync": files / written.generated.wall_s,
        "open, read, close, shuffled": files / read.summary.wall_s,
    }
    (dataset,) = (place / "data").glob("raw-*")
    took = _seconds([BIN / "dlio-hpc", "datasets", "verify", dataset])
    row(f"{kind}: verification of {files:,} files", f"{files / took:,.0f}/s")
    bare["unlink"] = _bare(place / "bare", files, _unlink)
    ours["unlink"] = files / _removal_s(dataset)
    for name, goal in (("create, write, close, sync", 0.7), ("open, read, close, shuffled", 0.8), ("unlink", 0.8)):
        ratio = ours[name] / bare[name]
        row(f"{kind}: {name}", f"{ours[name]:,.0f}/s", f"{bare[name]:,.0f}/s", ratio, f">= {goal}")
    row(f"{kind}: the same, resident memory of a rank", f"{peak:.0f} MiB", goal="< 100 MB")


def _results(place: Path, run: str) -> list[run_result.Result]:
    paths = sorted((place / "runs").glob(f"*/runs/{run}/{rundir.RESULT}"))
    return [run_result.decode(path.read_bytes(), str(path)) for path in paths]


def _seconds(command: list[str | Path]) -> float:
    began = time.perf_counter()
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def _removal_s(dataset: Path) -> float:
    """Remove a dataset as the command does, and return the seconds, without those in which Python starts."""
    program = (
        "import sys, time; from pathlib import Path; from dlio_hpc.dataset import dataset_removal; "
        "began = time.perf_counter(); dataset_removal.remove(Path(sys.argv[1])); print(time.perf_counter() - began)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(dataset)], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return float(done.stdout)


def _peak_mebibytes(command: list[str]) -> float:
    """Run a job, and return the largest resident memory of its processes so far."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _name(folder: Path, number: int, files: int) -> str:
    return f"{folder}/{number * _FOLDERS // files:05}/{number:08}.raw"


def _create(folder: Path, numbers: range, files: int) -> None:
    data, flags = os.urandom(_SIZE), os.O_WRONLY | os.O_CREAT | os.O_EXCL
    for place in range(numbers.start * _FOLDERS // files, (numbers.stop - 1) * _FOLDERS // files + 1):
        os.makedirs(folder / f"{place:05}", exist_ok=True)
    for number in numbers:
        file = os.open(_name(folder, number, files), flags, 0o666)
        os.write(file, data)
        os.close(file)
    with safe_folders.opened(folder) as opened:
        write_back.sync_file_system(opened)  # as the generator does: unlinking what was never written is cheaper


def _read(folder: Path, numbers: range, files: int) -> None:
    order, buffer = list(numbers), bytearray(_SIZE)
    random.Random(1).shuffle(order)
    for number in order:
        file = os.open(_name(folder, number, files), os.O_RDONLY)
        os.preadv(file, [buffer], 0)
        os.close(file)


def _unlink(folder: Path, numbers: range, files: int) -> None:
    for number in numbers:
        os.unlink(_name(folder, number, files))


_LOOPS: dict[str, Callable[[Path, range, int], None]] = {
    "create, write, close, sync": _create,
    "open, read, close, shuffled": _read,
    "unlink": _unlink,
}


def _bare(folder: Path, files: int, work: Callable[[Path, range, int], None]) -> float:
    """Return the rate at which two processes work on all files, from the first start to the last end."""
    folder.mkdir(exist_ok=True)
    half = files // _RANKS
    parts = [range(rank * half, files if rank + 1 == _RANKS else (rank + 1) * half) for rank in range(_RANKS)]
    processes = [multiprocessing.Process(target=work, args=(folder, part, files)) for part in parts]
    began = time.perf_counter()
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return files / (time.perf_counter() - began)


if __name__ == "__main__":
    heading()
    where = list(map(Path, sys.argv[2:])) or [Path("/dev/shm"), Path.cwd()]
    bench(where, int(sys.argv[1]) if sys.argv[1:] else _FILES)
