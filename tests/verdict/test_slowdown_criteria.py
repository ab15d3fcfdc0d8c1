"""Limits on the slowdown of a load by other loads, on entries of the history with made-up rates."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.verdict import acceptance
from dlio_hpc.verdict.criteria_file import Criteria, Criterion
from dlio_hpc.verdict.criterion_result import Check
from dlio_hpc.verdict.history_entry import Entry, Measurement
from tests.support.judged import KEY, entry, run

_ALONE, _TOGETHER = "train: alone, of 2 x 8 ranks", "train: with storm, of 2 x 8 ranks"


def _job(
    alone: Sequence[float], together: Sequence[float], metric: str = "common_samples_per_s", **constant: float
) -> Entry:
    """Return a job with a run alone and a run together for each repeat. constant: metrics that all runs have."""
    runs: list[Measurement] = []
    for mix, values in ((_ALONE, alone), (_TOGETHER, together)):
        for repeat, value in enumerate(values):
            number = len(runs) + 1
            made = run(number, begins=61.0 * number, key=structs.replace(KEY, mix=mix))
            title = "train: mix=alone" if mix == _ALONE else "train: mix=with storm"
            runs.append(structs.replace(made, repeat=repeat, title=title, metrics={metric: value, **constant}))
    return entry(runs)


def _checks(job: Entry, **limits: Any) -> list[Check]:
    criteria = Criteria(name="shared", night_spread=units.Share(0.0), criteria={"mine": Criterion(**limits)})
    return [check for check in acceptance.judge(criteria, [job]).checks if check.key in limits]


def test_each_run_is_compared_with_the_run_alone_in_the_same_repeat() -> None:
    """The rates drift by a factor of three, the slowdown does not."""
    levels = (100.0, 200.0, 300.0)
    job = _job(levels, [level / (2 + 0.01 * number) for number, level in enumerate(levels)])
    (check,) = _checks(job, max_slowdown=2.5)
    assert check.outcome == "pass", check.text
    assert check.value == pytest.approx(2.01, abs=0.001)
    assert check.value is not None
    assert check.low is not None
    assert check.high is not None
    assert 1.9 < check.low < check.value < check.high < 2.1
    assert check.group.startswith("train: mix=with storm")
    assert check.asked == "slowdown by other loads <= 2.5 x"
    (check,) = _checks(job, max_slowdown=1.5)
    assert check.outcome == "fail"


def test_latencies_are_slowed_down_if_they_grow() -> None:
    job = _job([0.010, 0.011, 0.009], [0.031, 0.032, 0.028], "read_p99_s")
    (check,) = _checks(job, max_p99_slowdown=2.0)
    assert check.outcome == "fail"
    assert check.value == pytest.approx(3.1)  # the median
    assert [item.text for item in check.evidence] == ["3.1 x", "2.909 x", "3.111 x"]


def test_the_most_slowed_phase_counts() -> None:
    """The first phase is not slowed down, a later one is."""
    job = _job([900.0, 1000.0, 1100.0], [300.0, 310.0, 330.0], "stat_per_s", create_per_s=50.0)
    (check,) = _checks(job, max_slowdown=2.0)
    assert check.outcome == "fail"
    assert check.value == pytest.approx(3.226, abs=0.001)
    assert "stat/s, the most slowed" in check.asked


def test_inference_is_slowed_down_if_first_tokens_come_later() -> None:
    """Its blocks are read at the same rate and in the same time, but wait."""
    job = _job([0.2, 0.21, 0.22], [0.61, 0.62, 0.66], "ttft_p99_s", kv_read_p99_s=0.002, kv_read_MBps=1000.0)
    (check,) = _checks(job, max_p99_slowdown=2.0)
    assert check.outcome == "fail"
    assert check.value == pytest.approx(3.0)
    (check,) = _checks(job, max_slowdown=2.0)
    assert check.outcome == "pass"


def test_a_quantile_that_other_loads_make_unknown_is_no_pass() -> None:
    """Together, so many requests are not served that their p99 is unknown."""
    job = _job([0.2, 0.21, 0.22], [9.0, 9.1, 9.2], "ttft_p99_s", kv_read_p99_s=0.002)
    for lacking in (1, 3):
        together = [one for one in job.measurements if one.key.mix == _TOGETHER][:lacking]
        runs = [
            structs.replace(one, metrics={"kv_read_p99_s": 0.002}) if one in together else one
            for one in job.measurements
        ]
        (check,) = _checks(structs.replace(job, measurements=tuple(runs)), max_p99_slowdown=2.0)
        assert check.outcome == "fail"
        assert f"missing in {lacking} run" in check.text


def test_a_limit_is_inconclusive_within_the_interval_and_for_a_single_pair() -> None:
    (check,) = _checks(_job([100.0, 100.0, 100.0], [60.0, 50.0, 40.0]), max_slowdown=2.0)
    assert check.outcome == "inconclusive"
    (check,) = _checks(_job([100.0], [50.0]), max_slowdown=3.0)
    assert check.outcome == "inconclusive"


def test_a_slowdown_without_its_run_alone_is_not_accepted() -> None:
    (check,) = _checks(_job([100.0, 100.0], [50.0, 50.0, 50.0]), max_slowdown=3.0)
    assert check.outcome == "fail"
    assert "missing in 1 run of 3" in check.text


def test_a_limit_applies_to_no_run_without_other_loads() -> None:
    plain = entry([run(number, begins=61.0 * number) for number in (1, 2, 3)])
    (check,) = _checks(plain, max_slowdown=3.0)
    assert check.outcome == "fail"
    assert "applies to no measured run" in check.text


@pytest.mark.parametrize(
    ("limit", "metric", "requests", "outcome"),
    [
        ("max_ttft_p99", "ttft_p99_s", 100, "pass"),
        ("max_ttft_p99", "ttft_p99_s", 99, "inconclusive"),
        ("max_ttft_p95", "ttft_p95_s", 20, "pass"),
        ("max_ttft_p95", "ttft_p95_s", 19, "inconclusive"),
        ("max_ttft_p50", "ttft_p50_s", 3, "pass"),
    ],
)
def test_a_quantile_of_few_requests_meets_no_limit(limit: str, metric: str, requests: int, outcome: str) -> None:
    """One of three runs has few requests. A limit that is not met is not met all the same."""
    runs = [
        structs.replace(run(number, begins=61.0 * number, metrics={metric: 0.2}), requests=requests + 50 * (number % 3))
        for number in (1, 2, 3)
    ]
    (check,) = _checks(entry(runs), **{limit: units.Seconds(10)})
    assert check.outcome == outcome, check.text
    (check,) = _checks(entry(runs), **{limit: units.Seconds(0.01)})
    assert check.outcome == "fail"
