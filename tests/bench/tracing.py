"""The costs of Darshan: its logs are read and shown, and it slows the ranks down."""

import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.bench.table import row, seconds
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced

BIN = Path(sys.executable).parent
RANKS, FILES = 4, 10
READ = """
import sys, time
from pathlib import Path
{imports}
started = time.process_time()
{read}
took = time.process_time() - started
print(took, int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1024)
"""
OURS = ("from dlio_hpc.darshan import log_reader", "log = log_reader.load(Path(sys.argv[1]))")
THEIRS = (
    "import darshan",
    """report = darshan.DarshanReport(sys.argv[1], read_all=False)
report.mod_read_all_records("POSIX")
report.mod_read_all_dxt_records("DXT_POSIX", dtype="numpy")
""",
)


def bench(folder: Path) -> None:
    _reading(folder)
    _showing(folder)
    for library in filter(None, os.environ.get("DLIO_HPC_LIBDARSHAN", "").split(os.pathsep)):
        _overhead(folder, library)


def _log(path: Path, segments: int) -> Path:
    """Write a log with small reads of 4 ranks in 10 files each, at random times."""
    draw = np.random.default_rng(1)
    requests = segments // RANKS // FILES
    traces = []
    for number in range(RANKS * FILES):
        start = np.sort(draw.random(requests)) * 600
        columns = (np.arange(requests) * 512.0, np.full(requests, 512.0), start, start + draw.gamma(2, 2e-4, requests))
        traces.append(Traced(f"/data/{number}.bin", number // FILES, reads=np.stack(columns, axis=1)))
    darshanlog.write(path, RANKS, traces, seconds=601)
    return path


def _reading(folder: Path) -> None:
    path = _log(folder / "million.darshan", 10**6)
    cpu, memory = _read(path, *OURS)
    if importlib.util.find_spec("darshan") is None:
        row("read a trace of 1e6 segments, CPU", f"{cpu:.3f} s", goal="<= 0.15 s")
        row("the same, resident memory", f"{memory:.0f} MiB", goal="<= 110 MB")
        return
    theirs_cpu, theirs_memory = _read(path, *THEIRS)
    row(
        "read a trace of 1e6 segments, CPU / pydarshan",
        f"{cpu:.3f} s",
        f"{theirs_cpu:.3f} s",
        cpu / theirs_cpu,
        "<= 0.15 s",
    )
    row(
        "the same, resident memory",
        f"{memory:.0f} MiB",
        f"{theirs_memory:.0f} MiB",
        memory / theirs_memory,
        "<= 110 MB",
    )


def _read(path: Path, imports: str, read: str) -> tuple[float, float]:
    """Return the CPU seconds without imports, and the MiB of the process; medians of five processes."""
    program = READ.format(imports=imports, read=read)
    pairs = [
        subprocess.run([sys.executable, "-c", program, path], check=True, capture_output=True, text=True).stdout.split()
        for _ in range(5)
    ]
    return statistics.median(float(cpu) for cpu, _ in pairs), statistics.median(float(memory) for _, memory in pairs)


def _showing(folder: Path) -> None:
    path, page = _log(folder / "tenfold.darshan", 10**7), folder / "page.html"
    command: list[str | Path] = [BIN / "dlio-hpc", "darshan", path, "--html", page]
    took = seconds(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True))
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    row("report of 1e7 segments, HTML", f"{took:.1f} s", goal="<= 60 s")
    row("its size; resident memory at most", f"{page.stat().st_size / 1e6:.2f} MB", f"{memory:.0f} MiB", None, "< 5 MB")


def _overhead(folder: Path, library: str) -> None:
    """Compare a workload with and without Darshan. It has many small requests, where the overhead is largest."""
    options = [
        "-S",
        "reader.transfer_size=4KiB",
        "-S",
        "compute.time=0",
        "--dataset-size",
        "64MiB",
        "--ppn",
        "1",
        "--repeat",
        "5",
    ]
    with_it, without = [], []
    for _ in range(2):
        with_it += _reads_per_s(folder, [*options, "-S", f"site.darshan={library}"])
        without += _reads_per_s(folder, [*options, "--no-darshan"])
    mine, bare = statistics.median(with_it), statistics.median(without)
    row("reads of 4 KiB, with Darshan / without", f"{mine:.0f}/s", f"{bare:.0f}/s", mine / bare)


def _reads_per_s(folder: Path, options: list[str]) -> list[float]:
    fixed = ["-s", "local", "-d", str(folder / "data"), "-o", str(folder / "runs"), "--wait", "--json", "--quiet"]
    done = subprocess.run([BIN / "dlio-submit", "demo", *fixed, *options], check=True, capture_output=True, text=True)
    runs = json.loads(done.stdout)["jobs"][0]["runs"]
    summaries = [run["result"]["summary"] for run in runs if run["kind"] == "measure"]
    return [summary["reads"] / summary["wall_s"] for summary in summaries]
