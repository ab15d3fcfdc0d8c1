"""make bench: every figure is a ratio to its bare counterpart. Both are measured in this run, in turns.

Files lie in the page cache, since the bench measures the cost of the tool, not of a storage system. The argument
`verdicts` measures how often verdicts on jobs are wrong, `acceptance` those of acceptance tests, and `peers` those of
other tools; `fidelity` measures how near emulations come to what they emulate.
"""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.bench import (
    acceptance_rates,
    fidelity,
    generating,
    many_files,
    metadata,
    nightly_rates,
    own_cost,
    peer,
    peer_rates,
    ranks,
    reading,
    recording,
    requests,
    row_groups,
    scaling,
    starting,
    steps,
    tables,
    tracing,
)
from tests.bench.table import ROUNDS, heading


def main() -> None:
    if sys.argv[1:] == ["verdicts"]:
        nightly_rates.bench()
        return
    if sys.argv[1:] == ["acceptance"]:
        acceptance_rates.bench()
        return
    if sys.argv[1:] == ["fidelity"]:
        fidelity.bench()
        return
    if sys.argv[1:] == ["peers"]:
        peer_rates.bench()
        return
    cpu = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "?")
    print(
        f"{os.cpu_count()} cores ({cpu}), Python {sys.version.split()[0]}, NumPy {np.__version__}; "
        f"medians of {ROUNDS} rounds\n"
    )
    heading()
    own_cost.bench()
    own_cost.live()
    with tempfile.TemporaryDirectory(dir=".") as name:  # /tmp may have no O_DIRECT
        folder = Path(name).absolute()
        requests.bench(folder)
        steps.bench()
        row_groups.bench(folder)  # first, because its requests are counted for each thread that a library has started
        reading.bench(folder)
        generating.bench(folder)
        many_files.bench([Path("/dev/shm"), folder])
        metadata.bench([Path("/dev/shm"), folder])
        tracing.bench(folder)
        recording.bench(folder)
    starting.bench()
    tables.bench()
    ranks.bench()
    scaling.bench()
    program = peer.found()
    if program is None or importlib.util.find_spec("torch") is None:
        print("\ndlio_benchmark: not compared; it, or PyTorch, is not installed (DLIO_BENCHMARK names the program)")
        return
    heading("dlio_benchmark")
    with tempfile.TemporaryDirectory() as name:
        peer.bench(Path(name), program)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


if __name__ == "__main__":
    main()
