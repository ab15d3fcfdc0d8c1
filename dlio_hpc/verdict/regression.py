"""What numbers say: a difference with its interval as an outcome, in words, and with what would help."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dlio_hpc.analysis import robust
from dlio_hpc.analysis.robust import Difference, Noise
from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.verdict import trend
from dlio_hpc.verdict.change_detection import FEWEST
from dlio_hpc.verdict.trend import Night, Shift, Trend

# So many repeats nobody makes; then another tolerance is the advice.
_MOST_REPEATS = 50
# Percent; a tolerance of half says nothing.
_WIDEST = 50


def outcome_of(found: Difference, tolerance: float) -> Outcome:
    """The outcome of a difference of logarithms. inconclusive: noise explains the difference, and a drop beyond the
    tolerance cannot be excluded.
    """
    if found.low is None or found.high is None or found.half is None:
        return "inconclusive"
    ratio, low, high = (math.exp(each) for each in (found.value, found.low, found.high))
    if ratio < 1 - tolerance:
        return "regression" if high < 1 else "inconclusive"
    if ratio > 1 + tolerance and low > 1:
        return "improved"
    return "inconclusive" if found.half > tolerance and low < 1 - tolerance else "pass"


class Weighed(NamedTuple):
    """alone: the outcome of the repeats by themselves. shift: by which the level fell since the reference; None where
    it did not.
    """

    outcome: Outcome
    alone: Outcome
    difference: Difference
    noise: Noise | None
    trend: Trend
    shift: Shift | None


def weigh(nights: Sequence[Night], there: Night, metric: MetricName, tolerance: float, is_like: bool = True) -> Weighed:
    """The last of these nights against the reference `there`. is_like: their keys are alike, so the history counts."""
    noise = trend.noise(nights[:-1], metric)
    found = robust.difference(trend.logs(nights[-1].values, metric), trend.logs(there.values, metric), noise)
    alone, seen = outcome_of(found, tolerance), trend.of(nights, metric)
    shift = _fallen(seen, there, metric, found, tolerance) if is_like and alone != "improved" else None
    return Weighed("regression" if shift else alone, alone, found, noise, seen, shift)


def _fallen(seen: Trend, there: Night, metric: MetricName, found: Difference, tolerance: float) -> Shift | None:
    """The shift by which the level fell beyond the tolerance since the reference; None where it did not, or where this
    job has plainly left that level again.
    """
    since = seen.place(there.job)
    if since is None:
        since = min(sum(night.ended <= there.ended for night in seen.nights), len(seen.nights) - 1)
    later = [shift for shift in seen.shifts if (seen.place(shift.to) or 0) > since]
    level = (seen.levels[-1] / seen.levels[since]) ** (1.0 if METRICS[metric].is_higher_better else -1.0)
    if not later or level >= 1 - tolerance:
        return None
    is_good = found.value >= math.log(1 - tolerance)
    has_left = is_good and found.low is not None and math.exp(found.low) > level
    return None if has_left else min(later, key=lambda shift: shift.ratio)


def percent(ratio: float) -> str:
    """Of how many times as good: "5.2 % worse"."""
    change = 100 * (ratio - 1)
    if abs(change) < 0.05:
        return "as good"
    return f"{abs(change):.1f} % {'better' if change > 0 else 'worse'}"


def signed(ratio: float) -> str:
    """Likewise: "-5.2 %"."""
    return f"{100 * (ratio - 1):+.1f} %"


def changes_sentence(history: Trend) -> str:
    """The clause of changes_words() as a sentence. Names of jobs keep their capitals."""
    clause = changes_words(history)
    return f"{clause[0].upper()}{clause[1:]}."


def changes_words(history: Trend) -> str:
    """A clause on the changes over the nights of a key."""
    count = len(history.nights)
    if history.shifts:
        return f"over {count} nights: {'; '.join(map(shift_words, history.shifts))}"
    if count < FEWEST:
        return f"too few nights to detect a change: {count} of {FEWEST}"
    return f"no change is detected over {count} nights"


def shift_words(shift: Shift) -> str:
    if shift.kind == "step":
        return f"{percent(shift.ratio)} since {shift.since} ({shift.ended[:10]})"
    return f"drifted, {percent(shift.ratio)} from {shift.since} ({shift.ended[:10]}) to {shift.to}"


def words(told: Weighed, name: str, here: Night, tolerance: float) -> str:
    """name: of the reference."""
    found = told.difference
    by_itself = f"{percent(math.exp(found.value))} than {name}".replace("as good than", "as good as")
    if found.low is None or found.high is None:
        few = "so few repeats" if len(here.values) < robust.FEWEST else "so few repeats of the reference"
        by_itself += f", but {few} tells no noise, nor does the history"
    else:
        by_itself += f" ({signed(math.exp(found.low))} to {signed(math.exp(found.high))})"
        if told.alone == "inconclusive" and abs(found.value) > tolerance:
            by_itself += ", which may be chance"
    if told.shift is None:
        return by_itself
    return f"{shift_words(told.shift)}; {'' if told.alone == 'regression' else 'by itself '}{by_itself}"


def advice(found: Difference, here: Night, there: Night, noise: Noise | None, tolerance: float) -> list[str]:
    """What would make a verdict possible."""
    if found.half is None:
        return ["--repeat 3 or more, for both; or five nights of history"]
    least = math.ceil(1000 * found.half) / 10
    allowed = [f"--tolerance {least:g}% is what this noise allows"] if least < _WIDEST else []
    nights = 0.0 if noise is None else robust.t_quantile(noise.df) * math.sqrt(2) * noise.sd
    count = min(len(here.values), len(there.values))
    needed = math.ceil(count * (found.half / tolerance) ** 2)
    if nights > tolerance:
        differ = 100 * math.expm1(noise.sd if noise else 0)
        return [f"more repeats do not help, nights differ by {differ:.1f} %", *allowed]
    if needed > _MOST_REPEATS:
        return allowed or ["longer runs, on a quieter machine: no tolerance allows for so much noise"]
    return [f"--repeat {max(needed, count + 1)}, for both, would tell {100 * tolerance:g} %", *allowed]
