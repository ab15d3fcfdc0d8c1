"""The rates of wrong outcomes of acceptance tests whose truth is known. Measurements are drawn with a seed and judged
like those of jobs: `python -m tests.bench acceptance`.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from msgspec import structs

from dlio_hpc import units
from dlio_hpc.verdict import acceptance
from dlio_hpc.verdict.criteria_file import Criteria, Criterion
from dlio_hpc.verdict.history_entry import Entry
from tests import nights
from tests.bench.study_rates import Noise

_TRUTH = 1000.0
# A limit that the true level misses by 5 %, one that it exceeds by 5 %, and one that it exceeds by 15 %.
_LIMITS = {"missed by 5 %": _TRUTH / 0.95, "exceeded by 5 %": _TRUTH / 1.05, "exceeded by 15 %": _TRUTH / 1.15}
NIGHTS, REPEATS = (1, 3, 5, 8), (3, 5, 10)


class Sampled(NamedTuple):
    """A measurement on several nights. noise: of a run. between: standard deviation of the levels of nights. ranks: 0
    for a rate of samples/s; otherwise the scaling efficiency of two scales, each with a job a night, is judged.
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
    """Return the share of draws in which each statement holds."""
    random = np.random.default_rng([seed, cell.nights, cell.repeats])
    criteria = _criteria(cell.is_scaling)
    counts: Counter[str] = Counter()
    for _ in range(draws):
        sides = 2 if cell.is_scaling else 1
        shared = cell.between * random.standard_normal((sides, cell.nights, 1))
        logs = shared + cell.noise.draw(random, sides, cell.nights, cell.repeats)
        accepted = acceptance.judge(criteria, _jobs(_TRUTH * np.exp(logs)))
        checks = {check.criterion: check for check in accepted.checks if check.metric}
        for name, check in checks.items():
            counts[f"{name}: {check.outcome}"] += 1
        check = checks["missed by 5 %"]
        truth = 1.0 if cell.is_scaling else _TRUTH
        # Scaling efficiency is limited to 100 %, so its limits are those of a rate.
        counts["interval holds"] += check.low is not None and check.high is not None and check.low <= truth <= check.high
        counts["inconclusive"] += check.outcome == "inconclusive"
    return {statement: count / draws for statement, count in counts.items()}


def _criteria(is_scaling: bool) -> Criteria:
    limits = {name: units.Share(0.8) if is_scaling else limit for name, limit in _LIMITS.items()}
    key = "min_scaling_efficiency" if is_scaling else "min_samples_per_s"
    return Criteria(name="x", criteria={name: Criterion(**{key: limit}) for name, limit in limits.items()})


def _jobs(rates_: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> list[Entry]:
    """Return a job for each scale and night. rates_: samples/s of shape (scales, nights, repeats); a rank on each scale
    has these rates, and a scale has twice as many nodes as that before.
    """
    jobs = []
    for scale, of_scale in enumerate(rates_.tolist()):
        key = structs.replace(nights.KEY, nodes=2**scale)
        for night, values in enumerate(of_scale):
            job = nights.entry(night, [2**scale * value for value in values], key, job=f"job-{scale}-{night}")
            runs = tuple(structs.replace(run, repeat=100 * night + run.repeat) for run in job.measurements)
            jobs.append(structs.replace(job, study="study", measurements=runs))
    return jobs


def spread_rates(repeats: int, noise: float, limit: float, draws: int, seed: int = 1) -> dict[str, float]:
    """Return the share of each outcome of max_spread. repeats: runs of one job, normally distributed."""
    random = np.random.default_rng([seed, repeats])
    criteria = Criteria(name="x", criteria={"spread": Criterion(max_spread=units.Share(limit))})
    counts: Counter[str] = Counter()
    for _ in range(draws):
        values = _TRUTH * (1 + noise * random.standard_normal((1, 1, repeats)))
        (check,) = (check for check in acceptance.judge(criteria, _jobs(values)).checks if check.metric)
        counts[check.outcome] += 1
    return {outcome: count / draws for outcome, count in counts.items()}


def bench(draws: int = 1000) -> None:
    """Print the rates as tables in Markdown."""
    print(f"\n{draws} draws of each row. Limit that the true level misses by 5 %, or exceeds by 5 % or 15 %.\n")
    print("| truth | nights | repeats | wrongly accepted | wrongly rejected | interval holds | inconclusive at -5 % "
          "| accepted at +15 % |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for name, (noise, between) in CELLS.items():
        for count in NIGHTS:
            for repeats in REPEATS:
                cell = rates(Sampled(count, repeats, noise, between), draws)
                shown = ("missed by 5 %: pass", "exceeded by 5 %: fail", "interval holds", "inconclusive",
                         "exceeded by 15 %: pass")  # fmt: skip
                texts = (f"{100 * cell.get(statement, 0):.1f} %" for statement in shown)
                print(f"| {name} | {count} | {repeats} | {' | '.join(texts)} |", flush=True)
    print("\n| noise | limit | repeats | fail | inconclusive | pass |\n|---|---|---|---|---|---|")
    for noise_sd, limit in ((0.03, 0.1), (0.043, 0.1), (0.06, 0.1), (0.09, 0.1)):
        for repeats in (3, 5, 10, 20):
            spread = spread_rates(repeats, noise_sd, limit, draws)
            texts = (f"{100 * spread.get(outcome, 0):.1f} %" for outcome in ("fail", "inconclusive", "pass"))
            print(f"| {100 * noise_sd:g} % | {100 * limit:g} % | {repeats} | {' | '.join(texts)} |", flush=True)
