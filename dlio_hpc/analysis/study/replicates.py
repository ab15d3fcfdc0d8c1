"""Repeated measurements of several points: what they are in the mean, and how far noise alone would carry them.

Values are logarithms, so that differences are ratios. Each is taken as its point, plus its round, plus noise: what all
points of a round share, such as a neighbour who came and went, is no noise.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# How sure a claim is: both ends of an interval together leave out one in twenty.
SURE = 0.95
# Draws of noise, fewer of them where there are so many points that it would take minutes.
_DRAWS, _FEWEST, _NUMBERS, _AT_ONCE = 20_000, 2_000, 100_000_000, 1_000_000
_SEED = 20_260_101


class Fit(NamedTuple):
    """P points, R rounds of which `rounds` were told from the points (0: none). values: (P) estimates. counts: (P).
    weights: (P, rounds) how the estimate of a round enters that of a point; spread: (rounds, rounds) whose square is
    the covariance of the rounds, in units of the noise. sd: of one measurement, and its degrees of freedom; nan and 0
    where nothing was measured twice. drift: between the fastest round and the slowest one.
    """

    values: Floats
    counts: Ints
    weights: Floats
    spread: Floats
    sd: float
    df: int
    drift: float

    @property
    def is_noise_known(self) -> bool:
        """Repeats that agree to the last digit say as little of it as none."""
        return self.df > 0 and self.sd > 1e-9

    def difference_sd(self, one: int, other: int) -> float:
        """Of the estimates' difference, in units of the noise."""
        rounds = (self.weights[one] - self.weights[other]) @ self.spread
        return float(np.sqrt(1 / self.counts[one] + 1 / self.counts[other] + rounds @ rounds))


def fit(points: Ints, rounds: Ints, values: Floats) -> Fit:
    """Least squares over measurements (n): points are numbered 0 to P - 1 and each has at least one."""
    count = int(points.max()) + 1
    _, rounds = np.unique(rounds, return_inverse=True)
    table = np.zeros((count, int(rounds.max()) + 1))
    np.add.at(table, (points, rounds), 1.0)
    counts = table.sum(axis=1)
    means = np.bincount(points, values) / counts
    weights, inverse = _rounds(table, len(values))
    effects = inverse @ (np.bincount(rounds, values)[1:] - table[:, 1:].T @ means) if inverse.size else np.zeros(0)
    estimates = means - weights @ effects
    of_round = np.append(0.0, effects)[rounds] if inverse.size else 0.0
    residuals = values - estimates[points] - of_round
    df = len(values) - count - len(effects)
    sd = float(np.sqrt((residuals**2).sum() / df)) if df > 0 else float("nan")
    centre = weights @ effects
    shift = float(np.average(centre, weights=counts)) if effects.size else 0.0
    return Fit(
        values=estimates + shift,
        counts=counts.astype(np.int64),
        weights=weights,
        spread=np.asarray(np.linalg.cholesky(inverse) if inverse.size else inverse, np.float64),
        sd=sd,
        df=df,
        drift=float(np.ptp(np.append(0.0, effects))) if effects.size else 0.0,
    )


def pooled(fits: Sequence[Fit]) -> list[Fit]:
    """Each with the noise of all of them together: their points differ, how they were measured does not."""
    df = sum(each.df for each in fits)
    if df == 0:
        return list(fits)
    sd = math.sqrt(sum(each.df * each.sd**2 for each in fits if each.df) / df)
    return [each._replace(sd=sd, df=df) for each in fits]


def _rounds(table: Floats, measurements: int) -> tuple[Floats, Floats]:
    """(P, r) weights of all rounds but the first, and (r, r) their covariance; r = 0 where rounds cannot be told from
    points, or would leave less than two degrees of freedom. table: (P, R), how often each was measured.
    """
    points, rounds = table.shape
    nothing = np.zeros((points, 0)), np.zeros((0, 0))
    if points < 2 or rounds < 2 or measurements - points - (rounds - 1) < 2:
        return nothing
    weights = table[:, 1:] / table.sum(axis=1, keepdims=True)
    normal = np.diag(table[:, 1:].sum(axis=0)) - table[:, 1:].T @ weights
    if np.linalg.matrix_rank(normal) < rounds - 1:
        return nothing
    return weights, np.linalg.inv(normal)


