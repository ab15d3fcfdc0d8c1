"""Comparison of a job with its baseline and its history. The job, together with the newest nights, is compared with the
nights at the level of the baseline.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from dlio_hpc.analysis.study import spread_reasons
from dlio_hpc.base import units
from dlio_hpc.records import outcomes
from dlio_hpc.records.outcomes import FAULTS, OUTCOMES, Outcome, label, of_fault
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import history_entry as entries_
from dlio_hpc.verdict import regression, run_groups, site_spread, trend
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.criterion_result import listed
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.regression import TOLERANCE
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.site_spread import NightPrior
from dlio_hpc.verdict.trend import Night, Shift, Trend
from dlio_hpc.verdict.variation import NightSpread, NoiseSource


class Reference(Struct, frozen=True):
    """Runs that a job is compared with. name: name of the baseline. If the user gave a job to compare with instead of a
    baseline, this is the name of that job. admitted: objections that were recorded when the baseline was accepted with
    --force.
    """

    name: str
    group: Group
    admitted: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """Verdict on one metric of one measurement key of a job. why: reason for the outcome, in one sentence. advice: what
    the user can do, one item per line. here: repeats of the job. there: repeats of the reference. ratio: job /
    reference, or reference / job if a lower value is better, so that a ratio below 1 is worse. low, high: confidence
    interval of `ratio`. newest: number of the newest nights that are compared; 0 if nothing is compared. before: number
    of nights at the level of the reference with which the newest nights are compared; 0 if nothing is compared. noise:
    relative variation between nights; None if nothing is compared. noise_source: source of `noise`. a_year: number of
    such outcomes by chance in a year; None if the level did not change. shift: change in the history that makes the
    outcome a regression; None if there is no such change. trend: None if the history was not used in the comparison.
    warnings: objections that --force overrode, and a note if some runs lack the metric. disturbances: lines that
    describe other activity on the nodes; empty unless the outcome is inconclusive or a regression. forced: reason why
    the job does not measure storage, if it is compared only because of --force; otherwise empty. unlike: differences
    between the job and the reference that are compared only because of --force.
    """

    job: str
    metric: MetricName
    outcome: Outcome
    exit_code: int
    why: str
    tolerance: float
    key: Key | None = None
    title: str = ""
    advice: tuple[str, ...] = ()
    here: Night | None = None
    there: Night | None = None
    reference: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    newest: int = 0
    before: int = 0
    noise: float | None = None
    noise_source: NoiseSource | None = None
    a_year: float | None = None
    shift: Shift | None = None
    trend: Trend | None = None
    warnings: tuple[str, ...] = ()
    disturbances: tuple[str, ...] = ()
    forced: str = ""
    unlike: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """Title of the measurement key, followed by the title of the study's point, if any. If the measurement key is
        unknown, the name of the job.
        """
        if self.key is None:
            return self.job
        return f"{self.key.title}, {self.title}" if self.title else self.key.title

    @property
    def is_of_itself(self) -> bool:
        """Whether the job is the reference itself, so that nothing is compared."""
        return self.ratio is not None and self.before == 0


class Judgement(Struct, frozen=True):
    """Verdicts on several measurements. outcome: the most severe outcome of these verdicts. exit_code: the exit code of
    a verdict with this outcome. text: how many verdicts have each outcome, in one line.
    """

    verdicts: tuple[Verdict, ...]
    outcome: Outcome
    exit_code: int
    text: str


class Terms(NamedTuple):
    """Parameters of a comparison. tolerance: largest relative drop that still passes, such as 0.02. force: compare even
    if measurement keys differ or runs read from memory. against: jobs to compare with instead of baselines.
    """

    metrics: tuple[MetricName, ...] = ("samples_per_s",)
    tolerance: float = TOLERANCE
    force: bool = False
    against: tuple[Reference, ...] = ()


USUAL = Terms()


def judge(
    entries: Sequence[Entry], history: Sequence[Entry], baselines: Sequence[Accepted], terms: Terms = USUAL
) -> Judgement:
    """Compare jobs with their baselines and their history, and return the judgement. Each measurement key of each job
    in `entries` gets its own verdict. If a study has several nights, the newest night is judged, and the earlier nights
    are part of the history. history: entries of earlier jobs; if it also contains the judged jobs or later jobs, these
    are ignored. baselines: the active baselines.
    """
    references = terms.against or tuple(
        Reference(baseline.id, baseline.group, baseline.warnings) for baseline in baselines
    )
    in_history = {entry.job for entry in history}
    nights = [entry for entry in entries if entry.night and entry.job not in in_history]
    known = entries_.together([*history, *nights])
    studies: dict[str, list[Entry]] = {}
    for entry in entries_.together(entries):
        studies.setdefault(entry.study, []).append(entry)
    return summed([verdict for jobs in studies.values() for verdict in _study(jobs, known, references, terms)])


def summed(verdicts: Sequence[Verdict]) -> Judgement:
    """Return the judgement for these verdicts: the most severe outcome, and the number of verdicts with each
    outcome.
    """
    worst = outcomes.worst(verdict.outcome for verdict in verdicts) or "not_comparable"
    counts = [(outcome, sum(verdict.outcome == outcome for verdict in verdicts)) for outcome in OUTCOMES]
    message = ", ".join(f"{count} {label(outcome)}" for outcome, count in counts if count) or "nothing to compare"
    code = max(
        (verdict.exit_code for verdict in verdicts if verdict.outcome == worst), default=OUTCOMES[worst].exit_code
    )
    return Judgement(tuple(verdicts), worst, code, message)


def references(entry: Entry) -> tuple[Reference, ...]:
    """Return one reference for each group of the job `entry`, except for groups without a good run. These references
    replace baselines when other jobs are compared with this job.
    """
    return tuple(Reference(entry.job, group) for group in run_groups.of(entry) if group.good)


class _Case(NamedTuple):
    """A comparison to make: one metric of a group of runs, and the data with which it is compared. alone: whether no
    other group of the job has the same measurement key. earlier: entries of the history that ended before this job.
    prior: variation between nights that other measurements of the site show. among: number of measurements of the
    site.
    """

    group: Group
    alone: bool
    metric: MetricName
    earlier: Sequence[Entry]
    references: Sequence[Reference]
    terms: Terms
    prior: NightPrior
    among: int

    def site(self) -> NightSpread:
        """Return the variation between nights that the other measurements of the site show."""
        return self.prior(self.group.key, self.metric)

    def verdict(self, outcome: Outcome, why: str, advice: Sequence[str] = ()) -> Verdict:
        """Return a verdict with an outcome and a reason, but without numbers."""
        return Verdict(
            job=self.group.job,
            metric=self.metric,
            outcome=outcome,
            exit_code=OUTCOMES[outcome].exit_code,
            why=why,
            tolerance=self.terms.tolerance,
            key=self.group.key,
            title=self.group.title,
            advice=tuple(advice),
        )


def _study(
    nights: Sequence[Entry], history: Sequence[Entry], references: Sequence[Reference], terms: Terms
) -> list[Verdict]:
    """Return the verdicts on a study: on its newest night, and on measurements that only earlier nights have made.
    nights: entries of the study, oldest first.
    """
    verdicts = _job(nights[-1], history, references, terms)
    for entry in reversed(nights[:-1]):
        later = {verdict.key for verdict in verdicts}
        groups = [group for group in run_groups.of(entry) if group.key not in later]
        verdicts += _groups(entry, groups, history, references, terms)
    return verdicts


def _groups(
    entry: Entry, judged: Sequence[Group], history: Sequence[Entry], references: Sequence[Reference], terms: Terms
) -> list[Verdict]:
    """Return the verdicts on some groups of a job."""
    groups = run_groups.of(entry)
    earlier = [past for past in history if _is_before(past, entry)]
    prior, among = site_spread.of_others(earlier), site_spread.among(earlier, entry)
    return [
        _verdict(_Case(group, run_groups.alone(groups, group), metric, earlier, references, terms, prior, among))
        for group in judged
        for metric in (group.main_metrics if terms.metrics == USUAL.metrics else terms.metrics)
    ]


def _is_before(past: Entry, entry: Entry) -> bool:
    """Return whether the job `past` of the history precedes the job `entry`. If both belong to the same study, `past`
    must be from an earlier night.
    """
    if past.study != entry.study:
        return past.ended <= entry.ended
    return entry.night > 0 and past.ended < entry.ended


def _job(entry: Entry, history: Sequence[Entry], references: Sequence[Reference], terms: Terms) -> list[Verdict]:
    verdicts = _groups(entry, run_groups.of(entry), history, references, terms)
    if entry.fault is not None and not any(verdict.outcome in FAULTS for verdict in verdicts):
        outcome = of_fault(entry.exit_code)
        code = OUTCOMES[outcome].exit_code
        verdicts.append(Verdict(entry.job, terms.metrics[0], outcome, code, entry.fault, terms.tolerance))
    if not verdicts:
        code = OUTCOMES["not_comparable"].exit_code
        why = "the job has no measured runs"
        verdicts.append(Verdict(entry.job, terms.metrics[0], "not_comparable", code, why, terms.tolerance))
    return verdicts


def _verdict(case: _Case) -> Verdict:
    """Return the verdict on the group. If the group cannot be compared, the verdict states the reason. Otherwise, the
    verdict is the result of the comparison. It has a warning if some runs of the group lack the metric.
    """
    verdict = _not_comparable(case) or _against(case)
    if not case.group.is_of_storage and verdict.ratio is not None:
        verdict = structs.replace(verdict, forced=case.group.storage_words)
    lacking = len(case.group.good) - len(case.group.values(case.metric))
    if lacking and verdict.ratio is not None:
        message = f"{lacking} of {len(case.group.good)} runs have no {METRICS[case.metric].noun} and are left out"
        return structs.replace(verdict, warnings=(*verdict.warnings, message))
    return verdict


def _not_comparable(case: _Case) -> Verdict | None:
    """Return a verdict if the group cannot be compared; otherwise, return None. A group cannot be compared if one of
    its runs is faulty, if its runs read from memory (unless --force is set), if the job measured the same measurement
    key on several datasets, or if the metric is unknown or 0.
    """
    group = case.group
    if (bad := group.faulty) is not None:
        why = str(bad.fault)
        return case.verdict(of_fault(bad.exit_code), why if why.startswith(bad.run) else f"{bad.run}: {why}")
    if not group.is_of_storage and not case.terms.force:
        return case.verdict("cached", group.storage_words, [*group.advice, "--force compares it nevertheless"])
    if not case.alone:
        return case.verdict(
            "not_comparable",
            "the job measured this configuration on several datasets; see the report of the study, which compares them",
            [f"dlio-hpc report {group.study}"],
        )
    if trend.night(group, case.metric) is None:
        known = [name for name in METRICS if any(run.metrics.get(name) for run in group.good)]
        lacking = f"{METRICS[case.metric].noun} is unknown or 0 in this job"
        return case.verdict("not_comparable", f"{lacking}, which has {units.listed(known, 3)}" if known else lacking)
    return None


def _against(case: _Case) -> Verdict:
    """Compare the group with the reference that has the same measurement key. If no reference has this key and --force
    is set, compare the group with the nearest reference.
    """
    same_key = next((reference for reference in case.references if reference.group.key == case.group.key), None)
    near = same_key or _nearest(case)
    differences = _key_differences(case, near) if same_key is None and near is not None else []
    if near is None or (differences and not case.terms.force):
        return _without_reference(case, near, differences)
    if case.terms.against and not near.group.is_of_storage and not case.terms.force:
        why = f"{near.name}: {near.group.storage_words}"
        return case.verdict("cached", why, [*near.group.advice, "--force compares it nevertheless"])
    there = trend.night(near.group, case.metric)
    if there is None:
        return case.verdict("not_comparable", f"{METRICS[case.metric].noun} is unknown or 0 in {near.name}")
    return _compared(case, near, there, differences)


def _nearest(case: _Case) -> Reference | None:
    """Return the reference whose measurement key differs least from the measurement key of the group. Return None if
    there are no references.
    """
    return min(case.references, key=lambda reference: len(_key_differences(case, reference)), default=None)


def _key_differences(case: _Case, reference: Reference) -> list[str]:
    """Return the differences between the measurement keys of the reference and of the job."""
    return entries_.differences(reference.group.key, case.group.key, (reference.group.workload, case.group.workload))


def _without_reference(case: _Case, near: Reference | None, differences: list[str]) -> Verdict:
    """Return the verdict on a group that has no reference with the same measurement key. If the latest change in the
    history is a drop beyond the tolerance, the outcome is `regression`. Otherwise, the outcome is `not_comparable`, and
    the reason names the newest nights if they are unusually bad. If the user gave jobs to compare with, the outcome is
    always `not_comparable`. near: the nearest reference; None if there are no references. differences: differences
    between the measurement keys of `near` and of the group.
    """
    why, advice = "there is no baseline of this configuration", []
    if near is not None:
        differs = f"{near.name} differs in {listed(differences)}"
        why = differs if case.terms.against else f"{why}; the nearest baseline: {differs}"
        advice = ["--force compares them nevertheless"]
    followed = trend.followed(_nights(case, None), case.metric, case.site())
    history, brief = followed.trend, regression.brief_drop(followed.course)
    last = history.shifts[-1] if history.shifts else None
    is_worse = last is not None and last.ratio < 1 - case.terms.tolerance and not case.terms.against
    if brief is not None and not is_worse:
        why = f"{regression.brief_words(brief)}; {why}"
    elif not case.terms.against and not is_worse:
        advice.append(f"dlio-hpc baseline accept {case.group.job} --message '...'")
    name = None if near is None else near.name
    verdict = structs.replace(
        case.verdict("not_comparable", why, advice), here=history.nights[-1], reference=name, trend=history
    )
    if last is None or not is_worse:
        return verdict
    return _with_outcome(verdict, "regression", f"{regression.shift_words(last)}; {why}", last)


def _nights(case: _Case, reference: str | None) -> list[Night]:
    """Return one Night per job: first the earlier jobs with this measurement key, then the job that is judged. A Night
    holds the repeats of a job. reference: time at which the reference ended, if any.
    """
    here = trend.night(case.group, case.metric)
    assert here is not None
    return [*trend.nights(case.earlier, case.group, case.metric, reference), here]


def _with_outcome(verdict: Verdict, outcome: Outcome, why: str, shift: Shift | None) -> Verdict:
    """Return a copy of the verdict with this outcome and its exit code, and with this reason and this shift."""
    return structs.replace(verdict, outcome=outcome, exit_code=OUTCOMES[outcome].exit_code, why=why, shift=shift)


def _compared(case: _Case, near: Reference, there: Night, unlike: list[str]) -> Verdict:
    """Return the verdict on a group that can be compared. The newest nights, including the night of the job, are
    compared with the nights at the level of the reference. near: the reference. there: values of the metric in the
    repeats of the reference. unlike: differences between the measurement keys of the reference and of the group; empty
    if the keys are equal.
    """
    nights, tolerance = _nights(case, there.ended), case.terms.tolerance
    weighed = regression.weigh(nights, there, case.metric, tolerance, not unlike, case.site, case.among)
    difference = weighed.difference
    advice = regression.advice(weighed, tolerance) if weighed.outcome == "inconclusive" else []
    return structs.replace(
        case.verdict(weighed.outcome, regression.sentence(weighed, near.name), advice),
        here=nights[-1],
        there=there,
        reference=near.name,
        ratio=math.exp(difference.value),
        low=math.exp(difference.low),
        high=math.exp(difference.high),
        newest=weighed.newest,
        before=weighed.before,
        noise=math.expm1(weighed.spread.sd),
        noise_source=weighed.spread.source,
        a_year=weighed.a_year,
        shift=weighed.shift,
        trend=weighed.trend,
        warnings=tuple(_warnings(case, near, unlike)),
        unlike=tuple(unlike),
        disturbances=tuple(_disturbances(case, near))
        if weighed.before and weighed.outcome in ("inconclusive", "regression")
        else (),
    )


def _disturbances(case: _Case, near: Reference) -> list[str]:
    """Return lines that describe other activity on the nodes: activity during the slower repeats of the job, and
    activity that differed between the job and the reference.
    """
    repeats, theirs = case.group.repeats(case.metric), near.group.repeats(case.metric)
    lines = spread_reasons.explained(repeats)
    more = spread_reasons.differing(
        [repeat.disturbance for repeat in repeats], [repeat.disturbance for repeat in theirs]
    )
    if more:
        difference = f"against {near.name}: {', '.join(more)}"
        lines = [difference] if lines == [spread_reasons.UNEXPLAINED] else [*lines, difference]
    return lines


def _warnings(case: _Case, near: Reference, unlike: list[str]) -> list[str]:
    """Return the warnings of a comparison: objections that --force overrode in this comparison, remarks on computation
    and epochs that took far longer than expected, and objections that --force overrode when the baseline was accepted.
    """
    warnings = [f"the configurations differ: {difference}" for difference in unlike]
    if not case.group.is_of_storage:
        warnings.append(case.group.storage_words)
    if case.terms.against and not near.group.is_of_storage:
        warnings.append(f"{near.name}: {near.group.storage_words}")
    warnings += [f"{run.run}: {remark}" for run in case.group.good for remark in run.remarks]
    return warnings + [f"the baseline was accepted despite: {objection}" for objection in near.admitted]
