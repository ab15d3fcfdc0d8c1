"""The history in the formats of monitoring systems, read by their own parsers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from line_protocol_parser import parse_line
from msgspec import structs
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families as prometheus_families

from dlio_hpc.reports import monitoring
from dlio_hpc.results.metrics import METRICS
from dlio_hpc.verdict import baselines, history
from tests.conftest import Run
from tests.support import nights

_ODD = 'a "quoted", odd=name \\'


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return the history of three nights with two measurements each."""
    folder = tmp_path / "archive"
    folder.mkdir()
    for entry in nights.entries([100.0, 101.0, 50.0], 0.0):
        other = structs.replace(nights.KEY, workload="unet3d", nodes=4)
        runs = [nights.measurement(9, 7.0, other, "cached", title=_ODD)]
        history.enter(folder, structs.replace(entry, measurements=(*entry.measurements, *runs)))
    baselines.accept(folder, history.entries(folder)[0], "good", force=True)
    return folder


def _samples(text: str, parse: Callable[..., Any]) -> dict[str, dict[str, float]]:
    """Return the values of all gauges by name and workload."""
    values: dict[str, dict[str, float]] = {}
    for family in parse(text):
        for sample in family.samples:
            assert family.documentation
            values.setdefault(sample.name, {})[sample.labels["workload"]] = sample.value
    return values


@pytest.mark.parametrize("parse", [openmetrics_families, prometheus_families])
def test_prometheus_reads_the_newest_night(archive: Path, run: Run, tmp_path: Path, parse: Any) -> None:
    done = run("dlio-hpc", "history", "--archive", archive, "--openmetrics", tmp_path / "dlio.prom")
    assert (done.code, done.out) == (0, "")
    values = _samples((tmp_path / "dlio.prom").read_text(), parse)
    assert values["dlio_hpc_samples_per_second"] == pytest.approx({"cosmoflow": 50.0, "unet3d": 7.0})
    assert values["dlio_hpc_wall_seconds"]["cosmoflow"] == pytest.approx(20.0)
    assert values["dlio_hpc_baseline_samples_per_second"]["cosmoflow"] == pytest.approx(100.0)
    assert values["dlio_hpc_from_storage"] == {"cosmoflow": 1.0, "unet3d": 0.0}
    assert values["dlio_hpc_job_exit_code"] == {"cosmoflow": 0.0, "unet3d": 0.0}
    assert values["dlio_hpc_measured_runs"]["cosmoflow"] == 3
    assert values["dlio_hpc_job_ended_timestamp_seconds"]["cosmoflow"] > 1.7e9
    assert not list(tmp_path.glob(".*.part"))


_parsed: Callable[[str], Any] = openmetrics_families


def test_labels_survive(archive: Path) -> None:
    measured = monitoring.medians(history.entries(archive), ())
    (sample,) = (
        sample
        for family in _parsed(monitoring.openmetrics(measured))
        if family.name == "dlio_hpc_samples_per_second"
        for sample in family.samples
        if sample.labels["workload"] == "unet3d"
    )
    assert sample.labels["point"] == _ODD
    assert sample.labels["nodes"] == "4"


def test_influx_reads_every_night(archive: Path, run: Run) -> None:
    done = run("dlio-hpc", "history", "--archive", archive, "--influx", "-")
    points = [parse_line(line) for line in done.out.splitlines()]
    assert len(points) == 6
    rates = [point["fields"]["samples_per_second"] for point in points if point["tags"]["workload"] == "cosmoflow"]
    assert rates == pytest.approx([100.0, 101.0, 50.0])
    assert {point["measurement"] for point in points} == {"dlio_hpc"}
    assert points[0]["time"] < points[-1]["time"]
    assert points[0]["fields"]["job"] == "nightly-000"
    assert points[1]["tags"]["point"] == _ODD.rstrip("\\"), "a tag cannot end with a backslash"


def test_xdmod_gets_name_and_value(archive: Path, run: Run) -> None:
    lines = run("dlio-hpc", "history", "--archive", archive, "--xdmod", "-").out.splitlines()
    assert "RunEnv:Nodes: n1;n2" in lines
    assert "Job: nightly-002" in lines
    (rate,) = (line for line in lines if line.startswith("cosmoflow 2x4: Samples/s: "))
    assert float(rate.split(": ")[2].split()[0]) == pytest.approx(50.0)
    assert rate.endswith("Sample per Second")
    assert f"{_ODD}: From Storage: no" in lines


def test_one_text_at_a_time_on_stdout(archive: Path, run: Run) -> None:
    done = run("dlio-hpc", "history", "--archive", archive, "--influx", "-", "--json")
    assert done.code == 2
    assert "only one of" in done.err
    done = run("dlio-hpc", "history", "--archive", archive, "--influx", "no/such/folder/f")
    assert (done.code, "no/such/folder" in done.err) == (2, True)


def test_gauges_have_names_of_their_own_in_base_units() -> None:
    names = [monitoring.gauge(name).name for name in METRICS]
    assert len(set(names)) == len(METRICS)
    assert {"samples_per_second", "read_bytes_per_second", "au_ratio", "wait_p99_seconds"} <= set(names)
    assert not [name for name in names if name.endswith(("_s", "MBps"))]


def test_values_are_numbers(archive: Path) -> None:
    values = [value for job in monitoring.medians(history.entries(archive), ()) for value in job.values.values()]
    assert all(map(math.isfinite, values))
    assert json.dumps(values)
