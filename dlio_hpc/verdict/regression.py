"""Regression test. A job is compared with the nights at the level of its reference. The outcome, its sentence and
advice are derived from the change of level since the reference, and from the interval of the difference.
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis import students_t
from dlio_hpc.base.units import counted
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.results.metrics import MetricName
from dlio_hpc.verdict import change_detection, outlying_runs, trend, variation
from dlio_hpc.verdict.change_detection import Alarm, Course
from dlio_hpc.verdict.level_estimates import CourseSpread, Labels
from dlio_hpc.verdict.trend import Followed, Night, Shift, Trend
from dlio_hpc.verdict.variation import ASSUMED, NightSpread, NoiseSource

# Largest relative drop that is no regression, unless the user or a suite gives another.
TOLERANCE = 0.02
# Probability that the true difference is below the interval of a difference, and that it is above the interval.
TAIL = 0.05
# The newest nights that are compared are so many that half of the interval's width is this share of the tolerance.
_PRECISE = 0.7
# Number of nights before a comparison relies on the nights of the measurement itself. Until then, a normal deviate of
# this size is a regression: 1 in 100 by chance.
FEWEST, _FIRST_DEVIATE = 5, 2.4
# Expected number of regressions a night that happen by chance, of all measurements of a site together.
_MOST_A_NIGHT = 0.1
# A reference belongs to the level after a change that begins at most this number of nights after it, if it resembles
# that level more.
_MISDATED = 5
# Number of nights for which a drop must have lasted before the reference, so that the reference accepts it.
_ACCEPTED = 2
# Smallest number of times a year that is stated. Nights in production deviate more often than models say.
_RAREST = 0.1
# A drop has been made up for if the level comes back to this part of the one before it.
_RECOVERED = 0.97
# The newest nights are in doubt from this normal deviate, and the largest number of such nights.
_DOUBTFUL, _NEWEST = 2.0, 3
# Outcomes that state a difference.
_DIFFERENT: tuple[Outcome, ...] = ("regression", "improved")
# Largest number of nights that advice asks for, and upper limit, in percent, of the tolerances that advice suggests.
_MOST_NIGHTS, _WIDEST = 60, 50


class LevelDifference(NamedTuple):
    """Difference of two levels, as a logarithm. low, high: ends of its 90 % interval."""

    value: float
    low: float
    high: float

    @property
    def half(self) -> float:
        """Half of the interval's width."""
        return (self.high - self.low) / 2


class Doubt(NamedTuple):
    """Newest nights that are unusually bad, although the level has not changed. nights: number of these nights. value:
    logarithm of their level, relative to the nights before.
    """

    nights: int
    value: float


class Weighed(NamedTuple):
    """Result of a comparison with a reference. newest: number of nights that are compared with the nights at the level
    of the reference; the last of them is the night of the job. before: number of nights at the level of the reference;
    0 if the job is the reference itself. spread: variation between nights. trend: the history. shift: change of level
    since the reference that makes the outcome a regression; None if there is none. a_year: number of such differences
    that occur by chance in a year; None if there is no difference. among: number of measurements of the site if such a
    difference occurs too often among them by chance; otherwise 1. doubt: nights that prevent the outcome `pass`; None
    if there are none. latest: latest change of level, if it is a drop beyond the tolerance but not a regression
    relative to the reference; otherwise None. is_accepted: False if this drop began at about the same time as the
    reference, so that the drop may have been accepted with the reference by mistake; otherwise True.
    """

    outcome: Outcome
    difference: LevelDifference
    newest: int
    before: int
    spread: NightSpread
    trend: Trend
    shift: Shift | None
    a_year: float | None
    among: int = 1
    doubt: Doubt | None = None
    latest: Shift | None = None
    is_accepted: bool = True


