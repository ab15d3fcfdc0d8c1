"""Acceptance: every criterion met and missed, the rules that override it, and the output for people and machines."""

import json
import math
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.analysis import normal_range, students_t
from dlio_hpc.analysis.storage_check import EpochStorage
from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import Size
from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.config import workload
from dlio_hpc.dataset import checkpoint_files, resizing
from dlio_hpc.documents import judgements
from dlio_hpc.files import archive, filesystem, rundir, storage_proofs
from dlio_hpc.plan import plan
from dlio_hpc.records import job_outcome
from dlio_hpc.reports import acceptance_page, html_page, terminal, verdict_banners
from dlio_hpc.reports.figures import acceptance_plots
from dlio_hpc.results import run_result
from dlio_hpc.results.phases import PHASES
from dlio_hpc.results.run_result import Epoch
from dlio_hpc.verdict import (
    acceptance,
    criteria_file,
    history,
    history_entry,
    junit,
    night_intervals,
    procedure_criteria,
)
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.criteria_file import METRIC_LIMITS, Criteria, Criterion
from dlio_hpc.verdict.criterion_result import Check, evidence_lines
from dlio_hpc.verdict.history_entry import Entry, Key, Measurement
from dlio_hpc.verdict.validity_criteria import Absent
from dlio_hpc.verdict.variation import ASSUMED, NightSpread
from tests.conftest import Run
from tests.reports.test_pictures import _browse as browse
from tests.reports.test_pictures import browser
from tests.support import nights, studies
from tests.support.judged import KEY, entry, repeats, run, storage

FIVE = [1000.0, 1001.0, 1002.0, 1003.0, 1004.0]
LIMITED = [
    ("min_samples_per_s", "samples_per_s", 1.0),
    ("min_read_MBps", "read_MBps", 1.0),
    ("min_au", "au", 0.0008),
    ("min_au_mlperf", "au_mlperf", 0.0008),
    ("min_checkpoint_write_MBps", "checkpoint_write_MBps", 1.0),
    ("min_checkpoint_read_MBps", "checkpoint_read_MBps", 1.0),
    ("max_slowest_rank_ratio", "slowest_rank_ratio", 0.0015),
    ("max_read_p99", "read_p99_s", 1e-5),
    ("min_opens_per_s", "opens_per_s", 1.0),
    ("max_open_p99_s", "open_p99_s", 1e-5),
    ("max_metadata_fraction", "metadata_fraction", 0.0008),
    *((f"min_{phase}_per_s", f"{phase}_per_s", 1.0) for phase in PHASES),
    ("min_kv_read_MBps", "kv_read_MBps", 1.0),
    ("min_kv_write_MBps", "kv_write_MBps", 1.0),
    ("min_kv_tokens_per_s", "kv_tokens_per_s", 1.0),
    ("max_kv_read_p99", "kv_read_p99_s", 1e-5),
    ("max_kv_write_p99", "kv_write_p99_s", 1e-5),
    ("max_ttft_p50", "ttft_p50_s", 1e-3),
    ("max_ttft_p95", "ttft_p95_s", 1e-3),
    ("max_ttft_p99", "ttft_p99_s", 1e-3),
    ("max_ttft_load_share", "ttft_load_share", 0.0008),
    ("min_kv_hit_share", "kv_hit_share", 0.0008),
    ("max_late_share", "late_share", 0.0008),
    ("min_users_in_time", "users_in_time", 1.0),
    ("max_wait_p99", "wait_p99_s", 1e-5),
    ("max_checkpoint_safe", "checkpoint_safe_s", 1e-3),
    ("max_restore", "restore_s", 1e-3),
    ("max_restore_gap", "restore_gap_s", 1e-3),
]


def _judge(
    entries: Entry | Sequence[Entry], asked: dict[str, Any] | None = None, **rest: Any
) -> tuple[Acceptance, list[Check]]:
    """Judge by one criterion. Return the acceptance and the checks of the criterion. spread: night_spread."""
    wanted = {} if asked is None else {"it": Criterion(**asked)}
    jobs = [entries] if isinstance(entries, Entry) else entries
    spread = rest.pop("spread", None)
    criteria = Criteria(name="made up", criteria=wanted, night_spread=None if spread is None else units.Share(spread))
    judged = acceptance.judge(criteria, jobs, **rest)
    return judged, [check for check in judged.checks if check.criterion == "it"]


def _one(entries: Entry | Sequence[Entry], asked: dict[str, Any], **rest: Any) -> Check:
    _, (check,) = _judge(entries, asked, **rest)
    return check


# One criterion, both ways


def test_each_limit_of_a_metric_is_judged_both_ways() -> None:
    lacking = {key: name for key, name in METRIC_LIMITS.items() if key not in {row[0] for row in LIMITED}}
    assert not lacking, f"add a row to LIMITED: {lacking}"


@pytest.mark.parametrize(("key", "figure", "scale"), LIMITED)
@pytest.mark.parametrize("all_runs", [False, True])
def test_metrics_against_limits(key: str, figure: str, scale: float, all_runs: bool) -> None:
    """A limit has to be far from the level over the nights, because one night does not show others."""
    values = [scale * value for value in FIVE]
    is_least = key.startswith("min_")
    below, above = (scale * limit for limit in ((999.0, 1005.0) if all_runs else (850.0, 1180.0)))
    for limit, verdict in ((below, "pass" if is_least else "fail"), (above, "fail" if is_least else "pass")):
        check = _one(repeats(figure, values), {key: limit, "all_runs": all_runs})
        assert check.outcome == verdict
        assert [item.value for item in check.evidence] == values
        assert [item.run for item in check.evidence] == [f"{number:02}-measure-{number}" for number in range(1, 6)]
        assert {item.is_met for item in check.evidence} == {verdict == "pass"}
        if all_runs:
            assert check.value == (min(values) if is_least else max(values))
        else:
            assert check.low is not None
            assert check.high is not None
            assert check.value == pytest.approx(values[2])
            high = min(1.125 * values[2], 1.0 if key.startswith(("min_au", "min_kv_hit")) else math.inf)
            assert [check.low, check.high] == pytest.approx([0.889 * values[2], high], rel=0.001)
            assert _one(repeats(figure, values), {key: scale * 999.0}).outcome == "inconclusive"


def test_a_limit_within_the_interval_is_no_verdict() -> None:
    judged, (check,) = _judge(repeats("samples_per_s", FIVE), {"min_samples_per_s": 960.0})
    assert (check.outcome, judged.exit_code) == ("inconclusive", 5)
    assert check.text == (
        "1,002.0 /s in 5 runs of one night, 96 % interval 890.5 /s to 1,127.5 /s: the limit is within the interval; "
        "nights were not sampled: nights are assumed to differ by 5 %; 7 more nights would give a decision: "
        "dlio-submit ... --nights 7, accepted together with these runs"
    )
    check = _one(repeats("samples_per_s", FIVE), {"min_samples_per_s": 1001.5})
    assert check.text.endswith("; the value is so close to the limit that 50 nights would not give a decision")


def test_where_each_run_counts_one_is_enough() -> None:
    judged, (check,) = _judge(repeats("samples_per_s", FIVE), {"min_samples_per_s": 1000.5, "all_runs": True})
    assert (check.outcome, judged.exit_code) == ("fail", 1)
    assert check.text == "worst run 1,000.0 /s, 1 of 5 runs fail"
    assert [item.is_met for item in check.evidence] == [False, True, True, True, True]


def test_one_run_is_not_judged_by_its_value_alone() -> None:
    check = _one(repeats("au", [0.95]), {"min_au": 0.9})
    assert check.outcome == "inconclusive"
    assert check.text.startswith("95 % in 1 run of one night, 96 % interval 76.12 % to 100 %: the limit is within")
    assert "nights were not sampled: nights are assumed to differ by 5 %, and runs by 7 % (--repeat 3 " in check.text
    assert "; 13 more nights would give a decision: dlio-submit ... --nights 13" in check.text
    assert _one(repeats("au", [0.85]), {"min_au": 0.9}).outcome == "inconclusive"
    assert _one(repeats("au", [0.72]), {"min_au": 0.9}).outcome == "fail"
    assert _one(repeats("au", [0.95]), {"min_au": 0.75}).outcome == "pass"
    assert _one(repeats("au", [0.95]), {"min_au": 0.9, "all_runs": True}).outcome == "pass"


@pytest.mark.parametrize("runs", [1, 3])
def test_a_utilization_that_one_night_cannot_settle_passes_after_more_nights(runs: int) -> None:
    """A utilization of 95 % is close to a limit of 90 % if nights may differ by 5 %. The further nights are alike."""
    first = _one(_nights("au", [0.95], runs), {"min_au": 0.9})
    assert first.outcome == "inconclusive"
    (more,) = re.findall(r"([0-9]+) more nights would give a decision", first.text)
    assert _one(_nights("au", [0.95] * (1 + int(more)), runs), {"min_au": 0.9}).outcome == "pass"


def test_single_runs_of_few_nights_name_the_assumption_about_runs() -> None:
    check = _one(_nights("samples_per_s", [1000.0, 1010.0], 1), {"min_samples_per_s": 700.0})
    assert (check.outcome, check.text.endswith("and an assumption of 5 %, and of 7 % between runs")) == ("pass", True)
    several = _one(_nights("samples_per_s", [1000.0, 1010.0], 2), {"min_samples_per_s": 700.0})
    assert several.text.endswith("and an assumption of 5 %")
    assert check.low is not None
    assert several.low is not None
    assert check.low < several.low
    given = _one(_nights("samples_per_s", [1000.0, 1010.0], 1), {"min_samples_per_s": 700.0}, spread=0.05)
    assert given.text.endswith("; nights differ by 5 % (night_spread)"), "the levels of nights are known"


def test_two_runs_tell_little() -> None:
    assert _one(repeats("au", [0.89, 0.93]), {"min_au": 0.9}).outcome == "inconclusive"
    assert _one(repeats("au", [0.985, 0.987]), {"min_au": 0.85}).outcome == "pass"
    assert _one(repeats("au", [0.96, 0.75]), {"min_au": 0.7}).outcome == "inconclusive", "the runs differ by more"
    assert _one(repeats("au", [0.45, 0.46]), {"min_au": 0.9}).outcome == "fail"


def test_a_limit_that_is_just_reached_is_met() -> None:
    assert _one(repeats("au", [0.9] * 5), {"min_au": 0.9}, spread=0).outcome == "pass"
    assert _one(repeats("wait_p99_s", [0.1 + 0.2] * 3), {"max_wait_p99": 0.3}, spread=0).outcome == "pass"
    assert _one(repeats("au", [0.9] * 5), {"min_au": 0.9}).outcome == "inconclusive", "nights were not sampled"


# Nights


def _nights(figure: str, levels: Sequence[float], count: int = 3, **changes: Any) -> list[Entry]:
    """Return a job for each night. Its runs differ by 1 %."""
    jobs = []
    for night, level in enumerate(levels):
        job = repeats(figure, [level * (1 + 0.01 * number) for number in range(count)], **changes)
        runs = tuple(structs.replace(run, repeat=100 * night + run.repeat) for run in job.measurements)
        ended = units.utc(units.timestamp("2026-11-01T02:00:00Z") + 86400 * night)
        jobs.append(structs.replace(job, job=f"job-{night + 1}", created=ended, ended=ended, measurements=runs))
    return jobs


def test_the_interval_is_of_the_nights_and_not_of_the_runs() -> None:
    levels = [1000.0, 1080.0, 960.0, 1040.0, 1010.0]
    few, many = (_one(_nights("samples_per_s", levels, count), {"min_samples_per_s": 900.0}) for count in (3, 30))
    assert few.outcome == many.outcome == "pass"
    assert few.low is not None
    assert many.low is not None
    assert few.low == pytest.approx(many.low, rel=0.2), "more runs of the same nights do not narrow the interval"
    assert few.text.startswith("1,027.4 /s in 15 runs of 5 nights, 96 % interval ")
    assert "nights differ by 4.8 %, estimated from these nights and an assumption of 5 %" in few.text


