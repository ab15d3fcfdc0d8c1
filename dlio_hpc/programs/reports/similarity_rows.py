"""Similarities as table rows and lines, for the terminal and the HTML page."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dlio_hpc.base.units import counted, format_seconds, format_size
from dlio_hpc.darshan import log_files
from dlio_hpc.programs.similarity import request_distance, similarity
from dlio_hpc.programs.similarity.io_profile import Profile
from dlio_hpc.programs.similarity.request_distance import Distance, Grain
from dlio_hpc.programs.similarity.similarity import (
    PAPER,
    PATTERN,
    SEEN,
    Factor,
    Matrix,
    MatrixRow,
    ScoreRange,
    Similarity,
    Yardsticks,
)

_UNKNOWN = "-"


def _rate(value: float) -> str:
    return f"{value:,.0f} MB/s" if value >= 100 else f"{value:.3g} MB/s"


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _count(value: float) -> str:
    return f"{value:,.0f}"


_LABELS: dict[str, tuple[str, Callable[[float], str]]] = {
    "io_s": ("I/O time per rank", format_seconds),
    "bytes": ("bytes", format_size),
    "request_min": ("request, smallest", format_size),
    "request_max": ("request, largest", format_size),
    "request_mean": ("request, mean", format_size),
    "request_median": ("request, median", format_size),
    "rate_mean": ("rate per request, mean", _rate),
    "rate_median": ("rate per request, median", _rate),
    "sequential": ("sequential", _percent),
    "consecutive": ("consecutive", _percent),
    "files": ("files", _count),
    "bytes_per_sample": ("bytes per sample", format_size),
}
FACTOR_HEADER = ("factor", "A", "B", "(A-B)/larger", "counts for")
MEASURE_HEADER = ("measure", "A and B", "same application", "different")
LEGEND = (
    "Same application: published profiles of one application on 8 and on 128 nodes. Different: pairs of seven "
    "applications on 128 nodes; CANDLE, CosmoFlow and ImageNet all stream 256 KiB. All scores use the factors that "
    "are known for A and B. The cosine of the DLIO paper (CCGrid 2021) includes time, rates and bytes: compare it only "
    "between runs of one scale on one machine. Pattern similarity: mean of smaller / larger, over the factors that do "
    "not depend on scale and machine. It ignores one request in a hundred, so a difference may be smaller than "
    "in the cosine."
)
APART = (
    "Apart: mean number of doublings between the requests of one program and the requests of the other. "
    "Near: 1 for equal requests, halved with each doubling."
)


def label(name: str) -> str:
    """Return the label of a factor."""
    return _LABELS[name][0]


def whose(profile: Profile) -> str:
    """Return a string with the source of a profile and, if it is known, the number of ranks."""
    ranks = f"{counted(profile.ranks, 'rank')}, " if profile.ranks else ""
    return f"{ranks}{profile.source}"


def factors(compared: Similarity) -> list[list[str]]:
    """Return a table row for each factor (header: FACTOR_HEADER)."""
    return [[label(factor.name), *_values(factor), _counts_for(factor)] for factor in compared.factors]


def values(factor: Factor) -> list[str]:
    """Return the values of a factor for the programs A and B as text."""
    form = _LABELS[factor.name][1]
    return [_UNKNOWN if value is None else form(value) for value in (factor.a, factor.b)]


def _values(factor: Factor) -> list[str]:
    return [*values(factor), _UNKNOWN if factor.difference is None else f"{round(factor.difference, 2) + 0.0:.2f}"]


def _counts_for(factor: Factor) -> str:
    """Return the names of the similarity measures that use a factor. Pattern similarity tolerates deviations in one
    percent of the requests. If this tolerance changes the difference of the factor, return the tolerated difference as
    well.
    """
    name = factor.name
    if name in PATTERN and abs(abs(factor.difference or 0.0) - (factor.apart or 0.0)) > 0.005:
        return f"paper; {factor.apart:.2f} in pattern"
    counted = [measure for measure, names in (("paper", PAPER), ("pattern", PATTERN)) if name in names]
    return " and ".join(counted) + ("" if name in SEEN or "pattern" not in counted else " (specified)")


def measures(compared: Similarity, known: Yardsticks) -> list[list[str]]:
    """Return whether at least one distance between the distributions of requests is known."""
    rows = [
        ("cosine of the DLIO paper", compared.paper.cosine, known.paper),
        ("pattern similarity", compared.pattern.ratio, known.pattern),
        ("pattern, as a cosine", compared.pattern.cosine, known.pattern_cosine),
    ]
    return [
        [name, _UNKNOWN if value is None else f"{value:.3f}", span(yard.kindred), span(yard.strangers)]
        for name, value, yard in rows
    ]


def span(scores: ScoreRange) -> str:
    return f"{scores.least:.2f} to {scores.most:.2f}, median {scores.median:.2f}"


def is_told_apart(compared: Similarity) -> bool:
    """Return whether any of the distances between the distributions of requests is known."""
    return any(distance is not None for distance in (compared.sizes, compared.volumes, compared.jumps))


def distances(a: Profile, b: Profile, compared: Similarity) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each distance between distributions of requests. If none is known, yield a line
    with the reason.
    """
    if not is_told_apart(compared):
        without = " and ".join(name for name, profile in (("A", a), ("B", b)) if profile.sizes is None)
        yield "", f"Whole distributions: not compared; only summary numbers are known for {without or 'A or B'}."
        return
    yield "sizes", _distance(compared.sizes, "of requests, each weighted by 1")
    yield "bytes", _distance(compared.volumes, "sizes of requests, each weighted by its bytes")
    yield "jumps", _distance(compared.jumps, "from the end of a request to the start of the next")