def outcome_of(difference: LevelDifference, tolerance: float, is_changed: bool) -> Outcome:
    """Return the outcome for a difference of levels. is_changed: whether the level has changed by more than the
    variation between nights explains. `pass` means that the interval excludes a drop beyond the tolerance.
    """
    if is_changed and difference.high < 0 and difference.value < math.log(1 - tolerance):
        return "regression"
    if is_changed and difference.low > 0 and difference.value > math.log(1 + tolerance):
        return "improved"
    return "pass" if difference.low > math.log(1 - tolerance) else "inconclusive"


def weigh(
    nights: Sequence[Night],
    reference: Night,
    metric: MetricName,
    tolerance: float,
    is_same_key: bool = True,
    site: Callable[[], NightSpread] = lambda: ASSUMED,
    among: int = 1,
) -> Weighed:
    """Compare the last item of `nights`, the job to judge, with `reference`. nights: one Night for each job in the
    history, oldest first, followed by the Night of the job to judge. reference: the Night of the reference. A Night
    holds the repeats of a job. is_same_key: whether the measurement keys of job and reference are equal. If the keys
    differ, or if the reference is newer than the job, the job is compared with the reference alone. site: function that
    returns prior knowledge about the variation between nights. It is based on other measurements of the site. among:
    number of measurements of the site on a night. The higher this number, the rarer a regression by chance must be.
    """
    if nights[-1].job == reference.job:
        return _itself(nights, metric, site())
    if not is_same_key or reference.ended > nights[-1].ended:
        return _single(nights, reference, metric, tolerance, site(), among)
    series, place = _with_reference(nights, reference)
    known = site()
    followed = trend.followed(series, metric, known, place)
    at = followed.series.place(place)
    result = compared(followed.course, at, tolerance, among)
    latest = None if result.outcome == "regression" else _latest(followed, at, tolerance)
    is_accepted = latest is None or not at - _ACCEPTED < followed.changes[-1].at <= at + _MISDATED
    return Weighed(
        outcome="inconclusive" if result.outcome == "pass" and not is_accepted else result.outcome,
        difference=result.difference,
        newest=len(result.levels.newest),
        before=len(result.levels.before),
        spread=_known(followed.course.spread, len(followed.course.labels), known),
        trend=followed.trend,
        shift=_shift(followed, at) if result.is_changed and result.outcome == "regression" else None,
        a_year=result.a_year,
        among=1 if result.is_rare else among,
        doubt=result.doubt,
        latest=latest,
        is_accepted=is_accepted,
    )


def _with_reference(nights: Sequence[Night], reference: Night) -> tuple[list[Night], int]:
    """Return the nights including the reference, and the index of the reference. If the history lacks the reference, it
    is inserted at its time, but before the job to judge.
    """
    place = next((number for number, night in enumerate(nights[:-1]) if night.job == reference.job), None)
    if place is not None:
        return list(nights), place
    place = sum(night.ended <= reference.ended for night in nights[:-1])
    return [*nights[:place], reference, *nights[place:]], place


def _itself(nights: Sequence[Night], metric: MetricName, site: NightSpread) -> Weighed:
    """Return the result for a job that is its own reference."""
    followed = trend.followed(nights, metric, site)
    spread = _known(followed.course.spread, len(nights), site)
    return Weighed("inconclusive", LevelDifference(0.0, 0.0, 0.0), 1, 0, spread, followed.trend, None, None)


def _single(
    nights: Sequence[Night], reference: Night, metric: MetricName, tolerance: float, site: NightSpread, among: int
) -> Weighed:
    """Compare a job only with a reference. The earlier nights are used only for the variation between nights."""
    followed = trend.followed(nights, metric, site)
    spread = followed.course.spread
    levels = [outlying_runs.level(variation.logarithms(night.values, metric)) for night in (nights[-1], reference)]
    variance = 2 * spread.error(1) + float(followed.series.extra[-1])
    difference = _difference(levels[0] - levels[1], variance, spread.df)
    z = change_detection.deviate(difference.value, variance, spread.df)
    outcome, chance, is_rare = _decided(difference, tolerance, abs(z) > _FIRST_DEVIATE, _once(z), among)
    known = _known(spread, len(nights) - 1, site)
    return Weighed(outcome, difference, 1, 1, known, followed.trend, None, chance, 1 if is_rare else among)


