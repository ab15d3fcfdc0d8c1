"""Similarities in words and cells, for the terminal and for pages."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from dlio_hpc.analysis.similarity import request_distance, similarity
from dlio_hpc.analysis.similarity.io_profile import Profile
from dlio_hpc.analysis.similarity.request_distance import Distance, Distribution, Grain
from dlio_hpc.analysis.similarity.similarity import (
    FACTORS,
    PAPER,
    PATTERN,
    SEEN,
    Factor,
    Matrix,
    Row,
    Similarity,
    Span,
    Yardsticks,
)
from dlio_hpc.units import format_seconds, format_size

_UNKNOWN = "-"


def _rate(value: float) -> str:
    return f"{value:,.0f} MB/s" if value >= 100 else f"{value:.3g} MB/s"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _count(value: float) -> str:
    return f"{value:,.0f}"


_LABELS: dict[str, tuple[str, Callable[[float], str]]] = {
    "io_s": ("I/O time a rank", format_seconds),
    "bytes": ("bytes", format_size),
    "request_min": ("request, smallest", format_size),
    "request_max": ("request, largest", format_size),
    "request_mean": ("request, mean", format_size),
    "request_median": ("request, median", format_size),
    "rate_mean": ("rate of one, mean", _rate),
    "rate_median": ("rate of one, median", _rate),
    "sequential": ("sequential", _percent),
    "consecutive": ("consecutive", _percent),
    "files": ("files", _count),
    "bytes_per_sample": ("bytes a sample", format_size),
}
FACTOR_HEADER = ("factor", "A", "B", "(A-B)/larger", "counts for")
MEASURE_HEADER = ("measure", "A and B", "same application", "different ones")
LEGEND = (
    "Same application: published profiles of it on 8 and on 128 nodes. Different ones: pairs of seven applications on "
    "128 nodes; CANDLE, CosmoFlow and ImageNet stream 256 KiB alike. All of them by the factors that are known here. "
    "The paper's cosine has time, rates and bytes in it: it means something between runs of one scale on one machine. "
    "Pattern similarity: mean of smaller over larger, of factors that neither scale nor machine should change; one "
    "request in a hundred changes none, so what counts there may be less than what the paper's measure sees."
)
APART = (
    "Apart: by how many doublings the requests of one have to be moved, on average, to become those of the other; "
    "near: 1 for equal ones, half for each doubling."
)


def label(name: str) -> str:
    """Of a factor."""
    return _LABELS[name][0]


def whose(found: Profile) -> str:
    ranks = f"{found.ranks} ranks, " if found.ranks else ""
    return f"{ranks}{found.source}"


def factors(found: Similarity) -> list[list[str]]:
    """As FACTOR_HEADER names them."""
    return [[label(each.name), *_values(each), _counts_for(each)] for each in found.factors]


def _values(factor: Factor) -> list[str]:
    form = _LABELS[factor.name][1]
    shown = [_UNKNOWN if value is None else form(value) for value in (factor.a, factor.b)]
    return [*shown, _UNKNOWN if factor.difference is None else f"{round(factor.difference, 2) + 0.0:.2f}"]


def _counts_for(factor: Factor) -> str:
    """Where a hundredth of the requests would make the difference, patterns count another one."""
    name = factor.name
    if name in PATTERN and abs(abs(factor.difference or 0.0) - (factor.apart or 0.0)) > 0.005:
        return f"paper; {factor.apart:.2f} in pattern"
    both = [what for what, names in (("paper", PAPER), ("pattern", PATTERN)) if name in names]
    return " and ".join(both) + ("" if name in SEEN or "pattern" not in both else " (asked for)")


def measures(found: Similarity, known: Yardsticks) -> list[list[str]]:
    """As MEASURE_HEADER names them."""
    rows = [
        ("the paper's cosine", found.paper.cosine, known.paper),
        ("pattern similarity", found.pattern.ratio, known.pattern),
        ("pattern, as a cosine", found.pattern.cosine, known.pattern_cosine),
    ]
    return [
        [name, _UNKNOWN if value is None else f"{value:.3f}", span(yard.kindred), span(yard.strangers)]
        for name, value, yard in rows
    ]


def span(found: Span) -> str:
    return f"{found.least:.2f} to {found.most:.2f}, median {found.median:.2f}"


def is_told_apart(found: Similarity) -> bool:
    """Is there any distance between distributions?"""
    return any(each is not None for each in (found.sizes, found.volumes, found.jumps))


def distances(a: Profile, b: Profile, found: Similarity) -> Iterator[tuple[str, str]]:
    """Label and words of each."""
    if not is_told_apart(found):
        without = " and ".join(name for name, each in (("A", a), ("B", b)) if each.sizes is None)
        yield "", f"Whole distributions: not compared, {without or 'A or B'} has figures alone."
        return
    yield "sizes", _distance(found.sizes, "of requests, each counting once")
    yield "bytes", _distance(found.volumes, "sizes of requests, each counting by its bytes")
    yield "jumps", _distance(found.jumps, "from a request's end to the next one's begin")


def _distance(found: Distance | None, what: str) -> str:
    if found is None:
        return f"{what}: unknown, whole traces of both would tell"
    grain = "" if found.grain == Grain.EXACT else f", by {request_distance.GRAINS[found.grain]}"
    return f"{what}: {found.octaves:.2f} octaves apart, {found.closeness:.3f} near{grain}"


def left_out(found: Similarity) -> list[str]:
    """What the measures had to do without."""
    told = []
    for name, score in (("the paper's", found.paper), ("pattern", found.pattern)):
        if score.left_out:
            told.append(f"not known of both, left out of {name}: {', '.join(map(label, score.left_out))}")
    return told


def matrix_left_out(made: Matrix) -> list[str]:
    """Likewise; a line for rows that lack the same."""
    lacking: dict[tuple[str, ...], list[str]] = {}
    for row in made.rows:
        if row.left_out:
            lacking.setdefault(tuple(map(label, row.left_out)), []).append(short(row.profile))
    whose = {words: "" if len(who) == len(made.rows) else f" of {', '.join(who)}" for words, who in lacking.items()}
    return [f"not known of all, left out{whose[words]}: {', '.join(words)}" for words in lacking]


def verdict(found: Similarity) -> str:
    """In one line."""
    pattern = "no pattern" if found.pattern.ratio is None else f"pattern {found.pattern.ratio:.3f}"
    cosine = "none" if found.paper.cosine is None else f"{found.paper.cosine:.3f}"
    sizes = f", request sizes {found.sizes.octaves:.2f} octaves apart" if found.sizes else ""
    return f"{pattern}, the paper's cosine {cosine}{sizes}"


def cosine(found: Similarity) -> str:
    """The paper's."""
    return _UNKNOWN if found.paper.cosine is None else f"{found.paper.cosine:.2f}"