def _distance(distance: Distance | None, subject: str) -> str:
    if distance is None:
        return f"{subject}: unknown without complete traces of both programs"
    grain = "" if distance.grain == Grain.EXACT else f", by {request_distance.GRAINS[distance.grain]}"
    return f"{subject}: {distance.octaves:.2f} doublings apart, {distance.closeness:.3f} near{grain}"


def left_out(compared: Similarity) -> list[str]:
    """Return a line for each measure that leaves out factors. The line lists these factors."""
    lines = []
    for name, score in (("the paper's", compared.paper), ("pattern", compared.pattern)):
        if score.left_out:
            lines.append(f"unknown for A or B, left out of {name}: {', '.join(map(label, score.left_out))}")
    return lines


def matrix_left_out(matrix: Matrix) -> list[str]:
    """Return lines that list the factors that are left out of rows of the matrix. Rows that lack the same factors share
    a line.
    """
    lacking: dict[tuple[str, ...], list[str]] = {}
    for row in matrix.rows:
        if row.left_out:
            lacking.setdefault(tuple(map(label, row.left_out)), []).append(short(row.profile))
    whose = {
        missing: "" if len(programs) == len(matrix.rows) else f" of {', '.join(programs)}"
        for missing, programs in lacking.items()
    }
    return [f"unknown for some programs, left out{whose[missing]}: {', '.join(missing)}" for missing in lacking]


def other_scores(compared: Similarity) -> str:
    """Return the scores other than pattern similarity in one line."""
    cosine = "unknown" if compared.paper.cosine is None else f"{compared.paper.cosine:.3f}"
    sizes = f", request sizes {compared.sizes.octaves:.2f} doublings apart" if compared.sizes else ""
    return f"cosine of the DLIO paper {cosine}{sizes}"


def cosine(compared: Similarity) -> str:
    """Return the cosine similarity, as defined in the DLIO paper, as the text of a table cell."""
    return _UNKNOWN if compared.paper.cosine is None else f"{compared.paper.cosine:.2f}"


def short(profile: Profile) -> str:
    """Return a name that is short enough for the heading of a column."""
    return profile.application or Path(profile.title).name.removesuffix(log_files.SUFFIX)


def names(profiles: Sequence[Profile]) -> list[str]:
    """Return the short names of the profiles if all short names differ. Otherwise, return the titles of the
    profiles.
    """
    labels = [short(profile) for profile in profiles]
    return labels if len(set(labels)) == len(labels) else [profile.title for profile in profiles]


def nearest(row: MatrixRow, columns: Sequence[str]) -> str:
    """Return the name of the column that is nearest to the row. If several columns are equally near, return all their
    names. columns: names of all columns.
    """
    return " = ".join(columns[at] for at in row.nearest) or "nothing to compare"


def own(row: MatrixRow) -> str:
    """Return text that says whether the nearest column of a row has the same application as the row."""
    return {None: _UNKNOWN, True: "yes, tied" if row.is_tied else "yes", False: "NO"}[row.finds_own]


def cells(row: MatrixRow) -> list[str]:
    """Return the pattern similarities of a row as text. The highest ones are marked with *."""
    return [
        _UNKNOWN if score is None else f"{score:.2f}{'*' if at in row.nearest else ''}"
        for at, score in enumerate(row.scores)
    ]


def found_own(matrix: Matrix) -> str:
    """Return one or two sentences that say for how many rows the nearest column has the same application as the row. In
    the first sentence, all known factors are compared; in the second, only observed factors. If no row's application is
    among the columns, the sentence says which programs are nearest to each other.
    """
    rows = [row for row in matrix.rows if row.finds_own is not None]
    if not rows:
        unsure = "no row's application is among the columns, so it cannot be checked whether nearest programs are alike"
        return f"{_nearest_pair(matrix)}; {unsure}."
    first = f"{_right(rows)} are nearest to their own application."
    if "bytes_per_sample" in matrix.left_out:
        return first
    observed = [row for row in similarity.as_seen(matrix).rows if row.finds_own is not None]
    return (
        f"{first} Compared by observed factors only, without the bytes per sample, which the workload specifies: "
        f"{_right(observed)}."
    )


def _nearest_pair(matrix: Matrix) -> str:
    """Return which of the programs are nearest to each other."""
    columns = names(matrix.columns)
    scores = [
        (score, short(row.profile), columns[at])
        for row in matrix.rows
        for at, score in enumerate(row.scores)
        if score is not None
    ]
    count = len(matrix.rows)
    compared = f"{count} program{'s' * (count > 1)} compared with {len(matrix.columns)}"
    if not scores:
        return f"{compared}: no two have metrics in common"
    score, row, column = max(scores)
    return f"{compared}: nearest are {row} and {column} (pattern similarity {score:.2f})"


def _right(rows: Sequence[MatrixRow]) -> str:
    """Return text that says for how many of these rows the nearest column has the same application as the row."""
    right = sum(bool(row.finds_own) for row in rows)
    tied = sum(bool(row.finds_own and row.is_tied) for row in rows)
    return f"{right} of {len(rows)}" + (f" ({tied} of them tied)" if tied else "")