def _known(spread: CourseSpread, nights: int, site: NightSpread) -> NightSpread:
    """Return the variation between nights, with its main source. nights: number of nights of the history."""
    return NightSpread(spread.sd, spread.df, "nights" if nights > FEWEST else site.source)


def _difference(value: float, variance: float, df: float) -> LevelDifference:
    """Return a difference with its interval. variance, df: variance of the difference, and its degrees of freedom."""
    half = students_t.quantile(1 - TAIL, df) * math.sqrt(variance) if df > 0 else math.inf
    return LevelDifference(value, value - half, value + half)


class Levels(NamedTuple):
    """The nights that are compared: the newest ones with those at the level of the reference. The items are indices."""

    newest: Labels
    before: Labels

    def difference(self, course: Course) -> LevelDifference:
        """Return the difference of the levels."""
        value = course.level(self.newest) - course.level(self.before)
        return _difference(value, self.variance(course), course.spread.df)

    def variance(self, course: Course) -> float:
        """Return the variance of the difference of the levels."""
        return course.error(self.newest) + course.error(self.before)


class Compared(NamedTuple):
    """Result of a comparison of nights. is_changed: whether the level has changed since the reference. a_year: as in
    Weighed. is_rare: whether such a difference happens rarely enough by chance. doubt: as in Weighed.
    """

    outcome: Outcome
    difference: LevelDifference
    levels: Levels
    is_changed: bool
    a_year: float | None
    is_rare: bool
    doubt: Doubt | None = None


def compared(course: Course, reference: int, tolerance: float, among: int = 1) -> Compared:
    """Compare the newest nights of a series with the level of a reference. reference: index of the night of the
    reference. among: as for weigh().
    """
    label = _label(course, reference)
    is_changed = label != course.labels[-1]
    levels = _changed(course.labels, label) if is_changed else _unchanged(course, label, tolerance)
    difference = levels.difference(course)
    z = change_detection.deviate(difference.value, levels.variance(course), course.spread.df)
    is_early = len(course.labels) <= FEWEST and abs(z) > _FIRST_DEVIATE
    evidence = course.evidence if is_changed and _is_same_way(course.evidence, z) else None
    chance = _once(z) if evidence is None else change_detection.a_year(evidence, z)
    decided = _decided(difference, tolerance, is_changed or is_early, chance, among)
    doubt = None if decided.outcome == "regression" else _doubt(course, tolerance)
    outcome: Outcome = "inconclusive" if doubt else decided.outcome
    return Compared(outcome, difference, levels, is_changed, decided.a_year, decided.is_rare, doubt)


def _is_same_way(evidence: Alarm | None, z: float) -> bool:
    """Return whether the newest change of level explains the difference. A change that is a recovery from a larger
    change does not explain it.
    """
    return evidence is not None and evidence.deviate * z > 0


class _Decided(NamedTuple):
    """Outcome for a difference. a_year, is_rare: as in Compared."""

    outcome: Outcome
    a_year: float | None
    is_rare: bool


def _decided(difference: LevelDifference, tolerance: float, is_changed: bool, chance: float, among: int) -> _Decided:
    """Return the outcome for a difference. It is a change only if such a difference rarely occurs by chance among all
    measurements. is_changed: as for outcome_of(). chance: number of such differences in a year by chance. among: as for
    weigh().
    """
    outcome = outcome_of(difference, tolerance, is_changed)
    if outcome not in _DIFFERENT:
        return _Decided(outcome, None, True)
    if _is_rare(chance, among):
        return _Decided(outcome, chance, True)
    return _Decided(outcome_of(difference, tolerance, False), chance, False)