def test_nights_that_differ_more_than_assumed_count() -> None:
    calm, wild = [1000.0, 1001.0] * 6, [1000.0, 1500.0] * 6
    assert _one(_nights("samples_per_s", calm), {"min_samples_per_s": 980.0}).outcome == "pass"
    check = _one(_nights("samples_per_s", wild), {"min_samples_per_s": 1100.0})
    assert check.outcome == "inconclusive"
    assert "; nights differ by 21 %, estimated from these nights; " in check.text


def test_jobs_of_one_night_are_one_night() -> None:
    jobs = [structs.replace(job, ended="2026-11-21T02:00:00Z") for job in _nights("samples_per_s", [1000.0] * 5)]
    check = _one(jobs, {"min_samples_per_s": 950.0})
    assert check.outcome == "inconclusive"
    assert check.text.startswith("1,010.0 /s in 15 runs of one night")


@pytest.mark.parametrize("spread", [0.02, 0.05])
def test_the_number_of_nights_that_would_settle_it_does(spread: float) -> None:
    """The further nights are like the first one."""

    def judged(nights: int) -> Check:
        return _one(_nights("samples_per_s", [1000.0] * nights, 1), {"min_samples_per_s": 985.0}, spread=spread)

    (more,) = re.findall(r"([0-9]+) more nights would give a decision: dlio-submit \.\.\. --nights \1,", judged(1).text)
    assert [judged(nights).outcome for nights in (int(more), 1 + int(more))] == ["inconclusive", "pass"]


@pytest.mark.parametrize(("level", "limit"), [(1000.0, 970.0), (1000.0, 1030.0), (1000.0, 930.0)])
def test_more_nights_of_the_assumed_spread_settle_it(level: float, limit: float) -> None:
    check = _one(_nights("samples_per_s", [level]), {"min_samples_per_s": limit})
    (more,) = re.findall(r"([0-9]+) more nights would give a decision", check.text)
    levels = [level * math.exp(0.05 * sign) for _ in range(1 + int(more)) for sign in (1, -1)]
    assert _one(_nights("samples_per_s", levels), {"min_samples_per_s": limit}).outcome in ("pass", "fail")


def test_the_spread_of_nights_may_be_given() -> None:
    job = repeats("samples_per_s", FIVE)
    check = _one(job, {"min_samples_per_s": 960.0}, spread=0.01)
    assert (check.outcome, "nights were not sampled: nights differ by 1 % (night_spread)" in check.text) == (
        "pass",
        True,
    )
    assert _one(job, {"min_samples_per_s": 960.0}, spread=0.05).outcome == "inconclusive"
    check = _one(_nights("samples_per_s", [1000.0, 1300.0]), {"min_samples_per_s": 1050.0}, spread=0.01)
    assert (check.outcome, check.text.endswith("; nights differ by 1 % (night_spread)")) == ("pass", True)


def test_without_a_spread_of_nights_all_runs_are_pooled() -> None:
    check = _one(repeats("samples_per_s", FIVE), {"min_samples_per_s": 999.0}, spread=0)
    assert check.outcome == "pass"
    assert check.text.endswith("; nights are assumed to be equal (night_spread: 0)")
    narrow = _one(_nights("samples_per_s", [1000.0] * 4), {"min_samples_per_s": 1000.0}, spread=0)
    assert narrow.outcome == "pass", "twelve runs"
    wide = _one(_nights("samples_per_s", [1000.0]), {"min_samples_per_s": 1000.0}, spread=0)
    assert wide.outcome == "inconclusive"
    assert wide.text.endswith("(night_spread: 0); 7 runs would give a decision: dlio-submit ... --repeat 7")
    one = _one(repeats("au", [0.95]), {"min_au": 0.1}, spread=0)
    assert (one.outcome, one.low) == ("inconclusive", None)
    assert one.text.endswith("the noise of runs is unknown; repeat the measurement (--repeat)")
    assert _one(repeats("au", [0.95]), {"min_au": 0.1, "all_runs": True}, spread=0).outcome == "pass"


def test_the_history_of_the_site_replaces_the_assumption() -> None:
    def at_site(key: Key, metric: str) -> NightSpread:
        return NightSpread(0.012, 20, "site") if (key.site, metric) == ("theta", "samples_per_s") else ASSUMED

    check = _one(repeats("samples_per_s", FIVE), {"min_samples_per_s": 960.0}, prior=at_site)
    assert (check.outcome, "nights at this site differ by 1.2 %" in check.text) == ("pass", True)
    assert _one(repeats("read_MBps", FIVE), {"min_read_MBps": 960.0}, prior=at_site).outcome == "inconclusive"
    check = _one(_nights("samples_per_s", [1000.0, 1002.0]), {"min_samples_per_s": 960.0}, prior=at_site)
    assert check.text.endswith("estimated from these nights and the 1.2 % of this site")
    assert _one(repeats("samples_per_s", FIVE), {"min_samples_per_s": 960.0}, prior=at_site, spread=0.05).outcome == (
        "inconclusive"
    ), "the criteria take precedence"


