"""Banners of baseline comparisons, histories, acceptance tests and suites."""

import statistics
from collections.abc import Sequence
from itertools import pairwise

from dlio_hpc.base import units
from dlio_hpc.records.outcomes import OUTCOMES, Outcome
from dlio_hpc.reports import banner, regression_rows
from dlio_hpc.reports.banner import Banner, state_of
from dlio_hpc.reports.history_rows import Block
from dlio_hpc.results.metrics import METRICS, OF_OPENS, MetricName
from dlio_hpc.verdict import acceptance, regression, trend
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.baseline_comparison import Judgement
from dlio_hpc.verdict.regression import TOLERANCE
from dlio_hpc.verdict.suite import SuiteVerdict
from dlio_hpc.verdict.trend import Night, Trend

_ACCEPTANCES: dict[Outcome, str] = {
    "pass": "Accepted: every criterion is met.",
    "fail": "Not accepted: some criteria are not met.",
    "inconclusive": "No verdict: for some criteria, runs or nights differ too much, or there are too few runs or "
    "nights.",
    "cached": "No verdict: cached. The bytes came, or may have come, from memory instead of storage.",
    "bug": "No verdict: runs met a bug in dlio-hpc; report it.",
    "invalid": "No verdict: some runs are invalid; their numbers must not be used.",
    "infrastructure": "No verdict: runs failed for reasons other than the performance of the storage.",
    "incomplete": "No verdict: measurements are missing.",
    "not_comparable": "No verdict: the criteria limit a metric that a workload never has; correct the criteria.",
    "skipped": "No verdict: no criterion applies to these measurements.",
}
# Outcomes of suites whose measurements are missing or cannot be used.
_WITHOUT_MEASUREMENT: tuple[Outcome, ...] = ("bug", "invalid", "infrastructure", "incomplete", "cached", "skipped")
# Number of newest nights that show how often jobs run, and the fewest that do.
_NEWEST, _FEWEST = 10, 3


def of_judgement(judgement: Judgement) -> Banner:
    """Return the banner for jobs that were compared with baselines and histories. If a job did not measure storage and
    is compared because of --force, the state is "not measured" for any outcome. If the settings differ, the banner says
    so first.
    """
    state, summary = state_of(judgement.exit_code), regression_rows.summary(judgement)
    if forced := next((verdict.forced for verdict in judgement.verdicts if verdict.forced), ""):
        return Banner("not measured", f"{forced}. Compared because of --force: {summary}.")
    summary = summary.removeprefix(f"{state}: ")
    if unlike := next((verdict.unlike for verdict in judgement.verdicts if verdict.unlike), ()):
        differences = units.listed(unlike, 2)
        return Banner(state, f"Compared because of --force, although the settings differ ({differences}): {summary}.")
    return Banner(state, f"{summary}.")


def of_acceptance(accepted: Acceptance) -> Banner:
    """Return the banner of an acceptance test."""
    text = _ACCEPTANCES["skipped" if accepted.applies_nowhere else accepted.outcome]
    cached = [check for check in accepted.checks if check.outcome == "cached"]
    if accepted.outcome == "cached" and all(check.metric in OF_OPENS for check in cached):
        text = "No verdict: the nodes, and not the servers, may have answered the opens of files."
    return Banner(state_of(accepted.exit_code), f"{text} {acceptance.counted(accepted)}.")


def of_suite(verdict: SuiteVerdict, slowdowns: str = "") -> Banner:
    """Return the banner of a suite. The single line of the banner is also the subject of the mail about the suite. If
    the outcome has the same name as the state, it is not repeated. slowdowns: sentence on loads that run at the same
    time; empty without mixes. It comes first, unless runs are missing or cannot be used.
    """
    state = state_of(verdict.exit_code)
    text = f"{verdict.summary.replace(f': {state}; ', ': ', 1)}."
    sentences = (text, slowdowns) if verdict.outcome in _WITHOUT_MEASUREMENT else (slowdowns, text)
    return Banner(state, " ".join(filter(None, sentences)))


