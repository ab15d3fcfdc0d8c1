"""The rates of wrong outcomes of acceptance tests whose truth is known. Measurements are drawn with a seed and judged
like those of jobs: `python -m tests.bench acceptance`.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.verdict import acceptance, performance_criteria
from dlio_hpc.verdict.criteria_file import Criterion
from dlio_hpc.verdict.criterion_result import Check
from dlio_hpc.verdict.history_entry import Entry
from tests.bench.study_rates import Noise
from tests.support import nights

_TRUTH = 1000.0
# True scaling efficiency. It is below 1, so that a limit can be above it.
_EFFICIENCY = 0.7
# Statements about a limit that the true value misses by 5 %, and about limits that it exceeds by 5 % and by 15 %.
_MISSED, _EXCEEDED, _FAR_EXCEEDED = "missed by 5 %", "exceeded by 5 %", "exceeded by 15 %"
_FACTORS = {_MISSED: 1 / 0.95, _EXCEEDED: 1 / 1.05, _FAR_EXCEEDED: 1 / 1.15}
NIGHTS, REPEATS = (1, 3, 5, 8), (1, 2, 3, 5, 10)

Array = np.ndarray[Any, Any]


class Sampled(NamedTuple):
    """A measurement on several nights. noise: of a run. between: standard deviation of the logarithms of the levels of
    jobs; a night has a job of each scale. is_scaling: whether the scaling efficiency of two scales is judged, instead
    of a rate.
    """

    nights: int
    repeats: int
    noise: Noise
    between: float
    is_scaling: bool = False


CELLS = {
    "nights 5 %, runs 2 %": (Noise("normal", 0.02), 0.05),
    "nights 2 %, runs 2 %": (Noise("normal", 0.02), 0.02),
    "nights 0 %, runs 2 %": (Noise("normal", 0.02), 0.0),
    "nights 5 %, runs lognormal 10 %": (Noise("lognormal", 0.10), 0.05),
    "nights 5 %, runs 2 %, 1 in 20 half as fast": (Noise("slow runs", 0.02), 0.05),
}  # fmt: skip


def rates(cell: Sampled, draws: int, seed: int = 1) -> dict[str, float]:
    """Return the share of draws in which each statement holds: accepted (limit missed by 5 %), rejected (limit exceeded
    by 5 %), accepted far (limit exceeded by 15 %), inconclusive (limit missed by 5 %), and interval holds.
    """
    random = np.random.default_rng([seed, cell.nights, cell.repeats])
    truth = _EFFICIENCY if cell.is_scaling else _TRUTH
    factors = np.array([1.0, _EFFICIENCY][: 1 + cell.is_scaling])[:, None, None]
    criteria = {name: _limit(cell, truth * factor) for name, factor in _FACTORS.items()}
    counts = Counter(dict.fromkeys(("accepted", "rejected", "accepted far", "inconclusive", "interval holds"), 0))
    for _ in range(draws):
        shared = cell.between * random.standard_normal((len(factors), cell.nights, 1))
        logs = shared + cell.noise.draw(random, len(factors), cell.nights, cell.repeats)
        checks = _checks(criteria, _jobs(_TRUTH * factors * np.exp(logs)))
        counts["accepted"] += checks[_MISSED].outcome == "pass"
        counts["rejected"] += checks[_EXCEEDED].outcome == "fail"
        counts["accepted far"] += checks[_FAR_EXCEEDED].outcome == "pass"
        counts["inconclusive"] += checks[_MISSED].outcome == "inconclusive"
        low, high = checks[_MISSED].low, checks[_MISSED].high
        counts["interval holds"] += low is not None and high is not None and low <= truth <= high
    return {statement: count / draws for statement, count in counts.items()}


def _checks(criteria: Mapping[str, Criterion], entries: Sequence[Entry]) -> dict[str, Check]:
    """Return the check of each criterion for the measurement on the most nodes. Each criterion sets one limit."""
    groups = acceptance.grouped(entries)
    largest = max(groups, key=lambda group: group.key.nodes)
    return {
        name: next(performance_criteria.checks(name, criterion, largest, groups))
        for name, criterion in criteria.items()
    }


def _limit(cell: Sampled, limit: float) -> Criterion:
    return (
        Criterion(min_scaling_efficiency=units.LeastShare(limit))
        if cell.is_scaling
        else Criterion(min_samples_per_s=limit)
    )


def _jobs(per_rank: Array) -> list[Entry]:
    """Return a job for each scale and night. per_rank: samples/s per rank, of shape (scales, nights, repeats). A scale
    has twice as many nodes as that before.
    """
    jobs = []
    for scale, of_scale in enumerate(per_rank.tolist()):
        key = structs.replace(nights.KEY, nodes=2**scale)
        for night, values in enumerate(of_scale):
            job = nights.entry(night, [2**scale * value for value in values], key, job=f"job-{scale}-{night}")
            runs = tuple(structs.replace(run, repeat=100 * night + run.repeat) for run in job.measurements)
            jobs.append(structs.replace(job, study="study", measurements=runs))
    return jobs


def spread_rates(repeats: int, noise: float, limit: float, draws: int, seed: int = 1) -> dict[str, float]:
    """Return the share of each outcome of max_spread. repeats: runs of one job, normally distributed."""
    random = np.random.default_rng([seed, repeats])
    criteria = {"spread": Criterion(max_spread=units.Share(limit))}
    counts: Counter[str] = Counter()
    for _ in range(draws):
        values = _TRUTH * (1 + noise * random.standard_normal((1, 1, repeats)))
        counts[_checks(criteria, _jobs(values))["spread"].outcome] += 1
    return {outcome: counts[outcome] / draws for outcome in ("fail", "inconclusive", "pass")}


def bench(draws: int = 1000) -> None:
    """Print the rates as tables in Markdown."""
    print(f"\n{draws} draws of each row. The true value misses the first limit by 5 %, exceeds the second by 5 %, and "
          "exceeds the third by 15 %.\n")  # fmt: skip
    _print_row(
        "truth", "nights", "repeats", "first accepted", "second rejected", "interval holds", "first inconclusive",
        "third accepted",
    )  # fmt: skip
    statements = ("accepted", "rejected", "interval holds", "inconclusive", "accepted far")
    for (name, (noise, between)), is_scaling in itertools.product(CELLS.items(), (False, True)):
        for count, repeats in itertools.product(NIGHTS, REPEATS):
            shares = rates(Sampled(count, repeats, noise, between, is_scaling), draws)
            label = f"{name}, scaling" if is_scaling else name
            _print_row(label, count, repeats, *(_percent(shares[statement]) for statement in statements))
    print("\nmax_spread: 10%\n")
    _print_row("noise of runs", "repeats", "fail", "inconclusive", "pass")
    for noise_sd, repeats in itertools.product((0.02, 0.03, 0.043, 0.06, 0.09), (3, 5, 10, 20)):
        _print_row(_percent(noise_sd), repeats, *map(_percent, spread_rates(repeats, noise_sd, 0.1, draws).values()))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
