import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Compute, ComputeTime, load
from dlio_hpc.core import compute
from tests.conftest import Run


def _spread(distribution: str, mean: float, stdev: float | None = None, seed: int = 0) -> ComputeTime:
    wide = None if stdev is None else units.Seconds(stdev)
    return ComputeTime(units.Seconds(mean), distribution, wide, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["sleep", "spin"])
@pytest.mark.parametrize("seconds", [0, 1e-4, 0.002, 0.02])
def test_emulated_compute_takes_its_time_and_never_less(seconds: float, mode: str) -> None:
    took = []
    for _ in range(5):
        started = time.perf_counter()
        compute.emulate(seconds, mode)
        took.append(time.perf_counter() - started)
    assert min(took) >= seconds
    assert min(took) < seconds + 0.001


@pytest.mark.parametrize(("mode", "least", "most"), [("sleep", 0.0, 0.05), ("spin", 0.06, 0.4)])
def test_spinning_burns_the_core_and_sleeping_does_not(mode: str, least: float, most: float) -> None:
    """Other programs may take the core, so that one good try of ten is enough."""
    used: list[float] = []
    while len(used) < 10 and not any(least <= seconds <= most for seconds in used):
        before = time.thread_time()
        compute.emulate(0.2, mode)
        used.append(time.thread_time() - before)
    assert least <= used[-1] <= most


@pytest.mark.parametrize("mode", ["sleep", "spin"])
def test_a_computing_rank_does_not_starve_its_readers(mode: str) -> None:
    """A thread wakes up every half millisecond; a busy loop in Python would let it run only every five."""
    stop, turns = threading.Event(), [0]

    def reader() -> None:
        while not stop.is_set():
            time.sleep(0.0005)
            turns[0] += 1

    thread = threading.Thread(target=reader)
    thread.start()
    counts = []
    for work in (time.sleep, lambda seconds: compute.emulate(seconds, mode)):
        before = turns[0]
        work(0.3)
        counts.append(turns[0] - before)
    stop.set()
    thread.join()
    assert counts[1] > 0.25 * counts[0]


@pytest.mark.parametrize(
    ("wanted", "mean", "stdev"),
    [
        (_spread("constant", 0.1), 0.1, 0.0),
        (_spread("normal", 0.1, 0.02), 0.1, 0.02),
        (_spread("gamma", 0.1, 0.05), 0.1, 0.05),
        (_spread("exponential", 0.1), 0.1, 0.1),
    ],
)
def test_draws_have_the_mean_and_the_spread_asked_for(wanted: ComputeTime, mean: float, stdev: float) -> None:
    drawn = compute.draw(wanted, 20_000, 0, 0)
    assert drawn.mean() == pytest.approx(mean, rel=0.03)
    assert drawn.std() == pytest.approx(stdev, rel=0.05, abs=1e-12)
    assert (drawn >= 0).all()


def test_draws_repeat_with_their_seed_and_differ_by_rank_and_epoch() -> None:
    wanted = _spread("exponential", 0.1, seed=3)
    assert (compute.draw(wanted, 5, 1, 2) == compute.draw(wanted, 5, 1, 2)).all()
    others = [compute.draw(wanted, 5, rank, epoch) for rank, epoch in ((0, 0), (0, 1), (1, 0))]
    others.append(compute.draw(_spread("exponential", 0.1, seed=4), 5, 0, 0))
    assert len({tuple(one.tolist()) for one in others}) == 4
    assert (compute.draw(_spread("normal", 0.0, 1.0), 100, 0, 0) >= 0).all()


def test_a_time_may_be_a_number_or_a_spread() -> None:
    plain = load("demo", ("compute.time=20 ms",)).compute.time
    assert (plain.mean, plain.distribution) == (0.02, "constant")
    spread = load("demo", ("compute.time.distribution=gamma", "compute.time.stdev=5ms")).compute.time
    assert (spread.mean, spread.stdev, spread.distribution) == (0.1, 0.005, "gamma")
    for override, message in (
        ("compute.time={mean: 1, distribution: normal}", "stdev is required for distribution=normal or gamma"),
        ("compute.time={mean: 1, stdev: 1}", "stdev is required for distribution=normal or gamma"),
        ("compute.time={mean: 0, stdev: 1, distribution: gamma}", "needs a mean above 0 and a stdev"),
        ("compute.time={mean: 1, stdev: 1e-200, distribution: gamma}", "a stdev of 1/1000 to 1000 times the mean"),
        ("compute.time.distribution=cauchy", "use one of: constant, normal, gamma, exponential"),
    ):
        with pytest.raises(ConfigError, match=message):
            load("demo", (override,))


def test_spinning_is_refused_where_it_would_starve_somebody(run: Run, small: Path) -> None:
    cores = len(os.sched_getaffinity(0))

    def check(mode: str, ranks: int, threads: int, **keys: Any) -> None:
        reader = Reader(read_threads=threads, **keys)
        made = replace(load("demo"), compute=Compute(mode=mode), reader=reader)  # type: ignore[arg-type]
        compute.check_cores(made, ranks)

    check("sleep", 1000, 10)
    check("spin", 1, cores - 1)
    check("spin", cores, 1, prefetch=0)
    with pytest.raises(ConfigError, match=rf"needs {cores + 1} cores, but only {cores} are available"):
        check("spin", 1, cores)
    with pytest.raises(ConfigError, match=f"needs {cores + 3} cores"):
        check("spin", 1, cores - 1, preprocess_threads=3, preprocess_time=1e-3)
    done = run("dlio-submit", small, "--ppn", cores, "-S", "compute.mode=spin", "--wait", "--json")
    assert done.code == 2
    assert "Use fewer ranks or threads, or compute.mode=sleep" in done.err


def test_asked_and_achieved_stand_side_by_side(run: Run, small: Path) -> None:
    import h5py

    spread = "compute.time={mean: 20ms, distribution: exponential, seed: 5}"
    job = run("dlio-submit", small, "--ppn", 2, "-S", spread, "--wait", "--json").job
    summary = job["runs"][-1]["result"]["summary"]
    with h5py.File(Path(job["directory"]) / "runs" / "01-measure" / "timeline.h5") as file:
        asked, achieved = np.array(file["steps/asked"]), np.array(file["steps/compute"])
    assert (achieved >= asked).all()
    assert np.median(achieved - asked) < 0.01
    assert summary["compute_asked_s"] == pytest.approx(asked.mean())
    assert asked.std() > 0