def of_history(blocks: Sequence[Block], metric: MetricName, now: str | None = None) -> Banner:
    """Return the worst of the banners of the relevant measurement keys: the keys that the newest study measured, and
    the keys with a last change for the worse. now: the present time, if the banner shall say that no jobs ran recently.
    """
    newest = max(blocks, key=lambda block: block.newest.ended).newest
    concerned = [block for block in blocks if block.newest.study == newest.study or block.is_worse]
    worst = banner.gravest([_of_block(block, metric) for block in concerned])
    if now is None or (days := units.seconds_between(newest.ended, now) / 86400) <= _longest_pause(blocks):
        return worst
    stopped = Banner("not measured", f"Nothing ran since {newest.ended[:10]} ({days:.0f} days). Then: {worst.text}")
    return banner.gravest([worst._replace(text=stopped.text), stopped])


def _longest_pause(blocks: Sequence[Block]) -> float:
    """Return the number of days without a job after which the banner says that nothing ran. The number is three times
    the usual distance between the newest nights, but at least two days. If fewer than three nights are known, it is a
    week.
    """
    ended = sorted({night.ended for block in blocks if block.trend is not None for night in block.trend.nights})
    newest = [units.timestamp(moment) for moment in ended[-_NEWEST:]]
    if len(newest) < _FEWEST:
        return 7.0
    return max(2.0, 3 * statistics.median(later - earlier for earlier, later in pairwise(newest)) / 86400)


def _of_block(block: Block, metric: MetricName) -> Banner:
    """Return the banner of a measurement key: how its newest job compares with the baseline or the previous job, and
    the changes in its history.
    """
    newest, group, name = block.newest, block.group, block.name or block.title
    if group is None:
        return Banner("bad", f"{newest.job} measured nothing: {newest.fault or newest.state}.")
    if group.faulty is not None:
        state = state_of(group.faulty.exit_code)
        return Banner(state, f"{name}: {newest.job}: {group.faulty.run}: {group.faulty.fault}.")
    if not group.is_of_storage:
        return Banner("not measured", f"{name}: {newest.job}: {group.storage_words}.")
    here = trend.night(group, metric)
    if here is None or block.trend is None:
        return Banner("not measured", f"{name}: {newest.job} has no {METRICS[metric].noun}.")
    return _of_nights(f"{name}: {newest.job}", block, block.trend, here, metric)


def _of_nights(name: str, block: Block, history: Trend, here: Night, metric: MetricName) -> Banner:
    if history.nights[-1].job != here.job:
        text = "measured this on several datasets; they are compared with each other, not with earlier jobs"
        return Banner("inconclusive", f"{name} {text}.")
    changes = regression.changes_sentence(history)
    if block.baseline is None and block.is_worse:
        return Banner("bad", f"{name} is {regression.shift_words(history.shifts[-1])}; there is no baseline. {changes}")
    reference = _reference(block, history, metric)
    if reference is None:
        return Banner("inconclusive", f"{name} has neither a baseline nor an earlier job to compare with. {changes}")
    there, against = reference
    weighed = regression.weigh(history.nights, there, metric, TOLERANCE, site=lambda: block.site, among=block.among)
    state = state_of(OUTCOMES[weighed.outcome].exit_code)
    return Banner(state, f"{name} is {regression.sentence(weighed, against)}. {changes}")


def _reference(block: Block, history: Trend, metric: MetricName) -> tuple[Night, str] | None:
    """Return the reference that the newest job is compared with, and a name for it. The reference is the Night of the
    baseline or, if there is no baseline, the Night of the previous job. Return None if there is neither.
    """
    baseline = None if block.baseline is None else trend.night(block.baseline.group, metric)
    if baseline is not None and block.baseline is not None:
        return baseline, f"baseline {block.baseline.id}"
    if len(history.nights) < 2:
        return None
    return history.nights[-2], f"the previous job ({history.nights[-2].job}; there is no baseline)"
