"""Runs of a job with one key, and the entry of a night that several jobs share."""

from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dataset_keys import Existing, Scan
from dlio_hpc.config.workload import load
from dlio_hpc.verdict import (
    acceptance,
    baseline_comparison,
    history_entry,
    performance_criteria,
    regression,
    run_groups,
    settings_digest,
    trend,
)
from dlio_hpc.verdict.regression import LevelDifference
from dlio_hpc.verdict.variation import ASSUMED, NightSpread
from tests.support import nights
from tests.support.judged import entry, run, storage


def test_the_worst_storage_is_described_with_its_run() -> None:
    cached = [run(number, storage=storage(0.9)) for number in (3, 4)]
    runs = [run(1, storage=None), run(2, storage=storage(0.0)), *cached]
    (known,) = run_groups.of(entry(runs[1:]))
    assert known.storage_words.startswith("03-measure-3: ")
    (unknown,) = run_groups.of(entry(runs[:2]))
    assert unknown.storage_words == "it was not recorded whether bytes came from storage"


def test_the_folder_of_an_index_says_nothing_about_a_dataset() -> None:
    size = units.Size(1000)
    scan = Scan("03c25a44c247", "/home/me/index", 24, units.Size(24_000), size, size, False, False)
    made = load("demo")
    existing = structs.replace(_existing(), scan=scan)
    placed = structs.replace(made, dataset=structs.replace(made.dataset, existing=existing))
    left = settings_digest.placeless(placed).dataset.existing
    assert left is not None
    assert left.scan == structs.replace(scan, index="")
    for without in (made, structs.replace(made, dataset=structs.replace(made.dataset, existing=_existing()))):
        assert settings_digest.placeless(without) is without


def _existing() -> Existing:
    return Existing("train/*.npz")


def test_a_night_of_several_jobs_has_the_name_of_the_first_that_measured() -> None:
    """The first job failed before it knew what it would measure."""
    first = structs.replace(
        entry([], "a"), study="s", fault="it rained", exit_code=3, night=1, ended="2026-11-21T10:00:00Z"
    )
    second, third = (
        structs.replace(entry([run(number)], name), study="s", night=1, ended=f"2026-11-21T1{number}:00:00Z")
        for number, name in ((1, "b"), (2, "c"))
    )
    (together,) = history_entry.together([first, second, third])
    assert together.job == "b"
    (failed,) = history_entry.together([first, structs.replace(first, job="z", ended="2026-11-21T10:30:00Z")])
    assert failed.job == "a"
    idle = [structs.replace(entry([], name), study="s", night=1) for name in ("y", "x")]
    (nothing,) = history_entry.together(idle)
    assert (nothing.job, nothing.fault) == ("y", None)


def test_what_only_an_earlier_night_of_a_study_measured_is_judged_as_well() -> None:
    """The second of three nights measured with other settings."""
    other = structs.replace(nights.KEY, settings="1" * 12)
    study = [nights.entry(0, [100.0]), nights.entry(1, [50.0], key=other), nights.entry(2, [101.0])]
    verdicts = baseline_comparison._study(study, study, [], baseline_comparison.Terms())
    assert [(verdict.key, verdict.job) for verdict in verdicts] == [
        (nights.KEY, study[2].job), (other, study[1].job),
    ]  # fmt: skip


def test_a_job_that_is_its_own_reference_is_not_compared() -> None:
    history = [nights.entry(0, [100.0, 101.0, 99.0])]
    (group,) = run_groups.of(history[0])
    made = trend.nights(history, group, "samples_per_s")
    weighed = regression._itself(made, "samples_per_s", ASSUMED)
    assert (weighed.outcome, weighed.difference, weighed.before) == ("inconclusive", LevelDifference(0.0, 0.0, 0.0), 0)


@pytest.mark.parametrize(("sd", "more"), [(0.01, 1), (0.03, 20), (0.5, None)])
def test_how_many_more_nights_settle_a_comparison(sd: float, more: int | None) -> None:
    """One night on each side, a known variation, a difference of 3 % and a tolerance of 5 %."""
    weighed: Any = type("W", (), {})()
    weighed.difference = LevelDifference(-0.03, -0.1, 0.04)
    weighed.newest, weighed.before, weighed.spread = 1, 1, NightSpread(sd, 1e9, "given")
    assert regression._more_nights(weighed, 0.05) == more


def test_runs_without_noise_have_the_degrees_of_freedom_of_both_sides() -> None:
    alike = np.array([0.5, 0.5, 0.5])
    assert performance_criteria._of_runs([alike, alike[:2]]) == NightSpread(0.0, 3, "runs")
    assert performance_criteria._of_runs([alike, alike[:1]]) == NightSpread(0.0, 0, "runs")


@pytest.mark.parametrize("names", [[], [None], ["nightly", "acceptance"], ["nightly", None]])
def test_suites_that_name_no_criteria_or_different_ones(names: list[str | None]) -> None:
    with pytest.raises(ConfigError, match="no criteria file is given"):
        acceptance._own(_judged(names))


def test_the_criteria_of_a_suite() -> None:
    assert acceptance._own(_judged(["nightly", "nightly"])).name == "nightly"


def _judged(names: list[str | None]) -> Any:
    def of(**values: Any) -> Any:
        return type("Made", (), values)

    return of(studies=[of(study=of(criteria={}, verdict=of(criteria=name))) for name in names], jobs=[])
