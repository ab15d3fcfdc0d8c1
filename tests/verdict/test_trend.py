"""Series of jobs, of which the newest and those near a reference are used."""

import math

import pytest

from dlio_hpc.verdict import run_groups, trend
from dlio_hpc.verdict.trend import Night, Trend
from tests.support import nights

_NIGHTS = [Night(f"job-{number:03}", nights.day(number), (1.0,)) for number in range(600)]


def _numbers(reference: int) -> list[int]:
    kept = trend.in_order(reversed(_NIGHTS), _NIGHTS[reference].ended)
    return [int(night.job.removeprefix("job-")) for night in kept]


def test_sixty_jobs_on_each_side_of_a_reference_are_used() -> None:
    newest = list(range(200, 600))
    assert [night.job for night in trend.in_order(_NIGHTS)] == [f"job-{number:03}" for number in newest]
    assert _numbers(100) == [*range(41, 161), *newest]
    assert _numbers(10) == [*range(71), *newest]
    assert _numbers(190) == [*range(131, 200), *newest]


def test_a_job_has_its_place() -> None:
    made = Trend(tuple(_NIGHTS[:3]), 3, (1.0,) * 3, (), ())
    assert [made.place(job) for job in ("job-000", "job-002", "job-003")] == [0, 2, None]


def test_two_nights_show_how_much_nights_differ_and_one_does_not() -> None:
    groups = [run_groups.of(nights.entry(night, [value]))[0] for night, value in enumerate([100.0, 110.0, 99.0])]
    assert trend.spread(groups[:1], "samples_per_s") is None
    two, three = (trend.spread(groups[:count], "samples_per_s") for count in (2, 3))
    assert two is not None
    assert three is not None
    up, down = math.log(110 / 100), math.log(99 / 110)
    assert two.sd == pytest.approx(abs(up) / math.sqrt(2))
    assert three.sd == pytest.approx(math.sqrt((up**2 + down**2) / 4))
    assert (two.df, three.df) == pytest.approx((2 / 3, 4 / 3))
    assert trend.spread(groups, "au") is None, "no run has this metric"
