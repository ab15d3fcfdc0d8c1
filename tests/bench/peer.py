"""The rates at which dlio_benchmark, if it is installed, generates and reads a dataset, and our rates on the same one.

dlio_benchmark runs as a program of its own, in its own environment if need be; it is never imported. Generating and
reading are two runs, since it reports a wrong record size when one run does both.
"""

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from tests.bench.table import row

RANKS = 2
FRAMEWORKS = {"npz": "pytorch", "hdf5": "pytorch", "csv": "pytorch", "tfrecord": "tensorflow"}
STAMP = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6})"


# Format, files, samples a file, bytes a sample: 512 MiB of 1 MiB samples; CSV in small records, which it is slow with.
DATASETS = (
    ("npz", 512, 1, 1 << 20),
    ("npz", 64, 8, 1 << 20),
    ("hdf5", 64, 8, 1 << 20),
    ("tfrecord", 64, 8, 1 << 20),
    ("csv", 256, 1, 1 << 12),
)
GOALS = {"npz": ">= 3", "hdf5": ">= 3", "tfrecord": ">= 1.2", "csv": ">= 20"}


def bench(folder: Path, executable: Path) -> None:
    """Run both tools on the same geometry: two ranks, batch 1, one epoch. Both read ahead as the peer does: two batches
    with TensorFlow, none otherwise. The same loader family reads with the framework's reader and with ours. The
    native loader comes last.
    """
    for kind, files, per_file, size in DATASETS:
        theirs = measure(executable, folder, kind, files, per_file, size, RANKS)
        if theirs is None:
            continue
        loader = FRAMEWORKS[kind]
        wanted = GOALS[kind]
        ways = [(loader, "framework", wanted if kind == "tfrecord" else ""), ("native", "posix", "")]
        if kind != "tfrecord":
            ways.insert(1, (loader, "posix", wanted))
        for number, (family, mode, goal) in enumerate(ways):
            made, read = _ours(folder, kind, files, per_file, size, family, mode)
            if not number:
                row(f"generate {kind} {files} x {per_file}", *_rates(made, theirs[0]), "" if kind == "csv" else ">= 4")
            row(f"read {kind} {files} x {per_file}, {family}, {mode}", *_rates(read, theirs[1]), goal)


def _rates(ours: float, theirs: float) -> tuple[str, str, float]:
    return f"{ours:.4g} MB/s", f"{theirs:.4g} MB/s", ours / theirs


def _ours(folder: Path, kind: str, files: int, per_file: int, size: int, loader: str, mode: str) -> tuple[float, float]:
    """Return the MB/s of payload that a job generates (fsync included) and reads. Like the peer's rate, reading leaves
    out the first step.
    """
    sample = f"{{shape: [{size // 4}]}}" if kind == "csv" else f"{{bytes: {size}}}"
    keys = {
        "name": "peer", "dataset.format": kind, "dataset.files": files, "dataset.samples_per_file": per_file,
        "dataset.sample": sample, "reader.loader": loader, "reader.mode": mode,
        "reader.prefetch": 2 if loader == "tensorflow" else 0,
        "reader.batch_size": 1, "reader.read_threads": 1, "reader.shuffle": "{}", "compute.time": 0,
        "train.epochs": 1,
    }  # fmt: skip
    options = [word for key, value in keys.items() for word in ("-S", f"{key}={value}")]
    with tempfile.TemporaryDirectory(dir=folder) as name:
        command = [str(Path(sys.executable).parent / "dlio-submit"), "demo", "-s", "local", "--ppn", str(RANKS)]
        places = ["-d", f"{name}/data", "-o", f"{name}/runs", "--wait", "--json", "--quiet"]
        done = subprocess.run([*command, *options, *places], check=True, capture_output=True, text=True)
        generated, measured = (run["result"] for run in json.loads(done.stdout)["jobs"][0]["runs"])
        (timeline,) = Path(name).glob("runs/*/runs/*-measure/timeline.h5")
        with h5py.File(timeline) as file:
            steps = {column: np.array(file["steps"][column])[:, 0] for column in ("start", "wait", "compute", "sync")}
    ends = steps["start"] + steps["wait"] + steps["compute"] + steps["sync"]
    steady = float(ends[:, -1].max() - ends[:, 0].max())
    samples = measured["summary"]["samples"] - RANKS
    payload = files * per_file * size
    return payload / generated["generated"]["wall_s"] / 1e6, samples * size / steady / 1e6


