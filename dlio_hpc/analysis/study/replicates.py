"""Repeated measurements of several points: the means of the points, and the differences that noise alone would make.

Values are logarithms, so their differences are ratios. A value is modelled as the sum of an effect of its point, an
effect of its round, and noise. Some changes affect all points of a round alike, for example the load from other jobs.
Such a change is part of the effect of the round and not of the noise.

A value "in units of the noise" is a value divided by the standard deviation of a single measurement. In a noise-only
simulation, all points have the same true value, and measurements differ only by noise.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.study import job_spread
from dlio_hpc.analysis.study.job_spread import JobSpread

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Confidence of an interval: 5 % are outside, below or above.
SURE = 0.95
# Largest and smallest number of simulations; largest number of random numbers in total, and at a time. With many points
# there are fewer simulations, because the largest number of them would take minutes.
_DRAWS, _FEWEST, _NUMBERS, _AT_ONCE = 20_000, 2_000, 100_000_000, 1_000_000
_SEED = 20_260_101
# A standard deviation of logarithms below this limit counts as unknown, because values that agree to the last digit do
# not show the noise.
NO_NOISE = 1e-9


class Fit(NamedTuple):
    """Fit of P points and r rounds to measurements. Effects are estimated for all rounds but the first, so r is the
    number of rounds minus 1. If these effects cannot be estimated, r is 0. values: estimate of each point, shape (P,).
    medians: median of the measurements of each point, shape (P,). counts: number of measurements of each point, shape
    (P,). weights: share of each point's measurements that were made in each round, shape (P, r). spread: Cholesky
    factor of the covariance of the estimated effects of the rounds, in units of the noise, shape (r, r). sd: standard
    deviation of a single measurement; nan without repeats. df: degrees of freedom of sd. drift: difference between the
    effects of the fastest and of the slowest round. runs_of_job: largest number of measurements of a point in one job,
    if points were measured in different jobs whose effects cannot be estimated; otherwise 0.
    """

    values: Floats
    medians: Floats
    counts: Ints
    weights: Floats
    spread: Floats
    sd: float
    df: int
    drift: float
    runs_of_job: int = 0

    @property
    def is_noise_known(self) -> bool:
        """Whether the noise is known."""
        return self.df > 0 and self.sd > NO_NOISE

    @property
    def levels(self) -> Floats:
        """Value of each point for comparisons between points: the median of its measurements. If points were measured
        in different rounds, it is the estimate in `values` instead, because medians would include the differences
        between rounds.
        """
        return self.values if self.spread.size and not _is_alike(self) else self.medians

    def difference_sd(self, a: int, b: int) -> float:
        """Return the standard error of the difference between the estimates of two points, in units of the noise."""
        rounds = (self.weights[a] - self.weights[b]) @ self.spread
        return float(np.sqrt(1 / self.counts[a] + 1 / self.counts[b] + rounds @ rounds))


def fit(points: Ints, rounds: Ints, values: Floats) -> Fit:
    """Fit points and rounds to measurements by least squares. For each measurement, `points` has the number of its
    point, `rounds` the number of its round, and `values` its value. Points are numbered 0 to P - 1; each point has at
    least one measurement.
    """
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
        medians=np.array([np.median(values[points == point]) for point in range(count)]),
        counts=counts.astype(np.int64),
        weights=weights,
        spread=np.asarray(np.linalg.cholesky(inverse) if inverse.size else inverse, np.float64),
        sd=sd,
        df=df,
        drift=float(np.ptp(np.append(0.0, effects))) if effects.size else 0.0,
    )


def log_medians(points: Ints, levels: Floats) -> Floats:
    """Return the logarithm of the median of the measurements of each point, as reports show it. levels: values of the
    measurements; points: as for fit().
    """
    return np.log([np.median(levels[points == point]) for point in range(int(points.max()) + 1)])


def pooled(fits: Sequence[Fit]) -> list[Fit]:
    """Return the fits with a common standard deviation, which is computed from the measurements of all fits. The fits
    are of different points, which were measured in the same way.
    """
    df = sum(fit.df for fit in fits)
    if df == 0:
        return list(fits)
    sd = math.sqrt(sum(fit.df * fit.sd**2 for fit in fits if fit.df) / df)
    return [fit._replace(sd=sd, df=df) for fit in fits]


def widened(fits: Sequence[Fit], assumed: JobSpread) -> list[Fit]:
    """Return fits with a common standard deviation. If points were measured in different jobs whose effects cannot be
    estimated, the standard deviation includes the assumed variation between jobs: it is large enough for points whose
    measurements were all made in one job. If each measurement was made in a job of its own, the differences between
    repeats include the variation between jobs already.
    """
    runs = max((fit.runs_of_job for fit in fits), default=0)
    if runs < 2 or not fits[0].is_noise_known:
        return list(fits)
    variance, df = job_spread.combined([fits[0].sd ** 2, runs * assumed.sd**2], [fits[0].df, assumed.df])
    return [fit._replace(sd=math.sqrt(variance), df=max(1, int(df))) for fit in fits]


def _rounds(table: Floats, measurements: int) -> tuple[Floats, Floats]:
    """Return two arrays, `weights` and `covariance`, for P points and r rounds. Effects are estimated for r rounds: all
    rounds but the first. weights, shape (P, r): share of each point's measurements that were made in each round.
    covariance, shape (r, r): covariance of the estimated effects of the rounds. r is 0 if the effects of rounds and
    points cannot be separated, or if fewer than two degrees of freedom would be left.

    table: number of measurements of each point in each round.
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


