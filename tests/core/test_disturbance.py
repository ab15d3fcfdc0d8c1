"""Other activity on the nodes is recorded around runs and epochs, is unknown where the kernel does not report it, and
is named where repeats differ.
"""

import contextlib
import io
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.analysis.study import spread_reasons
from dlio_hpc.analysis.study.spread_reasons import Repeat
from dlio_hpc.core import node_activity, procfs
from dlio_hpc.core.node_activity import Meter
from dlio_hpc.files import rundir
from dlio_hpc.reports import regression_page, regression_rows, terminal
from dlio_hpc.results.run_result import Disturbance
from dlio_hpc.verdict import baseline_comparison, history, history_database
from dlio_hpc.verdict.history_entry import Entry
from tests.conftest import Run
from tests.support import nights, studies

BUSY_LOOP = "while True: pass"


@contextlib.contextmanager
def busy(count: int = 1) -> Iterator[None]:
    """Run `count` processes that only compute."""
    some = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for process in some:
            process.kill()
            process.wait()


def _span(**columns: float) -> Any:
    made = np.zeros(node_activity.COLUMNS)
    for name, value in columns.items():
        made[getattr(node_activity, name)] = value
    return made


def test_nodes_are_told_apart_and_the_worst_is_named() -> None:
    """Two nodes have two ranks each; only the first rank of a node reports the node's counters."""
    spans = np.array(
        [
            _span(SECONDS=10, OWN=4, CORES=8, BUSY=9, STEAL=0.8, LOAD=3, CPU=1, IO=5, PERIODS=100, THROTTLED=7),
            _span(SECONDS=10, OWN=3),
            _span(SECONDS=10, OWN=4, CORES=8, BUSY=28, STEAL=8, LOAD=9, CPU=2, IO=1),
            _span(SECONDS=10, OWN=4),
        ]
    )
    merged = node_activity.merged(["n1", "n1", "n2", "n2"], ["a", "a", "b", "b"], spans)
    assert merged.others is not None
    assert (merged.others.mean, merged.others.max) == pytest.approx((1.1, 2.0))
    assert merged.others.host == "n2"
    assert merged.cores == 8
    assert merged.steal is not None
    assert merged.steal.max == pytest.approx(0.1)
    assert merged.io_pressure is not None
    assert (merged.io_pressure.max, merged.io_pressure.host) == (0.5, "n1")
    assert merged.throttled is not None
    assert (round(merged.throttled.max, 9), merged.throttled.host) == (0.07, "n1")
    assert merged.load is not None
    assert merged.load.mean == 6


@pytest.mark.parametrize(
    ("groups", "files", "counts"),
    [
        ("0::/pod/job", {"pod/job": (10, 2), "pod": (40, 7), "": None}, (40, 7)),
        ("0::/pod/job", {"pod/job": (10, 2), "pod": (40, 1)}, (10, 2)),
        ("4:memory:/m\n3:cpu,cpuacct:/job", {"cpu,cpuacct/job": (6, 3), "cpu,cpuacct": (9, 0)}, (6, 3)),
        ("0::/", {}, None),
    ],
)
def test_the_quota_that_stops_most_counts(
    monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, tuple[int, int] | None], counts: tuple[int, int]
) -> None:
    texts = {"/proc/self/cgroup": groups}
    for folder, values in files.items():
        count = "usage_usec 5" if values is None else f"nr_periods {values[0]}\nnr_throttled {values[1]}\nother x y"
        texts[str(Path("/sys/fs/cgroup", folder, "cpu.stat"))] = count
    monkeypatch.setattr(procfs, "text", lambda path: texts.get(path, ""))
    assert procfs.quota_periods() == counts


def test_what_the_kernel_does_not_tell_is_null(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = procfs.text

    def without_pressure(path: str) -> str:
        return "" if path.startswith("/proc/pressure") else known(path)

    monkeypatch.setattr(procfs, "text", without_pressure)
    meter = Meter(speaks=True)
    span = node_activity.between(meter.read(), meter.read())
    merged = node_activity.merged(["n1"], ["a"], span[np.newaxis])
    assert (merged.cpu_pressure, merged.io_pressure, merged.memory_pressure) == (None, None, None)
    assert merged.others is not None
    monkeypatch.setattr(procfs, "text", lambda _: "")
    span = node_activity.between(meter.read(), meter.read())
    none = node_activity.merged(["n1", "n1"], ["a", "a"], np.array([span, _span(SECONDS=1, OWN=1)]))
    assert (none.others, none.load, none.steal) == (None, None, None)
    half = node_activity.merged(["n1", "n2"], ["a", "b"], np.array([span, _span(SECONDS=1, CORES=4, BUSY=2, LOAD=1)]))
    assert half.others is not None, "of the nodes that tell"
    assert half.others.host == "n2"


def test_the_kernels_texts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "/proc/stat": "cpu  100 10 50 1000 7 3 2 25 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0",
        "/proc/loadavg": "2.25 1.00 0.50 3/400 1234",
        "/proc/pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 total=9",
        "/proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0",
    }
    monkeypatch.setattr(procfs, "text", lambda path: texts.get(path, ""))
    monkeypatch.setattr("os.sysconf", lambda _: 100)
    assert procfs.cpu_seconds() == (1.65, 0.25)
    assert procfs.load() == 2.25
    assert (procfs.stalled("io"), procfs.stalled("cpu"), procfs.stalled("memory")) == (1.5, 0.0, None)