@pytest.mark.parametrize(("waits", "outcome"), [
    ([0.0, 0.0, 0.0], "pass"), ([0.0, 0.1, 0.05], "pass"), ([0.0, 0.24, 0.3], "inconclusive"),
    ([0.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9], "fail"),
])  # fmt: skip
def test_a_value_of_0_has_no_logarithm(waits: list[float], outcome: str) -> None:
    """Such values are compared on a linear scale, on which nights differ by 5 % of the limit."""
    check = _one(repeats("wait_p99_s", waits), {"max_wait_p99": 0.25})
    assert check.outcome == outcome
    assert check.value == pytest.approx(sorted(waits)[len(waits) // 2])


def test_a_limit_of_0_is_applied_to_every_run() -> None:
    assert _one(repeats("wait_p99_s", [0.0, 0.0]), {"max_wait_p99": 0.0}).outcome == "pass"
    assert _one(repeats("wait_p99_s", [0.0, 0.1]), {"max_wait_p99": 0.0}).outcome == "fail"


def test_evidence_of_several_nights_is_grouped_by_night() -> None:
    check = _one(_nights("samples_per_s", [1000.0, 1010.0], 1), {"min_samples_per_s": 100.0})
    assert evidence_lines(check) == [
        "night 2026-11-01",
        "  job-1  01-measure-1  1,000.0 /s",
        "night 2026-11-02",
        "  job-2  01-measure-1  1,010.0 /s",
    ]
    judged, _ = _judge(_nights("samples_per_s", [1000.0, 1010.0], 1), {"min_samples_per_s": 980.0})
    html = html_page.render(acceptance_page.of_acceptance(judged))
    assert "<td>2026-11-02</td><td>" in html.replace("\n", "")
    (case,) = (case for case in acceptance.cases(judged) if "samples/s" in case.name)
    assert "night 2026-11-02\n  job-2" in case.text
    assert "nights would give a decision" in case.message


def test_a_figure_that_runs_lack_is_no_silent_pass() -> None:
    job = repeats("au", [0.95] * 3)
    without = structs.replace(job.measurements[1], metrics={"samples_per_s": 1000.0})
    check = _one(entry([job.measurements[0], without]), {"min_au": 0.9})
    assert check.outcome == "fail"
    assert check.text == (
        "not measured: this metric is missing in 1 run of 2 (reason: a run without computation and wait; the workload "
        "only writes checkpoints); restrict the criterion to runs that have this metric (keys workload and nodes)"
    )


@pytest.mark.parametrize(("name", "key", "words"), [
    ("demo", "min_create_per_s", "demo never has create/s (create_per_s); metadata workloads with create in "
     "metadata.phases, such as metadata_own, have it"),
    ("demo", "min_checkpoint_write_MBps", "workloads with checkpoint and checkpoint.fsync=true"),
    ("demo", "max_restore", "workloads with checkpoint.reads, such as llama3_8b, have it"),
    ("metadata_own", "max_open_p99_s", "metadata_own never has p99 of an open (open_p99_s); workloads that read a "
     "dataset"),
    ("metadata_own", "min_write_per_s", "metadata workloads with write in metadata.phases"),
    ("metadata_own", "min_samples_per_s", "workloads that read samples"),
    ("metadata_own", "max_spread", "metadata_own never has samples/s"),
    ("llama3_8b", "min_au", "llama3_8b never has AU (au); workloads that read samples"),
])  # fmt: skip
def test_a_limit_on_a_metric_that_the_workload_never_has_is_a_fault_of_the_criteria(
    name: str, key: str, words: str
) -> None:
    without = structs.replace(run(), metrics={"wall_s": 60.0})
    job = entry([without], workloads={KEY.settings: serialization.plain(workload.load(name))})
    judged, (check,) = _judge(job, {key: 0.5 if key == "max_spread" or "au" in key else 0.9})
    assert (check.outcome, judged.exit_code) == ("not_comparable", 2)
    assert words in check.text
    assert "name these workloads in the key workload of the criterion, or leave the limit out" in check.text
    assert "correct the criteria" in verdict_banners.of_acceptance(judged).text
    for optional in (True, "unmeasured"):
        _, (skipped,) = _judge(job, {key: 0.9, "optional": optional})
        assert skipped.outcome == "skipped"


@pytest.mark.parametrize("key", sorted(METRIC_LIMITS))
def test_some_shipped_workload_can_have_each_limited_metric(key: str) -> None:
    """A metric that a workload can have, but a run lacks, is a criterion that is not met."""
    lacking = structs.replace(run(), metrics={})
    outcomes = set()
    for name in ("cosmoflow", "llama3_8b", "metadata_own", "metadata_with_bytes", "kv_cache_llama3_8b", "kv_search"):
        keys: tuple[str, ...] = ("metadata.phases=null", "metadata.bytes=4KiB") if name == "metadata_with_bytes" else ()
        if name == "kv_search":
            keys = ("inference.search.most=99",)
        made = workload.load({"kv_search": "kv_cache_llama3_8b"}.get(name, name.replace("with_bytes", "own")), keys)
        job = entry([lacking], workloads={KEY.settings: serialization.plain(made)})
        outcomes.add(_one(job, {key: 0.9 if key != "max_slowest_rank_ratio" else 1.2}).outcome)
    assert "fail" in outcomes


@pytest.mark.parametrize(("slowest", "verdict", "literally"), [
    (950.0, "pass", "pass"), (949.0, "inconclusive", "fail"), (900.0, "fail", "fail"),
])  # fmt: skip
def test_spread(slowest: float, verdict: str, literally: str) -> None:
    """The spread is the range of five runs over the median: 50 of 1000 just meets 5 %."""
    job = repeats("samples_per_s", [slowest, 1000.0, 1000.0, 1000.0, 1000.0])
    for all_runs, outcome in ((False, verdict), (True, literally)):
        check = _one(job, {"max_spread": 0.05, "all_runs": all_runs})
        assert check.outcome == outcome
        assert check.value == pytest.approx((1000 - slowest) / 1000)
        assert check.asked == f"spread of samples/s <= 5 %{', range of all runs' if all_runs else ''}"


def test_the_spread_of_more_runs_is_scaled_to_five() -> None:
    """The mean range of 20 normally distributed values is 3.735 standard deviations, that of five is 2.326."""
    job = repeats("samples_per_s", [1000.0] * 18 + [960.0, 1040.0])
    check = _one(job, {"max_spread": 0.05})
    assert check.outcome == "pass"
    assert check.value == pytest.approx(0.08 * 2.326 / 3.735, rel=1e-3)
    assert check.text == "960 /s to 1,040.0 /s in 20 runs, a range of 8 %, which corresponds to 4.982 % in 5 runs"
    literal = _one(job, {"max_spread": 0.05, "all_runs": True})
    assert literal.outcome == "fail"
    assert literal.value == pytest.approx(0.08)


def test_a_spread_above_the_limit_by_chance_is_told_the_repeats_that_it_needs() -> None:
    check = _one(repeats("samples_per_s", [1000.0, 1000.0, 1065.0]), {"max_spread": 0.05})
    assert check.outcome == "inconclusive"
    (needed,) = re.findall(r"([0-9]+) runs would give a decision: dlio-submit \.\.\. --repeat \1$", check.text)
    for count, outcome in ((int(needed) - 1, "inconclusive"), (int(needed), "fail")):
        size = 0.065 * normal_range.mean(count) / normal_range.mean(3)
        more = [*[1000.0] * (count - 2), 1000 * (1 - size / 2), 1000 * (1 + size / 2)]
        assert _one(repeats("samples_per_s", more), {"max_spread": 0.05}).outcome == outcome, count


def test_ranges_of_two_and_three_normally_distributed_values_are_exact() -> None:
    assert normal_range.mean(2) == pytest.approx(2 / math.sqrt(math.pi), abs=1e-6)
    assert normal_range.mean(3) == pytest.approx(3 / math.sqrt(math.pi), abs=1e-6)
    for size in (0.0, 0.5, 2.0, 5.0):
        assert normal_range.is_exceeded(size, 2) == pytest.approx(math.erfc(size / 2), abs=1e-6)
    assert normal_range.is_exceeded(math.inf, 2) == 0


@pytest.mark.parametrize("count", [5, 20])
def test_ranges_of_normally_distributed_values_are_those_of_draws(count: int) -> None:
    ranges = np.ptp(np.random.default_rng(3).standard_normal((100_000, count)), axis=1)
    assert normal_range.mean(count) == pytest.approx(ranges.mean(), abs=0.01)
    for size in np.quantile(ranges, [0.1, 0.5, 0.975]):
        assert normal_range.is_exceeded(float(size), count) == pytest.approx((ranges > size).mean(), abs=0.006)


def test_one_run_has_no_spread() -> None:
    judged, (check,) = _judge(repeats("samples_per_s", [1000.0]), {"max_spread": 0.05})
    assert (check.outcome, judged.exit_code) == ("inconclusive", 5)
    assert check.text == "the spread of 1 run is unknown; repeat the measurement (--repeat)"


def _scaled(nodes: int, rates: Sequence[float], **key: Any) -> Entry:
    job = repeats("samples_per_s", rates, key=structs.replace(KEY, nodes=nodes, **key), title=f"nodes={nodes}")
    return structs.replace(job, job=f"job-{nodes}")


@pytest.mark.parametrize(("rates", "verdict"), [
    ([3500.0, 3504.0, 3508.0], "pass"), ([2300.0, 2304.0, 2308.0], "fail"), ([2900.0, 2904.0, 2908.0], "inconclusive"),
])  # fmt: skip
def test_scaling_efficiency(rates: list[float], verdict: str) -> None:
    """A rank on 8 nodes needs at least 70 % of the rate of a rank on 2 nodes."""
    jobs = [_scaled(8, rates), _scaled(2, [1000.0, 1000.0, 1000.0])]
    check = _one(jobs, {"min_scaling_efficiency": 0.7})
    assert check.outcome == verdict
    assert check.value == pytest.approx(rates[1] / 4000)
    assert check.group == "nodes=8: demo on theta, 8 x 4 ranks"
    assert "in 3 runs of 1 job, against 3 runs of 1 job on 8 ranks, 96 % interval" in check.text
    assert "; nights were not sampled: nights are assumed to differ by 5 %" in check.text
    assert ("nights would give a decision" in check.text) is (verdict == "inconclusive")


def test_scaling_of_several_nights_is_a_difference_of_jobs() -> None:
    """Each scale has a job a night; the interval is that of the difference of two means."""
    levels = [1000.0, 1060.0, 980.0, 1010.0] * 3
    jobs = []
    for nodes, factor in ((2, 1.0), (8, 3.2)):
        key = structs.replace(KEY, nodes=nodes)
        made = _nights("samples_per_s", [factor * level for level in levels], key=key, title=f"nodes={nodes}")
        jobs += [structs.replace(job, job=f"{nodes}-{job.job}") for job in made]
    check = _one(jobs, {"min_scaling_efficiency": 0.7})
    assert check.outcome == "pass"
    assert check.value == pytest.approx(0.8)
    assert check.low is not None
    sd = np.std(np.log(levels)) * math.sqrt(12 / 11)
    assert check.low == pytest.approx(0.8 * math.exp(-students_t.quantile(0.98, 22) * sd * math.sqrt(2 / 12)))
    assert "in 36 runs of 12 jobs, against 36 runs of 12 jobs on 8 ranks" in check.text
    again = _one(jobs, {"min_scaling_efficiency": 0.78})
    (more,) = re.findall(r"([0-9]+) more nights would give a decision", again.text)
    assert (again.outcome, int(more) > 1) == ("inconclusive", True)


def test_scaling_of_these_runs_alone_is_that_of_their_noise() -> None:
    jobs = [_scaled(8, [3160.0, 3200.0, 3240.0]), _scaled(2, [990.0, 1000.0, 1010.0])]
    check = _one(jobs, {"min_scaling_efficiency": 0.7}, spread=0)
    assert check.outcome == "pass"
    assert check.low == pytest.approx(0.77, abs=0.01)
    alone = _one([_scaled(8, [3160.0]), _scaled(2, [990.0])], {"min_scaling_efficiency": 0.7}, spread=0)
    assert (alone.outcome, alone.low) == ("inconclusive", None)
    even = _one([_scaled(8, [3200.0] * 2), _scaled(2, [1000.0] * 2)], {"min_scaling_efficiency": 0.8}, spread=0)
    assert even.outcome == "pass"


def test_scaling_is_among_what_is_the_same_but_for_its_size() -> None:
    jobs = [_scaled(2, [1000.0] * 3), _scaled(8, [100.0] * 3, settings="1" * 12)]
    judged, (check,) = _judge(jobs, {"min_scaling_efficiency": 0.7})
    assert (check.outcome, judged.exit_code) == ("fail", 1)
    assert check.text.startswith("not comparable with fewer ranks: nodes=2: demo on theta, 2 x 4 ranks differs in ")
    assert "differs in settings of the workload: " in check.text


@pytest.mark.parametrize("unlike", [{"layout": "unknown"}, {"version": "9.9"}, {"file_system": "lustre /other"}])
def test_no_scale_is_left_out_of_scaling(unlike: dict[str, str]) -> None:
    jobs = [_scaled(1, [500.0] * 3), _scaled(2, [1000.0] * 3), _scaled(8, [800.0] * 3, **unlike)]
    judged, checks = _judge(jobs, {"min_scaling_efficiency": 0.7})
    assert [check.outcome for check in checks] == ["pass", "fail"]
    assert "not comparable with fewer ranks: " in checks[1].text
    assert judged.exit_code == 1


@pytest.mark.parametrize(("asked", "changes", "is_met"), [
    ({"min_steps": 500}, {"steps": 500}, True),
    ({"min_steps": 500}, {"steps": 499}, False),
    ({"min_dataset_over_memory": 5}, {"storage": storage(dataset=5000, memory=1000)}, True),
    ({"min_dataset_over_memory": 5}, {"storage": storage(dataset=4999, memory=1000)}, False),
    ({"measured_runs": 3}, {}, True),
    ({"measured_runs": 2}, {}, False),
    ({"measured_runs": 4}, {}, False),
    ({"min_measured_runs": 3}, {}, True),
    ({"min_measured_runs": 2}, {}, True),
    ({"min_measured_runs": 4}, {}, False),
    ({"warmups": 0}, {}, True),
    ({"warmups": 1}, {}, False),
])  # fmt: skip
def test_rules(asked: dict[str, Any], changes: dict[str, Any], is_met: bool) -> None:
    judged, (check,) = _judge(repeats("au", [0.95] * 3, **changes), asked)
    assert (check.outcome, judged.exit_code) == (("pass", 0) if is_met else ("fail", 1))
    assert [item.job for item in check.evidence] == ["job-1"] * 3
    assert bool(check.advice) is not is_met, "nothing is to be changed where a rule is just met"


def test_memory_that_nobody_asked_for_is_no_verdict_or_passed_over() -> None:
    job = repeats("au", [0.95], storage=storage(memory=None))
    judged, (check,) = _judge(job, {"min_dataset_over_memory": 5})
    assert (check.outcome, judged.exit_code) == ("inconclusive", 5)
    assert check.text == "unknown: node memory was not recorded"
    judged, (check,) = _judge(job, {"min_dataset_over_memory": 5, "optional": True})
    assert (check.outcome, judged.exit_code) == ("skipped", 7), "no criterion applies"
    only = {"min_dataset_over_memory": 5, "optional": "unmeasured"}
    judged, (check,) = _judge(job, only)
    assert (check.outcome, judged.exit_code) == ("inconclusive", 5), "it was measured, so its memory counts"
    judged, (check,) = _judge(job, only | {"workload": "other"})
    assert (check.outcome, judged.exit_code) == ("skipped", 7)
    unknown = _mlperf(storage=storage(0.1, 5 * 2**40, None))
    for name, edition in (("unet3d_h100", "v2"), ("unet3d_b200", "v3")):
        made = _mlperf(name, storage=unknown.measurements[1].storage)
        assert _by_mlperf(made, edition=edition) == (5, {"min_dataset_over_memory"})


def _llama(writes: int = 10, **changes: Any) -> Entry:
    """Return a job of 8 ranks whose checkpoints have 104.7 GiB each."""
    work = plan.resolved(workload.load("llama3_8b", (f"checkpoint.writes={writes}",)))
    key = structs.replace(KEY, workload=work.name)
    return entry([run(key=key, **changes)], workloads={key.settings: json.loads(serialization.encode(work))})


_RESTORED = structs.replace(storage(0.0, 1, 2**40), epochs=(EpochStorage(0, 100, 100, 0.0, "made up"),))


@pytest.mark.parametrize(("job", "asked", "verdict", "message"), [
    (_llama(31, storage=storage(1.0, 1, 2**40)), {"min_checkpoint_over_memory": 3}, "pass", "checkpoints of 1.5"),
    (_llama(29, storage=storage(1.0, 1, 2**40)), {"min_checkpoint_over_memory": 3}, "fail", "512 GiB of memory"),
    (_llama(29, storage=_RESTORED), {"min_checkpoint_over_memory": 3}, "pass", "100.0 % from storage"),
    (_llama(storage=storage(memory=None)), {"min_checkpoint_over_memory": 3}, "inconclusive", "was not recorded"),
    (_llama(), {"rank_memory": Size(14_100_000_000)}, "pass", "a checkpoint of 104.7 GiB"),
    (_llama(), {"rank_memory": Size(14_000_000_000)}, "fail", "of memory of 8 ranks"),
    (repeats("au", [0.95]), {"rank_memory": Size(1)}, "inconclusive", "the sizes of the checkpoints"),
])  # fmt: skip
def test_checkpoints_and_memory(job: Entry, asked: dict[str, Any], verdict: str, message: str) -> None:
    _, (check,) = _judge(job, asked)
    assert (check.outcome, message in check.text) == (verdict, True), check.text


def test_the_node_that_writes_least_is_compared_with_its_memory() -> None:
    """In a checkpoint of llama3_405b, the first half of the ranks writes weights, too: 64 ranks a node."""
    job = _checkpoint_job("llama3_405b", 8, 64)
    checkpoint = workload.load("llama3_405b").checkpoint
    assert checkpoint is not None
    last = sum(file.size for rank in range(448, 512) for file in checkpoint_files.of_rank(checkpoint, rank))
    assert last < checkpoint_files.size(checkpoint, 512) / 8
    for memory, verdict in ((last * 8 * 10 // 3, "pass"), (checkpoint_files.size(checkpoint, 512) * 10 // 3, "fail")):
        runs = [structs.replace(job.measurements[0], storage=storage(1.0, 1, memory))]
        _, (check,) = _judge(structs.replace(job, measurements=tuple(runs)), {"min_checkpoint_over_memory": 3})
        assert check.outcome == verdict, check.text


def _checkpoint_job(name: str, nodes: int, ranks_per_node: int, *settings: str, size: int = 0, **rest: Any) -> Entry:
    """Return a job with one run that writes and reads checkpoints. size: --dataset-size, or 0. rest: parts of the key,
    and fields of the run.
    """
    work = workload.load(name, settings)
    work = plan.resolved(resizing.resized(work, size, nodes * ranks_per_node) if size else work)
    outputs = rest.pop("outputs", "lustre /scratch")
    key = structs.replace(
        KEY, workload=work.name, nodes=nodes, ranks_per_node=ranks_per_node, file_system="none", outputs=outputs
    )
    metrics = {"restore_gap_s": rest.pop("gap", 12.0)}
    fields: dict[str, Any] = {
        "key": key,
        "steps": 10,
        "storage": structs.replace(_RESTORED, memory_bytes=1),
        "metrics": metrics,
    }
    return entry([run(**(fields | rest))], workloads={key.settings: json.loads(serialization.encode(work))})


_MORE = "checkpoint.parallelism={tensor: 8, data: 16}"


@pytest.mark.parametrize(("job", "verdict", "message"), [
    (_checkpoint_job("llama3_70b", 8, 8), "pass", "all 64 ranks"),
    (_checkpoint_job("llama3_8b", 1, 8), "pass", "all 8 ranks"),
    (_checkpoint_job("llama3_70b", 1, 8), "pass", "only 8 of 64 ranks write"),
    (_checkpoint_job("llama3_70b", 16, 8, _MORE), "pass", "all 128 ranks"),
    (_checkpoint_job("llama3_70b", 1, 8, _MORE), "fail", "the job had 8 ranks, but the model's parallelism needs 128"),
    (_checkpoint_job("llama3_70b", 1, 4), "fail", "the job had 4 ranks, but the model's parallelism needs 64"),
    (_checkpoint_job("llama3_8b", 1, 4), "fail", "the job had 4 ranks, but the model's parallelism needs 8"),
    (_checkpoint_job("llama3_70b", 16, 8), "fail", "the job had 128 ranks, but the model's parallelism needs 64"),
    (_checkpoint_job("llama3_70b", 1, 8, "checkpoint.parallelism={tensor: 8}"), "fail", "data is 1, the shipped model"),
    (_checkpoint_job("llama3_70b", 8, 8, size=64 << 20), "fail", "checkpoint.model.hidden: 8192 / "),
    (_checkpoint_job("llama3_70b", 1, 4, size=64 << 20), "fail", "the model differs from the shipped one"),
    (repeats("au", [0.95]), "inconclusive", "unknown: no shipped model 'demo'"),
])  # fmt: skip
def test_the_model_demands_its_ranks(job: Entry, verdict: str, message: str) -> None:
    _, (check,) = _judge(job, {"model_ranks": True, "subset_ranks": 8})
    assert (check.outcome, message in check.text) == (verdict, True), check.text
    assert bool(check.advice) is (verdict == "fail")
    assert check.asked == "all ranks of the model's parallelism, and the shipped model; or 8 of these ranks"


def _unet3d(*changes: str) -> Entry:
    work = plan.resolved(workload.load("unet3d_h100", changes))
    key = structs.replace(KEY, workload=work.name)
    return entry([run(key=key)], workloads={key.settings: json.loads(serialization.encode(work))})


def _on(ranks_per_node: int) -> Entry:
    return repeats("au", [0.95], key=structs.replace(KEY, ranks_per_node=ranks_per_node))


@pytest.mark.parametrize(("count", "verdict"), [(4, "fail"), (5, "pass")])
def test_ranks_per_node(count: int, verdict: str) -> None:
    assert _one(_on(count), {"min_ranks_per_node": 5}).outcome == verdict


@pytest.mark.parametrize(("prefetch", "threads", "verdict"), [
    (2, 1, "pass"), (4, 4, "pass"), (9, 4, "fail"), (0, 1, "pass"), (3, 1, "fail"),
])  # fmt: skip
def test_prefetching(prefetch: int, threads: int, verdict: str) -> None:
    """Each worker of PyTorch's loader prefetches at least one batch."""
    work = workload.load("retinanet_b200", (f"reader.prefetch={prefetch}", f"reader.read_threads={threads}"))
    job = entry([run()], workloads={KEY.settings: json.loads(serialization.encode(plan.resolved(work)))})
    check = _one(job, {"max_prefetch": 2})
    assert check.outcome == verdict
    assert check.text == f"reader.prefetch is {prefetch}, with {threads} thread{'s' * (threads > 1)}"
    assert _one(repeats("au", [0.95]), {"max_prefetch": 2}).outcome == "inconclusive", "it was not recorded"


@pytest.mark.parametrize("edition", ["mlperf_storage_v2", "mlperf_storage_v3"])
@pytest.mark.parametrize(("job", "closed", "opened"), [
    (_checkpoint_job("llama3_70b", 8, 8), set(), set()),
    (_checkpoint_job("llama3_70b", 1, 8), set(), set()),
    (_checkpoint_job("llama3_70b", 8, 8, "checkpoint.mode=torch"), set(), set()),
    (_checkpoint_job("llama3_70b", 16, 8, _MORE), {"divisions"}, set()),
    (_checkpoint_job("llama3_70b", 16, 4), {"min_ranks_per_node"}, {"min_ranks_per_node"}),
    (_checkpoint_job("llama3_70b", 1, 4), {"model_ranks", "min_ranks_per_node"}, {"model_ranks", "min_ranks_per_node"}),
    (_checkpoint_job("llama3_70b", 8, 8, size=64 << 20), {"model_ranks", "divisions"}, {"model_ranks", "divisions"}),
    (_checkpoint_job("llama3_70b", 8, 8, "checkpoint.fsync=false"), {"divisions"}, {"divisions"}),
    (_checkpoint_job("llama3_70b", 8, 8, "checkpoint.direct=true"), {"divisions"}, {"divisions"}),
    (_checkpoint_job("llama3_70b", 8, 8, "compute.time=1"), {"divisions"}, {"divisions"}),
    (_checkpoint_job("llama3_70b", 8, 8, outputs="ext4 /home"), {"separate_results_fs"}, {"separate_results_fs"}),
])  # fmt: skip
def test_checkpoints_by_the_rules_of_mlperf(job: Entry, closed: set[str], opened: set[str], edition: str) -> None:
    rules = criteria_file.load(edition)
    for division, keys in (("closed", closed), ("open", opened)):
        judged = acceptance.judge(criteria_file.of_division(rules, division), [job])
        failed = {check.key for check in judged.checks if check.outcome not in ("pass", "skipped")}
        assert (failed, judged.exit_code) == (keys, 1 if keys else 0), division


def test_numbers_of_checkpoints_are_for_the_open_division_of_v3_only() -> None:
    job = _checkpoint_job("llama3_8b", 1, 8, "checkpoint.writes=4", "checkpoint.reads=4")
    for edition, division, is_met in (("v2", "open", False), ("v3", "closed", False), ("v3", "open", True)):
        rules = criteria_file.of_division(criteria_file.load(f"mlperf_storage_{edition}"), division)
        (check,) = (item for item in acceptance.judge(rules, [job]).checks if item.key == "divisions" and item.group)
        assert (check.outcome == "pass") is is_met, check.text


_SERVED = {"late_share": 0.0, "ttft_p95_s": 1.0, "kv_read_p99_s": 0.01}


def _serving_job(name: str, settings: tuple[str, ...], runs: int, outputs: str, **metrics: float) -> Entry:
    """Return a job with runs that serve requests. Blocks come from storage."""
    work = plan.resolved(workload.load(name, settings))
    key = structs.replace(KEY, workload=work.name, file_system="none", outputs=outputs)
    fields: dict[str, Any] = {"key": key, "storage": _RESTORED, "metrics": _SERVED | metrics}
    made = [run(number, 60.0 * number, 60.0, **fields) for number in range(1, runs + 1)]
    return entry(made, workloads={key.settings: json.loads(serialization.encode(work))})


@pytest.mark.parametrize("name", ["kv_cache_mlperf_8b", "kv_cache_mlperf_8b_memory", "kv_cache_mlperf_70b"])
@pytest.mark.parametrize(("settings", "runs", "outputs", "closed", "opened"), [
    ((), 1, "lustre /scratch", set(), set()),
    (("inference.users=800", "inference.verify=true"), 1, "lustre /scratch", set(), set()),
    (("inference.seed=1",), 1, "lustre /scratch", {"divisions"}, set()),
    (("inference.fsync=false",), 1, "lustre /scratch", {"divisions"}, {"divisions"}),
    (("inference.file_layout=lmcache",), 1, "lustre /scratch", {"divisions"}, {"divisions"}),
    ((), 3, "lustre /scratch", {"measured_runs"}, {"measured_runs"}),
    ((), 1, "ext4 /home", {"separate_results_fs"}, {"separate_results_fs"}),
])  # fmt: skip
def test_kv_caches_by_the_conditions_of_mlperf(
    name: str, settings: tuple[str, ...], runs: int, outputs: str, closed: set[str], opened: set[str]
) -> None:
    job = _serving_job(name, settings, runs, outputs)
    rules = criteria_file.load("mlperf_storage_v3_kv_cache")
    for division, keys in (("closed", closed), ("open", opened)):
        judged = acceptance.judge(criteria_file.of_division(rules, division), [job])
        failed = {check.key for check in judged.checks if check.outcome not in ("pass", "skipped")}
        assert (failed, judged.exit_code) == (keys, 1 if keys else 0), division


@pytest.mark.parametrize(("metrics", "runs", "failed"), [
    ({}, 3, set()),
    ({}, 2, {"min_measured_runs"}),
    ({"late_share": 0.2}, 3, {"max_late_share"}),
    ({"ttft_p95_s": 30.0}, 3, {"max_ttft_p95"}),
    ({"kv_read_p99_s": 5.0}, 3, {"max_kv_read_p99"}),
])  # fmt: skip
def test_kv_caches_by_our_template(metrics: dict[str, float], runs: int, failed: set[str]) -> None:
    job = _serving_job("kv_cache_llama3_8b", (), runs, "lustre /scratch", **metrics)
    judged = acceptance.judge(criteria_file.load("kv_cache"), [job])
    assert {check.key for check in judged.checks if check.outcome not in ("pass", "skipped")} == failed


def test_the_gap_before_reading_is_limited_in_each_run() -> None:
    job = _checkpoint_job("llama3_8b", 1, 8)
    runs = [
        structs.replace(job.measurements[0], run=f"{number:02}-measure", repeat=number, metrics={"restore_gap_s": gap})
        for number, gap in enumerate((10.0, 10.0, 31.0))
    ]
    judged = acceptance.judge(criteria_file.load("mlperf_storage_v3"), [structs.replace(job, measurements=tuple(runs))])
    assert {check.key for check in judged.checks if check.outcome == "fail"} == {
        "max_restore_gap", "measured_runs",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["unet3d_h100", "flux_b200"])
def test_a_workload_for_exploration_is_refused_as_such(name: str) -> None:
    job = _mlperf(name)
    judged = acceptance.judge(criteria_file.load("mlperf_storage_v3"), [job])
    (check,) = (check for check in judged.checks if check.criterion == "workloads")
    assert (check.outcome, judged.exit_code) == ("fail", 1)
    assert check.text == f"{name} is for exploration only (whatif); no division accepts it"


@pytest.mark.parametrize(("gap", "verdict"), [(59.0, "pass"), (60.0, "fail"), (3600.0, "fail")])
def test_gaps_are_shorter_than_the_shortest_run(gap: float, verdict: str) -> None:
    runs = [run(1, 0.0, 80.0), run(2, 80.0 + gap, 60.0), run(3, 141.0 + gap, 80.0)]
    check = _one(entry(runs), {"gaps": "shorter than a run"})
    assert check.outcome == verdict
    assert check.value == pytest.approx(gap)
    assert [item.is_met for item in check.evidence] == [verdict == "pass", True]


def test_the_gap_after_the_warm_up_counts() -> None:
    warmup = run(0, 0.0, 60.0, kind="warmup", run="00-warmup")
    check = _one(entry([warmup, run(1, 200.0), run(2, 261.0)]), {"gaps": "shorter than a run"})
    assert check.outcome == "fail"
    assert check.evidence[0].text == "140 s after the previous run"
    assert check.advice == (
        "make the runs longer (dataset.files, train.epochs); run nothing else between them in the job",
    )


@pytest.mark.parametrize(("place", "verdict", "code"), [
    ("ext4 /home", "pass", 0), ("lustre /scratch", "fail", 1), (None, "inconclusive", 5),
])  # fmt: skip
def test_results_lie_elsewhere(place: str | None, verdict: str, code: int) -> None:
    job = structs.replace(repeats("au", [0.95] * 3), results_on=place or "")
    judged, (check,) = _judge(job, {"separate_results_fs": True})
    assert (check.outcome, judged.exit_code) == (verdict, code)


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ((), "pass", "as shipped"),
        (("dataset.files=7",), "pass", "as shipped"),
        (("compute.time=0.01",), "fail", "shipped / measured: compute.time.mean: 0.323 / 0.01"),
        (("reader.batch_size=2",), "fail", "shipped / measured: reader.batch_size: 7 / 2"),
        (("name=other",), "inconclusive", "unknown: no shipped workload 'other'"),
    ],
)
def test_a_workload_that_was_changed_is_another_one(changes: tuple[str, ...], verdict: str, reason: str) -> None:
    job = _unet3d(*changes)
    _, (check,) = _judge(job, {"unmodified": ["compute.time", "reader.batch_size"]})
    assert (check.outcome, check.text) == (verdict, reason)


@pytest.mark.parametrize(
    ("changes", "verdict", "reason"),
    [
        ((), "pass", "division closed"),
        (("dataset.files=7", "reader.read_threads=9", "reader.prefetch=9"), "pass", "division closed"),
        (
            ("dataset.files=7", "reader.loader=native"),
            "pass",
            "division open, because of reader.loader: pytorch / native",
        ),
        (
            ("reader.batch_size=2", "reader.loader=native"),
            "fail",
            "no division lets these keys change, shipped / measured: reader.batch_size: 7 / 2",
        ),
        (("name=other",), "inconclusive", "unknown: no shipped workload 'other'"),
    ],
)
def test_changed_keys_decide_the_division(changes: tuple[str, ...], verdict: str, reason: str) -> None:
    job = _unet3d(*changes)
    for edition in ("mlperf_storage_v2", "mlperf_storage_v3"):
        rule = criteria_file.load(edition).criteria["division"].divisions
        _, (check,) = _judge(job, {"divisions": rule})
        assert (check.outcome, check.text) == (verdict, reason)
        assert check.asked == "a workload of the division closed or open"
        closed = criteria_file.of_division(criteria_file.load(edition), "closed").criteria["division"].divisions
        _, (check,) = _judge(job, {"divisions": closed})
        if "because of" in reason:
            assert check.outcome == "fail"
            assert check.text.startswith("the division closed does not let these keys change, shipped / measured: ")


def test_a_job_and_a_study_with_one_point_are_one_group() -> None:
    """Its only point has the workload's name as its title; their checks replaced each other."""
    slow, fast = repeats("samples_per_s", [100.0] * 3), repeats("samples_per_s", [300.0] * 3, title=KEY.workload)
    fast = structs.replace(fast, job="job-2", study="study-2")
    for jobs in ([slow, fast], [fast, slow]):
        judged, (check,) = _judge(jobs, {"min_samples_per_s": 200, "all_runs": True})
        assert (check.outcome, judged.exit_code) == ("fail", 1)
        assert {item.job for item in check.evidence} == {"job-1", "job-2"}


def test_each_job_has_its_warm_up() -> None:
    warmed = [run(0, 0.0, 60.0, kind="warmup", run="00-warmup"), run(1, 61.0)]
    first = entry(warmed)
    second = structs.replace(entry(warmed), job="job-2", study="study-2")
    twice = structs.replace(entry([warmed[0], *warmed]), job="job-2", study="study-2")
    assert _one([first, second], {"warmups": 1}).outcome == "pass"
    check = _one([first, twice], {"warmups": 1})
    assert (check.outcome, check.text) == ("fail", "there are 2")


def test_the_run_with_the_smallest_dataset_decides() -> None:
    sizes = [run(number, 61.0 * number, storage=storage(dataset=size, memory=1000)) for number, size in
             enumerate((7000, 4000, 6000))]  # fmt: skip
    check = _one(entry(sizes), {"min_dataset_over_memory": 5})
    assert (check.outcome, check.value) == ("fail", 4.0)


def test_results_of_one_job_on_an_unknown_file_system_are_unknown() -> None:
    known = structs.replace(_THREE, results_on="ext4 /home")
    unknown = structs.replace(_THREE, job="job-2", study="study-2", results_on="")
    assert _one([known, unknown], {"separate_results_fs": True}).outcome == "inconclusive"


def test_the_checks_of_every_acceptance_say_what_they_ask_and_what_is_wrong() -> None:
    faults = ["bytes are missing", "a sample is wrong"]
    runs = [run(number, 61.0 * number, fault=text, exit_code=3) for number, text in enumerate(faults)]
    judged, _ = _judge(entry([*runs, run(3, 200.0)]))
    texts = {check.title: (check.text, check.asked) for check in judged.checks}
    assert any(text.startswith("2 x bytes are missing and 1 more") for text, _ in texts.values()), texts
    assert texts["the storage was measured"][1] == "at least 90 % of each epoch from storage"


_THREE = repeats("au", [0.95] * 3)
_WARMED = entry([run(0, 0.0, 60.0, kind="warmup", run="00-warmup"), run(1, 61.0)])
_DIVISIONS = criteria_file.load("mlperf_storage_v2").criteria["division"].divisions
# Value of each rule, a job that meets it, and one that does not.
OUTCOMES: dict[str, tuple[object, Entry, Entry]] = {
    "min_steps": (500, repeats("au", [0.95], steps=500), repeats("au", [0.95], steps=499)),
    "min_dataset_over_memory": (
        5,
        repeats("au", [0.95], storage=storage(dataset=5000, memory=1000)),
        repeats("au", [0.95], storage=storage(dataset=4999, memory=1000)),
    ),
    "min_checkpoint_over_memory": (
        3, _llama(31, storage=storage(1.0, 1, 2**40)), _llama(29, storage=storage(1.0, 1, 2**40)),
    ),
    "rank_memory": (Size(14_100_000_000), _llama(), _checkpoint_job("llama3_70b", 1, 8)),
    "model_ranks": (True, _checkpoint_job("llama3_8b", 1, 8), _checkpoint_job("llama3_8b", 1, 4)),
    "min_ranks_per_node": (5, _on(5), _on(4)),
    "max_prefetch": (2, _unet3d("reader.prefetch=2", "reader.read_threads=1"), _unet3d("reader.prefetch=9")),
    "warmups": (1, _WARMED, _THREE),
    "measured_runs": (3, _THREE, repeats("au", [0.95] * 4)),
    "min_measured_runs": (3, repeats("au", [0.95] * 4), repeats("au", [0.95] * 2)),
    "gaps": (
        "shorter than a run", entry([run(1, 0.0, 60.0), run(2, 61.0)]), entry([run(1, 0.0, 60.0), run(2, 3661.0)]),
    ),
    "separate_results_fs": (
        True,
        structs.replace(_THREE, results_on="ext4 /home"),
        structs.replace(_THREE, results_on="lustre /scratch"),
    ),
    "unmodified": (["compute.time"], _unet3d("dataset.files=7"), _unet3d("compute.time=0.01")),
    "divisions": (_DIVISIONS, _unet3d(), _unet3d("reader.batch_size=2")),
}  # fmt: skip


@pytest.mark.parametrize("key", procedure_criteria.RULES)
def test_each_rule_is_met_by_one_job_and_missed_by_another(key: str) -> None:
    assert key in OUTCOMES, f"add to OUTCOMES a job that meets {key}, and one that does not"
    value, meets, misses = OUTCOMES[key]
    assert [_one(job, {key: value}).outcome for job in (meets, misses)] == ["pass", "fail"]


@pytest.mark.parametrize(("name", "key", "value", "is_allowed"), [
    ("unet3d_h100", "direct", True, True), ("resnet50_h100", "direct", True, False),
    ("resnet50_h100", "transfer_size", 4096, True), ("unet3d_h100", "transfer_size", 4096, False),
    ("resnet50_h100", "preprocess_threads", 4, True), ("cosmoflow_h100", "preprocess_threads", 4, False),
    ("unet3d_b200", "direct", True, True), ("retinanet_b200", "direct", True, False),
    ("retinanet_b200", "transfer_size", 4096, False), ("retinanet_b200", "read_threads", 3, True),
])  # fmt: skip
def test_keys_that_may_change_depend_on_the_workload(name: str, key: str, value: object, is_allowed: bool) -> None:
    data = json.loads(serialization.encode(plan.resolved(workload.load(name))))
    data["reader"][key] = value
    job = entry([run(key=structs.replace(KEY, workload=name))], workloads={KEY.settings: data})
    edition = "mlperf_storage_v3" if name.endswith("b200") else "mlperf_storage_v2"
    checks = acceptance.judge(criteria_file.load(edition), [job]).checks
    (check,) = (item for item in checks if item.key == "divisions" and item.group)
    assert (check.outcome == "pass") is is_allowed, check.text


# What is asked in any case


@pytest.mark.parametrize(("cached", "limit", "code"), [
    (0.0, 0.1, 0), (0.1, 0.1, 0), (0.11, 0.1, 4), (1.0, 0.1, 4), (0.11, 0.2, 0), (0.06, 0.05, 4), (None, 0.1, 4),
])  # fmt: skip
def test_it_was_the_storage_or_nothing_was_proven(cached: float | None, limit: float, code: int) -> None:
    job = repeats("au", [0.95] * 3, storage=storage(cached))
    judged = acceptance.judge(Criteria(name="x", cached_above=units.Share(limit)), [job])
    assert judged.exit_code == code
    (check,) = (check for check in judged.checks if check.criterion == "storage")
    assert check.outcome == ("cached" if code else "pass")
    if cached is not None:
        assert check.value == pytest.approx(1 - cached)
    if cached is None or cached > 0.1:
        assert check.advice == (("-S reader.drop_cache=true",) if code else ())
    assert bool(check.advice) is (code == 4), "it is said what would help, whatever the limit"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"min_opens_per_s": 100}, "cached"),
        ({"max_open_p99_s": 1.0}, "cached"),
        ({"max_metadata_fraction": 0.5}, "cached"),
        ({"min_opens_per_s": 9999}, "fail"),
        ({"min_au": 0.5}, "pass"),
    ],
)
@pytest.mark.parametrize("doubt", ["", "it is unknown whether the file system or the node answered: ext4"])
def test_opens_that_the_node_answers_meet_no_criterion(limits: dict[str, Any], expected: str, doubt: str) -> None:
    opens = {"opens_per_s": 500.0, "open_p99_s": 0.001, "metadata_fraction": 0.1}
    plain = repeats("au", [0.95, 0.95, 0.95], storage=structs.replace(storage(), opens_doubt=doubt))
    job = entry([structs.replace(ran, metrics={**ran.metrics, **opens}) for ran in plain.measurements])
    judged, (check,) = _judge(job, limits)
    assert check.outcome == (expected if doubt or expected == "fail" else "pass")
    assert judged.exit_code == {"cached": 4, "fail": 1, "pass": 0}[check.outcome]
    if check.outcome == "cached":
        assert check.text.endswith(doubt)
        page = acceptance_page.of_acceptance(judged)
        assert page.banner.text.startswith("No verdict: the nodes, and not the servers, may have answered the opens")
        assert any(section.heading.startswith("cached: ") for section in page.sections), "its reason is shown"


