"""Traits of the requests of a reader: their sizes and their order. The same functions describe the requests in a log
and the requests that a workload is predicted to make, so that both can be compared.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.base.units import format_size
from dlio_hpc.programs.characterize.prediction import Integers, RequestColumns
from dlio_hpc.programs.files.access_pattern import correlation, first_visits
from dlio_hpc.programs.similarity import request_distance
from dlio_hpc.programs.similarity.request_distance import Grain, RequestDistribution

# Largest number of requests between two that belong together. Several threads, or several arrays of a file, are read in
# turn; each of them is followed by itself.
_MOST_LAG = 8
# Smallest number of requests of a file that show an order.
_FEW_REQUESTS = 6
# A correlation below this may be chance: it is that of one in a hundred random orders of 16 files.
_NO_ORDER = 0.55
# Runs shorter than this are those of a random order; how much shorter is chance.
_NO_RUN = 0.25
# Words for the traits that are numbers.
PHRASES = {
    "forward": "requests at a higher offset than the request before",
    "run": "share of a file that is read without a step back",
    "visit": "bytes read from a file before another file",
    "file_order": "correlation between the names of files and the order in which they are read",
}


class Traits(NamedTuple):
    """Traits of the requests of a reader. They are None if there are too few requests or files to show them.

    sizes: distribution of request sizes. forward: share of requests at a higher offset than the request to the same
    file that was made `lag` requests before. The lag that gives the largest share is used. run: mean number of
    successive requests to a file without a step back, divided by the number of distinct places that are read in the
    file. visit: mean bytes that are read from a file before the reader turns to another file. file_order: correlation
    between the names of files and the order in which they are first read, but at least the correlation of random
    orders.
    """

    sizes: RequestDistribution
    forward: float | None
    run: float | None
    visit: float | None
    file_order: float | None


def of(columns: RequestColumns) -> Traits:
    """Return the traits of a reader's requests. The numbers of files must be in the order of the names of files."""
    sizes = request_distance.of_sizes(columns.length, np.ones(len(columns.length)), Grain.EXACT)
    forward, run = _direction(columns)
    in_order = correlation(first_visits(columns.file))
    return Traits(sizes, forward, run, _visit(columns), None if in_order is None else max(in_order, _NO_ORDER))


def _direction(columns: RequestColumns) -> tuple[float | None, float | None]:
    forward, runs, weights = [], [], []
    order = np.argsort(columns.file, kind="stable")
    edges = np.flatnonzero(np.diff(columns.file[order])) + 1
    for mine in np.split(order, edges):
        offset = columns.offset[mine]
        places = len(np.unique(offset))
        if places < _FEW_REQUESTS:
            continue
        lags = range(1, min(_MOST_LAG, places // 2) + 1)
        lag = max(lags, key=lambda lag: _share_forward(offset, lag))
        backward = np.count_nonzero(offset[lag:] < offset[:-lag])
        forward.append(_share_forward(offset, lag))
        runs.append(len(offset) / (1 + backward) / places)
        weights.append(len(offset))
    if not forward:
        return None, None
    return float(np.average(forward, weights=weights)), max(float(np.average(runs, weights=weights)), _NO_RUN)


def _share_forward(offset: Integers, lag: int) -> float:
    """Return the share of requests at a higher offset than the request `lag` requests before, or at the same offset."""
    return float((offset[lag:] >= offset[:-lag]).mean())


def _visit(columns: RequestColumns) -> float | None:
    if len(columns.file) < _FEW_REQUESTS or not np.ptp(columns.file):
        return None
    return float(columns.length.sum() / (1 + np.count_nonzero(np.diff(columns.file))))


def agreement(a: Sequence[Traits], b: Sequence[Traits]) -> dict[str, float]:
    """Return for each trait how well two programs agree in it, from 0 to 1. a, b: traits of the readers of each
    program. A trait that either program does not show is left out.
    """
    mine, others = medians(a), medians(b)
    agreements = {name: _alike(name, mine[name], others[name]) for name in mine if name in others}
    sizes = [_pooled([traits.sizes for traits in program]) for program in (a, b)]
    if (apart := request_distance.distance(*sizes)) is not None:
        agreements["sizes"] = apart.closeness
    return agreements


def medians(program: Sequence[Traits]) -> dict[str, float]:
    """Return the median over the readers of a program, for each trait. Traits that are not numbers, or that the program
    does not show, are left out.
    """
    values = {name: [getattr(traits, name) for traits in program] for name in PHRASES}
    known = {name: [value for value in column if value is not None] for name, column in values.items()}
    return {name: float(np.median(column)) for name, column in known.items() if column}


def phrase(name: str, value: float) -> str:
    """Return a value of a trait as text that continues a phrase of PHRASES."""
    if name == "visit":
        return format_size(round(value))
    if name == "file_order":
        return f"{value:.2f}" if value > _NO_ORDER else "none"
    return f"{value:.0%}"


def _alike(name: str, a: float, b: float) -> float:
    if name in ("run", "visit"):
        return min(a, b) / max(a, b) if max(a, b) else 1.0
    return 1.0 - abs(a - b)


def _pooled(distributions: Sequence[RequestDistribution]) -> RequestDistribution:
    at = np.concatenate([distribution.at for distribution in distributions])
    weight = np.concatenate([distribution.weight for distribution in distributions])
    order = np.argsort(at, kind="stable")
    return RequestDistribution(at[order], weight[order] / max(weight.sum(), 1e-12), Grain.EXACT)
