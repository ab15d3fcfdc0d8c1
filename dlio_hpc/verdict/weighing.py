"""What numbers say: a difference with its interval as an outcome, in words, and with what would help."""

import math
from typing import Literal

from dlio_hpc.analysis import robust
from dlio_hpc.analysis.robust import Difference, Noise
from dlio_hpc.verdict.trend import Night, Shift

Outcome = Literal[
    "INVALID", "infrastructure", "incomplete", "CACHED", "regression", "noisy", "not comparable", "improved", "fine"
]
# The worst first.
EXIT_CODES: dict[Outcome, int] = {
    "INVALID": 3, "infrastructure": 6, "incomplete": 7, "CACHED": 4, "regression": 1, "noisy": 5, "not comparable": 2,
    "improved": 0, "fine": 0,
}  # fmt: skip
# So many repeats nobody makes; then another tolerance is the advice.
_MOST_REPEATS = 50


def outcome_of(found: Difference, tolerance: float) -> Outcome:
    """Of a difference of logarithms. noisy: what is seen may be chance, but a drop beyond the tolerance may be, too."""
    if found.low is None or found.high is None or found.half is None:
        return "noisy"
    ratio, low, high = (math.exp(each) for each in (found.value, found.low, found.high))
    if ratio < 1 - tolerance:
        return "regression" if high < 1 else "noisy"
    if ratio > 1 + tolerance and low > 1:
        return "improved"
    return "noisy" if found.half > tolerance and low < 1 - tolerance else "fine"


def percent(ratio: float) -> str:
    """Of how many times as good: "5.2 % worse"."""
    change = 100 * (ratio - 1)
    if abs(change) < 0.05:
        return "as good"
    return f"{abs(change):.1f} % {'better' if change > 0 else 'worse'}"


def signed(ratio: float) -> str:
    """Likewise: "-5.2 %"."""
    return f"{100 * (ratio - 1):+.1f} %"


def shift_words(shift: Shift) -> str:
    if shift.kind == "step":
        return f"{percent(shift.ratio)} since {shift.since} ({shift.ended[:10]})"
    return f"drifted, {percent(shift.ratio)} from {shift.since} ({shift.ended[:10]}) to {shift.to}"


def words(found: Difference, outcome: Outcome, name: str, here: Night, tolerance: float) -> str:
    """name: of the reference."""
    told = f"{percent(math.exp(found.value))} than {name}".replace("as good than", "as good as")
    if found.low is None or found.high is None:
        few = "one repeat" if len(here.values) == 1 else "one repeat of the reference"
        return f"{told}, but {few} tells no noise, nor does the history"
    interval = f"{told} ({signed(math.exp(found.low))} to {signed(math.exp(found.high))})"
    return f"{interval}, which may be chance" if outcome == "noisy" and abs(found.value) > tolerance else interval


def advice(found: Difference, here: Night, there: Night, noise: Noise | None, tolerance: float) -> list[str]:
    """What would make a verdict possible."""
    if found.half is None:
        return ["--repeat 3 or more, for both; or five nights of history"]
    allowed = f"--tolerance {math.ceil(1000 * found.half) / 10:g}% is what this noise allows"
    nights = 0.0 if noise is None else robust.t_quantile(noise.df) * math.sqrt(2) * noise.sd
    count = min(len(here.values), len(there.values))
    needed = math.ceil(count * (found.half / tolerance) ** 2)
    if nights > tolerance:
        return [
            f"more repeats do not help, nights differ by {100 * math.expm1(noise.sd if noise else 0):.1f} %",
            allowed,
        ]
    if needed > _MOST_REPEATS:
        return [allowed]
    return [f"--repeat {max(needed, count + 1)}, for both, would tell {100 * tolerance:g} %", allowed]
