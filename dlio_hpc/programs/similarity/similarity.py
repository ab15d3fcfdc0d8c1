"""Similarity of the I/O of two programs, by the measure of the DLIO paper and by stricter measures.

A factor is a metric of both programs. The measure of the paper (CCGrid 2021, section V.B) describes each program by a
vector of its factors. It divides both values of each factor by the larger one, and takes the cosine of the two vectors.
This cosine is also high for different programs, because all elements of the vectors are between 0 and 1. Half of the
factors, such as I/O time and rates, depend on the machine.

Pattern similarity uses only factors that do not depend on the machine or the scale. It divides the smaller value of
each factor by the larger, and takes the mean over the factors. This is 1 minus the mean of the differences in Fig. 8 of
the paper, and it is 1 only for equal patterns. If one of n factors differs tenfold between the programs, the mean falls
by 0.9 / n, but the cosine hardly changes.

One percent of the requests (SLACK) must not change pattern similarity. Shares below SLACK are therefore treated as
SLACK. If all requests of both programs are known, the median request size is replaced by a range: the values that the
median can take if one percent of the requests changes. Without this range, one request can decide the median. For
example, a program that reads each file in one request and then makes another request at the end of the file makes as
many empty requests as full ones.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.programs.similarity import io_profile, reference_profile, request_distance
from dlio_hpc.programs.similarity.io_profile import SLACK, Profile
from dlio_hpc.programs.similarity.request_distance import Distance

# Factors of the paper's measure, in the order of section V.B of the paper.
PAPER = (
    "io_s", "bytes", "request_min", "request_max", "request_mean", "request_median", "rate_mean", "rate_median",
    "sequential", "consecutive", "files",
)  # fmt: skip
PATTERN = (
    "request_min", "request_max", "request_mean", "request_median", "sequential", "consecutive", "bytes_per_sample",
)  # fmt: skip
FACTORS = (*PAPER, "bytes_per_sample")
# Pattern factors that are observed. bytes_per_sample is not observed: the workload sets it.
SEEN = tuple(name for name in PATTERN if name != "bytes_per_sample")
# Largest difference between two pattern similarities that count as equal.
TIE = 0.01
# Pattern similarity that runs of one application usually reach.
USUAL = 0.95
_PUBLISHED, _SMALLER = "theta_128_nodes", "theta_8_nodes"


class Factor(Struct, frozen=True):
    """Values of a metric for two programs, a and b. difference: (a - b) / max(a, b), as in Fig. 8 of the paper; it may
    be negative. apart: the difference that pattern similarity uses, between 0 and 1. It is the absolute value of
    `difference`. For sequential, consecutive and request_median it is smaller, because deviations in one percent of the
    requests (SLACK) are tolerated. difference and apart are None if a or b is unknown.
    """

    name: str
    a: float | None
    b: float | None
    difference: float | None
    apart: float | None


class Score(Struct, frozen=True):
    """Similarity of two programs over a set of factors. cosine: the measure of the paper. ratio: the smaller value of a
    factor divided by the larger, as the mean over the factors. Both are None if no factor is known for both programs.
    left_out: factors that are unknown for at least one of the programs.
    """

    cosine: float | None
    ratio: float | None
    left_out: tuple[str, ...]


class Similarity(Struct, frozen=True):
    """Similarity of two programs. paper: scores over the factors of the DLIO paper. pattern: scores over the factors
    that do not depend on the machine or the scale. sizes, volumes, jumps: distances between the distributions of the
    same name in the two profiles; None if a profile lacks the distribution.
    """

    factors: tuple[Factor, ...]
    paper: Score
    pattern: Score
    sizes: Distance | None
    volumes: Distance | None
    jumps: Distance | None

    @property
    def left_out(self) -> set[str]:
        """Factors that are unknown for at least one of the programs."""
        return {factor.name for factor in self.factors if factor.difference is None}


class ScoreRange(NamedTuple):
    """Range of the scores of several pairs of programs. pairs: number of these pairs."""

    least: float
    median: float
    most: float
    pairs: int


class Yardstick(NamedTuple):
    """Scores of pairs of published profiles by one measure. The score of another pair of programs is compared with
    these scores. kindred: scores of pairs of the same application, on 8 and on 128 nodes. strangers: scores of pairs of
    different applications, both on 128 nodes.
    """

    kindred: ScoreRange
    strangers: ScoreRange


class Yardsticks(NamedTuple):
    """Scores of pairs of published profiles by three measures. paper: cosine over the paper's factors. pattern: pattern
    similarity. pattern_cosine: cosine over the pattern factors.
    """

    paper: Yardstick
    pattern: Yardstick
    pattern_cosine: Yardstick


class MatrixRow(NamedTuple):
    """Comparison of one program with the programs of all columns. cells: similarity to each column; None for the same
    program. scores: pattern similarity to each column; None for the same program, or if nothing can be compared. All
    scores of the row use the same factors: only those that are known for the row and for every column. Otherwise a
    column with fewer known factors could get a higher score. left_out: factors that are not used. nearest: indices of
    the columns whose score differs from the best score by at most TIE (0.01). own: indices of the columns of the same
    application.
    """

    profile: Profile
    cells: list[Similarity | None]
    scores: list[float | None]
    left_out: list[str]
    nearest: list[int]
    own: list[int]

    @property
    def finds_own(self) -> bool | None:
        """Whether a column of the row's own application is among the nearest columns; None if there is no column of
        that application.
        """
        return bool(set(self.nearest) & set(self.own)) if self.own else None

    @property
    def is_tied(self) -> bool:
        """Whether the nearest columns include a column of an application other than the row's own."""
        return bool(set(self.nearest) - set(self.own))