def test_the_work_of_a_rank_and_of_its_children_is_its_own() -> None:
    meter = Meter(speaks=False)
    before, began = meter.read(), time.process_time()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    while time.process_time() < began + 0.2:
        pass
    span = node_activity.between(before, meter.read())
    assert 0.5 <= span[node_activity.OWN] < 1.0
    assert not span[node_activity.CORES :].any(), "the node's first rank tells the rest"


@pytest.mark.job
def test_a_busy_process_beside_a_run_is_recorded(run: Run) -> None:
    with busy():
        done = run(
            "dlio-submit", "null", "-s", "local", "--ppn", 1, "-S", "train.steps=10", "-S", "train.epochs=2", "-S",
            "compute.time=100ms", "--wait", "--json",
        )  # fmt: skip
    result = done.job["runs"][-1]["result"]
    assert len(result["epochs"]) == 2
    for recorded in (result["disturbance"], *(epoch["disturbance"] for epoch in result["epochs"])):
        assert recorded["seconds"] > 0.9
        assert 0.3 < recorded["others"]["max"] <= 1.1 * recorded["cores"]
        assert recorded["others"]["host"] == result["hosts"][0]
        assert recorded["load"]["max"] > 0
        pressure = recorded["io_pressure"]
        assert (pressure is not None) == Path("/proc/pressure/io").exists()
        assert pressure is None or 0 <= pressure["max"] <= 1.01


def _repeats(*rates: float, loud: int = 1, others: float = 1.3, io: float | None = 0.45) -> list[Repeat]:
    """Repeats with these rates; number `loud` was disturbed."""
    return [
        Repeat(f"{place:02}-measure", rate, studies.disturbance(others, io) if place == loud else studies.disturbance())
        for place, rate in enumerate(rates)
    ]


def test_what_differs_between_repeats_is_named() -> None:
    (line,) = spread_reasons.explained(_repeats(100, 60, 102))
    assert line == (
        "01-measure (-40 %): other processes used 1.3 of 2 cores on n1 (other runs: 0.0), io pressure 45 % on n1 "
        "(other runs: 0 %)"
    )
    assert spread_reasons.explained(_repeats(100, 60, 102, io=None))[0].endswith("on n1 (other runs: 0.0)")
    assert spread_reasons.explained(_repeats(100, 60, 102, others=0.1, io=0.05)) == [spread_reasons.UNEXPLAINED]
    assert spread_reasons.explained(_repeats(60, 100, 102)) == [spread_reasons.UNEXPLAINED], "the disturbed one is fast"
    quiet_and_slow = spread_reasons.explained(_repeats(100, 90.1, 102, 105, 31, 107))
    assert [line.partition(": ")[0] for line in quiet_and_slow] == ["01-measure (-11 %)", "04-measure (-69 %)"]
    assert quiet_and_slow[1].endswith(f": {spread_reasons.UNEXPLAINED}"), "the slowest repeat is named if another is"
    none = [repeat._replace(disturbance=None) for repeat in _repeats(100, 60, 102)]
    assert spread_reasons.explained(none) == [spread_reasons.UNRECORDED]
    always = [repeat._replace(disturbance=studies.disturbance(others=0.9)) for repeat in _repeats(100, 60, 102)]
    assert spread_reasons.explained(always) == ["in all repeats: other processes used 0.9 of 2 cores on n1"]


def _loud(point: int, repeat: int) -> Disturbance:
    return studies.disturbance(1.3, 0.45) if repeat == 1 else studies.disturbance()


def _slow(point: int, repeat: int) -> float:
    return 60.0 + repeat / 100 if repeat == 1 else 100.0 + repeat


NAMED = "(-40 %): other processes used 1.3 of 2 cores on n1 (other runs: 0.0), io pressure 45 % on n1 (other runs: 0 %)"


