"""Nodes that are slower than the others in most runs."""

import pytest

from dlio_hpc.analysis.study import stragglers


def _named(rates: list[float]) -> list[str]:
    """Return the stragglers of nodes that have these rates in three runs."""
    run = {f"n{number}": rate for number, rate in enumerate(rates)}
    return [member.name for member in stragglers.members([run] * 3) if member.is_straggler]


@pytest.mark.parametrize(
    ("rates", "names"),
    [
        ([120.0, 110.0, 100.0, 90.0, 75.0], []),  # nodes differ by a tenth: four times as far is 66 %
        ([120.0, 110.0, 100.0, 90.0, 30.0], ["n4"]),
        ([100.0, 101.0, 99.0, 100.0, 75.0], ["n4"]),
        ([100.0, 101.0, 99.0, 100.0, 85.0], []),  # never less than a fifth slower
        ([100.0, 100.0, 75.0], ["n2"]),  # three nodes do not show how much nodes differ
    ],
)
def test_a_straggler_is_far_below_the_others(rates: list[float], names: list[str]) -> None:
    assert _named(rates) == names


@pytest.mark.parametrize(
    ("ratios", "is_straggler"),
    [
        ([0.7, 0.7, 0.7], True),
        ([0.7, 0.7], False),  # two runs are too few
        ([0.7, 0.7, 0.95], False),  # below nine tenths in two of three runs
        ([0.7, 0.7, 0.85, 0.95], True),
        ([0.7, 0.7, 0.95, 0.95], False),
    ],
)
def test_a_straggler_is_slow_in_three_of_four_runs(ratios: list[float], is_straggler: bool) -> None:
    runs = [{"n0": 100.0 * ratio, "n1": 100.0, "n2": 100.0} for ratio in ratios]
    slowest, *others = stragglers.members(runs)
    assert (slowest.name, slowest.is_straggler) == ("n0", is_straggler)
    assert not any(member.is_straggler for member in others)