def test_a_single_cached_run_is_enough() -> None:
    job = repeats("au", [0.95] * 3)
    cached = structs.replace(job.measurements[1], storage=storage(0.9))
    judged, (check,) = _judge(entry([job.measurements[0], cached, job.measurements[2]]), {"min_au": 0.9})
    assert judged.exit_code == 4
    assert check.outcome == "cached", "a figure of memory meets nothing"
    (of_storage,) = (check for check in judged.checks if check.criterion == "storage")
    assert [item.is_met for item in of_storage.evidence] == [True, False, True]
    assert of_storage.text.startswith("1 of 3 runs: cached: 10.0 % from storage")


def test_what_even_memory_does_not_meet_stays_unmet_and_rules_stay_rules() -> None:
    job = repeats("au", [0.5] * 3, storage=storage(1.0))
    assert _one(job, {"min_au": 0.9}).outcome == "fail"
    assert _one(job, {"measured_runs": 3}).outcome == "pass"


def test_a_run_without_record_of_what_was_read_proves_nothing() -> None:
    judged, _ = _judge(repeats("au", [0.95], storage=None))
    assert judged.exit_code == 4
    judged, _ = _judge(repeats("au", [0.95], storage=structs.replace(storage(), epochs=(), cached=None)))
    assert judged.exit_code == 4, "nothing was read"