def _doubt(course: Course, tolerance: float) -> Doubt | None:
    """Return the newest nights of a level if they are unusually bad, and worse than the nights before by more than the
    tolerance. Return None if there are none.
    """
    places = np.flatnonzero(course.labels == course.labels[-1])
    worst, doubt = -_DOUBTFUL, None
    for newest in range(1, _NEWEST + 1):
        if len(places) - newest < change_detection.BEFORE:
            break
        levels = Levels(places[-newest:], places[:-newest])
        value = levels.difference(course).value
        z = change_detection.deviate(value, levels.variance(course), course.spread.df)
        if z < worst and value < math.log(1 - tolerance):
            worst, doubt = z, Doubt(newest, value)
    return doubt


def brief_drop(course: Course) -> Doubt | None:
    """Return a drop beyond the usual tolerance that has lasted for a few nights up to the newest one. Return None if
    there is none.
    """
    newest = len(course.labels) - 1 - np.flatnonzero(course.labels != course.labels[-1])
    if not len(newest) or newest[-1] > _NEWEST:
        return _doubt(course, TOLERANCE)
    levels = _changed(course.labels, int(course.labels[-1 - newest[-1]]))
    value = levels.difference(course).value
    return Doubt(int(newest[-1]), value) if value < math.log(1 - TOLERANCE) else None


def brief_words(drop: Doubt) -> str:
    """Return a clause about a drop that has lasted for a few nights."""
    return f"{percent(math.exp(drop.value))} than before, for {nights_words(drop.nights)} so far"


def _is_rare(a_year: float, among: int) -> bool:
    """Return whether a difference rarely occurs by chance: all measurements of a site together must have less than one
    such difference in ten nights (C. E. Bonferroni, 1936). a_year: number of such differences in a year for one
    measurement.
    """
    return a_year * among <= 365.25 * _MOST_A_NIGHT


def _once(z: float) -> float:
    """Return how often in a year a single night reaches a normal deviate by chance."""
    return 365.25 * NormalDist().cdf(-abs(z))


def _label(course: Course, reference: int) -> int:
    """Return the level to which the reference belongs. A change may be dated a few nights late. If the reference is
    shortly before a change and resembles the new level, it belongs to the new level, because the level had already
    changed when the reference was accepted.
    """
    own = int(course.labels[reference])
    later = np.flatnonzero(course.labels[reference:] != own)
    if not len(later) or later[0] > _MISDATED:
        return own
    new = int(course.labels[reference + later[0]])
    levels = [course.level(np.flatnonzero(course.labels == label)) for label in (own, new)]
    between = course.values[reference : reference + later[0]]
    far = [float(((between - level) ** 2).mean()) for level in levels]
    return new if far[1] < far[0] else own


def _changed(labels: Labels, label: int) -> Levels:
    """Return the nights since the newest change, and all nights at the level of the reference."""
    different = np.flatnonzero(labels != labels[-1])
    return Levels(np.arange(different[-1] + 1, len(labels)), np.flatnonzero(labels == label))


def _unchanged(course: Course, label: int, tolerance: float) -> Levels:
    """Return the newest nights of a level, and the earlier nights of this level. The newest nights are the fewest that
    make the interval narrow enough for the tolerance or, if that is not possible, those that make it narrowest. A night
    with unusually scattered runs is compared alone, because earlier nights do not show what happened in it.
    """
    is_scattered = course.extra[-1] > course.spread.sd**2
    places = np.flatnonzero(course.labels == label)
    candidates = [
        Levels(places[-newest:], places[:-newest])
        for newest in change_detection.THRESHOLDS
        if newest == 1 or (len(places) >= 2 * newest and not is_scattered)
    ]
    halves = []
    for levels in candidates:
        half = _difference(0.0, levels.variance(course), course.spread.df).half
        if half <= -_PRECISE * math.log(1 - tolerance):
            return levels
        halves.append(half)
    return candidates[int(np.argmin(halves))]