class Matrix(NamedTuple):
    columns: list[Profile]
    rows: list[MatrixRow]

    @property
    def left_out(self) -> set[str]:
        """Factors that every row leaves out."""
        return set.intersection(*(set(row.left_out) for row in self.rows))


def compare(a: Profile, b: Profile) -> Similarity:
    """Return the similarity of two profiles by all measures."""
    factors = tuple(_factor(name, a, b) for name in FACTORS)
    return Similarity(
        factors,
        _score(factors, PAPER),
        _score(factors, PATTERN),
        _distance(a.sizes, b.sizes),
        _distance(a.volumes, b.volumes),
        _distance(a.jumps, b.jumps),
    )


def matrix(rows: Sequence[Profile], columns: Sequence[Profile], names: tuple[str, ...] = PATTERN) -> Matrix:
    """Compare each profile in `rows` with each in `columns`, by pattern similarity over the factors `names`. Profiles
    with the same title are not compared.
    """
    return Matrix(list(columns), [_row(profile, columns, names) for profile in rows])


def as_seen(made: Matrix) -> Matrix:
    """Return a matrix of the programs in `made`, with other factors: SEEN, the pattern factors that are observed and
    not set by the workload.
    """
    return matrix([row.profile for row in made.rows], made.columns, SEEN)


def yardsticks(left_out: Iterable[str] = ()) -> Yardsticks:
    """Compute the scores of pairs of the shipped profiles. Other scores are compared with these scores. left_out:
    factors that are not used, because they are unknown for the compared programs.
    """
    without = set(left_out)
    large, small = (list(map(io_profile.of_reference, reference_profile.load(name))) for name in (_PUBLISHED, _SMALLER))
    strangers = [compare(a, b) for a, b in itertools.combinations(large, 2)]
    kindred = [compare(a, b) for a in small for b in large if a.application == b.application]
    paper, pattern = (
        [[_score(pair.factors, _but(names, without)) for pair in pairs] for pairs in (kindred, strangers)]
        for names in (PAPER, PATTERN)
    )
    return Yardsticks(
        Yardstick(*(_span([score.cosine for score in scores]) for scores in paper)),
        Yardstick(*(_span([score.ratio for score in scores]) for scores in pattern)),
        Yardstick(*(_span([score.cosine for score in scores]) for scores in pattern)),
    )


