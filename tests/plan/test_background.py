"""Background loads: the rate of all ranks together, steps at fixed times, and rates that storage does not hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.config import site
from dlio_hpc.config import workload as workloads
from dlio_hpc.core import compute, merge, run
from dlio_hpc.dataset.resizing import resized
from dlio_hpc.plan import background, study, study_file
from dlio_hpc.plan.background import Background
from dlio_hpc.plan.study import JobRequest
from dlio_hpc.reports import slowdown_rows
from dlio_hpc.results.run_result import PaceSummary
from tests.conftest import Run as Command
from tests.support import studies

_BUSY = """
name: busy
ranks_per_node: 4
parts:
  train: {{workload: demo, mix: m, share: 0.25}}
  others: {{background: {{{rate}}}, mix: m, share: 0.75}}
"""


@given(
    st.sampled_from(["write_MBps", "read_iops", "metadata_per_s"]),
    st.floats(0.01, 1e5, allow_nan=False),
    st.integers(1, 5000),
)
def test_all_ranks_together_make_the_rate(name: str, rate: float, ranks: int) -> None:
    wanted = Background(**{name: rate})
    if name == "read_iops" and 0.05 * rate + ranks > 65536:
        return
    made, settings = background.workload(wanted, ranks)
    (key,) = settings.keys() - {"compute.interval", "train.epochs"}
    burst, every = settings[key], settings["compute.interval"]
    unit = 1e6 if name == "write_MBps" else 1
    assert ranks * burst / every == pytest.approx(rate * unit)
    assert every >= 0.05 * (1 - 1e-9), "not more than 20 bursts a second"
    assert burst >= 1
    assert made.startswith("background_")


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        ("write_MBps: 300", "300 MB/s, written and synced"),
        ("read_iops: 1500", "1,500 samples/s of 4 KiB"),
        ("metadata_per_s: 90", "90 operations/s on files"),
    ],
)
def test_the_page_states_the_strength(tmp_path: Path, rate: str, words: str) -> None:
    (tmp_path / "busy.yaml").write_text(_BUSY.format(rate=rate))
    file = study_file.load(str(tmp_path / "busy.yaml"))
    parts = study_file.asked_of(file, site.load("local"), study_file.FileChanges())
    made = study.make("busy", parts, JobRequest(tmp_path / "runs", data=tmp_path / "data"), study.About())
    others = [point for point in made.points if point.part == "others"]
    assert {point.ranks for point in others} == {3}
    (text,) = slowdown_rows.backgrounds(made, [])
    assert f"others is a background of {words}" in text
    assert "burst" not in text
    number = next(point.number for point in made.points if point.part == "others")
    paces = [PaceSummary(0.05, 19.9, 0.3, 0.1), PaceSummary(0.05, 19.8, 2.5, 0.1), PaceSummary(0.05, 20.1, 0.2, 0.0)]
    measured = [
        Measured(number, repeat, "job", "run", "", "", studies.summary(1.0, pace=pace))
        for repeat, pace in enumerate(paces)
    ]
    (text,) = slowdown_rows.backgrounds(made, measured)
    assert "Runs reached 99.0 % of it or more, and a burst started at most 2.5 s late." in text


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("{background: {write_MBps: 3, read_iops: 3}, mix: m, share: 0.5}", "exactly one of"),
        ("{background: {}, mix: m, share: 0.5}", "exactly one of"),
        ("{background: {write_MBps: 0}, mix: m, share: 0.5}", "write_MBps"),
        ("{background: {write_MBps: 3}}", "keys of the loads of a mix"),
        ("{background: {write_MBps: 3}, workload: demo, mix: m, share: 0.5}", "replaces workload"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, part: str, message: str) -> None:
    path = tmp_path / "busy.yaml"
    path.write_text(f"name: busy\nparts:\n  train: {{workload: demo, mix: m, share: 0.5}}\n  others: {part}\n")
    with pytest.raises(ConfigError, match=message):
        study_file.load(str(path))


def test_a_pace_and_a_time_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="interval and time exclude each other"):
        workloads.load("demo", ("compute={time: 20 ms, interval: 50 ms}",))
    with pytest.raises(ConfigError, match="above 0"):
        workloads.load("demo", ("compute={interval: 0}",))


def test_checkpoints_of_a_given_size_have_no_dataset_to_resize() -> None:
    """Before, the workload got as many steps as a dataset of this size would have samples."""
    with pytest.raises(
        ConfigError, match=r"--dataset-size 16 MiB: background_write only writes checkpoints.*model_bytes"
    ):
        resized(workloads.load("background_write"), 16 << 20, 2)


def test_a_late_step_is_followed_without_a_pause_until_the_run_has_caught_up() -> None:
    """Steps start every 2 s. The second one takes 5 s."""
    pace = compute.FixedPace(2.0)
    clock, starts = 100.0, []
    for takes in (0.5, 5.0, 0.5, 0.5, 0.5):
        starts.append(clock)
        clock += takes
        clock += pace.rest(starts[-1], clock)
    assert starts == [100.0, 102.0, 107.0, 107.5, 108.0]
    assert clock == 110.0


def test_a_rate_that_is_far_out_of_reach_ends_the_run() -> None:
    pace = compute.FixedPace(0.1)
    pace.rest(50.0, 50.0)
    assert pace.rest(60.0, 60.0) == 0.0
    with pytest.raises(InvalidRun, match=r"step 3 started 10\.3 s late"):
        pace.rest(60.5, 60.5)
    with pytest.raises(ConfigError, match="at most 1,310,720"):
        background.workload(Background(read_iops=1.4e6), 4)


def test_delays_are_those_of_the_starts() -> None:
    late = merge._pace(np.array([10.0, 12.0, 17.0, 17.5, 18.0]), 2.0)
    assert late is not None
    assert (late.every_s, late.per_s, late.latest_s, late.behind_s) == (2.0, 0.5, 3.0, 0.0)
    assert merge._pace(np.array([10.0]), 2.0) is None
    assert merge._pace(np.array([10.0, 12.0]), None) is None
    behind = merge._pace(np.array([0.0, 4.0, 8.0]), 1.0)
    assert behind is not None
    assert (behind.per_s, behind.behind_s) == (0.25, 6.0)
    (fault,) = run._pace_faults(behind, 9.0)
    assert "every 1 s, that is 1/s, but 0.25/s were reached, and the last step was 6 s late" in fault
    assert run._pace_faults(late, 9.0) == []
    assert run._pace_faults(behind, 130.0) == [], "less than 5 % of the time"


@pytest.mark.job
def test_a_rate_that_storage_does_not_hold_is_never_a_result(run: Command, tmp_path: Path) -> None:
    path = tmp_path / "busy.yaml"
    path.write_text(_BUSY.format(rate="metadata_per_s: 600000").replace("demo,", "demo, set: {dataset.files: 4},"))
    done = run("dlio-submit", "--study", path, "-d", tmp_path / "data", "--repeat", "1", "--wait", "--json")
    assert done.code == 3, done.err
    assert "the rate was not held" in done.err
    measured: list[Any] = [point["measurements"] for point in done.json["points"] if point["part"] == "others"]
    assert measured == [[], []]