@pytest.mark.parametrize(
    ("disturbed", "named"),
    [
        (_loud, NAMED),
        (lambda *_: studies.disturbance(), spread_reasons.UNEXPLAINED),
        (None, spread_reasons.UNRECORDED),
    ],
)
def test_reports_say_why_repeats_differ(run: Run, tmp_path: Path, disturbed: studies.Disturbed, named: str) -> None:
    """Reports of a job, a study and a history give reasons."""
    plain = studies.make(tmp_path / "dlio-runs", repeat=3, name="alone")
    studies.write(plain, _slow, disturbed=disturbed)
    study = studies.make(tmp_path / "dlio-runs", studies.asked("demo", "reader.read_threads=1,2"), repeat=3)
    studies.write(study, _slow, disturbed=disturbed)
    for name, html in (("alone", "job.html"), ("tune", "study.html")):
        done = run("dlio-hpc", "report", name, "--html", html)
        assert named in " ".join(done.out.split()), done.out
        assert "by 41 %" in " ".join(done.out.split()) or "by 42 %" in " ".join(done.out.split())
        assert named in (tmp_path / html).read_text()
    assert run("dlio-hpc", "collect", "alone").code == 0
    history = run("dlio-hpc", "history")
    assert named in " ".join(history.out.split())
    assert "repeats differ by 42 %" in " ".join(history.out.split())
    exported = run("dlio-hpc", "history", "--export").out
    assert run("dlio-hpc", "history", "--rebuild").code == 0
    assert run("dlio-hpc", "history", "--export").out == exported


def test_alike_repeats_need_no_reason(run: Run, tmp_path: Path) -> None:
    plain = studies.make(tmp_path / "dlio-runs", repeat=3, name="alone")
    studies.write(plain, lambda _, repeat: 100.0 + repeat, disturbed=_loud)
    report = run("dlio-hpc", "report", "--full", "alone").out
    assert "between repeats" not in report
    assert "meanwhile other processes 1.3 of 2 cores" in " ".join(report.split()), "the figures stand with each run"
    assert report.count("pressure  cpu 0 %, io") == 3
    studies.write(
        studies.make(tmp_path / "dlio-runs", name="other"),
        lambda *_: 100.0,
        disturbed=lambda *_: studies.disturbance(io=None),
    )
    assert "pressure  cpu 0 %, io unknown, memory 0 %" in run("dlio-hpc", "report", "other").out


@pytest.mark.parametrize("recorded", [True, False])
def test_a_noisy_night_and_a_regression_say_why(recorded: bool) -> None:
    def night(number: int, values: list[float], *loud: int) -> Entry:
        made = nights.entry(number, values)
        levels = [studies.disturbance(1.3 if place in loud else 0.0) for place in range(len(values))]
        runs = [structs.replace(run, disturbance=level) for run, level in zip(made.measurements, levels, strict=True)]
        return structs.replace(made, measurements=tuple(runs)) if recorded else made

    quiet = night(0, [100.0, 101.0, 99.0])
    before = [quiet, *(nights.entry(-number, [100.0 + 0.2 * (number % 3)] * 3) for number in range(1, 13))]
    terms = baseline_comparison.Terms(against=baseline_comparison.references(quiet))
    for other, outcome, named in (
        (
            night(1, [60.0, 100.0, 140.0], 0),
            "inconclusive",
            "01-measure (-40 %): other processes used 1.3 of 2 cores on n1",
        ),
        (night(1, [60.0, 61.0, 59.0], 0, 1, 2), "regression", "in all repeats: other processes used 1.3 of 2 cores"),
        (night(1, [60.0, 61.0, 59.0]), "regression", spread_reasons.UNEXPLAINED),
    ):
        (verdict,) = baseline_comparison.judge([other], before, [], terms).verdicts
        assert verdict.outcome == outcome
        wanted = named if recorded else spread_reasons.UNRECORDED
        assert wanted in verdict.disturbances[0]
        assert ("meanwhile", verdict.disturbances[0]) in list(regression_rows.facts(verdict))
        file = io.StringIO()
        terminal.show(regression_page.of_judgement(baseline_comparison.summed([verdict])), file)
        assert f"meanwhile: {verdict.disturbances[0]}" in " ".join(file.getvalue().split())
    (good,) = baseline_comparison.judge([night(1, [100.0, 101.0, 99.0], 0)], before, [], terms).verdicts
    assert (good.outcome, good.disturbances) == ("pass", ())


def test_an_older_history_is_what_its_archives_would_make_of_it(tmp_path: Path) -> None:
    """Entries from before disturbances were recorded have null, as after a rebuild."""
    made = nights.entry(0, [100.0])
    old = json.loads(history_database.canonical(made))
    for measurement in old["measurements"]:
        del measurement["disturbance"]
    history.enter(tmp_path, made)
    wanted = history.export(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / rundir.HISTORY)) as file, file:
        file.execute("UPDATE jobs SET document = ?", (json.dumps(old).encode(),))
        file.execute("PRAGMA user_version = 2")
    assert history.export(tmp_path) == wanted