def found() -> Path | None:
    """Return the program that DLIO_BENCHMARK names, else the one next to this Python, else the one on PATH."""
    if named := os.environ.get("DLIO_BENCHMARK"):
        place = shutil.which(named)
        if place is None:
            print(f"dlio_benchmark: DLIO_BENCHMARK={named} is no program")
    else:
        place = shutil.which("dlio_benchmark", path=str(Path(sys.executable).parent)) or shutil.which("dlio_benchmark")
    return Path(place).absolute() if place else None


def measure(
    executable: Path,
    folder: Path,
    fmt: str,
    files: int,
    samples_per_file: int,
    sample_bytes: int,
    ranks: int,
    *,
    batch_size: int = 1,
    read_threads: int | None = None,
    timeout: float = 300,
) -> tuple[float, float] | None:
    """Return the MB/s of payload that the program generates and reads (1 MB = 1e6 B; labels, framing and CSV text do
    not count).

    The generation lasts from "Starting data generation" to "Generation done" in the log. Both follow a barrier, so
    start-up does not count. It does not fsync. The reading rate is that of all steps but the first, whose time is
    subtracted from the time of the only epoch, since the first step starts the worker processes. The program's own
    train_throughput is not used: the release divides by a time that includes the start of the workers, the main branch
    counts n - 2 steps in the time of n - 1.

    `read_threads` defaults to 0 for PyTorch and 1 for TensorFlow, the fastest with files in the page cache. The
    program's own default, one worker process per rank, is 2 to 3 times slower with PyTorch. The program reads an NPZ or
    CSV file whole for each of its samples, so it is fastest with one sample per file.

    Return None and print the reason if the program fails or did not read all that it was asked to. The dataset lies in
    a new folder below `folder`, which is removed at the end. Its files are in the page cache, and written back before
    they are read.
    """
    try:
        if fmt not in FRAMEWORKS:
            raise _Failed("a format it is not compared in")
        threads = int(FRAMEWORKS[fmt] == "tensorflow") if read_threads is None else read_threads
        data = _Data(fmt, files, samples_per_file, sample_bytes)
        with tempfile.TemporaryDirectory(prefix="dlio_benchmark-", dir=folder, ignore_cleanup_errors=True) as name:
            return _measured(_Run(executable, Path(name), ranks, timeout), data, batch_size, threads)
    except _Failed as error:
        print(f"dlio_benchmark {fmt}: not compared: {error}")
        return None


class _Data(NamedTuple):
    fmt: str
    files: int
    samples_per_file: int
    sample_bytes: int


def _measured(run: "_Run", data: _Data, batch_size: int, read_threads: int) -> tuple[float, float]:
    fmt, files, samples_per_file, sample_bytes = data
    size = files * samples_per_file * sample_bytes
    steps, rest = divmod(files * samples_per_file, batch_size * run.ranks)
    if math.isqrt(sample_bytes) ** 2 != sample_bytes:
        raise _Failed(f"it makes square samples only, {sample_bytes} bytes are not a square")
    if rest or steps < 2:
        raise _Failed(f"{files} files of {samples_per_file} samples are not two or more equal steps of each rank")
    common = {
        "framework": FRAMEWORKS[fmt],
        "workflow.evaluation": False,
        "workflow.checkpoint": False,
        "dataset.format": fmt,
        "dataset.data_folder": "data",
        "dataset.num_files_train": files,
        "dataset.num_files_eval": 0,
        "dataset.num_subfolders_train": 0,
        "dataset.num_subfolders_eval": 0,
        "dataset.num_samples_per_file": samples_per_file,
        "dataset.record_length": sample_bytes,  # the name in the release
        "dataset.record_length_bytes": sample_bytes,  # the name in the main branch; each ignores the other's
        # The release fills a buffer of this size, 2 GiB if not told, with random bytes for every HDF5 file.
        "dataset.generation_buffer_size": samples_per_file * sample_bytes,
        "reader.data_loader": FRAMEWORKS[fmt],
        "reader.batch_size": batch_size,
        "reader.read_threads": read_threads,
        "train.epochs": 1,
        "train.computation_time": 0,
    }
    start_up = run("generate", {**common, "workflow.generate_data": True, "workflow.train": False})
    made = run.generation_seconds()
    written = run.written_back()
    read = run("train", {**common, "workflow.generate_data": False, "workflow.train": True})
    took, first = run.epoch_seconds(steps)
    if FRAMEWORKS[fmt] == "pytorch":  # with TensorFlow the main branch reads what it generated, to index it
        read -= start_up
    if read < 0.95 * written or written < size:  # start-up is not quite the same each time
        raise _Failed(f"{size} bytes of samples, but its files have {written}, and it read {read} of them")
    return size / made / 1e6, size * (steps - 1) / steps / (took - first) / 1e6