def patterns(fitted: Fit) -> Ints:
    """Return the index of each point's pattern, shape (P,). The pattern of a point consists of its counts of
    measurements in each round, or is its total count if effects of rounds are not estimated. Points with the same
    pattern have the same standard errors.
    """
    return np.asarray(np.unique(_pattern_rows(fitted), axis=0, return_inverse=True)[1], np.int64).reshape(-1)


def _pattern_rows(fitted: Fit) -> Floats:
    """Return the pattern of each point as a row."""
    return np.column_stack((fitted.counts, np.round(fitted.weights, 12)))


def _is_alike(fitted: Fit) -> bool:
    """Return whether all points have the same pattern."""
    rows = _pattern_rows(fitted)
    return bool((rows == rows[0]).all())


def ranges(fits: Sequence[Fit]) -> Floats:
    """For each noise-only simulation, return the largest difference, in standard errors, between any two points of the
    same fit, over all fits. The fits have the same noise, and each has at least two points. The result depends only on
    the numbers of measurements of the points in the rounds.
    """
    designs = [_design(fit) for fit in fits]
    drawn = [
        np.max([_widest(noise, design) for noise, design in zip(noises, designs, strict=True)], axis=0) / sd
        for noises, sd in estimates(*fits)
    ]
    return np.concatenate(drawn)


def apart(fit: Fit) -> float:
    """Return the largest difference between any two points of a fit, in standard errors."""
    return float(_widest(fit.values[np.newaxis], _design(fit))[0] / fit.sd)


def differences(variances: Floats, df: float, pairs: Sequence[tuple[int, int]]) -> Floats:
    """For each noise-only simulation, return the largest difference, in standard errors, between the two points of any
    of these pairs. variances: variance of the estimate of each point; only their ratios matter. df: degrees of freedom
    of the variances.
    """
    random: Any = np.random.default_rng(_SEED)
    first, second = np.array(pairs).T
    errors = np.sqrt(variances[first] + variances[second])
    drawn = []
    for some in _batches(len(variances)):
        noise = random.standard_normal((some, len(variances))) * np.sqrt(variances)
        widest = (np.abs(noise[:, first] - noise[:, second]) / errors).max(axis=1)
        drawn.append(widest / np.sqrt(random.chisquare(df, some) / df))
    return np.concatenate(drawn)


class _Design(NamedTuple):
    """Points of a fit, sorted by their patterns (see patterns()). order: numbers of the points. starts: index in
    `order` of the first point of each pattern. errors: standard error of the difference between a point of one pattern
    and a point of another, in units of the noise, shape (patterns, patterns).
    """

    order: Ints
    starts: Ints
    errors: Floats


def _design(fit: Fit) -> _Design:
    order, starts = _by_pattern(patterns(fit))
    return _Design(order, starts, _errors(fit, order, starts))


def _widest(values: Floats, design: _Design) -> Floats:
    """Return, for each row of `values`, the largest difference between any two points in standard errors. values:
    estimates of the points in units of the noise, shape (rows, P).
    """
    some = values[:, design.order]
    tops, bottoms = (extreme.reduceat(some, design.starts, axis=1) for extreme in (np.maximum, np.minimum))
    widest = np.zeros(len(some))
    for mine, errors in enumerate(design.errors):
        widest = np.maximum(widest, ((tops - bottoms[:, [mine]]) / errors).max(axis=1))
    return widest


def _by_pattern(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the numbers of the points, sorted by pattern, and the index at which each pattern starts among them.
    numbers: pattern number of each point.
    """
    order = np.argsort(numbers, kind="stable")
    return order, np.flatnonzero(np.diff(numbers[order], prepend=-1))


def _errors(fitted: Fit, order: Ints, starts: Ints) -> Floats:
    """Return the standard error of the difference between a point of one pattern and a point of another, for each pair
    of patterns, shape (patterns, patterns). The result becomes _Design.errors. order, starts: as in _Design.
    """
    first = order[starts]
    square = 1 / fitted.counts[first][:, None] + 1 / fitted.counts[first][None, :]
    if fitted.spread.size:
        rounds = (fitted.weights[first][:, None, :] - fitted.weights[first][None, :, :]) @ fitted.spread
        square = square + (rounds**2).sum(axis=2)
    return np.asarray(np.sqrt(square), np.float64)


def estimates(*fits: Fit) -> Iterator[tuple[list[Floats], Floats]]:
    """Yield noise-only simulations in batches. A batch of k simulations is a pair. The first item holds, for each fit,
    the estimates of points whose true values are equal, in units of the noise, shape (k, P). The second item holds the
    estimates of the noise that all fits share, shape (k,).
    """
    random: Any = np.random.default_rng(_SEED)
    for some in _batches(sum(len(fit.values) for fit in fits)):
        noises = [_noise(random, fit, some) for fit in fits]
        yield noises, np.sqrt(random.chisquare(fits[0].df, some) / fits[0].df)


def _batches(count: int) -> Iterator[int]:
    """Yield the number of simulations in each batch. count: number of random numbers that a simulation takes."""
    left = int(np.clip(_NUMBERS // count, _FEWEST, _DRAWS))
    while left > 0:
        some = min(left, max(1, _AT_ONCE // count))
        left -= some
        yield some


def _noise(random: Any, fit: Fit, draws: int) -> Floats:
    """Return simulated estimates of points whose true values are equal, in units of the noise, shape (draws, P)."""
    noise: Floats = random.standard_normal((draws, len(fit.values))) / np.sqrt(fit.counts)
    if fit.spread.size:
        noise -= random.standard_normal((draws, len(fit.spread))) @ (fit.weights @ fit.spread).T
    return noise
