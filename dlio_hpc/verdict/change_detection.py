"""Detection of steps, drifts and outliers in a series of values, one a night.

The series is followed night by night, as a facility does. Each night belongs to a level. A new level begins when the
mean of the newest nights differs from the earlier nights of the current level by more than the variation between nights
explains. Single nights need stronger evidence than several nights. The thresholds were chosen in simulations so that
about one false alarm a year occurs (tests/bench/nightly_rates.py). A level is withdrawn if further nights do not
confirm it, and the series may return to the level before. Which of the changes are drifts is decided afterwards, by
Schwarz's criterion.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from dlio_hpc.analysis.quantiles import Floats, median
from dlio_hpc.verdict.level_estimates import (
    CLIP,
    CourseSpread,
    Labels,
    before_each_night,
    error_share,
    level_of,
    spread_of,
)
from dlio_hpc.verdict.variation import ASSUMED, NightSpread

Kind = Literal["step", "drift"]

# For each number of newest nights: the normal deviate from which their mean is a new level. If a series is followed for
# a year, a drop exceeds one of these by chance about once. In the first nights, which are few in a year, all of them
# are lower, so that a drop is found although few nights show the level before it.
THRESHOLDS = {1: 3.8, 2: 3.45, 3: 3.15, 5: 2.95, 8: 2.8, 10: 2.75, 13: 2.7}
EASED, _EARLY = 0.6, 60
# Smallest number of nights of a level for a comparison with several newest nights.
BEFORE = 3
# A level is withdrawn if it differs from the level before by less than this normal deviate.
WITHDRAWN = 2.5
# A level is not withdrawn any more after this number of nights.
_SETTLED = 60
# Smallest logarithm of the likelihood ratio at which the newest nights belong to the level before and not to the
# current level.
_RETURNED = 3.0
# Smallest deviation of an earlier night, as a share of the deviation of the newest night, that has the same order of
# magnitude.
_ALIKE = 1 / 3
# Largest normal deviate between a new level and the earlier level with which it is merged.
_RESUMED = 1.0
# Newest nights are usual if the same number of earlier nights has a mean that deviates at least by the share _AS_FAR of
# their deviation with the probability _USUAL (a single night) or _USUAL_MEAN (several nights). The deviation of a night
# is limited to _MUCH_FARTHER times the deviation of the newest nights.
_AS_FAR, _USUAL, _USUAL_MEAN, _MUCH_FARTHER = 0.8, 0.05, 0.007, 1.25
# They are also usual if the same number of consecutive nights deviated this much at least _OFTEN times, and at least
# _OFTEN_SHARE times the number of nights.
_OFTEN, _OFTEN_SHARE = 2, 0.01
# Largest number of nights of a spell, and number of bins of a distribution of nights.
_SPELL_NIGHTS, _BINS = max(THRESHOLDS), 200
# Number of standard deviations from which a night is an outlier, and the smallest number of nights for outliers.
_OUT, _FEWEST_FOR_OUTLIERS = 4.5, 6
# Smallest normal deviate of a spell that counts as a change.
_SPELL = 4.0
# Smallest number of nights from the first to the last night of a drift; a shorter one is a step.
_SHORTEST_DRIFT = 5
_NIGHTS_OF_A_YEAR = 365.25
# Share of threshold crossings that begin a level. The other crossings have nights in common with a crossing on the
# night before, or of another threshold. Chosen in simulations so that the computed chances are correct for levels
# without a change.
_OVERLAP = 0.25
# Largest difference of a normal deviate that rounding makes.
_ROUNDING = 1e-6
# Probability that a change begins before its range of dates; the same for after the range.
_TAIL = 0.05
# Number of positions that are tried at first for the begin and the end of a drift.
_GRID = 40


class Change(Struct, frozen=True):
    """A change of level. at: index of the first night after a step, or of the first night of a drift. until: index of
    the last night of a drift; equal to `at` for a step. size: logarithm of (new level / old level). earliest, latest:
    range of indices that contains `at` with a probability of 90 %. certainty: probability that the change is of this
    kind, given that it is either a step or a drift. a_year: number of such changes that occur by chance in a year of
    nights.
    """

    kind: Kind
    at: int
    until: int
    size: float
    earliest: int
    latest: int
    certainty: float
    a_year: float


class Alarm(NamedTuple):
    """Beginning of a level. at: index of the first night of the level. deviate: normal deviate of the difference to the
    level before. newest: number of newest nights that showed the level. excess: amount by which the deviate exceeded
    the threshold.
    """

    at: int
    deviate: float
    newest: int
    excess: float


class State(NamedTuple):
    """State of the change detection after some nights of a series. labels: for each of these nights, the number of its
    level. alarms: beginning of each level except the first level, in order of time.
    """

    labels: Labels
    alarms: tuple[Alarm, ...]

    @property
    def current(self) -> int:
        """Number of the level of the newest night."""
        return int(self.labels[-1]) if len(self.labels) else 0


class Changes(NamedTuple):
    """Changes in order of time. outliers: indices of the nights that are outliers. levels: level of each night
    according to the changes.
    """

    changes: tuple[Change, ...]
    outliers: tuple[int, ...]
    levels: Floats


class Course(NamedTuple):
    """A series that was followed to its last night. values: logarithms, one a night. extra: variance of each night in
    addition to the variance of a usual night. labels: number of the level of each night. spread: variation between
    nights. evidence: the alarm that showed the newest level; None if the level never changed.
    """

    values: Floats
    extra: Floats
    labels: Labels
    spread: CourseSpread
    evidence: Alarm | None

    def level(self, nights: Labels) -> float:
        """Return the level of some nights. nights: their indices."""
        return level_of(self.values[nights], self.spread.sd)

    def error(self, nights: Labels) -> float:
        """Return the variance of the level of some nights. nights: their indices."""
        return self.spread.error(len(nights)) + float(self.extra[nights].sum()) / len(nights) ** 2


START = State(np.zeros(0, np.int64), ())


def followed(values: Floats, prior: NightSpread = ASSUMED, extra: Floats | None = None) -> State:
    """Follow a series night by night. values: logarithms of a metric, one a night, oldest first. prior: prior knowledge
    about the variation between nights, such as from other measurements. extra: variance of each night in addition to
    the variance of a usual night.
    """
    extra = np.zeros(len(values)) if extra is None else extra
    state, known = START, _Known()
    is_quiet = _quiet(values, prior, extra)
    for night in range(len(values)):
        if is_quiet[night] and not state.alarms and not state.labels.any():
            state = State(np.zeros(night + 1, np.int64), ())
        else:
            state = next_state(state, values[: night + 1], prior, extra, known)
    return state


def _quiet(values: Floats, prior: NightSpread, extra: Floats) -> npt.NDArray[np.bool_]:
    """Return for each night whether it is certain that no new level is detected on this night. This is only valid while
    the level has not changed on earlier nights. The result is True for most nights of a history. One computation for
    all nights takes a twentieth of the time of next_state(). values, prior, extra: as for followed().
    """
    count = len(values)
    is_quiet = np.ones(count, np.bool_)
    if count < 2:
        return is_quiet
    level, sd, df, correlation, error = before_each_night(values, prior)
    limits = np.array([eased(night + 1) for night in range(count)]) + _ROUNDING
    for newest, threshold in THRESHOLDS.items():
        first = np.arange(1 if newest == 1 else BEFORE, count - newest + 1)
        if not len(first):
            break
        more = np.lib.stride_tricks.sliding_window_view(extra, newest)[first]
        differences = np.lib.stride_tricks.sliding_window_view(values, newest)[first] - level[first, np.newaxis]
        if newest > 1:
            most = CLIP * np.sqrt(sd[first, np.newaxis] ** 2 + more)
            differences = np.clip(differences, -most, most)
        variance = sd[first] ** 2 * error_share(correlation[first], newest) + error[first]
        variance += more.sum(axis=1) / newest**2
        z = np.abs(deviates(differences.mean(axis=1) / np.sqrt(variance), df[first]))
        night = first + newest - 1
        is_quiet[night] &= z - threshold <= -limits[night]
    return is_quiet


def course(state: State, values: Floats, prior: NightSpread = ASSUMED, extra: Floats | None = None) -> Course:
    """Return the course of a series that was followed. values, prior, extra: as for followed()."""
    extra = np.zeros(len(values)) if extra is None else extra
    spread = spread_of(values, state.labels, prior)
    return Course(values, extra, state.labels, spread, state.alarms[-1] if state.alarms else None)


class _Before(NamedTuple):
    """Nights of a level before its newest nights. level: level of these nights. spread: variation of all nights before
    the newest ones. error: variance of the level.
    """

    level: float
    spread: CourseSpread
    error: float


# Nights before the newest ones that were already computed for one series and one prior, by the number of the level and
# the labels of the nights. For example, the nights before the newest three may be the nights before the newest five two
# nights later.
_Known = dict[tuple[int, bytes], _Before]


def next_state(
    state: State,
    values: Floats,
    prior: NightSpread = ASSUMED,
    extra: Floats | None = None,
    known: _Known | None = None,
) -> State:
    """Follow one more night, the last item of `values`. state: state after the nights before it. prior, extra: as for
    followed(). known: cache of results for earlier nights of this series; None for no cache.
    """
    state = State(np.append(state.labels, state.current), state.alarms)
    extra = np.zeros(len(values)) if extra is None else extra
    state = _confirmed(state, values, prior)
    state = _returned(state, values, prior)
    alarm = _alarm(state, values, prior, extra, _Known() if known is None else known)
    return state if alarm is None else _resumed(_begun(state, alarm), values, prior)


def deviate(difference: float, variance: float, df: float) -> float:
    """Return the normal deviate that is as improbable as the difference, given that its variance is an estimate (D. L.
    Wallace, Annals of Mathematical Statistics 30, 1959). df: degrees of freedom of the variance.
    """
    if variance <= 0:
        return math.copysign(math.inf, difference) if difference else 0.0
    t = difference / math.sqrt(variance)
    if math.isinf(df):
        return t
    normal = math.sqrt(df * math.log1p(t * t / df)) * (8 * df + 1) / (8 * df + 3)
    return math.copysign(normal, t)


def deviates(t: Floats, df: Floats | float) -> Floats:
    """Return the normal deviates that are as improbable as the values `t` of Student's t, by the formula of deviate().
    df: degrees of freedom of each value, or of all.
    """
    finite = np.where(np.isinf(df), 1.0, df)
    normal = np.copysign(np.sqrt(finite * np.log1p(t * t / finite)) * (8 * finite + 1) / (8 * finite + 3), t)
    return np.where(np.isinf(df), t, normal)


def eased(nights: int) -> float:
    """Return the amount by which THRESHOLDS are lowered on an early night of a series. nights: number of nights of the
    series up to this night.
    """
    return EASED * max(0.0, 1 - nights / _EARLY)


def _alarm(state: State, values: Floats, prior: NightSpread, extra: Floats, known: _Known) -> Alarm | None:
    """Return the beginning of a new level if the newest nights show one, otherwise None. Several numbers of newest
    nights are tried. The result is based on the number that exceeds its threshold by the largest amount.
    """
    places = np.flatnonzero(state.labels == state.current)
    best: Alarm | None = None
    for newest, threshold in THRESHOLDS.items():
        if len(places) - newest < (1 if newest == 1 else BEFORE):
            break
        before = _nights_before(state, values, places, newest, prior, known)
        z = _deviate_of_newest(values[places[-newest:]], before, extra[places[-newest:]])
        excess = abs(z) - threshold
        if excess <= (-eased(len(values)) if best is None else best.excess):
            continue
        if newest > 1 or not _has_had_far_nights(state.labels, values, prior):
            best = Alarm(int(places[-newest]), z, newest, excess)
    if best is None or _is_usual(state.labels, values, best.newest):
        return None
    if best.newest == 1:
        return best
    return best._replace(at=_first_night(values[places], places, best.newest))


def _nights_before(
    state: State, values: Floats, places: Labels, newest: int, prior: NightSpread, known: _Known
) -> _Before:
    """Return the nights of the current level before the newest ones. places: indices of the nights of the level."""
    first = int(places[-newest])
    key = state.current, state.labels[:first].tobytes()
    if key not in known:
        spread = spread_of(values[:first], state.labels[:first], prior)
        before = places[:-newest]
        known[key] = _Before(level_of(values[before], spread.sd), spread, spread.error(len(before)))
    return known[key]


def _deviate_of_newest(newest: Floats, before: _Before, extra: Floats) -> float:
    """Return the normal deviate of the difference between the newest nights and the earlier nights of their level.
    extra: as for followed(), of the newest nights.
    """
    spread, count = before.spread, len(newest)
    differences = newest - before.level
    if count > 1:
        limit = CLIP * np.sqrt(spread.sd**2 + extra)
        differences = np.clip(differences, -limit, limit)
    added = float(extra.sum()) / count**2
    return deviate(float(differences.mean()), spread.error(count) + before.error + added, spread.df)


def _has_had_far_nights(labels: Labels, values: Floats, prior: NightSpread) -> bool:
    """Return whether an earlier night deviated from its level in the same direction as the newest night, and by an
    amount of the same order of magnitude. If so, a single night does not show a change: on production file systems, one
    night in thirty is an outlier.
    """
    earlier, counts = labels[:-1], np.bincount(labels)
    usual = median(values[:-1][earlier == int(np.argmax(counts))])
    current = values[:-1][earlier == labels[-1]]
    newest = float(values[-1]) - median(current)
    far = max(_ALIKE * abs(newest), _OUT * spread_of(values[:-1], earlier, prior).sd)
    for label in np.unique(earlier):
        of_level = values[:-1][earlier == label]
        # A spell of few nights is far from the usual level.
        residuals = of_level - (usual if counts[label] < BEFORE else median(of_level))
        if (residuals * np.sign(newest) > far).any():
            return True
    return False


def _is_usual(labels: Labels, values: Floats, newest: int) -> bool:
    """Return whether it is common that nights deviate from the current level as much as the newest nights. The earlier
    nights of this level, and of the spells since the level began, are examined. Such a deviation is common in two
    cases: the mean of equally many nights, drawn at random, often deviates nearly as much; or the same number of
    consecutive nights has deviated nearly as much several times. Larger deviations are limited, so that a few outliers
    do not hide a change.
    """
    earlier, last = labels[:-newest], labels[-1]
    is_current = earlier == last
    is_spell = np.bincount(labels)[earlier] <= _SPELL_NIGHTS
    is_spell[: np.argmax(is_current)] = False
    middle = median(values[:-newest][is_current])
    mean = float(values[-newest:].mean()) - middle
    far = np.minimum((values - middle) * np.sign(mean), _MUCH_FARTHER * abs(mean))
    known, least = far[:-newest][is_current | is_spell], _AS_FAR * float(far[-newest:].mean())
    if newest > 1 and _times(known, newest, least) >= max(_OFTEN, _OFTEN_SHARE * len(known)):
        return True
    return _chance(known, newest, least) >= (_USUAL if newest == 1 else _USUAL_MEAN)


def _times(values: Floats, count: int, least: float) -> int:
    """Return how many times the mean of `count` consecutive values rose to `least` or more."""
    if len(values) < count:
        return 0
    is_far = np.convolve(values, np.ones(count), "valid") >= least * count
    return int(is_far[0]) + int((is_far[1:] & ~is_far[:-1]).sum())


def _chance(values: Floats, count: int, least: float) -> float:
    """Return the probability that the mean of `count` values drawn with replacement is at least `least`."""
    low, high = float(values.min()), float(values.max())
    if least > high:
        return 0.0
    places = np.rint((values - low) / max(high - low, 1e-12) * _BINS).astype(int)
    size = count * _BINS + 1
    sums = np.fft.irfft(np.fft.rfft(np.bincount(places, minlength=size) / len(values), size) ** count, size)
    first = math.ceil((least - low) / max(high - low, 1e-12) * _BINS * count - 0.5)
    return float(sums[max(0, first) :].sum())


def _first_night(values: Floats, places: Labels, newest: int) -> int:
    """Return the index of the first night of a new level that the newest nights show. The nights of the current level
    are split into two levels so that the sum of the squared residuals is smallest. values: values of the nights of the
    current level. places: indices of these nights.
    """
    count = len(values)
    first, last = max(1, count - 2 * newest), count - 1
    splits = np.arange(first, last + 1)
    sums = np.cumsum(values)
    after = count - splits
    difference = (sums[-1] - sums[splits - 1]) / after - sums[splits - 1] / splits
    return int(places[int(splits[np.argmax(difference**2 * splits * after / count)])])


def _begun(state: State, alarm: Alarm) -> State:
    """Begin a new level. The new level begins no earlier than the present newest level. If both begin with the same
    night, the new level replaces the present one.
    """
    at = max([alarm.at, *(earlier.at for earlier in state.alarms[-1:])])
    labels = state.labels.copy()
    labels[at:] = int(labels.max()) + 1
    earlier = tuple(kept for kept in state.alarms if kept.at < at)
    return State(labels, (*earlier, alarm._replace(at=at)))


def _resumed(state: State, values: Floats, prior: NightSpread) -> State:
    """Merge a level that has just begun with an earlier level if the two are similar and the level in between was far
    from them, as in an outage. The series has then returned to the earlier level.
    """
    is_new, is_between = state.labels == state.current, state.labels == _before(state)
    spread = spread_of(values, state.labels, prior)
    new, between = (level_of(values[nights], spread.sd) for nights in (is_new, is_between))
    for label in sorted(set(map(int, state.labels)) - {state.current, _before(state)}, reverse=True):
        is_old = state.labels == label
        old = level_of(values[is_old], spread.sd)
        if is_old.sum() <= is_new.sum() or abs(between - old) <= _OUT * spread.sd:
            continue
        z = deviate(new - old, spread.error(int(is_new.sum())) + spread.error(int(is_old.sum())), spread.df)
        if abs(z) < _RESUMED:
            return State(np.where(is_new, label, state.labels), state.alarms)
    return state


def _before(state: State) -> int:
    """Return the number of the level before the current one."""
    at = state.alarms[-1].at
    return int(state.labels[at - 1])


def _confirmed(state: State, values: Floats, prior: NightSpread) -> State:
    """Withdraw the current level if its nights no longer differ from the level before it."""
    if not state.alarms or _before(state) > state.current:
        return state
    is_new, is_old = state.labels == state.current, state.labels == _before(state)
    count = int(is_new.sum())
    if count > _SETTLED:
        return state
    spread = spread_of(values, state.labels, prior)
    difference = level_of(values[is_new], spread.sd) - level_of(values[is_old], spread.sd)
    z = deviate(difference, spread.error(count) + spread.error(int(is_old.sum())), spread.df)
    if abs(z) >= WITHDRAWN:
        return state
    return State(np.where(is_new, _before(state), state.labels), state.alarms[:-1])


def _returned(state: State, values: Floats, prior: NightSpread) -> State:
    """Assign the newest nights to the level before the current one if they are much nearer to that level."""
    if not state.alarms or _before(state) > state.current:
        return state
    places, old = np.flatnonzero(state.labels == state.current), _before(state)
    for newest in (1, 2):
        if len(places) <= newest:
            break
        after = places[-newest:]
        spread = spread_of(values[: after[0]], state.labels[: after[0]], prior)
        levels = [level_of(values[nights], spread.sd) for nights in (state.labels == old, places[:-newest])]
        far = [np.minimum(np.abs(values[after] - level) / spread.sd, CLIP + 1) for level in levels]
        if float((far[1] ** 2 - far[0] ** 2).sum()) / 2 > _RETURNED and float(far[0].max()) < 2:
            labels = state.labels.copy()
            labels[after] = old
            z = (levels[0] - levels[1]) / spread.sd
            return State(labels, (*state.alarms, Alarm(int(after[0]), z, newest, 0.0)))
    return state


def a_year(alarm: Alarm, now: float = 0.0) -> float:
    """Return how many levels with at least the evidence of `alarm` begin by chance in a year of nights. now: normal
    deviate of the level after further nights.
    """
    excess = max(alarm.excess, abs(now) - max(THRESHOLDS.values()))
    a_night = sum(NormalDist().cdf(-threshold - excess) for threshold in THRESHOLDS.values())
    return _OVERLAP * _NIGHTS_OF_A_YEAR * a_night


def described(state: State, nights: Course) -> Changes:
    """Return the changes of a series that was followed. Consecutive changes in the same direction are one drift, if a
    drift fits better than steps.
    """
    values, spread = nights.values, nights.spread
    state = _without_short_spells(state, nights)
    levels = np.empty(len(values))
    for label in np.unique(state.labels):
        levels[state.labels == label] = level_of(values[state.labels == label], spread.sd)
    is_far = np.abs(values - levels) > _OUT * spread.sd
    changes: list[Change] = []
    for group, begin, end in _groups(state, values, levels):
        kept = np.flatnonzero(~is_far[begin:end]) + begin
        changes += [
            _with_outliers_before(change, values, levels, is_far) for change in _fitted(group, values, levels, kept)
        ]
    outliers = np.flatnonzero(np.abs(values - levels) > _OUT * spread.sd)
    if len(values) < _FEWEST_FOR_OUTLIERS:
        outliers = outliers[:0]
    return Changes(tuple(changes), tuple(map(int, outliers)), levels)


def _with_outliers_before(change: Change, values: Floats, levels: Floats, is_far: npt.NDArray[np.bool_]) -> Change:
    """Return a step that begins with the outliers just before it, if they resemble the new level more than the old one.
    levels: level of each night; the levels of these outliers are changed in place. is_far: whether each night is an
    outlier.
    """
    at = change.at
    while change.kind == "step" and at > 1 and is_far[at - 1]:
        new, old = levels[change.at], levels[change.at] - change.size
        if abs(values[at - 1] - new) > abs(values[at - 1] - old):
            break
        at -= 1
        levels[at] = new
    if at == change.at:
        return change
    return structs.replace(change, at=at, until=at, earliest=min(change.earliest, at))


def _without_short_spells(state: State, nights: Course) -> State:
    """Return a state without the spells that may occur by chance. A spell is a short level between nights of the same
    level. A single night is not kept as a spell, because it may be an outlier.
    """
    labels, alarms = state.labels.copy(), list(state.alarms)
    for alarm, end in reversed(list(itertools.pairwise(state.alarms))):
        before = int(labels[alarm.at - 1])
        around, after = np.flatnonzero(labels == before), np.flatnonzero(labels == labels[end.at])
        spell = np.arange(alarm.at, end.at)
        if labels[end.at] != before and abs(_between(nights, after, around)) >= WITHDRAWN:
            continue
        if len(spell) == 1 or (len(spell) <= _SPELL_NIGHTS and abs(_between(nights, spell, around)) < _SPELL):
            labels[spell] = labels[after] = before
            alarms = [kept for kept in alarms if kept not in (alarm, end)]
    return State(labels, tuple(alarms))


def _between(nights: Course, some: Labels, others: Labels) -> float:
    """Return the normal deviate of the difference between the level of the nights `some` and the level of the nights
    `others`.
    """
    scale = max(float(nights.values[np.concatenate([some, others])].std()), nights.spread.sd)
    return (nights.level(some) - nights.level(others)) / (scale * math.sqrt(1 / len(some) + 1 / len(others)))


def _groups(state: State, values: Floats, levels: Floats) -> Iterator[tuple[list[Alarm], int, int]]:
    """Yield each group of consecutive alarms in the same direction, with two indices. The first index is the first
    night of the level before the group. The second index is the night after the last level of the group.
    """
    alarms = list(state.alarms)
    ends = [*(alarm.at for alarm in alarms), len(values)]
    signs = [np.sign(levels[alarm.at] - levels[alarm.at - 1]) for alarm in alarms]
    first = 0
    for number in range(1, len(alarms) + 1):
        if number == len(alarms) or signs[number] != signs[first]:
            yield alarms[first:number], ends[first - 1] if first else 0, ends[number]
            first = number


def _fitted(group: list[Alarm], values: Floats, levels: Floats, kept: Labels) -> Iterator[Change]:
    """Yield the changes of a group: a drift, the steps of the group, or one step that replaces them. values: value of
    each night. levels: level of each night; the levels of a drift or of one step are changed in place. kept: indices of
    the nights to which the models are fitted.
    """
    y = values[kept]
    drift = _drift(y)
    cost_of_drift = math.inf if drift is None else _cost(drift.squares, len(y), drift.parameters)
    # A further step costs as much as four parameters, because it can be anywhere (N. R. Zhang and D. O. Siegmund,
    # Biometrics 63, 2007).
    cost_of_steps = _cost(float(((y - levels[kept]) ** 2).sum()), len(y), 4 * len(group) - 1)
    squares = _squares_of_splits(y)
    at = 1 + int(np.argmin(squares)) if len(y) > 1 else 0
    if at and (cost_of_one := _cost(float(squares[at - 1]), len(y), 3)) < cost_of_steps:
        cost_of_steps = cost_of_one
        group = [max(group, key=lambda alarm: alarm.excess)._replace(at=int(kept[at]))]
        levels[kept[0] : kept[at]], levels[kept[at] : kept[-1] + 1] = y[:at].mean(), y[at:].mean()
    probability = 1 / (1 + math.exp(min(500.0, max(-500.0, (cost_of_drift - cost_of_steps) / 2))))
    if drift is None or probability <= 0.5:
        yield from _steps(group, values, levels, kept, 1 - probability)
        return
    begin, end = int(kept[drift.begin]), int(kept[drift.end])
    earliest, latest = (int(kept[place]) for place in drift.range)
    nights = np.arange(kept[0], kept[-1] + 1)
    share = np.clip((nights - begin + 1) / max(1, end - begin + 1), 0, 1)
    levels[kept[0] : kept[-1] + 1] = drift.old + drift.size * share
    yield Change("drift", begin, end, drift.size, earliest, latest, probability, min(a_year(alarm) for alarm in group))


def _cost(squares: float, count: int, parameters: int) -> float:
    """Return Schwarz's criterion of a model. squares: sum of the squared residuals. count: number of nights."""
    return count * math.log(max(squares, 1e-18) / count) + parameters * math.log(count)