class _Failed(Exception):
    pass


class _Run:
    """One dataset, and the files that the runs of the program on it left."""

    def __init__(self, executable: Path, folder: Path, ranks: int, timeout: float) -> None:
        launcher = shutil.which("mpiexec", path=str(executable.parent)) or shutil.which("mpiexec")
        if launcher is None:
            raise _Failed("no mpiexec, neither beside it nor on PATH")
        self.command = [launcher, "-n", str(ranks), str(executable)]
        self.folder, self.ranks, self.timeout = folder, ranks, timeout
        self.environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
        tools = folder / "bin"
        tools.mkdir()
        # The release calls this tool of DALI's after each TFRecord file; nothing here reads the index it makes.
        (tools / "tfrecord2idx").write_text('#!/bin/sh\n: > "$2"\n')
        (tools / "tfrecord2idx").chmod(0o755)
        path = os.pathsep.join((str(executable.parent), os.environ.get("PATH", os.defpath), str(tools)))
        self.environment.update(PATH=path, DFTRACER_ENABLE="0", TF_CPP_MIN_LOG_LEVEL="3", HYDRA_FULL_ERROR="1")

    def __call__(self, phase: str, values: dict[str, object]) -> int:
        """Run the program. Return the bytes that it and its children got from read calls, start-up included."""
        overrides = [f"++workload.{key}={value}" for key, value in values.items()]
        log = self.folder / f"{phase}.txt"
        before = _bytes_read()
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*self.command, "workload=default", *overrides, f"hydra.run.dir={phase}"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment,
                start_new_session=True,
            )
            try:
                code = process.wait(self.timeout)
            except BaseException as error:
                _end(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise _Failed(f"{phase} took more than {self.timeout:g} s") from None
                raise
        if code:
            raise _Failed(f"{phase} ended with {code}: {_last_error(log)}")
        return _bytes_read() - before

    def generation_seconds(self) -> float:
        text = (self.folder / "generate.txt").read_text(errors="replace")
        stamps = [re.search(f"{STAMP} {event}", text) for event in ("Starting data generation", "Generation done")]
        if not all(stamps):
            raise _Failed("its log does not say when generation began and ended")
        began, ended = (datetime.fromisoformat(stamp[1]) for stamp in stamps if stamp)
        return (ended - began).total_seconds()

    def written_back(self) -> int:
        """Wait until the files are on the disk, so that no writing goes on while they are read. Return their size."""
        size = 0
        for place in (self.folder / "data" / "train").glob("*"):
            with place.open("rb") as file:
                os.fsync(file.fileno())
                size += os.fstat(file.fileno()).st_size
        return size

    def epoch_seconds(self, steps: int) -> tuple[float, float]:
        """Return the seconds of the epoch and of its first step on rank 0. Every rank must have made every step."""
        try:
            block: dict[str, str] = self._json("*per_epoch_stats.json")["1"]["block1"]
            every = [self._json(f"{rank}_output.json") for rank in range(self.ranks)]
            lists: list[list[float]] = [output["1"]["proc"]["block1"] for output in every]
            took = datetime.fromisoformat(block["end"]) - datetime.fromisoformat(block["start"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise _Failed(f"cannot make out its results: {error!r}") from None
        if done := [len(taken) for taken in lists if len(taken) != steps]:
            raise _Failed(f"it made {done[0]} steps of {steps}")
        return took.total_seconds(), lists[0][0]

    def _json(self, pattern: str) -> Any:
        place = min((self.folder / "train").glob(pattern), default=None)
        if place is None:
            raise FileNotFoundError(pattern)
        return json.loads(place.read_text())


def _bytes_read() -> int:
    """Return the bytes that read calls returned to this process and to all descendants that were waited for. Reads from
    the page cache count.
    """
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("rchar:"):
            return int(line.split()[1])
    raise _Failed("/proc/self/io has no rchar")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and its ranks. SIGTERM lets mpiexec end them, SIGKILL ends the rest of the session's group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)]
    return (errors or lines or ["no output"])[-1][:200]
