"""How much alike the I/O of two programs is: by the DLIO paper's measure, and by sharper ones.

The paper's (CCGrid 2021, section V.B): each factor of both divided by the larger of the two, then the cosine of the two
vectors. A cosine of numbers between 0 and 1 flatters, and half of the factors are the machine's: I/O time, rates.

Pattern similarity is the mean of the smaller over the larger, so 1 less the mean of Fig. 8's differences, over factors
that neither machine nor scale changes. It is 1 for equal patterns alone, and a factor that is ten times too large
costs nine tenths of its share, where it hardly turns a vector. One request in a hundred makes no other pattern: shares
below that count as that, and a median that so few would move, where all requests of both are known, as where they
would. (Who reads files whole and finds their ends makes as many requests of nothing as of whole files; a single one
more decides what the median is.)
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.similarity import io_profile, reference_profile, request_distance
from dlio_hpc.analysis.similarity.io_profile import SLACK, Profile
from dlio_hpc.analysis.similarity.request_distance import Distance

# In the order of section V.B; the last one is ours.
PAPER = (
    "io_s", "bytes", "request_min", "request_max", "request_mean", "request_median", "rate_mean", "rate_median",
    "sequential", "consecutive", "files",
)  # fmt: skip
PATTERN = (
    "request_min", "request_max", "request_mean", "request_median", "sequential", "consecutive", "bytes_per_sample",
)  # fmt: skip
FACTORS = (*PAPER, "bytes_per_sample")
# Bytes of a sample are what a workload asks for; all others were seen.
SEEN = tuple(name for name in PATTERN if name != "bytes_per_sample")
# Pattern similarities that are nearer to each other than this are no difference.
TIE = 0.01
_PUBLISHED, _SMALLER = "theta_128_nodes", "theta_8_nodes"


class Factor(Struct, frozen=True):
    """difference: (a - b) / max(a, b), as Fig. 8 has it; apart: its size, as patterns count it. None where one of
    both is not known.
    """

    name: str
    a: float | None
    b: float | None
    difference: float | None
    apart: float | None


class Score(Struct, frozen=True):
    """cosine: of the paper. ratio: mean of the smaller over the larger. None: nothing could be compared.

    left_out: factors that are not known of both.
    """

    cosine: float | None
    ratio: float | None
    left_out: tuple[str, ...]


class Similarity(Struct, frozen=True):
    """paper, pattern: over their factors. sizes, volumes: distance between request sizes, each counting once or by its
    bytes; jumps: between what lies between requests. None: one of the two has no such distribution.
    """

    factors: tuple[Factor, ...]
    paper: Score
    pattern: Score
    sizes: Distance | None
    volumes: Distance | None
    jumps: Distance | None

    @property
    def left_out(self) -> set[str]:
        """Factors that are not known of both."""
        return {each.name for each in self.factors if each.difference is None}


class Span(NamedTuple):
    """Of scores of so many pairs."""

    least: float
    median: float
    most: float
    pairs: int


class Yardstick(NamedTuple):
    """What pairs of published profiles score by one measure. kindred: one application on 8 and on 128 nodes; strangers:
    different ones, on 128 nodes.
    """

    kindred: Span
    strangers: Span


class Yardsticks(NamedTuple):
    paper: Yardstick
    pattern: Yardstick
    pattern_cosine: Yardstick


class Row(NamedTuple):
    """One program against many. scores: pattern similarity to each column by the factors that all of them know, or
    fewer numbers would be the better ones; None where it is the same program, or nothing can be compared. left_out: the
    other factors. nearest: columns within TIE of the best. own: columns of its own application.
    """

    profile: Profile
    cells: list[Similarity | None]
    scores: list[float | None]
    left_out: list[str]
    nearest: list[int]
    own: list[int]

    @property
    def finds_own(self) -> bool | None:
        """Is it nearest to its own application? None where that is not among the columns."""
        return bool(set(self.nearest) & set(self.own)) if self.own else None

    @property
    def is_tied(self) -> bool:
        """With others than its own."""
        return bool(set(self.nearest) - set(self.own))


class Matrix(NamedTuple):
    columns: list[Profile]
    rows: list[Row]

    @property
    def left_out(self) -> set[str]:
        """By every row."""
        return set.intersection(*(set(row.left_out) for row in self.rows))


def compare(a: Profile, b: Profile) -> Similarity:
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
    """Each of `rows` against all of `columns`, by factors of these names; what has the same title in both is not
    compared with itself.
    """
    return Matrix(list(columns), [_row(each, columns, names) for each in rows])


def as_seen(made: Matrix) -> Matrix:
    """The same without what was asked for."""
    return matrix([row.profile for row in made.rows], made.columns, SEEN)


def yardsticks(left_out: Iterable[str] = ()) -> Yardsticks:
    """From the profiles that ship, without the factors that the programs at hand do not know either."""
    without = set(left_out)
    large, small = (list(map(io_profile.of_reference, reference_profile.load(name))) for name in (_PUBLISHED, _SMALLER))
    strangers = [compare(one, other) for one, other in itertools.combinations(large, 2)]
    kindred = [compare(a, b) for a in small for b in large if a.application == b.application]
    paper, pattern = (
        [[_score(each.factors, _but(names, without)) for each in pairs] for pairs in (kindred, strangers)]
        for names in (PAPER, PATTERN)
    )
    return Yardsticks(
        Yardstick(*(_span([each.cosine for each in scores]) for scores in paper)),
        Yardstick(*(_span([each.ratio for each in scores]) for scores in pattern)),
        Yardstick(*(_span([each.cosine for each in scores]) for scores in pattern)),
    )


def _but(names: tuple[str, ...], without: set[str]) -> tuple[str, ...]:
    """All of them where there is nothing else."""
    return tuple(name for name in names if name not in without) or names


def _factor(name: str, one: Profile, other: Profile) -> Factor:
    a, b = getattr(one, name), getattr(other, name)
    if a is None or b is None:
        return Factor(name, a, b, None, None)
    difference = _difference(a, b)
    if name in ("sequential", "consecutive"):
        return Factor(name, a, b, difference, abs(_difference(max(a, SLACK), max(b, SLACK))))
    if name == "request_median" and one.around_median and other.around_median:
        (low, high), (low_other, high_other) = one.around_median, other.around_median
        above, below = max(low, low_other), min(high, high_other)  # in this order where the spans do not meet
        return Factor(name, a, b, difference, _difference(max(above, below), below))
    return Factor(name, a, b, difference, abs(difference))


def _difference(a: float, b: float) -> float:
    larger = max(a, b)
    return (a - b) / larger if larger else 0.0


def _score(factors: tuple[Factor, ...], names: tuple[str, ...]) -> Score:
    """What is zero in both turns no vector, and is equal."""
    asked = [each for each in factors if each.name in names]
    known = [(each.a, each.b, each.apart) for each in asked if each.apart is not None]
    left_out = tuple(each.name for each in asked if each.apart is None)
    if not known:
        return Score(None, None, left_out)
    ratio = 1 - sum(apart for _, _, apart in known) / len(known)
    pairs = [(a, b) for a, b, _ in known if a is not None and b is not None]
    return Score(_cosine(pairs), ratio, left_out)


def _cosine(pairs: list[tuple[float, float]]) -> float:
    """Of the two vectors of what is divided by the larger of each pair; 0 where one of them has no length alone."""
    divided = np.array([(a / max(a, b), b / max(a, b)) for a, b in pairs if max(a, b) > 0]).reshape(-1, 2)
    if not len(divided):
        return 1.0
    one, other = divided.T
    lengths = math.sqrt(float(one @ one) * float(other @ other))
    return min(float(one @ other) / lengths, 1.0) if lengths else 0.0


def _distance(a: request_distance.Distribution | None, b: request_distance.Distribution | None) -> Distance | None:
    return None if a is None or b is None else request_distance.distance(a, b)


def _row(one: Profile, columns: Sequence[Profile], asked: tuple[str, ...]) -> Row:
    cells = [None if each.title == one.title else compare(one, each) for each in columns]
    left_out = [name for name in asked if any(cell and name in cell.pattern.left_out for cell in cells)]
    names = tuple(name for name in asked if name not in left_out)
    scores = [None if cell is None else _score(cell.factors, names).ratio for cell in cells]
    best = max((score for score in scores if score is not None), default=None)
    nearest = [at for at, score in enumerate(scores) if score is not None and best is not None and score >= best - TIE]
    others = [(at, each) for at, each in enumerate(columns) if each.title != one.title and each.application]
    own = [at for at, each in others if each.application == one.application]
    return Row(one, cells, scores, left_out, nearest, own)


def _span(scores: Sequence[float | None]) -> Span:
    known = [score for score in scores if score is not None]
    return Span(min(known), float(np.median(known)), max(known), len(known))