def _faulty(number: int, code: int, fault: str = "it went wrong") -> Measurement:
    return run(number, fault=fault, exit_code=code, metrics={}, storage=None)


@pytest.mark.parametrize(("code", "verdict", "exit_code"), [
    (3, "invalid", 3), (6, "infrastructure", 6), (2, "infrastructure", 6), (7, "incomplete", 7),
    (70, "bug", 70),
])  # fmt: skip
def test_faulty_runs(code: int, verdict: str, exit_code: int) -> None:
    judged, (check,) = _judge(entry([run(1), _faulty(2, code)]), {"measured_runs": 1})
    assert judged.exit_code == exit_code
    assert check.outcome == "pass", "the good ones are judged"
    (failure,) = (check for check in judged.of("") if check.outcome != "pass")
    assert (failure.outcome, failure.text) == (verdict, "it went wrong")
    assert [(item.job, item.run, item.is_met) for item in failure.evidence] == [("job-1", "02-measure-2", False)]


def test_a_fault_that_was_made_good_is_none() -> None:
    jobs = [entry([run(1), _faulty(2, 6)]), entry([run(2, 3600.0)], "job-2")]
    judged, (check,) = _judge(jobs, {"measured_runs": 2})
    assert (judged.exit_code, check.outcome) == (0, "pass")


