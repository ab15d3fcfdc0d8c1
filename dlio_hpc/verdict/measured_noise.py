"""Noise of a planned measurement: what the history of its site shows about nights and runs, or an assumption."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dlio_hpc import __version__
from dlio_hpc.analysis.quantiles import Floats
from dlio_hpc.base.errors import DlioError
from dlio_hpc.files import filesystem
from dlio_hpc.plan.plan import Plan, Run
from dlio_hpc.results.metrics import MetricName
from dlio_hpc.verdict import comparable_versions, run_groups, settings_digest, trend, variation
from dlio_hpc.verdict.baseline_comparison import USUAL
from dlio_hpc.verdict.detection_plan import CampaignNoise, share_of_runs
from dlio_hpc.verdict.history_entry import Entry, Key, together
from dlio_hpc.verdict.regression import FEWEST
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.variation import ASSUMED, NightSpread

# Standard deviation of the runs of a job that is assumed if no job of the site shows it.
PLANNED_RUNS = 0.02
# Where a part of the noise comes from: the measurement itself, other measurements of its site, or an assumption.
Origin = Literal["measurement", "site", "assumed"]


class KnownNoise(NamedTuple):
    """Noise of a measurement. title: title of the measurement. noise: variation of the measurement. nights_from,
    runs_from: sources of the variation between nights and of the variation between runs. shown_by: number of nights of
    this measurement, or of other measurements of the site, that show the noise; 0 for an assumption. history: number of
    nights at the current level of the measurement.
    """

    title: str
    noise: CampaignNoise
    nights_from: Origin
    runs_from: Origin
    shown_by: int
    history: int


class SiteHistory(NamedTuple):
    """History of a site. entries: all jobs of the history. groups: groups of runs at the site that read from storage
    and have no fault, oldest first. spreads: variation between the nights of each measurement at the site.
    """

    entries: Sequence[Entry]
    groups: Sequence[Group]
    spreads: Mapping[Key, NightSpread]


def site_history(entries: Sequence[Entry], site: str) -> SiteHistory:
    """Return the history of a site. Its entries are all jobs, with the jobs of each study merged. Its groups and
    spreads cover only runs at this site that read from storage and have no fault. entries: jobs of the history, oldest
    first.
    """
    jobs = together(entries)
    groups = [
        group
        for entry in jobs
        if not entry.is_invalid
        for group in run_groups.of(entry)
        if group.key.site == site and group.faulty is None and group.is_of_storage and group.good
    ]
    by_key: dict[Key, list[Group]] = {}
    for group in groups:
        by_key.setdefault(group.key, []).append(group)
    known = {key: trend.spread(of_key, of_key[-1].main_metric) for key, of_key in by_key.items()}
    return SiteHistory(jobs, groups, {key: spread for key, spread in known.items() if spread is not None})


def of_run(history: SiteHistory, plan: Plan, run: Run, metrics: Sequence[MetricName]) -> list[KnownNoise]:
    """Return the noise of each metric of a planned run. metrics: metrics that are compared with the baseline."""
    like = _newest_like(history, plan, run)
    title = f"{run.workload.name} on {plan.site.name}, {plan.nodes} x {plan.ranks_per_node} ranks"
    if like is None:
        return [_elsewhere(history, None, title, "samples_per_s")]
    wanted = (like.main_metric,) if tuple(metrics) == USUAL.metrics else metrics
    return [_of_measurement(history, like, title, metric) for metric in wanted]


def _newest_like(history: SiteHistory, plan: Plan, run: Run) -> Group | None:
    """Return the newest group with the same measurement as a planned run, in the same folder or on the same file
    system. Properties that are known only after the run are ignored. Return None if there is no such group.
    """
    settings, version = settings_digest.of(run.workload), comparable_versions.since(__version__)
    planned = (plan.nodes, plan.ranks_per_node, run.workload.name, settings, version)
    alike = [
        group
        for group in reversed(history.groups)
        if (group.key.nodes, group.key.ranks_per_node, group.key.workload, group.key.settings, group.key.version)
        == planned
    ]
    place = _file_system(run.data) if alike else ""
    return next((group for group in alike if group.data == run.data or group.key.file_system == place), None)


def _file_system(folder: str) -> str:
    """Return the file system of a folder, in the form of Key.file_system, or "" if the file system does not respond."""
    with suppress(DlioError, OSError):
        return filesystem.of(Path(folder)).text
    return ""


def _of_measurement(history: SiteHistory, like: Group, title: str, metric: MetricName) -> KnownNoise:
    """Return the noise of a measurement that has been made before. like: its newest group."""
    nights = trend.nights(history.entries, like, metric)
    if not nights:
        return _elsewhere(history, like.key, title, metric)
    elsewhere = _elsewhere(history, like.key, title, metric)
    followed = trend.followed(nights, metric, elsewhere.noise.site)
    labels = followed.course.labels
    level = int((labels == labels[-1]).sum())
    of_jobs = [variation.logarithms(night.values, metric) for night in nights]
    runs, share, is_shown = _of_jobs(of_jobs)
    if not is_shown:
        runs = elsewhere.noise.runs
    made = elsewhere._replace(
        noise=elsewhere.noise._replace(runs=runs),
        runs_from="measurement" if is_shown else elsewhere.runs_from,
        history=level,
    )
    if len(labels) <= FEWEST:
        return made
    between = _without_runs(followed.course.spread.sd, runs, share)
    return made._replace(noise=made.noise._replace(nights=between), nights_from="measurement", shown_by=len(labels))


def _elsewhere(history: SiteHistory, key: Key | None, title: str, metric: MetricName) -> KnownNoise:
    """Return the noise of a measurement, estimated from other measurements of its site. key: key of the measurement;
    None if it is unknown.
    """
    others = {other: spread for other, spread in history.spreads.items() if other != key}
    site = variation.of_site(list(others.values()))
    of_jobs = [
        variation.logarithms(values, metric)
        for group in history.groups
        if group.key != key and (values := group.values(metric)) and min(values) > 0
    ]
    runs, share, is_shown = _of_jobs(of_jobs)
    runs_from: Origin = "site" if is_shown else "assumed"
    runs = runs if is_shown else PLANNED_RUNS
    if site.source == ASSUMED.source:
        return KnownNoise(title, CampaignNoise(site.sd, runs, site), "assumed", runs_from, 0, 0)
    noise = CampaignNoise(_without_runs(site.sd, runs, share), runs, site)
    return KnownNoise(title, noise, "site", runs_from, sum(map(variation.is_usable, others.values())), 0)


def _of_jobs(of_jobs: Sequence[Floats]) -> tuple[float, float, bool]:
    """Return three values: the standard deviation of the runs of a job, the mean ratio of the variance of a job's level
    to the variance of a run, and whether a job has several runs.
    """
    is_shown = any(len(runs) > 1 for runs in of_jobs)
    share = float(np.mean([share_of_runs(len(runs)) for runs in of_jobs])) if of_jobs else 0.0
    return variation.within(of_jobs) if is_shown else 0.0, share, is_shown


def _without_runs(sd: float, runs: float, share: float) -> float:
    """Return the variation between nights without the variation of the runs."""
    return math.sqrt(max(0.0, sd**2 - share * runs**2))
