"""Main effects of the parameters of a study, and the share of the differences that is due to interactions."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.study import replicates
from dlio_hpc.analysis.study.ratios import SURER
from dlio_hpc.analysis.study.replicates import Fit, Floats
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
    worst. share: share of the squared differences between points that is due to this effect. confidence: share of
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
    """Effects of the parameters, largest first. interaction: share of the squared differences between points that no
    single parameter explains; it includes noise. interaction_confidence: share of noise-only simulations in which fewer
    squared differences are left unexplained; None if the noise is unknown or nothing can be left unexplained.
    has_interaction: whether this confidence is high enough to report interaction. If too few combinations were measured
    to separate the parameters, `effects` is empty and `interaction` is None.
    """

    effects: tuple[Effect, ...]
    interaction: float | None
    interaction_confidence: float | None = None
    has_interaction: bool = False

    @property
    def is_beyond_noise(self) -> bool:
        """Whether an effect or interaction exceeds the noise."""
        return self.has_interaction or any(effect.is_beyond_noise for effect in self.effects)


def ranking(part: Part, points: Sequence[Point], fitted: Fit) -> Ranking | None:
    """Return the effects of the parameters that vary among `points`. fitted: fit of these points. Return None if no
    parameter varies, or if the parameters have too many values in total.
    """
    factors = _factors(part, points)
    if not factors or sum(len(set(levels)) for _, levels in factors) > _MOST_LEVELS:
        return None
    columns = [_columns(levels) for _, levels in factors]
    matrix = np.column_stack([np.ones((len(points), 1)), *(column[:, 1:] for column in columns)])
    if np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        return Ranking((), None)
    solve = np.linalg.pinv(matrix)
    ends = np.cumsum([1, *(column.shape[1] - 1 for column in columns)])
    slices = [slice(begin, end) for begin, end in itertools.pairwise(ends)]
    simulated = _simulated(fitted, matrix, solve, slices)
    total = float(((fitted.values - fitted.values.mean()) ** 2).sum())
    left = _left(matrix, fitted.values)
    effects = []
    for number, ((keys, levels), place) in enumerate(zip(factors, slices, strict=True)):
        without = np.delete(matrix, np.arange(place.start, place.stop), axis=1)
        share = (_left(without, fitted.values) - left) / total if total > 0 else 0.0
        values = np.append(0.0, (solve @ fitted.values)[place])
        noise = None if simulated is None else simulated.ranges[number]
        effects.append(_effect(keys, levels, values, share, fitted.sd, noise, len(factors)))
    effects.sort(key=lambda effect: -effect.ratio)
    confidence = None
    if simulated is not None and len(points) > matrix.shape[1]:
        confidence = float((simulated.left < left / fitted.sd**2).mean())
    return Ranking(
        tuple(effects),
        max(0.0, left / total) if total > 0 else 0.0,
        confidence,
        confidence is not None and confidence > 1 - (1 - SURER) / len(factors),
    )


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
    of levels to values of points. solve: its inverse. slices: the rows of each factor in `solve`.
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
    factors: int,
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
        is_beyond_noise=confidence is not None and confidence > 1 - (1 - SURER) / factors,
    )
