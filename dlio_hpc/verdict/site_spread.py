"""Variation between nights at a site, from the history of all its measurement keys."""

from collections.abc import Mapping, Sequence

from dlio_hpc.verdict import run_groups, trend, variation
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.variation import NightSpread


def measured(history: Sequence[Entry]) -> dict[Key, NightSpread]:
    """Return the variation between nights of the main metric of each measurement key that was measured on several
    nights. history: entries of all jobs.
    """
    by_key: dict[Key, list[Group]] = {}
    for entry in history:
        for group in run_groups.of(entry):
            if group.is_of_storage and group.faulty is None:
                by_key.setdefault(group.key, []).append(group)
    spreads = {}
    for key, groups in by_key.items():
        metric = groups[-1].main_metric
        nights = trend.in_order(trend.night(group, metric) for group in groups)
        if len(nights) > 1:
            spreads[key] = trend.spread(nights, metric)
    return spreads


def elsewhere(spreads: Mapping[Key, NightSpread], key: Key) -> NightSpread:
    """Return what the other measurement keys of a site tell about the variation of a key between nights."""
    return variation.of_site([spread for other, spread in spreads.items() if other.site == key.site and other != key])