def _steps(group: list[Alarm], values: Floats, levels: Floats, kept: Labels, certainty: float) -> Iterator[Change]:
    """Yield the steps of a group. The other parameters are as for _fitted(). certainty: probability that the changes
    are steps.
    """
    for number, alarm in enumerate(group):
        stop = group[number + 1].at if number + 1 < len(group) else kept[-1] + 1
        start = group[number - 1].at if number else kept[0]
        near = kept[(kept >= start) & (kept < stop)]
        earliest, latest = _dates(values[near], near, alarm.at)
        size = float(levels[alarm.at] - levels[alarm.at - 1])
        yield Change("step", alarm.at, alarm.at, size, earliest, latest, certainty, a_year(alarm))


class _Drift(NamedTuple):
    """A drift in a series of nights. begin, end: first and last night. range: range of the first night. old: level
    before the drift. size: size of the drift. squares: sum of the squared residuals. parameters: number of parameters
    of the model.
    """

    begin: int
    end: int
    range: tuple[int, int]
    old: float
    size: float
    squares: float
    parameters: int


def _drift(y: Floats) -> _Drift | None:
    """Return the best fit of a level that is constant, changes by the same amount every night, and is constant again.
    The last part may be missing. Return None if there are too few nights.
    """
    count = len(y)
    if count < _SHORTEST_DRIFT + 2:
        return None
    nights = np.arange(count)
    open_fit = _best_drift(y, nights, range(count - _SHORTEST_DRIFT), [count - 1])
    step = max(1, count // _GRID)
    coarse = _best_drift(y, nights, range(0, count, step), range(_SHORTEST_DRIFT, count - 1, step))
    begins = range(max(0, coarse[1] - step), coarse[1] + step + 1)
    fine = _best_drift(y, nights, begins, range(coarse[2] - step, min(count - 2, coarse[2] + step) + 1))
    is_open = open_fit[0] <= fine[0] * count ** (1 / count)  # a parameter less
    squares, begin, end, old, size = open_fit if is_open else fine
    ends = sorted({*range(_SHORTEST_DRIFT, count, step), count - 1, end})
    costs = np.array([_best_drift(y, nights, [place], ends)[0] for place in range(end - _SHORTEST_DRIFT + 1)])
    return _Drift(begin, end, _range(costs, count), old, size, squares, 3 if is_open else 4)


def _best_drift(
    y: Floats, nights: Labels, begins: Sequence[int], ends: Sequence[int]
) -> tuple[float, int, int, float, float]:
    """Return the best of the drifts that begin and end at these positions, as a tuple: sum of the squared residuals,
    first night, last night, level before the drift, size of the drift.
    """
    pairs = [(begin, end) for begin in begins for end in ends if end - begin >= _SHORTEST_DRIFT]
    starts, stops = np.array(pairs)[:, :1], np.array(pairs)[:, 1:]
    shares = np.clip((nights - starts + 1) / (stops - starts + 1), 0, 1)
    centred = shares - shares.mean(axis=1, keepdims=True)
    variances = np.maximum((centred**2).sum(axis=1), 1e-12)
    sizes = centred @ y / variances
    total = float(((y - y.mean()) ** 2).sum())
    squares = total - sizes**2 * variances
    best = int(np.argmin(np.round(squares / max(total, 1e-18), 9)))  # rounding errors do not decide
    old = float(y.mean() - sizes[best] * shares[best].mean())
    return max(0.0, float(squares[best])), *pairs[best], old, float(sizes[best])


def _range(squares: Floats, count: int) -> tuple[int, int]:
    """Return the range of positions that contains the true position with a probability of 90 %. squares: sum of the
    squared residuals if the change is at each position. count: number of nights.
    """
    logs = -count / 2 * np.log(np.maximum(squares, 1e-18) / max(float(squares.min()), 1e-18))
    cumulated = np.cumsum(np.exp(logs)) / np.exp(logs).sum()
    first, last = np.searchsorted(cumulated, [_TAIL, 1 - _TAIL])
    return int(first), int(min(last, len(squares) - 1))


def _dates(y: Floats, places: Labels, at: int) -> tuple[int, int]:
    """Return the range of indices that contains the first night of a step with a probability of 90 %. y: values of the
    nights of the levels before and after it. places: their indices.
    """
    if len(y) < 3:
        return at, at
    first, last = _range(_squares_of_splits(y), len(y))
    return min(at, int(places[first + 1])), max(at, int(places[last + 1]))


def _squares_of_splits(y: Floats) -> Floats:
    """Return the sum of the squared residuals for each split of the nights into two levels: before the second night,
    ..., before the last night.
    """
    count = len(y)
    splits = np.arange(1, count)
    sums = np.cumsum(y)
    difference = (sums[-1] - sums[:-1]) / (count - splits) - sums[:-1] / splits
    squares = ((y - y.mean()) ** 2).sum() - difference**2 * splits * (count - splits) / count
    return np.asarray(np.maximum(squares, 0))