def patterns(found: Fit) -> Ints:
    """(P) the number of each point's pattern: points that were measured in the same rounds are interchangeable."""
    rows = np.column_stack((found.counts, np.round(found.weights, 12)))
    return np.asarray(np.unique(rows, axis=0, return_inverse=True)[1], np.int64).reshape(-1)


def ranges(fits: Sequence[Fit]) -> Floats:
    """(draws): the largest difference of any two points of a fit that noise alone makes, in standard errors, over all
    fits together. The fits share one noise, and each has at least two points. The same designs give the same draws.
    """
    designs = [_design(fit) for fit in fits]
    drawn = [
        np.max([_widest(noise, design) for noise, design in zip(noises, designs, strict=True)], axis=0) / sd
        for noises, sd in estimates(*fits)
    ]
    return np.concatenate(drawn)


def apart(fit: Fit) -> float:
    """The largest difference of any two points, in standard errors."""
    return float(_widest(fit.values[np.newaxis], _design(fit))[0] / fit.sd)


def differences(fit: Fit, pairs: Sequence[tuple[int, int]]) -> Floats:
    """(draws): the largest difference that noise alone makes in any of these pairs, in standard errors."""
    ones, others = np.array(pairs).T
    errors = np.array([fit.difference_sd(one, other) for one, other in pairs])
    return np.concatenate(
        [(np.abs(noise[:, ones] - noise[:, others]) / errors).max(axis=1) / sd for (noise,), sd in estimates(fit)]
    )


class _Design(NamedTuple):
    """Design of a fit. order: (P) points sorted by pattern. starts: index of the first point of each pattern in
    `order`. errors: (patterns, patterns) standard error of the difference of two points, in units of the noise.
    """

    order: Ints
    starts: Ints
    errors: Floats


def _design(fit: Fit) -> _Design:
    order, starts = _by_pattern(patterns(fit))
    return _Design(order, starts, _errors(fit, order, starts))


def _widest(values: Floats, design: _Design) -> Floats:
    """(k): the largest difference of any two points, in standard errors for a noise of 1. values: (k, P)."""
    some = values[:, design.order]
    tops, bottoms = (extreme.reduceat(some, design.starts, axis=1) for extreme in (np.maximum, np.minimum))
    widest = np.zeros(len(some))
    for mine, errors in enumerate(design.errors):
        widest = np.maximum(widest, ((tops - bottoms[:, [mine]]) / errors).max(axis=1))
    return widest


def _by_pattern(numbers: Ints) -> tuple[Ints, Ints]:
    """(P) points pattern by pattern, and where among them each pattern begins."""
    order = np.argsort(numbers, kind="stable")
    return order, np.flatnonzero(np.diff(numbers[order], prepend=-1))


def _errors(found: Fit, order: Ints, starts: Ints) -> Floats:
    """(patterns, patterns): of the difference of a point each, in units of the noise."""
    first = order[starts]
    square = 1 / found.counts[first][:, None] + 1 / found.counts[first][None, :]
    if found.spread.size:
        rounds = (found.weights[first][:, None, :] - found.weights[first][None, :, :]) @ found.spread
        square = square + (rounds**2).sum(axis=2)
    return np.asarray(np.sqrt(square), np.float64)


def estimates(*fits: Fit) -> Iterator[tuple[list[Floats], Floats]]:
    """Draws in portions of k: for each fit (k, P) the estimates of points that do not differ, in units of the noise,
    and (k) the estimates of the noise, which all fits share.
    """
    random: Any = np.random.default_rng(_SEED)
    count = sum(len(fit.values) for fit in fits)
    left = int(np.clip(_NUMBERS // count, _FEWEST, _DRAWS))
    while left > 0:
        some = min(left, max(1, _AT_ONCE // count))
        left -= some
        noises = [_noise(random, fit, some) for fit in fits]
        yield noises, np.sqrt(random.chisquare(fits[0].df, some) / fits[0].df)


def _noise(random: Any, fit: Fit, draws: int) -> Floats:
    """(draws, P): estimates of points that do not differ, in units of the noise."""
    noise: Floats = random.standard_normal((draws, len(fit.values))) / np.sqrt(fit.counts)
    if fit.spread.size:
        noise -= random.standard_normal((draws, len(fit.spread))) @ (fit.weights @ fit.spread).T
    return noise