def _shift(followed: Followed, reference: int) -> Shift | None:
    """Return the largest drop that begins after the reference and from which the level has not recovered."""
    lasting: list[tuple[Shift, float]] = []
    for change, shift in zip(followed.changes, followed.trend.shifts, strict=True):
        if change.until <= reference:
            continue
        if shift.ratio < 1:
            lasting.append((shift, shift.ratio))
        gain = shift.ratio
        while gain > 1 and lasting:
            drop, ratio = lasting.pop()
            gain *= ratio
            if gain <= _RECOVERED:
                lasting.append((drop, gain))
    return min(lasting, key=lambda drop: drop[1], default=(None, 1.0))[0]


def _latest(followed: Followed, reference: int, tolerance: float) -> Shift | None:
    """Return the latest change if it is a drop beyond the tolerance that begins shortly before the reference or later.
    Such a drop may exist without a regression, because the level of the reference may be equally low, or because a
    better level precedes the drop.
    """
    if not followed.changes or followed.changes[-1].until <= reference - _MISDATED:
        return None
    shift = followed.trend.shifts[-1]
    return shift if shift.ratio < 1 - tolerance else None


def percent(ratio: float, better: str = "better", worse: str = "worse") -> str:
    """Return a ratio as a phrase, such as "5.2 % worse". Return "as good" if the ratio is close to 1."""
    change = 100 * (ratio - 1)
    if abs(change) < 0.05:
        return "as good"
    return f"{abs(change):.1f} % {better if change > 0 else worse}"


def signed(ratio: float) -> str:
    """Return a ratio as a signed change, such as "-5.2 %"."""
    return f"{100 * (ratio - 1):+.1f} %"


def changes_sentence(history: Trend) -> str:
    """Return the changes in the history as a sentence."""
    clause = changes_words(history)
    return f"{clause[0].upper()}{clause[1:]}."


def changes_words(history: Trend) -> str:
    """Return the changes in the history as a clause."""
    weekend = "" if history.weekend is None else f"; weekends are {percent(history.weekend)}, which is taken out"
    if history.shifts:
        return f"over {nights_words(history.dates)}: {'; '.join(map(shift_words, history.shifts))}{weekend}"
    if history.dates < FEWEST:
        return f"too few nights to detect small changes: {history.dates} of {FEWEST}"
    return f"no change is detected over {nights_words(history.dates)}{weekend}"


def nights_words(count: int) -> str:
    """Return a number of nights as text."""
    return counted(count, "night")


def shift_words(shift: Shift) -> str:
    """Return a description of a change. It names the job at which the change starts and, for a drift, the job at which
    it ends. The range of dates is named if it is longer than a night.
    """
    return f"{percent(shift.ratio)} {_since_words(shift)}"


def _since_words(shift: Shift) -> str:
    days = sorted({shift.earliest[:10], shift.latest[:10]})
    dates = f", between {days[0]} and {days[1]}" if len(days) > 1 else ""
    begin = f"{shift.since} ({shift.ended[:10]}{dates})"
    if shift.kind == "step":
        return f"since {begin}"
    return f"in a drift from {begin} to {shift.to}; {100 * min(shift.certainty, 0.99):.0f} % sure that it is not a step"


def chance_words(a_year: float) -> str:
    """Return how often an outcome occurs by chance, such as "once in 3 years"."""
    if a_year < _RAREST:
        return f"less than once in {round(1 / _RAREST)} years"
    years = round(1 / a_year)
    if years > 1:
        return f"once in {years} years"
    return "once a year" if a_year < 1.5 else f"{a_year:.0f} times a year"


