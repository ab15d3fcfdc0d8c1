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
import statistics
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
# PyTorch copies a batch with a thread per core, which wait for each other in busy loops. On cores that are all used by
# ranks, a copy takes ten times as long as with one thread.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
STAMP = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6})"


class Geometry(NamedTuple):
    """A dataset, and the number of its samples in a batch. size: bytes of a sample."""

    kind: str
    files: int
    per_file: int
    size: int
    batch: int = 1

    def __str__(self) -> str:
        return f"{self.kind} {self.files} x {self.per_file}, batch {self.batch}"


# 512 MiB of samples of 1 MiB; CSV in small records, which it is slow with.
DATASETS = (
    Geometry("npz", 512, 1, 1 << 20),
    Geometry("npz", 64, 8, 1 << 20),
    Geometry("hdf5", 64, 8, 1 << 20),
    Geometry("tfrecord", 64, 8, 1 << 20),
    Geometry("tfrecord", 64, 8, 1 << 20, batch=4),
    Geometry("csv", 256, 1, 1 << 12),
)
ROUNDS = 3
GOAL, NATIVE_GOAL = ">= 1.2", ">= 4"


def bench(folder: Path, executable: Path) -> None:
    """Run both tools on the same geometry in turns: two ranks, one epoch. Both read ahead as the peer does: two batches
    with TensorFlow, none otherwise. The same loader family reads with the framework's reader and with ours. The
    native loader comes last.
    """
    for data in DATASETS:
        family = FRAMEWORKS[data.kind]
        ways = ((family, "framework"), (family, "posix"), ("native", "posix"))
        pairs: dict[str, list[tuple[float, float]]] = {}
        for _ in range(ROUNDS):
            theirs = measure(executable, folder, data, RANKS)
            if theirs is None:
                break
            for loader, mode in ways:
                made, read = _ours(folder, data, loader, mode)
                pairs.setdefault("generate", []).append((made, theirs[0]))
                pairs.setdefault(f"{loader}, {mode}", []).append((read, theirs[1]))
        for what, rates in pairs.items():
            ours, other = (statistics.median(side) for side in zip(*rates, strict=True))
            ratio = statistics.median(mine / their for mine, their in rates)
            goal = NATIVE_GOAL if what.startswith("native") else GOAL
            row(f"{data}: {what}", f"{ours:.4g} MB/s", f"{other:.4g} MB/s", ratio, goal)


def _ours(folder: Path, data: Geometry, loader: str, mode: str) -> tuple[float, float]:
    """Return the MB/s of payload that a job generates (fsync included) and reads. Like the peer's rate, reading leaves
    out the first step.
    """
    keys = {
        "name": "peer", "dataset.format": data.kind, "dataset.files": data.files,
        "dataset.samples_per_file": data.per_file,
        "dataset.sample": f"{{shape: [{data.size // 4}]}}" if data.kind == "csv" else f"{{bytes: {data.size}}}",
        "reader.loader": loader, "reader.mode": mode, "reader.prefetch": 2 if loader == "tensorflow" else 0,
        "reader.batch_size": data.batch, "reader.read_threads": 1, "reader.shuffle": "{}", "compute.time": 0,
        "train.epochs": 1,
    }  # fmt: skip
    options = [word for key, value in keys.items() for word in ("-S", f"{key}={value}")]
    with tempfile.TemporaryDirectory(dir=folder) as name:
        command = [str(Path(sys.executable).parent / "dlio-submit"), "demo", "-s", "local", "--ppn", str(RANKS)]
        places = ["-d", f"{name}/data", "-o", f"{name}/runs", "--wait", "--json", "--quiet"]
        environment = os.environ | ONE_THREAD
        done = subprocess.run(
            [*command, *options, *places], check=True, capture_output=True, text=True, env=environment
        )
        generated, measured = (run["result"] for run in json.loads(done.stdout)["jobs"][0]["runs"])
        (timeline,) = Path(name).glob("runs/*/runs/*-measure/timeline.h5")
        with h5py.File(timeline) as file:
            steps = {column: np.array(file["steps"][column])[:, 0] for column in ("start", "wait", "compute", "sync")}
    ends = steps["start"] + steps["wait"] + steps["compute"] + steps["sync"]
    steady = float(ends[:, -1].max() - ends[:, 0].max())
    samples = measured["summary"]["samples"] - RANKS * data.batch
    payload = data.files * data.per_file * data.size
    return payload / generated["generated"]["wall_s"] / 1e6, samples * data.size / steady / 1e6


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
    data: Geometry,
    ranks: int,
    *,
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
        if data.kind not in FRAMEWORKS:
            raise _Failed("a format it is not compared in")
        threads = int(FRAMEWORKS[data.kind] == "tensorflow") if read_threads is None else read_threads
        with tempfile.TemporaryDirectory(prefix="dlio_benchmark-", dir=folder, ignore_cleanup_errors=True) as name:
            return _measured(_Run(executable, Path(name), ranks, timeout), data, threads)
    except _Failed as error:
        print(f"dlio_benchmark {data}: not compared: {error}")
        return None


def _measured(run: "_Run", data: Geometry, read_threads: int) -> tuple[float, float]:
    fmt, files, samples_per_file, sample_bytes, batch_size = data
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
        self.environment.update(ONE_THREAD)

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