def test_what_is_good_elsewhere_makes_no_fault_good() -> None:
    """When a job compares two file systems, both must be measured."""
    judged, _ = _judge(entry([run(1), structs.replace(_faulty(2, 6), repeat=0, data="/new")]))
    assert judged.exit_code == 6


def test_what_was_measured_twice_counts_once() -> None:
    check = _one([entry([run(1), run(2)]), entry([run(2, 3600.0)], "job-2")], {"measured_runs": 2})
    assert check.outcome == "pass"
    assert {item.job for item in check.evidence} == {"job-1"}


@pytest.mark.parametrize("measured", [[], [run(1), run(2)]])
def test_a_job_that_is_invalid_beside_its_runs(measured: list[Measurement]) -> None:
    """The job can be invalid because its dataset was generated wrongly, for instance."""
    judged, _ = _judge(entry(measured, fault="00-generate is invalid", exit_code=3))
    assert judged.exit_code == 3


@pytest.mark.parametrize(("exit_code", "code"), [(7, 0), (6, 6), (3, 3)])
def test_a_job_whose_time_was_over_after_its_last_run_lost_nothing(exit_code: int, code: int) -> None:
    judged, _ = _judge(entry([run(1), run(2)], fault="job-1 ended as timeout", exit_code=exit_code))
    assert judged.exit_code == code


def test_each_scale_and_workload_that_is_named_has_to_be_measured() -> None:
    """Runs on two nodes do not show the result on 64."""
    judged, checks = _judge(
        repeats("au", [0.95] * 3), {"min_au": 0.8, "nodes": (2, 64), "workload": ("demo", "unet3d*")}
    )
    assert judged.exit_code == 1
    failure = "no run was measured for workload unet3d*, nodes 64"
    assert [(check.outcome, check.text) for check in checks if check.key == ""] == [("fail", failure)]
    known = {"min_au": 0.8, "nodes": (2, 64), "optional": True}
    assert _judge(repeats("au", [0.95] * 3), known)[0].exit_code == 0


def test_missing_measurements_are_incomplete() -> None:
    absent = [
        Absent("nodes=2", 1, "job-1", "job-1 stopped close to its time limit before this run"),
        Absent("", 2, None, "no job"),
    ]
    judged, _ = _judge(entry([run(1)]), absent=absent)
    assert judged.exit_code == 7
    (completeness,) = (check for check in judged.checks if check.criterion == "completeness")
    assert [item.text for item in completeness.evidence] == [
        "nodes=2, repeat 2: job-1 stopped close to its time limit before this run", ", repeat 3: no job",
    ]  # fmt: skip


def test_what_is_missing_because_it_failed_is_told_once() -> None:
    absent = [Absent("", 1, "job-1", "it went wrong")]
    judged, _ = _judge(entry([run(1), _faulty(2, 3)]), absent=absent)
    assert judged.exit_code == 3
    assert [len(check.evidence) for check in judged.of("")] == [1, 0, 0]


def test_nothing_at_all_is_not_accepted() -> None:
    assert _judge([])[0].exit_code == 7
    assert _judge(entry([]))[0].exit_code == 7


def test_a_criterion_for_nothing_is_not_met() -> None:
    judged, (check,) = _judge(repeats("au", [0.95]), {"workload": "unet3d*", "nodes": 64, "min_au": 0.9})
    assert (judged.exit_code, check.outcome, check.group) == (1, "fail", "")
    assert check.asked == "AU >= 90 %"
    assert check.text == "this criterion applies to no measured run (workload unet3d*, nodes 64); measured: demo"
    assert check.title == check.criterion, "a criterion without a title has its name"
    _, (titled,) = _judge(repeats("au", [0.95]), {"title": "Training", "workload": "unet3d*", "min_au": 0.9})
    assert titled.title == "Training"


def test_it_is_passed_over_only_where_the_file_says_so() -> None:
    judged, (check,) = _judge(repeats("au", [0.95]), {"nodes": 64, "min_au": 0.9, "optional": True})
    assert (judged.exit_code, check.outcome) == (7, "skipped"), "no criterion applies"
    assert acceptance.summary(judged) == "acceptance of study by made up: 4 of 4 pass, 1 skipped"
    assert verdict_banners.of_acceptance(judged).line.startswith("Not measured: No verdict: no criterion applies ")
    low = units.LeastShare(0.9)
    criteria = {"a": Criterion(nodes=64, min_au=low, optional=True), "b": Criterion(min_au=low)}
    made_up = Criteria(name="x", criteria=criteria, night_spread=units.LeastShare(0.0))
    assert acceptance.judge(made_up, [repeats("au", [0.95] * 3)]).exit_code == 0


def test_each_limit_of_a_criterion_is_judged_by_itself() -> None:
    """A limit that applies does not hide another one that does not."""
    _, checks = _judge(repeats("samples_per_s", FIVE), {"max_spread": 0.1, "min_scaling_efficiency": 0.7})
    assert [(check.key, check.outcome) for check in checks] == [
        ("min_scaling_efficiency", "fail"), ("max_spread", "pass"),
    ]  # fmt: skip


def test_workloads_beside_those_that_it_is_for() -> None:
    judged = acceptance.judge(Criteria(name="x", workloads=("unet3d*",)), [repeats("au", [0.95])])
    assert judged.exit_code == 1
    assert any(check.text.startswith("demo is not among the allowed workloads") for check in judged.checks)


# The gravest decides

GRAVITY: list[tuple[str, int, dict[str, Any]]] = [
    ("invalid", 3, {"runs": [_faulty(2, 3)]}), ("infrastructure", 6, {"runs": [_faulty(3, 6)]}),
    ("incomplete", 7, {"runs": [_faulty(4, 7)]}),
    ("cached", 4, {"runs": [run(9, 900.0, title="cached", storage=storage(1.0))]}),
    ("fail", 1, {"asked": {"no": Criterion(min_steps=1000)}}),
    ("inconclusive", 5, {"asked": {"inconclusive": Criterion(max_spread=units.Share(0.05))}}),
]  # fmt: skip


@pytest.mark.parametrize("first", range(len(GRAVITY)))
def test_the_gravest_of_all_is_the_exit_code(first: int) -> None:
    runs: list[Measurement] = [run(1)]
    asked: dict[str, Criterion] = {}
    for _, _, what in GRAVITY[first:]:
        runs += what.get("runs", [])
        asked |= what.get("asked", {})
    judged = acceptance.judge(Criteria(name="x", criteria=asked), [entry(runs)])
    assert (judged.outcome, judged.exit_code) == GRAVITY[first][:2]
    there = {check.outcome for check in judged.checks}
    assert {name for name, _, _ in GRAVITY[first:]} <= there


def test_the_order_of_jobs_and_runs_changes_nothing() -> None:
    jobs = [_scaled(8, [3000.0, 2900.0, 2800.0]), _scaled(2, FIVE), _scaled(4, FIVE)]
    asked = {"min_scaling_efficiency": 0.7, "min_samples_per_s": 1001.5, "max_spread": 0.05}
    first, _ = _judge(jobs, asked)
    mixed = [structs.replace(job, measurements=job.measurements[::-1]) for job in jobs]
    random.Random(1).shuffle(mixed)
    assert _judge(mixed, asked)[0] == first


def test_groups_with_the_same_title_are_told_apart() -> None:
    one, two = repeats("au", [0.95] * 2), repeats("au", [0.95] * 2, data="/other")
    three = repeats("au", [0.95] * 2, key=structs.replace(KEY, version="2"))
    judged, _ = _judge([one, structs.replace(two, job="2"), structs.replace(three, job="3")])
    labels = [group for group in judged.groups if group]
    assert len(set(labels)) == 3
    assert "demo on theta, 2 x 4 ranks, lustre /scratch, layout 8 stripes, /other" in labels


# MLPerf Storage


