"""Regression test. The outcome, its wording and advice are derived from the difference between a job and its reference,
and from the confidence interval of this difference.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dlio_hpc.analysis import robust
from dlio_hpc.analysis.robust import Difference, RepeatNoise
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import trend
from dlio_hpc.verdict.change_detection import FEWEST
from dlio_hpc.verdict.trend import Night, Shift, Trend

# Largest number of repeats that advice asks for. If more are needed, the advice is a larger tolerance.
_MOST_REPEATS = 50
# Upper limit, in percent, of the tolerances that advice suggests.
_WIDEST = 50


def outcome_of(difference: Difference, tolerance: float) -> Outcome:
    """Return the outcome for a difference between logarithms of a metric. The outcome is `inconclusive` in two cases.
    Either the noise is unknown, or the difference is compatible both with mere noise and with a drop beyond the
    tolerance.
    """
    if difference.low is None or difference.high is None or difference.half is None:
        return "inconclusive"
    ratio, low, high = (math.exp(end) for end in (difference.value, difference.low, difference.high))
    if ratio < 1 - tolerance:
        return "regression" if high < 1 else "inconclusive"
    if ratio > 1 + tolerance and low > 1:
        return "improved"
    return "inconclusive" if difference.half > tolerance and low < 1 - tolerance else "pass"


class Weighed(NamedTuple):
    """Result of a comparison with a reference. outcome: the outcome in view of the history. alone: the outcome if only
    the job's repeats are compared with those of the reference, without the history. shift: the largest drop in the
    history after the reference. It is None if there was no such drop, or if the drop does not affect the outcome.
    """

    outcome: Outcome
    alone: Outcome
    difference: Difference
    noise: RepeatNoise | None
    trend: Trend
    shift: Shift | None


def weigh(
    nights: Sequence[Night], reference: Night, metric: MetricName, tolerance: float, is_same_key: bool = True
) -> Weighed:
    """Compare the last item of `nights`, the job to judge, with `reference`. nights: one Night for each job in the
    history, oldest first, followed by the Night of the job to judge. reference: the Night of the reference. A Night
    holds the repeats of a job. is_same_key: whether the measurement keys of job and reference are equal. If they are
    equal, a drop in the history after the reference also makes the outcome a regression.
    """
    noise = trend.noise(nights[:-1], metric)
    difference = robust.difference(trend.logs(nights[-1].values, metric), trend.logs(reference.values, metric), noise)
    alone, history = outcome_of(difference, tolerance), trend.of(nights, metric)
    shift = (
        _largest_drop(history, reference, metric, difference, tolerance)
        if is_same_key and alone != "improved"
        else None
    )
    return Weighed("regression" if shift else alone, alone, difference, noise, history, shift)


def _largest_drop(
    history: Trend, reference: Night, metric: MetricName, difference: Difference, tolerance: float
) -> Shift | None:
    """Return the largest drop in the history after `reference`. Return None if the level did not fall by more than the
    tolerance since the reference. Also return None if the last job has recovered: it is within the tolerance of the
    reference, and better than the level after the drop by more than the noise.
    """
    since = history.place(reference.job)
    if since is None:
        since = min(sum(night.ended <= reference.ended for night in history.nights), len(history.nights) - 1)
    later = [shift for shift in history.shifts if (history.place(shift.to) or 0) > since]
    level = (history.levels[-1] / history.levels[since]) ** (1.0 if METRICS[metric].is_higher_better else -1.0)
    if not later or level >= 1 - tolerance:
        return None
    is_within = difference.value >= math.log(1 - tolerance)
    has_recovered = is_within and difference.low is not None and math.exp(difference.low) > level
    return None if has_recovered else min(later, key=lambda shift: shift.ratio)


def percent(ratio: float) -> str:
    """Return a ratio as a phrase, such as "5.2 % worse". Return "as good" if the ratio is close to 1."""
    change = 100 * (ratio - 1)
    if abs(change) < 0.05:
        return "as good"
    return f"{abs(change):.1f} % {'better' if change > 0 else 'worse'}"


def signed(ratio: float) -> str:
    """Return a ratio as a signed change, such as "-5.2 %"."""
    return f"{100 * (ratio - 1):+.1f} %"


def changes_sentence(history: Trend) -> str:
    """Return the changes in the history as a sentence."""
    clause = changes_words(history)
    return f"{clause[0].upper()}{clause[1:]}."


def changes_words(history: Trend) -> str:
    """Return the changes in the history as a clause."""
    count = len(history.nights)
    if history.shifts:
        return f"over {count} nights: {'; '.join(map(shift_words, history.shifts))}"
    if count < FEWEST:
        return f"too few nights to detect a change: {count} of {FEWEST}"
    return f"no change is detected over {count} nights"


def shift_words(shift: Shift) -> str:
    """Return a description of a change. It names the job at which the change starts and, for a drift, the job at which
    it ends.
    """
    if shift.kind == "step":
        return f"{percent(shift.ratio)} since {shift.since} ({shift.ended[:10]})"
    return f"drifted, {percent(shift.ratio)} from {shift.since} ({shift.ended[:10]}) to {shift.to}"


def sentence(weighed: Weighed, name: str, here: Night, tolerance: float) -> str:
    """Return a sentence that states the result of a comparison. name: name of the reference."""
    difference = weighed.difference
    by_itself = f"{percent(math.exp(difference.value))} than {name}".replace("as good than", "as good as")
    if difference.low is None or difference.high is None:
        whose = "of this job" if len(here.values) < robust.FEWEST else "of the reference"
        by_itself += f", but the noise is unknown: too few repeats {whose}, and too short a history"
    else:
        by_itself += f" ({signed(math.exp(difference.low))} to {signed(math.exp(difference.high))})"
        if weighed.alone == "inconclusive" and abs(difference.value) > tolerance:
            by_itself += ", which may be noise"
    if weighed.shift is None:
        return by_itself
    return f"{shift_words(weighed.shift)}; {'' if weighed.alone == 'regression' else 'this job alone: '}{by_itself}"


def advice(
    difference: Difference, here: Night, reference: Night, noise: RepeatNoise | None, tolerance: float
) -> list[str]:
    """Return advice on how to make the verdict conclusive, one item per line."""
    if difference.half is None:
        return ["use --repeat 3 or more for both jobs, or compare with a history of at least five nights"]
    least = math.ceil(1000 * difference.half) / 10
    allowed = [f"--tolerance {least:g}% or more is needed with this noise"] if least < _WIDEST else []
    nights = 0.0 if noise is None else robust.t_quantile(noise.df) * math.sqrt(2) * noise.sd
    count = min(len(here.values), len(reference.values))
    needed = math.ceil(count * (difference.half / tolerance) ** 2)
    if nights > tolerance:
        differ = 100 * math.expm1(noise.sd if noise else 0)
        return [f"more repeats do not help: results differ by {differ:.1f} % from night to night", *allowed]
    if needed > _MOST_REPEATS:
        return allowed or ["the noise is too large for any tolerance; make longer runs on a less busy machine"]
    return [f"--repeat {max(needed, count + 1)} for both jobs would detect a drop of {100 * tolerance:g} %", *allowed]