def _but(names: tuple[str, ...], without: set[str]) -> tuple[str, ...]:
    """Return the names that are not in `without`, or all names if none would remain."""
    return tuple(name for name in names if name not in without) or names


def _factor(name: str, first: Profile, second: Profile) -> Factor:
    a, b = getattr(first, name), getattr(second, name)
    if a is None or b is None:
        return Factor(name, a, b, None, None)
    difference = _difference(a, b)
    if name in ("sequential", "consecutive"):
        return Factor(name, a, b, difference, abs(_difference(max(a, SLACK), max(b, SLACK))))
    around, around_other = (_around(name, profile) for profile in (first, second))
    if around and around_other:
        (low, high), (low_other, high_other) = around, around_other
        above, below = max(low, low_other), min(high, high_other)  # above > below only if the ranges do not overlap
        return Factor(name, a, b, difference, _difference(max(above, below), below))
    return Factor(name, a, b, difference, abs(difference))


def _around(name: str, profile: Profile) -> tuple[float, float] | None:
    """Return the range of the request size if a few requests change; None for other factors."""
    return {"request_median": profile.around_median, "request_min": profile.around_min}.get(name)


def _difference(a: float, b: float) -> float:
    larger = max(a, b)
    return (a - b) / larger if larger else 0.0


def _score(factors: tuple[Factor, ...], names: tuple[str, ...]) -> Score:
    """Return the scores over the factors with these names. If a factor is 0 for both programs, the ratio treats it as
    equal, and the cosine does not use it.
    """
    asked = [factor for factor in factors if factor.name in names]
    known = [(factor.a, factor.b, factor.apart) for factor in asked if factor.apart is not None]
    left_out = tuple(factor.name for factor in asked if factor.apart is None)
    if not known:
        return Score(None, None, left_out)
    ratio = 1 - sum(apart for _, _, apart in known) / len(known)
    pairs = [(a, b) for a, b, _ in known if a is not None and b is not None]
    return Score(_cosine(pairs), ratio, left_out)


def _cosine(pairs: list[tuple[float, float]]) -> float:
    """Return the cosine of two vectors. pairs: the elements of both vectors at each index. Both elements of a pair are
    first divided by the larger one. Return 1 if both vectors are zero, and 0 if only one is zero.
    """
    divided = np.array([(a / max(a, b), b / max(a, b)) for a, b in pairs if max(a, b) > 0]).reshape(-1, 2)
    if not len(divided):
        return 1.0
    first, second = divided.T
    lengths = math.sqrt(float(first @ first) * float(second @ second))
    return min(float(first @ second) / lengths, 1.0) if lengths else 0.0


def _distance(
    a: request_distance.RequestDistribution | None, b: request_distance.RequestDistribution | None
) -> Distance | None:
    return None if a is None or b is None else request_distance.distance(a, b)


def _row(profile: Profile, columns: Sequence[Profile], asked: tuple[str, ...]) -> MatrixRow:
    cells = [None if column.title == profile.title else compare(profile, column) for column in columns]
    left_out = [name for name in asked if any(cell and name in cell.pattern.left_out for cell in cells)]
    names = tuple(name for name in asked if name not in left_out)
    scores = [None if cell is None else _score(cell.factors, names).ratio for cell in cells]
    best = max((score for score in scores if score is not None), default=None)
    nearest = [at for at, score in enumerate(scores) if score is not None and best is not None and score >= best - TIE]
    others = [(at, column) for at, column in enumerate(columns) if column.title != profile.title and column.application]
    own = [at for at, column in others if column.application == profile.application]
    return MatrixRow(profile, cells, scores, left_out, nearest, own)


def _span(scores: Sequence[float | None]) -> ScoreRange:
    known = [score for score in scores if score is not None]
    return ScoreRange(min(known), float(np.median(known)), max(known), len(known))