def _mlperf(name: str = "unet3d_h100", **changes: Any) -> Entry:
    """Return a submission that just meets each rule. changes: fields of every run."""
    figures = [{"au_mlperf": 0.9, "samples_per_s": rate} for rate in (975.0, 1000.0, 1000.0, 1000.0, 1025.0)]
    key = structs.replace(KEY, workload=name)
    warmup = run(0, 0.0, 60.0, kind="warmup", run="00-warmup", key=key)
    runs = [run(place + 1, 119.9 * (place + 1), 60.0, metrics=metrics) for place, metrics in enumerate(figures)]
    work = json.loads(serialization.encode(plan.resolved(workload.load(name))))
    just = {"key": key, "steps": 500, "storage": storage(0.1, 5 * 2**40, 2**40)}
    made = [warmup, *(structs.replace(measurement, **(just | changes)) for measurement in runs)]
    return entry(made, workloads={key.settings: work})


def _by_mlperf(job: Entry, place: str | None = "ext4 /home", edition: str = "v2") -> tuple[int, set[str]]:
    """Return the exit code and the keys of the criteria that are not met."""
    rules = criteria_file.load(f"mlperf_storage_{edition}")
    judged = acceptance.judge(rules, [structs.replace(job, results_on=place or "")])
    return judged.exit_code, {check.key for check in judged.checks if check.outcome not in ("pass", "skipped")}


@pytest.mark.parametrize("name", ["unet3d_h100", "resnet50_a100", "cosmoflow_h100"])
def test_mlperf_just_met(name: str) -> None:
    assert _by_mlperf(_mlperf(name)) == (0, set())


def _with(job: Entry, number: int, **changes: Any) -> Entry:
    """Return the job with changes to the run of that number."""
    runs = list(job.measurements)
    runs[number] = structs.replace(runs[number], **changes)
    return structs.replace(job, measurements=tuple(runs))


def _metrics(**changes: float) -> dict[str, Any]:
    return {"metrics": {"au_mlperf": 0.9, "samples_per_s": 1000.0} | changes}


JUST = _mlperf()
COSMOFLOW = _mlperf("cosmoflow_a100")


@pytest.mark.parametrize(("job", "key"), [
    (_mlperf(steps=499), "min_steps"),
    (_mlperf(storage=storage(0.0, 5 * 2**40 - 1, 2**40)), "min_dataset_over_memory"),
    (structs.replace(JUST, measurements=JUST.measurements[1:]), "warmups"),
    (structs.replace(JUST, measurements=(run(9, -61.0, key=JUST.measurements[1].key, kind="warmup", run="w"),
                                         *JUST.measurements)), "warmups"),
    (structs.replace(JUST, measurements=JUST.measurements[:-1]), "measured_runs"),
    (structs.replace(JUST, measurements=(*JUST.measurements, run(
        6, 6 * 119.9, key=JUST.measurements[1].key, storage=JUST.measurements[1].storage,
    ))), "measured_runs"),
    (_with(JUST, 5, started="2026-11-21T10:10:00Z", ended="2026-11-21T10:11:00Z"), "gaps"),
    (_with(JUST, 5, **_metrics(samples_per_s=1025.1)), "max_spread"),
    (_with(JUST, 3, **_metrics(au_mlperf=0.899)), "min_au_mlperf"),
    (_with(COSMOFLOW, 3, **_metrics(au_mlperf=0.699)), "min_au_mlperf"),
    (_mlperf("demo"), "workloads"),
])  # fmt: skip
def test_mlperf_just_missed(job: Entry, key: str) -> None:
    """The job misses that rule and no other."""
    assert _by_mlperf(job) == (1, {key})


def test_v3_has_the_rules_on_repeats_and_gaps_too() -> None:
    for name in ("unet3d_b200", "retinanet_mi355"):
        job = _mlperf(name)
        assert _by_mlperf(job, edition="v3") == (0, set())
        gap = _with(job, 5, started="2026-11-21T10:10:00Z", ended="2026-11-21T10:11:00Z")
        assert _by_mlperf(gap, edition="v3") == (1, {"gaps"})
        assert _by_mlperf(_with(job, 5, **_metrics(samples_per_s=1025.1)), edition="v3") == (1, {"max_spread"})


def test_mlperf_asks_less_of_cosmoflow() -> None:
    assert _by_mlperf(_with(COSMOFLOW, 3, **_metrics(au_mlperf=0.7))) == (0, set())


def test_mlperf_wants_results_elsewhere_where_that_can_be_known() -> None:
    assert _by_mlperf(JUST, "lustre /scratch") == (1, {"separate_results_fs"})
    assert _by_mlperf(JUST, None) == (0, set())


def test_mlperf_in_two_jobs_has_a_gap() -> None:
    """The time in the queue between the jobs is longer than a run."""
    later = [
        structs.replace(
            measurement,
            started=measurement.started.replace("T10", "T13"),
            ended=measurement.ended.replace("T10", "T13"),
        )
        for measurement in JUST.measurements[4:]
    ]
    jobs = [structs.replace(JUST, measurements=JUST.measurements[:4]), entry(later, "job-2")]
    judged = acceptance.judge(criteria_file.load("mlperf_storage_v2"), jobs)
    (gaps,) = (check for check in judged.checks if check.outcome == "fail")
    advice = ("make all runs in one batch job, with --warmup, --repeat and enough --time",)
    assert (gaps.key, gaps.advice) == ("gaps", advice)


def test_mlperf_from_memory_is_cached() -> None:
    code, _ = _by_mlperf(_mlperf(storage=storage(0.11, 5 * 2**40, 2**40)))
    assert code == 4


# What is shown


def _mixed() -> Acceptance:
    """Return an acceptance with at least one check of every verdict."""
    jobs = [
        entry([*(run(n, 61.0 * n, metrics={"au": 0.88 + n / 100}) for n in range(1, 4)), _faulty(4, 3), _faulty(5, 7)]),
        repeats("samples_per_s", [500.0, 600.0, 550.0], title="nodes=4: <b>", key=structs.replace(KEY, nodes=4),
                storage=storage(0.5)),
    ]  # fmt: skip
    asked = {
        "au": Criterion(title="kept busy & happy", min_au=units.LeastShare(0.9), nodes=2),
        "rate": Criterion(min_samples_per_s=800.0, nodes=2),
        "slow": Criterion(min_samples_per_s=900.0, nodes=4),
        "spread": Criterion(max_spread=units.Share(0.1)),
        "none": Criterion(nodes=64, min_read_MBps=1.0, optional=True),
        "scaling": Criterion(min_scaling_efficiency=units.LeastShare(0.1)),
    }
    return acceptance.judge(Criteria(name="mixed", criteria=asked), jobs)


def test_junit_tells_failures_from_errors() -> None:
    judged = _mixed()
    suite = ElementTree.fromstring(junit.document("accept", acceptance.cases(judged)))
    outcomes = {}
    for case in suite.iter("testcase"):
        assert case.get("classname") == "dlio-hpc.accept"
        outcome = [(child.tag, child.get("type")) for child in case if child.tag != "system-out"]
        outcomes[case.get("name")] = outcome[0] if outcome else ("pass", None)
    assert len(outcomes) == len(judged.checks), "names are told apart"
    first = "demo on theta, 2 x 4 ranks"
    assert outcomes[f"{first}: kept busy & happy: AU >= 90 %"] == ("error", "inconclusive")
    assert outcomes[f"{first}: rate: samples/s >= 800 /s"] == ("pass", None)
    assert outcomes["nodes=4: <b>: demo on theta, 4 x 4 ranks: slow: samples/s >= 900 /s"] == ("failure", "fail")
    assert outcomes["none: read bandwidth >= 1 MB/s"] == ("skipped", None)
    kinds = set(outcomes.values())
    assert {("error", "invalid"), ("error", "cached"), ("error", "incomplete")} <= kinds
    text = "\n".join(suite.itertext())
    assert "would defeat the cache: -S reader.drop_cache=true" in text
    assert "job-1  01-measure-1  500 /s" in text


def test_junit_calls_a_timeout_so() -> None:
    judged, _ = _judge(entry([run(1), _faulty(2, 7, "job job-1 stopped close to its time limit before this run")]))
    (case,) = (case for case in acceptance.cases(judged) if case.kind == "error")
    assert case.type == "timeout"


def test_the_terminal_shows_each_criterion_its_evidence_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    judged = _mixed()
    terminal.show(acceptance_page.of_acceptance(judged), sys.stdout)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:-1])) <= 100
    assert lines.count("  it went wrong") == 2
    assert any(line.split()[:4] == ["04-measure-4", "it", "went", "wrong"] for line in lines)
    assert "  would defeat the cache: -S reader.drop_cache=true" in lines
    assert lines[-1] == acceptance.summary(judged)
    assert lines[-1].startswith("acceptance of study by mixed: 4 of 11 pass, 1 invalid, 1 incomplete, ")
    assert judged.exit_code == 3


def test_json_has_all_of_it() -> None:
    content = json.loads(json.dumps(serialization.plain(judgements.of_accept(_mixed()))))
    assert (content["outcome"], content["exit_code"]) == ("invalid", 3)
    (check,) = (check for check in content["checks"] if check["criterion"] == "au")
    assert (check["key"], check["limit"], check["outcome"]) == ("min_au", 0.9, "inconclusive")
    assert check["low"] <= check["value"] <= check["high"]
    assert [item["value"] for item in check["evidence"]] == pytest.approx([0.89, 0.9, 0.91])
    assert content["criteria"]["criteria"]["au"]["min_au"] == 0.9


def test_pictures_have_runs_medians_and_limits() -> None:
    pictures = list(acceptance_plots.draw(_mixed()))
    assert [picture.stem for picture in pictures] == [
        "criteria-1-demo-on-theta-2-x-4-ranks", "criteria-2-nodes-4-b-demo-on-theta-4-x-4-ranks",
    ]  # fmt: skip
    axes = pictures[0].figure.axes
    assert [panel.get_title(loc="left").split(":")[0] for panel in axes] == ["kept busy & happy", "rate", "spread"]
    limit, runs, interval, middle = (np.asarray(line.get_xdata()).tolist() for line in axes[0].get_lines())
    assert limit == [0.9, 0.9]
    assert runs == pytest.approx([0.89, 0.9, 0.91])
    assert interval == pytest.approx([0.799, 1.0], abs=0.001)
    assert middle == pytest.approx([0.9, 0.9])


def test_the_page_has_the_verdict_first() -> None:
    html = html_page.render(acceptance_page.of_acceptance(_mixed()))
    assert html == html_page.render(acceptance_page.of_acceptance(_mixed())), "the same bytes for the same input"
    text = re.sub(r"<wbr>|</?span[^>]*>", "", html)
    assert "No verdict: some runs are invalid; their numbers must not be used." in text
    assert "kept busy &amp; happy" in text
    assert "<b>" not in text
    assert text.count("<svg") == 2
    assert "would defeat the cache: -S reader.drop_cache=true" in text
    ok, _ = _judge(repeats("au", [0.95] * 3), {"min_au": 0.8})
    good = acceptance_page.of_acceptance(ok)
    assert good.banner == ("good", "Accepted: every criterion is met. 5 of 5 pass.")


@browser
def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    file = tmp_path / "accept.html"
    file.write_text(html_page.render(acceptance_page.of_acceptance(_mixed())))
    picture = tmp_path / "accept.png"
    assert browse(file, f"--screenshot={picture}", "--window-size=1100,2400") == ([], [])
    assert picture.stat().st_size > 10_000


# The command

NIGHTLY = """\
name: mine
criteria:
  rate: {min_samples_per_s: 80}
  spread: {max_spread: 5%}
  scaling: {min_scaling_efficiency: 60%}
  runs: {measured_runs: 3}
"""