def short(found: Profile) -> str:
    """A name that fits above a column."""
    return found.application or found.title


def names(profiles: Sequence[Profile]) -> list[str]:
    """Short ones, where they tell them apart."""
    found = [short(each) for each in profiles]
    return found if len(set(found)) == len(found) else [each.title for each in profiles]


def nearest(row: Row, columns: Sequence[str]) -> str:
    """columns: their names."""
    return " = ".join(columns[at] for at in row.nearest) or "nothing to compare"


def own(row: Row) -> str:
    """Is it nearest to its own application?"""
    return {None: _UNKNOWN, True: "yes, tied" if row.is_tied else "yes", False: "NO"}[row.finds_own]


def cells(row: Row) -> list[str]:
    """The pattern similarities, the nearest ones marked."""
    return [
        _UNKNOWN if score is None else f"{score:.2f}{'*' if at in row.nearest else ''}"
        for at, score in enumerate(row.scores)
    ]


def found_own(made: Matrix) -> str:
    """How many are, by all factors and by what was seen alone."""
    asked = [row for row in made.rows if row.finds_own is not None]
    if not asked:
        return "No row names its application among the columns, so the nearest match cannot be checked."
    first = f"{_right(asked)} are nearest to their own application."
    if "bytes_per_sample" in made.left_out:
        return first
    seen = [row for row in similarity.as_seen(made).rows if row.finds_own is not None]
    return f"{first} By what was seen, without the bytes of a sample, which are asked for: {_right(seen)}."


def _right(asked: Sequence[Row]) -> str:
    right = sum(bool(row.finds_own) for row in asked)
    tied = sum(bool(row.finds_own and row.is_tied) for row in asked)
    return f"{right} of {len(asked)}" + (f" ({tied} of them tied)" if tied else "")


def as_document(a: Profile, b: Profile, found: Similarity, known: Yardsticks) -> dict[str, Any]:
    """For --json."""
    return {"a": _document(a), "b": _document(b), **_similarity(found), "published": _yardsticks(known)}


def matrix_document(made: Matrix, known: Yardsticks) -> dict[str, Any]:
    """Likewise."""
    columns = [each.title for each in made.columns]
    return {
        "columns": [_document(each) for each in made.columns],
        "rows": [
            {
                **_document(row.profile),
                "scores": dict(zip(columns, row.scores, strict=True)),
                "left_out": row.left_out,
                "nearest": [columns[at] for at in row.nearest],
                "nearest_is_own": row.finds_own,
                "nearest_as_seen": [columns[at] for at in seen.nearest],
                "against": {
                    columns[at]: None if cell is None else _similarity(cell) for at, cell in enumerate(row.cells)
                },
            }
            for row, seen in zip(made.rows, similarity.as_seen(made).rows, strict=True)
        ],
        "published": _yardsticks(known),
    }


def _document(found: Profile) -> dict[str, Any]:
    facts = {name: getattr(found, name) for name in ("title", "kind", "application", "source", "ranks")}
    spread = {name: _quantiles(getattr(found, name)) for name in ("sizes", "volumes", "jumps")}
    return {
        **facts, "factors": {name: getattr(found, name) for name in FACTORS}, "octaves": spread,
        "notes": list(found.notes),
    }  # fmt: skip


def _quantiles(found: Distribution | None) -> dict[str, float] | None:
    if found is None or not len(found.at):
        return None
    shares = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
    return dict(zip(shares, request_distance.quantiles(found, list(shares.values())), strict=True))


def _similarity(found: Similarity) -> dict[str, Any]:
    return {
        "paper": {"cosine": found.paper.cosine, "left_out": list(found.paper.left_out)},
        "pattern": {
            "similarity": found.pattern.ratio, "cosine": found.pattern.cosine, "left_out": list(found.pattern.left_out),
        },
        "factors": msgspec.to_builtins(found.factors),
        "distances": {name: _apart(getattr(found, name)) for name in ("sizes", "volumes", "jumps")},
    }  # fmt: skip


def _apart(found: Distance | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"octaves": found.octaves, "near": found.closeness, "resolution": request_distance.GRAINS[found.grain]}


def _yardsticks(known: Yardsticks) -> dict[str, Any]:
    return {
        name: {"same_application": yard.kindred._asdict(), "different": yard.strangers._asdict()}
        for name, yard in known._asdict().items()
    }
