"""Variation between nights at a site, from the history of its jobs. Verdicts on few nights start from it."""

import functools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date

import numpy as np

from dlio_hpc import units
from dlio_hpc.results.metrics import MetricName
from dlio_hpc.verdict import run_groups, variation
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.variation import ASSUMED, NightSpread

# Function from a site and a metric to the variation between nights that is known before the nights of a measurement.
NightPrior = Callable[[str, MetricName], NightSpread]


def assumed(_site: str, _metric: MetricName) -> NightSpread:
    """Return the assumption about nights, which holds for every site and metric."""
    return ASSUMED


def given(spread: float) -> NightPrior:
    """Return a known variation between nights, which holds for every site and metric. spread: relative standard
    deviation; 0 if nights do not differ.
    """
    return lambda _site, _metric: NightSpread(spread, math.inf, "given")


def of_history(entries: Sequence[Entry], judged: Collection[str] = ()) -> NightPrior:
    """Return the variation between nights that the jobs of a history show. Without enough nights of a site, it is the
    assumption. entries: jobs of the history. judged: names of the jobs to be judged, which are left out.
    """
    others = [entry for entry in entries if entry.job not in judged]

    @functools.cache
    def prior(site: str, metric: MetricName) -> NightSpread:
        levels = _levels(others, site, metric)
        return variation.of_site([variation.of_differences(np.array(of_key)) for of_key in levels])

    return prior


def _levels(entries: Sequence[Entry], site: str, metric: MetricName) -> Iterator[list[float]]:
    """Yield the levels of the nights of each measurement of a site, as logarithms, in the order of time."""
    by_key: dict[Key, dict[date, list[float]]] = {}
    for entry in entries:
        groups = run_groups.of(entry)
        for group in groups:
            values = [value for value in group.values(metric) if value > 0]
            if values and group.key.site == site and group.is_of_storage and run_groups.alone(groups, group):
                by_key.setdefault(group.key, {}).setdefault(units.night_of(group.ended), []).extend(values)
    for nights in by_key.values():
        yield [variation.level(variation.logarithms(nights[night], metric)) for night in sorted(nights)]
