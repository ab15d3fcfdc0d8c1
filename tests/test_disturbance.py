"""What else goes on on the nodes: recorded around runs and epochs, unknown where the kernel does not tell, named where
repeats differ.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_hpc.core import disturbance, kernel
from dlio_hpc.core.disturbance import Meter
from tests.conftest import Run

BUSY_LOOP = "while True: pass"


@contextlib.contextmanager
def busy(count: int = 1) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    some = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for each in some:
            each.kill()
            each.wait()


def _span(**columns: float) -> Any:
    made = np.zeros(disturbance.COLUMNS)
    for name, value in columns.items():
        made[getattr(disturbance, name)] = value
    return made


def test_nodes_are_told_apart_and_the_worst_is_named() -> None:
    """Two nodes of two ranks each; what a node counts only its first rank tells."""
    spans = np.array(
        [
            _span(SECONDS=10, OWN=4, CORES=8, BUSY=9, STEAL=0.8, LOAD=3, CPU=1, IO=5),
            _span(SECONDS=10, OWN=3),
            _span(SECONDS=10, OWN=4, CORES=8, BUSY=28, STEAL=8, LOAD=9, CPU=2, IO=1),
            _span(SECONDS=10, OWN=4),
        ]
    )
    found = disturbance.merged(["n1", "n1", "n2", "n2"], ["a", "a", "b", "b"], spans)
    assert found.others is not None
    assert (found.others.mean, found.others.max) == pytest.approx((1.1, 2.0))
    assert found.others.host == "n2"
    assert found.cores == 8
    assert found.steal is not None
    assert found.steal.max == pytest.approx(0.1)
    assert found.io_pressure is not None
    assert (found.io_pressure.max, found.io_pressure.host) == (0.5, "n1")
    assert found.load is not None
    assert found.load.mean == 6


def test_what_the_kernel_does_not_tell_is_null(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = kernel.text

    def without_pressure(path: str) -> str:
        return "" if path.startswith("/proc/pressure") else known(path)

    monkeypatch.setattr(kernel, "text", without_pressure)
    meter = Meter(speaks=True)
    span = disturbance.between(meter.read(), meter.read())
    found = disturbance.merged(["n1"], ["a"], span[np.newaxis])
    assert (found.cpu_pressure, found.io_pressure, found.memory_pressure) == (None, None, None)
    assert found.others is not None
    monkeypatch.setattr(kernel, "text", lambda _: "")
    span = disturbance.between(meter.read(), meter.read())
    none = disturbance.merged(["n1", "n1"], ["a", "a"], np.array([span, _span(SECONDS=1, OWN=1)]))
    assert (none.others, none.load, none.steal) == (None, None, None)
    half = disturbance.merged(["n1", "n2"], ["a", "b"], np.array([span, _span(SECONDS=1, CORES=4, BUSY=2, LOAD=1)]))
    assert half.others is not None, "of the nodes that tell"
    assert half.others.host == "n2"


def test_the_kernels_texts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "/proc/stat": "cpu  100 10 50 1000 7 3 2 25 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0",
        "/proc/loadavg": "2.25 1.00 0.50 3/400 1234",
        "/proc/pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=9",
        "/proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0",
    }
    monkeypatch.setattr(kernel, "text", lambda path: texts.get(path, ""))
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    assert kernel.cpu_seconds() == (1.65, 0.25)
    assert kernel.load() == 2.25
    assert (kernel.stalled("io"), kernel.stalled("cpu"), kernel.stalled("memory")) == (1.5, 0.0, None)


def test_the_work_of_a_rank_and_of_its_children_is_its_own() -> None:
    meter = Meter(speaks=False)
    before, began = meter.read(), time.process_time()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    while time.process_time() < began + 0.2:
        pass
    span = disturbance.between(before, meter.read())
    assert 0.5 <= span[disturbance.OWN] < 1.0
    assert not span[disturbance.CORES :].any(), "the node's first rank tells the rest"


def test_a_busy_process_beside_a_run_is_recorded(run: Run) -> None:
    with busy():
        done = run(
            "dlio-submit", "null", "-s", "local", "--ppn", 1, "-S", "train.steps=10", "-S", "train.epochs=2", "-S",
            "compute.time=100ms", "--wait", "--json",
        )  # fmt: skip
    found = done.job["runs"][-1]["result"]
    assert len(found["epochs"]) == 2
    for told in (found["disturbance"], *(epoch["disturbance"] for epoch in found["epochs"])):
        assert told["seconds"] > 0.9
        assert 0.3 < told["others"]["max"] <= 1.1 * told["cores"]
        assert told["others"]["host"] == found["hosts"][0]
        assert told["load"]["max"] > 0
        pressure = told["io_pressure"]
        assert (pressure is not None) == Path("/proc/pressure/io").exists()
        assert pressure is None or 0 <= pressure["max"] <= 1.01