def _study(folder: Path, lost: Sequence[tuple[int, int]] = (), cached: float = 0.0, state: State = "completed") -> Path:
    """Write a study on one node and on two, where the rate is 1.6 times as high. cached: share of bytes from memory."""
    part = studies.asked("demo", nodes=(1, 2), ranks_per_node=(2,))
    made = studies.make(folder / "dlio-runs", part)
    values = {1: 100.0, 2: 160.0}
    directory = studies.write(
        made,
        lambda point, repeat: None if (point, repeat) in lost else values[made.points[point].nodes] + repeat,
        state,
    )
    for path in Path(made.runs).glob(f"*/{rundir.RUNS}/*/{rundir.RESULT}"):
        result = run_result.decode(path.read_bytes(), str(path))
        counted: dict[str, Any] = {"client_bytes_asked": 10**9, "client_bytes_read": int((1 - cached) * 10**9)}
        epoch = Epoch(1, 10.0, 10, 1000, 10**9, 1.0, 1.0, 1.0, **counted)
        if result.summary is not None:
            run_result.write(path, structs.replace(result, epochs=[epoch], file_system="lustre", memory_bytes=10**9))
    (folder / "mine.yaml").write_text(NIGHTLY)
    return directory


def test_a_study_is_accepted_by_folder_name_and_archives_alone(run: Run, tmp_path: Path) -> None:
    folder = _study(tmp_path)
    by_name = run("dlio-hpc", "accept", "tune", "--criteria", "mine.yaml")
    assert by_name.code == 0, by_name.out + by_name.err
    assert by_name.out.splitlines()[-1] == "acceptance of tune by mine: 12 of 12 pass"
    assert run("dlio-hpc", "accept", folder, "--criteria", "mine.yaml").out == by_name.out
    kept = []
    for job in sorted((tmp_path / "dlio-runs").glob("tune-*")):
        kept.append(tmp_path / f"{job.name}{archive.SUFFIX}")
        archive.create(job, kept[-1])
    shutil.rmtree(tmp_path / "dlio-runs")
    alone = run("dlio-hpc", "accept", *kept, "--criteria", "mine.yaml")
    assert (alone.code, alone.out) == (0, by_name.out)
    part = run("dlio-hpc", "accept", kept[0], "--criteria", "mine.yaml", "--json")
    assert part.code == 7, "a part of a study is not accepted"
    unmet = [(check["outcome"], check["text"]) for check in part.json["checks"] if check["outcome"] != "pass"]
    assert [outcome for outcome, _ in unmet] == ["incomplete", "fail"]
    assert unmet[1][1] == "this criterion applies to no measured run; measured: demo"
    assert run("dlio-hpc", "accept", kept[0], kept[0], "--criteria", "mine.yaml", "--json").json == part.json


def _limits(run: Run, folder: Path, limit: float = 97.0, efficiency: float = 0.76) -> dict[str, tuple[str, str]]:
    """Return the outcome and the text of the limits on the study, by their keys."""
    criteria = f"a: {{nodes: 1, min_samples_per_s: {limit}}}\n  b: {{min_scaling_efficiency: {efficiency}}}"
    (folder / "mine.yaml").write_text(f"name: mine\ncriteria:\n  {criteria}\n")
    done = run("dlio-hpc", "accept", "tune", "--criteria", "mine.yaml", "--json")
    return {check["key"]: (check["outcome"], check["text"]) for check in done.json["checks"]}


def test_other_measurements_of_the_site_show_how_much_nights_differ(run: Run, tmp_path: Path) -> None:
    _study(tmp_path)
    archives = tmp_path / "dlio-runs" / "archive"
    archives.mkdir(exist_ok=True)
    alone = _limits(run, tmp_path)
    for key, subject in (
        ("min_samples_per_s", "nights were not sampled: nights"),
        ("min_scaling_efficiency", "nights"),
    ):
        assert alone[key][0] == "inconclusive", alone
        assert f"{subject} are assumed to differ by 5 %" in alone[key][1]
    own = history_entry.of(job_outcome.load(tmp_path / "dlio-runs" / "tune-1"))
    other = structs.replace(own.measurements[0].key, workload="another")
    for night in range(30):
        history.enter(archives, nights.entry(night, [50 * math.exp(0.002 * math.sin(9 * night))], other))
    with_site = _limits(run, tmp_path)
    for key in ("min_samples_per_s", "min_scaling_efficiency"):
        assert with_site[key][0] == "pass", with_site
        assert "nights at this site differ by 0.2" in with_site[key][1]
    history.enter(archives, structs.replace(own, ended=nights.day(40)))
    assert _limits(run, tmp_path) == with_site, "the judged job is no knowledge from elsewhere"


def test_a_history_that_cannot_be_read_leaves_the_assumption(run: Run, tmp_path: Path) -> None:
    _study(tmp_path)
    archives = tmp_path / "dlio-runs" / "archive"
    archives.mkdir(exist_ok=True)
    (archives / rundir.HISTORY).write_bytes(b"no database" * 100)
    assert "are assumed to differ by 5 %" in _limits(run, tmp_path)["min_samples_per_s"][1]
    done = run("dlio-hpc", "accept", "tune", "--criteria", "mine.yaml")
    assert "note: the variation between nights is assumed, because the history cannot be read" in done.err


def test_files_are_written_for_people_and_machines(run: Run, tmp_path: Path) -> None:
    _study(tmp_path)
    options = ("--html", "out/a.html", "--figures", "out/figures", "--junit", "out/a.xml", "--json")
    done = run("dlio-hpc", "accept", "tune", "--criteria", "mine.yaml", *options)
    assert done.code == 0, done.err
    assert done.json["exit_code"] == 0
    assert done.err.splitlines() == ["junit: out/a.xml", "report: out/a.html", "figures: out/figures"]
    assert len(list((tmp_path / "out/figures").glob("criteria-*.svg"))) == 2
    assert len(list((tmp_path / "out/figures").glob("criteria-*.png"))) == 2
    assert "Accepted: every criterion is met." in (tmp_path / "out/a.html").read_text()
    suite = ElementTree.fromstring((tmp_path / "out/a.xml").read_bytes())
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("acceptance by mine", "12", "0")
    assert run("dlio-hpc", "accept", "tune", DLIO_HPC_CRITERIA="mine.yaml").code == 0


def test_junit_is_written_if_the_page_cannot_be_drawn(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_matplotlib(_: object) -> str:
        raise ConfigError("pictures need matplotlib")

    _study(tmp_path)
    monkeypatch.setattr(html_page, "render", without_matplotlib)
    for command in (("accept", "tune", "--criteria", "mine.yaml"), ("compare", "tune-1")):
        done = run("dlio-hpc", *command, "--html", "a.html", "--junit", f"{command[0]}.xml")
        assert (done.code, "pictures need matplotlib" in done.err) == (2, True)
        assert ElementTree.parse(tmp_path / f"{command[0]}.xml").getroot().get("tests")


def test_a_cached_study_is_told_what_would_help(run: Run, tmp_path: Path) -> None:
    _study(tmp_path, cached=0.5)
    done = run("dlio-hpc", "accept", "tune", "--criteria", "mine.yaml")
    assert done.code == 4
    assert "cached: 50.0 % from storage" in done.out
    assert "would defeat the cache: -S reader.drop_cache=true" in done.out


@pytest.mark.parametrize(("state", "code"), [("timeout", 7), ("node_fail", 6), ("completed", 3)])
def test_missing_measurements_have_the_code_of_their_kind(run: Run, tmp_path: Path, state: State, code: int) -> None:
    _study(tmp_path, lost=((1, 2),), state=state)
    done = run("dlio-hpc", "accept", "tune", "--criteria", "mine.yaml", "--junit", "a.xml")
    assert done.code == code, done.out
    kinds = {child.get("type") for child in ElementTree.parse(tmp_path / "a.xml").iter("error")}
    assert kinds == {{7: "timeout", 6: "infrastructure", 3: "invalid"}[code]}


def test_jobs_that_nobody_has_are_missing(run: Run, tmp_path: Path) -> None:
    _study(tmp_path)
    shutil.rmtree(tmp_path / "dlio-runs" / "tune-2")
    done = run("dlio-hpc", "accept", "tune", "--criteria", "mine.yaml")
    assert done.code == 7
    assert "3 x nodes=" in done.out


def test_bad_input_is_told(run: Run, tmp_path: Path) -> None:
    _study(tmp_path)
    assert run("dlio-hpc", "accept", "tune").code == 2
    unknown = run("dlio-hpc", "accept", "tune", "--criteria", "strict")
    assert unknown.code == 2
    assert (
        "give a YAML file or one of: acceptance, checkpointing, interference, kv_cache, metadata, mlperf_storage_v2, "
        "mlperf_storage_v3, mlperf_storage_v3_kv_cache, nightly" in unknown.err
    )
    assert run("dlio-hpc", "accept", "nothing", "--criteria", "mine.yaml").code == 2


@pytest.mark.job
def test_a_real_job_from_its_submission_to_its_acceptance(run: Run, tmp_path: Path) -> None:
    """With O_DIRECT all bytes come from the storage, whatever is in memory. On tmpfs they cannot."""
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ncriteria:\n"
        "  rate: {workload: demo, min_samples_per_s: 0.001, max_read_p99: 1h, all_runs: true}\n"
        "  runs: {warmups: 1, measured_runs: 2, gaps: shorter than a run, optional: true}\n"
        "  elsewhere: {separate_results_fs: true}\n"
    )
    options = ("-S", "reader.direct=true", "-S", "compute.time=100ms", "--ppn", 2, "--dataset-size", "8MiB")
    done = run("dlio-submit", "demo", "-s", "local", *options, "--warmup", 1, "--repeat", 2, "--wait", "--json")
    job = done.job["job"]
    judged = run("dlio-hpc", "accept", job, "--criteria", "mine.yaml", "--json")
    checks = {check["key"] or check["criterion"]: check for check in judged.json["checks"]}
    of_memory = filesystem.of(tmp_path).kind in ("tmpfs", "ramfs")
    assert checks["storage"]["outcome"] == ("cached" if of_memory else "pass"), checks["storage"]
    assert judged.code == (4 if of_memory else 1)
    assert checks["separate_results_fs"]["outcome"] == "fail", "both are in this folder"
    assert checks["warmups"]["outcome"] == checks["measured_runs"]["outcome"] == "pass"
    if not of_memory:
        assert checks["min_samples_per_s"]["outcome"] == "pass"
        assert [item["job"] for item in checks["max_read_p99"]["evidence"]] == [job, job]
    assert checks["gaps"]["value"] > 0


@pytest.mark.parametrize(
    ("setting", "code"), [("reader.direct=true", 0), ("reader.drop_cache=true", 0), ("reader.direct=false", 4)]
)
def test_what_was_just_written_is_cached_unless_it_is_passed_or_dropped(
    run: Run, small: Path, tmp_path: Path, setting: str, code: int
) -> None:
    if filesystem.of(tmp_path).kind not in storage_proofs.COUNTED:
        pytest.skip("nobody counts on this file system")
    keys = ("-S", "dataset.sample={bytes: 1 MiB}", "-S", "reader.mode=posix", "-S", setting)
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, *keys, "--wait", "--json")
    (tmp_path / "mine.yaml").write_text("name: mine\ncriteria: {steps: {min_steps: 1}}\n")
    judged = run("dlio-hpc", "accept", done.job["job"], "--criteria", "mine.yaml")
    assert judged.code == code, judged.out
    assert ("would defeat the cache: -S reader.direct=true" in judged.out) == (code == 4)


def test_runs_that_differ_more_than_the_nights_of_a_quiet_site_count() -> None:
    quiet = NightSpread(0.002, 30, "site")
    wild = night_intervals.of_levels([np.log([60.0, 100.0, 101.0])], quiet)
    assert wild.sd > 0.1
    assert night_intervals.of_levels([np.log([100.0, 100.1, 99.9])], quiet) == quiet
