"""Main effects of the parameters of a study, and the share of the differences that is due to interactions."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.study import replicates
from dlio_hpc.analysis.study.ratios import SURER
from dlio_hpc.analysis.study.replicates import SURE, Fit, Floats
from dlio_hpc.plan.study import Part, Point

# Maximum of the total number of values of all parameters. With more values, the computation would take minutes.
_MOST_LEVELS = 300


class EffectLevel(Struct, frozen=True):
    """A value of a parameter. label: text of the value. ratio: ratio of the metric at this value to the geometric mean
    of the metric over all points. The effects of the other parameters are not part of this ratio.
    """

    label: str
    ratio: float


class Effect(Struct, frozen=True):
    """Effect of a parameter, or of several parameters that change together. keys: YAML keys of the parameters. levels:
    values of the parameters. best, worst: labels of the best and the worst level. ratio: ratio of the best level to the
    worst. share: fraction of the squared differences between points that this effect explains. confidence: share of
    noise-only simulations whose effect is smaller than the measured one; None if the noise is unknown. is_beyond_noise:
    whether the confidence is high enough to report the effect.
    """

    keys: tuple[str, ...]
    levels: tuple[EffectLevel, ...]
    ratio: float
    best: str
    worst: str
    share: float
    confidence: float | None
    is_beyond_noise: bool


class Ranking(Struct, frozen=True):
    """Effects of the parameters, largest first. effects: empty if too few combinations were measured to separate the
    parameters. interaction: fraction of the squared differences between points that the effects of single parameters do
    not explain; None if it does not exceed the noise. interaction_confidence: fraction of noise-only simulations in
    which the sum of the unexplained squared differences is smaller than in the measurements; None if the interaction
    does not exceed the noise.
    """

    effects: tuple[Effect, ...]
    interaction: float | None = None
    interaction_confidence: float | None = None

    @property
    def has_interaction(self) -> bool:
        """Whether interaction exceeds the noise."""
        return self.interaction is not None

    @property
    def is_beyond_noise(self) -> bool:
        """Whether an effect or interaction exceeds the noise."""
        return self.has_interaction or any(effect.is_beyond_noise for effect in self.effects)


class RecommendedChange(Struct, frozen=True):
    """Recommended change of the reference's settings, derived from the effects of parameters. settings: recommended
    values of the keys that change. ratio: ratio of the metric at the recommended values to the metric at the
    reference's values. It is a ratio of means over all settings of the other parameters. low, high: 95 % interval of
    ratio.
    """

    settings: dict[str, str]
    ratio: float
    low: float
    high: float


class EffectsAnalysis(NamedTuple):
    """Effects of parameters, and the data from which a change is recommended. factors: for each factor, its keys and
    the value of each level, as a logarithm. half_widths: for each factor, half the width of the interval of the
    difference between two levels; None if the noise is unknown.
    """

    ranking: Ranking
    factors: list[tuple[tuple[str, ...], dict[str, float]]]
    half_widths: list[float] | None

    def change(self, reference: Mapping[str, str]) -> RecommendedChange | None:
        """Return the change of the reference that the effects recommend, or None if they recommend none. A key changes
        to its best value if its effect exceeds the noise and its best value is better than the reference's value by
        more than the noise. Return None if parameters interact, because no value is then best for all settings of the
        others. Return None also for a single parameter, because its effect shows no more than the comparison of points
        in pairs. reference: labels of the reference's values, by key.
        """
        if self.half_widths is None or len(self.factors) < 2 or self.ranking.has_interaction:
            return None
        beyond = {effect.keys for effect in self.ranking.effects if effect.is_beyond_noise}
        settings: dict[str, str] = {}
        gain = half_width = 0.0
        for ((key, *_), levels), half in zip(self.factors, self.half_widths, strict=True):
            best = max(levels, key=levels.__getitem__)
            better = levels[best] - levels.get(reference[key], np.inf)
            if (key,) in beyond and better > half:
                settings[key] = best
                gain, half_width = gain + better, half_width + half
        if not settings:
            return None
        low, ratio, high = (float(np.exp(logarithm)) for logarithm in (gain - half_width, gain, gain + half_width))
        return RecommendedChange(settings, ratio, low, high)


def analysis(part: Part, points: Sequence[Point], fitted: Fit, families: int) -> EffectsAnalysis | None:
    """Return the effects of the parameters that vary among `points`. Return None if no parameter varies, or if the
    parameters have too many values in total. fitted: fit of these points. families: number of families of ratios in the
    part of the study; this analysis is one of them. The error level is divided among the families. The portion of this
    analysis is divided among the effects and their interaction.
    """
    factors = _factors(part, points)
    if not factors or sum(len(set(levels)) for _, levels in factors) > _MOST_LEVELS:
        return None
    columns = [_columns(levels) for _, levels in factors]
    matrix = np.column_stack([np.ones((len(points), 1)), *(column[:, 1:] for column in columns)])
    if np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        return EffectsAnalysis(Ranking(()), [], None)
    solve = np.linalg.pinv(matrix)
    ends = np.cumsum([1, *(column.shape[1] - 1 for column in columns)])
    slices = [slice(begin, end) for begin, end in itertools.pairwise(ends)]
    simulated = _simulated(fitted, matrix, solve, slices)
    total = float(((fitted.values - fitted.values.mean()) ** 2).sum())
    left = _left(matrix, fitted.values)
    can_interact = len(points) > matrix.shape[1]
    sure = 1 - (1 - SURER) / families / (len(factors) + can_interact)
    effects = []
    values_by_factor = [np.append(0.0, (solve @ fitted.values)[place]) for place in slices]
    for number, ((keys, levels), place, values) in enumerate(zip(factors, slices, values_by_factor, strict=True)):
        without = np.delete(matrix, np.arange(place.start, place.stop), axis=1)
        share = (_left(without, fitted.values) - left) / total if total > 0 else 0.0
        noise = None if simulated is None else simulated.ranges[number]
        effects.append(_effect(keys, levels, values, share, fitted.sd, noise, sure))
    effects.sort(key=lambda effect: -effect.ratio)
    confidence = None
    if simulated is not None and can_interact:
        confidence = float((simulated.left < left / fitted.sd**2).mean())
    made = Ranking(tuple(effects))
    if confidence is not None and confidence > sure:
        made = Ranking(tuple(effects), left / total, confidence)
    named = [
        (keys, dict(zip(dict.fromkeys(levels), values.tolist(), strict=True)))
        for (keys, levels), values in zip(factors, values_by_factor, strict=True)
    ]
    return EffectsAnalysis(made, named, None if simulated is None else _half_widths(simulated, fitted.sd, families))


def _half_widths(simulated: "_Simulated", sd: float, families: int) -> list[float]:
    """Return half of the width of the simultaneous intervals of the differences between levels, for each factor."""
    sure = 1 - (1 - SURE) / families / len(simulated.ranges)
    return [sd * float(np.quantile(ranges, sure)) for ranges in simulated.ranges]


def _factors(part: Part, points: Sequence[Point]) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the keys of each factor, and the level of the factor at each point. A factor is a parameter that varies.
    If all parameters of the part vary together, they are a single factor.
    """
    levels_by_key = {axis.key: [axis.labels[point.places[axis.key]] for point in points] for axis in part.settings}
    if part.zipped and len(levels_by_key) > 1:
        joined = [", ".join(row) for row in zip(*levels_by_key.values(), strict=True)]
        return [(tuple(levels_by_key), joined)] if len(set(joined)) > 1 else []
    return [((key,), levels) for key, levels in levels_by_key.items() if len(set(levels)) > 1]