def sentence(weighed: Weighed, name: str) -> str:
    """Return a sentence that states the result of a comparison, without its subject. name: name of the reference."""
    if weighed.before == 0:
        return "the baseline itself, so nothing is compared"
    difference, shift = weighed.difference, weighed.shift
    ratio = percent(math.exp(difference.value))
    change = "as good as" if ratio == "as good" else f"{ratio} than"
    since = "" if shift is None else f", {_since_words(shift)}"
    against = name if weighed.before == 1 else f"the {nights_words(weighed.before)} at the level of {name}"
    newest = f", over {nights_words(weighed.newest)}" if weighed.newest > 1 else ""
    text = f"{change} {against} ({interval_words(difference)}{newest}){since}"
    if weighed.a_year is not None:
        subject = "such a night happens" if weighed.newest == 1 else "such a change happens"
        text += f"; {subject} by chance {chance_words(weighed.a_year)}"
        if weighed.among > 1:
            text += f", too often among the site's {weighed.among} measurements"
    if weighed.trend.weekend is not None:
        text += f"; weekends are {percent(weighed.trend.weekend)}, which is taken out"
    if weighed.latest is not None:
        text += f"; the latest change: {shift_words(weighed.latest)}"
    if weighed.doubt is not None:
        nights = "night" if weighed.doubt.nights == 1 else nights_words(weighed.doubt.nights)
        text = f"{percent(math.exp(weighed.doubt.value))} on the newest {nights} than before; {text}"
    noise = noise_words(math.expm1(weighed.spread.sd), weighed.spread.source)
    return text if weighed.spread.source == "nights" else f"{text}; {noise}"


def interval_words(difference: LevelDifference) -> str:
    """Return the interval of a difference, such as "-5.1 % to -2.3 %"."""
    return f"{signed(math.exp(difference.low))} to {signed(math.exp(difference.high))}"


def noise_words(noise: float, source: NoiseSource) -> str:
    """Return a clause about the variation between nights. noise: relative standard deviation."""
    if source == ASSUMED.source:
        return f"nights are assumed to differ by {100 * noise:.1f} %"
    if source == "site":
        return f"other measurements of the site differ by {100 * noise:.1f} % between nights"
    return f"nights differ by {100 * noise:.1f} %"


def advice(weighed: Weighed, tolerance: float) -> list[str]:
    """Return advice on how to make the verdict conclusive, one item per line."""
    if weighed.before == 0:
        return ["compare a later job"]
    if not weighed.is_accepted:
        return [
            "the level fell at the time of the baseline; if the new level is correct, accept a later night as the "
            "baseline"
        ]
    if weighed.doubt is not None:
        return ["the next nights show whether the level has changed"]
    least = math.ceil(1000 * weighed.difference.half) / 10
    allowed = [f"--tolerance {least:g}% or more is needed with this variation"] if least < _WIDEST else []
    more = _more_nights(weighed, tolerance)
    if more is None:
        return allowed or ["nights differ too much for any tolerance; make longer runs on a less busy machine"]
    nights = nights_words(more).replace(" night", " more night")
    lines = [f"{nights} would give a decision; more repeats on the same night do not show how much nights differ"]
    if weighed.spread.source == ASSUMED.source:
        lines.append("a history of ten nights shows how much nights differ here")
    return [*lines, *allowed]


def _more_nights(weighed: Weighed, tolerance: float) -> int | None:
    """Return the number of additional nights that would make the verdict conclusive if they resemble the present ones,
    or None if more than a few dozen are necessary.
    """
    margin = min(abs(weighed.difference.value - math.log(1 - tolerance)), -_PRECISE * math.log(1 - tolerance))
    nights = weighed.newest + weighed.before
    for more in range(1, _MOST_NIGHTS + 1):
        newest = min((nights + more) // 2, max(change_detection.THRESHOLDS))
        error = weighed.spread.sd * math.sqrt(1 / newest + 1 / (nights + more - newest))
        if students_t.quantile(1 - TAIL, max(weighed.spread.df, 1.0) + more) * error < margin:
            return more
    return None
