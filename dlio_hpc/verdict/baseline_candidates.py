"""Candidates for baselines: good runs of a job, and the objections to accepting these runs as a baseline."""

from collections.abc import Sequence
from typing import NamedTuple

from dlio_hpc.base.errors import DlioError
from dlio_hpc.base.units import counted
from dlio_hpc.plan.study import Study
from dlio_hpc.verdict import (
    acceptance,
    baseline_comparison,
    criteria_file,
    regression,
    run_groups,
    site_spread,
    trend,
)
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.history_entry import Entry, Key, together
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.site_spread import NightPrior

# Largest number of nights at a lower level that do not show whether the level lasts.
_BRIEF = 3


class BaselineCandidate(NamedTuple):
    """Candidate for the baseline of one measurement key. group: runs with this key. job: the job of these runs."""

    job: Entry
    group: Group


def of(nights: Sequence[Entry]) -> list[BaselineCandidate]:
    """For each measurement key, return the newest runs that can become its baseline. nights: a job, or the nights of a
    study, newest first.
    """
    by_key: dict[Key, BaselineCandidate] = {}
    for entry in nights:
        groups = run_groups.of(entry)
        for group in groups:
            if group.good and run_groups.alone(groups, group):
                by_key.setdefault(group.key, BaselineCandidate(entry, group))
    return list(by_key.values())


def left_out(nights: Sequence[Entry]) -> list[str]:
    """Return the reasons why some runs cannot become a baseline, one line per measurement key. nights: a job, or the
    nights of a study.
    """
    fit = {candidate.group.key for candidate in of(nights)}
    lines: dict[str, None] = {}
    for entry in nights:
        groups = run_groups.of(entry)
        for group in groups:
            title = group.key.title
            if not run_groups.alone(groups, group):
                lines[f"{title} was measured on several datasets in the same configuration and gets no baseline"] = None
            if not group.good and group.key not in fit:
                lines[f"{title} has no good run and gets no baseline"] = None
    return list(lines)


def nothing(entry: Entry) -> str:
    """Return the reason why no run of the job can become a baseline."""
    groups = run_groups.of(entry)
    if not groups:
        return f"it measured nothing{f' ({entry.fault})' if entry.fault else ''}"
    faulty = next((group.faulty for group in groups if group.faulty is not None), None)
    if faulty is not None:
        return f"it has no good run ({faulty.run}: {faulty.fault})"
    return "; ".join(left_out([entry]))


def objections(
    entry: Entry, candidates: Sequence[BaselineCandidate], past: Sequence[Entry], study: Study | None = None,
    nights: Sequence[Entry] = (), active: Sequence[Accepted] = (),
) -> list[list[str]]:  # fmt: skip
    """Return the objections to each candidate, one per line. entry: the job that the user named. past: the history.
    study: study of the job; None if the job belongs to no study. nights: the earlier nights of the study. active: the
    active baselines.
    """
    failed = _failed_criteria([*nights, entry], study, past)
    jobs = {job.job: job for job, _ in candidates}
    regressions = [text for job in jobs.values() for text in _brief_regressions(job, past, active)]
    known = together(past)
    earlier = {
        job.job: [night for night in known if night.study != job.study and night.ended <= job.ended]
        for job, _ in candidates
    }
    priors = {name: site_spread.of_others(nights) for name, nights in earlier.items()}
    return [
        _faults(entry, candidate)
        or [
            *(text for key, text in failed if key in (None, candidate.group.key)),
            *_fewer_runs(candidate, active),
            *(
                _brief_drops(candidate, earlier[candidate.job.job], priors[candidate.job.job])
                or [text for key, text in regressions if key == candidate.group.key][:1]
            ),
        ]
        for candidate in candidates
    ]


