"""Variation between nights at a site, from the history of its measurements. Verdicts on few nights use it as a first
estimate.
"""

import functools
import math
from collections.abc import Callable, Sequence
from datetime import date, timedelta

from dlio_hpc.base.nights import night_of
from dlio_hpc.results.metrics import MetricName
from dlio_hpc.verdict import run_groups, trend, variation
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.variation import ASSUMED, NightSpread

# Number of days in which a nightly measurement is made several times.
_WEEK = 7

# Function from a measurement key and a metric to the variation between nights that is known before the nights of a
# measurement are used.
NightPrior = Callable[[Key, MetricName], NightSpread]


def assumed(_key: Key, _metric: MetricName) -> NightSpread:
    """Return the assumed variation between nights. It is the same for every measurement key and metric."""
    return ASSUMED


def given(spread: float) -> NightPrior:
    """Return a known variation between nights, which holds for every measurement key and metric. spread: relative
    standard deviation; 0 if nights do not differ.
    """
    return lambda _key, _metric: NightSpread(spread, math.inf, "given")


def of_others(history: Sequence[Entry]) -> NightPrior:
    """Return the variation between nights that the other measurement keys of a site show. The nights of the key itself
    are left out, because a comparison uses them separately. history: one entry for each job or night of a study.
    """
    return _of(history, is_own_used=False)


def of_site(history: Sequence[Entry]) -> NightPrior:
    """Return the variation between nights that all measurement keys of a site show, including the key itself. history:
    one entry for each job or night of a study, without the nights to be judged.
    """
    return _of(history, is_own_used=True)


def _of(history: Sequence[Entry], is_own_used: bool) -> NightPrior:
    by_key = functools.cache(lambda: _groups(history))

    @functools.cache
    def spreads(metric: MetricName, site: str) -> dict[Key, NightSpread]:
        known = {key: trend.spread(groups, metric) for key, groups in by_key().items() if key.site == site}
        return {key: spread for key, spread in known.items() if spread is not None}

    def prior(key: Key, metric: MetricName) -> NightSpread:
        known = spreads(metric, key.site).items()
        return variation.of_site([spread for other, spread in known if is_own_used or other != key])

    return prior


def _groups(history: Sequence[Entry]) -> dict[Key, list[Group]]:
    """Return the groups from which the variation between nights is estimated, by measurement key. The runs of these
    groups are good and read from storage.
    """
    by_key: dict[Key, list[Group]] = {}
    for entry in history:
        groups = () if entry.is_invalid else run_groups.of(entry)
        for group in groups:
            if group.is_of_storage and group.faulty is None and run_groups.alone(groups, group):
                by_key.setdefault(group.key, []).append(group)
    return by_key


def among(history: Sequence[Entry], entry: Entry) -> int:
    """Return the number of measurement keys that the job `entry` measured, or that its site measured on several nights
    of the week before this job. history: jobs before this job.
    """
    own = {run.key for run in entry.measurements if run.kind == "measure"}
    sites, night = {key.site for key in own}, night_of(entry.ended)
    # Most of a history is older. Comparing dates is much faster than finding nights, which differ by a day at most.
    oldest = str(night - timedelta(days=_WEEK + 2))
    nights: dict[Key, set[date]] = {}
    for past in history:
        if past.ended >= oldest and (night - (of_past := night_of(past.ended))).days <= _WEEK:
            for run in past.measurements:
                if run.kind == "measure" and run.key.site in sites:
                    nights.setdefault(run.key, set()).add(of_past)
    return max(1, len(own | {key for key, of_key in nights.items() if len(of_key) > 1}))