def _columns(levels: Sequence[str]) -> Floats:
    """Return the indicator matrix of levels, shape (points, levels): 1 if the point has the level, 0 otherwise."""
    names = list(dict.fromkeys(levels))
    return np.array([[float(level == name) for name in names] for level in levels])


def _left(matrix: Floats, values: Floats) -> float:
    """Return the residual sum of squares of the least-squares fit of `matrix` to `values`."""
    solution = np.linalg.lstsq(matrix, values, rcond=None)[0]
    return float(((values - matrix @ solution) ** 2).sum())


class _Simulated(NamedTuple):
    """Noise-only simulations. ranges: for each factor, the difference between its best and its worst level, in units of
    the noise, shape (simulations,). left: sum of the squared differences that no single factor explains, in units of
    the squared noise, shape (simulations,).
    """

    ranges: list[Floats]
    left: Floats


def _simulated(fitted: Fit, matrix: Floats, solve: Floats, slices: Sequence[slice]) -> _Simulated | None:
    """Simulate measurements with noise only. Return None if the noise is unknown. matrix: matrix that converts effects
    of levels to values of points. solve: inverse of `matrix`. slices: the rows of each factor in `solve`.
    """
    if not fitted.is_noise_known:
        return None
    ranges: list[list[Floats]] = [[] for _ in slices]
    left: list[Floats] = []
    for (noise,), sd in replicates.estimates(fitted):
        coefficients = noise @ solve.T
        left.append(((noise - coefficients @ matrix.T) ** 2).sum(axis=1) / sd**2)
        for place, drawn in zip(slices, ranges, strict=True):
            mine = coefficients[:, place]
            drawn.append((np.maximum(mine.max(axis=1), 0) - np.minimum(mine.min(axis=1), 0)) / sd)
    return _Simulated([np.concatenate(drawn) for drawn in ranges], np.concatenate(left))


def _effect(
    keys: tuple[str, ...], levels: Sequence[str], values: Floats, share: float, sd: float, noise: Floats | None,
    sure: float,
) -> Effect:  # fmt: skip
    names = list(dict.fromkeys(levels))
    weights = np.array([levels.count(name) for name in names])
    centred = values - np.average(values, weights=weights)
    best, worst = int(values.argmax()), int(values.argmin())
    width = float(np.ptp(values))
    confidence = None if noise is None else float((noise < width / sd).mean())
    return Effect(
        keys=keys,
        levels=tuple(EffectLevel(name, float(np.exp(effect))) for name, effect in zip(names, centred, strict=True)),
        ratio=float(np.exp(width)),
        best=names[best],
        worst=names[worst],
        share=max(0.0, share),
        confidence=confidence,
        is_beyond_noise=confidence is not None and confidence > sure,
    )