def _faults(entry: Entry, candidate: BaselineCandidate) -> list[str]:
    """Return the objections that follow from the job of a candidate alone. entry: the job that the user named."""
    job, group = candidate
    lines = _passed_over(entry, group)
    if group.faulty is not None:
        lines.append(f"{group.faulty.run} is not valid: {group.faulty.fault}")
    elif job.fault is not None:
        lines.append(f"the job failed: {job.fault}")
    if not group.is_of_storage:
        lines.append(f"the storage was not measured: {group.storage_words}")
    return lines


def _fewer_runs(candidate: BaselineCandidate, active: Sequence[Accepted]) -> list[str]:
    """Return an objection if the candidate has less than half as many runs as the baseline that it would replace.
    active: the active baselines.
    """
    group = candidate.group
    replaced = next((baseline for baseline in active if baseline.group.key == group.key), None)
    if replaced is None or 2 * len(group.good) >= len(replaced.group.good):
        return []
    return [
        f"{group.key.title} has {counted(len(group.good), 'run')}, and {replaced.id}, which it would replace, has "
        f"{len(replaced.group.good)}"
    ]


def _failed_criteria(
    nights: Sequence[Entry], study: Study | None, past: Sequence[Entry]
) -> list[tuple[Key | None, str]]:
    """Return an objection for each criterion that a study fails. The suite of the study names these criteria. Each
    objection comes with the measurement key that it concerns, or with None if it concerns all keys. If the criteria
    cannot be read, return an objection with the reason. nights: the study. past: the history.
    """
    try:
        criteria = None if study is None else criteria_file.of_study(study)
    except DlioError as fault:
        return [(None, f"it is unknown whether it meets the criteria of its suite: {fault}")]
    if criteria is None:
        return []
    keys = {group.label: group.key for group in acceptance.grouped(nights)}
    judged = acceptance.judge(criteria, nights, prior=acceptance.prior_of(past, nights))
    failed = [(keys.get(check.group), check) for check in judged.checks if check.outcome == "fail"]
    return [
        (key, f"{'it' if key is None else key.title} fails the criterion {check.title}: {check.text}")
        for key, check in failed
    ]


def _brief_drops(candidate: BaselineCandidate, earlier: Sequence[Entry], prior: NightPrior) -> list[str]:
    """Return an objection if the job belongs to a drop that has lasted for only a few nights, such as an outage.
    earlier: jobs before this job. prior: variation between nights that other measurements of the site show.
    """
    group, metric = candidate.group, candidate.group.main_metric
    here = trend.night(group, metric)
    if here is None:
        return []
    nights = [*trend.nights(earlier, group, metric), here]
    brief = regression.brief_drop(trend.followed(nights, metric, prior(group.key, metric)).course)
    if brief is None:
        return []
    clause = regression.brief_words(brief)
    return [f"{group.key.title} is {clause}; accept it after more nights, which show whether this lasts"]


def _brief_regressions(job: Entry, past: Sequence[Entry], active: Sequence[Accepted]) -> list[tuple[Key | None, str]]:
    """Return objections, each with its measurement key. There is an objection to a measurement if it is a regression
    against the baseline that it would replace, and only a few nights show the new level. past: the history. active: the
    active baselines; baselines of later jobs are ignored.
    """
    older = [baseline for baseline in active if baseline.group.ended <= job.ended]
    advice = "accept it after more nights, which show whether this lasts"
    return [
        (verdict.key, f"{verdict.key.title} is {verdict.why}; {advice}")
        for verdict in baseline_comparison.judge([job], past, older).verdicts
        if verdict.key is not None and verdict.outcome == "regression" and 0 < verdict.newest <= _BRIEF
    ]


def _passed_over(entry: Entry, group: Group) -> list[str]:
    """Return an objection if `group` is from an earlier night than `entry` because the runs of `entry` with the same
    measurement key are faulty.
    """
    faulty = [own.faulty for own in run_groups.of(entry) if own.key == group.key and own.job != group.job]
    return [f"{bad.run} of {entry.job} is not valid: {bad.fault}" for bad in faulty if bad is not None]
