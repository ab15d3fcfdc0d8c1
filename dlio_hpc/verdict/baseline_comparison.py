"""A job against what it is measured by: repeats against repeats, and the nights before it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from dlio_hpc.analysis.study import disturbances
from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.records import outcomes
from dlio_hpc.records.outcomes import OUTCOMES, Outcome, label
from dlio_hpc.verdict import history_entry as entries_
from dlio_hpc.verdict import regression, run_groups, trend
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.trend import Night, Shift, Trend

TOLERANCE = 0.02


class Reference(Struct, frozen=True):
    """What a job is compared with. name: of the baseline, or of a job that was named instead. admitted: what spoke
    against the baseline when it was accepted all the same.
    """

    name: str
    group: Group
    admitted: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """Verdict on one metric of one key of a job. why: in a sentence; advice: what to do, a line each. here, there: the
    job's repeats and the reference's. ratio: how many times as good the job is, with its interval; below 1 is worse.
    noise: between nights, relative; None: it is not known. trend: None where the key has no history. warnings: what
    spoke against a comparison, where it was forced. disturbances: lines on other activity on the nodes, where the
    outcome is inconclusive or a regression.
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
    noise: float | None = None
    shift: Shift | None = None
    trend: Trend | None = None
    warnings: tuple[str, ...] = ()
    disturbances: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The key that was measured, and the point of the study where there is one; the job where no key is known."""
        if self.key is None:
            return self.job
        return f"{self.key.title}, {self.title}" if self.title else self.key.title


class Judgement(Struct, frozen=True):
    """outcome, exit_code: of the worst verdict. words: a line that sums up."""

    verdicts: tuple[Verdict, ...]
    outcome: Outcome
    exit_code: int
    words: str


class Terms(NamedTuple):
    """How it is judged. tolerance: a share of 1. against: jobs to compare with instead of baselines."""

    metrics: tuple[MetricName, ...] = ("samples_per_s",)
    tolerance: float = TOLERANCE
    force: bool = False
    against: tuple[Reference, ...] = ()


USUAL = Terms()


def judge(
    entries: Sequence[Entry], history: Sequence[Entry], baselines: Sequence[Accepted], terms: Terms = USUAL
) -> Judgement:
    """Each key of each job against its baseline and its history. history: may hold the jobs themselves, and later ones,
    which are passed over. baselines: those that hold.
    """
    references = terms.against or tuple(Reference(one.id, one.group, one.warnings) for one in baselines)
    studies, known = entries_.together(entries), entries_.together(history)
    verdicts = [verdict for study in studies for verdict in _job(study, known, references, terms)]
    return summed(verdicts)


def summed(verdicts: Sequence[Verdict]) -> Judgement:
    """The worst of them, and how many there are of each outcome."""
    worst = outcomes.worst(verdict.outcome for verdict in verdicts) or "not_comparable"
    counts = [(outcome, sum(verdict.outcome == outcome for verdict in verdicts)) for outcome in OUTCOMES]
    words = ", ".join(f"{count} {label(outcome)}" for outcome, count in counts if count) or "nothing to compare"
    code = max((each.exit_code for each in verdicts if each.outcome == worst), default=OUTCOMES[worst].exit_code)
    return Judgement(tuple(verdicts), worst, code, words)


def references(entry: Entry) -> tuple[Reference, ...]:
    """A job that others are compared with though nobody accepted it."""
    return tuple(Reference(entry.job, group) for group in run_groups.of(entry) if group.good)


class _Case(NamedTuple):
    """alone: no other dataset of the job has the group's key. earlier: what the history has of the time before."""

    group: Group
    alone: bool
    metric: MetricName
    earlier: Sequence[Entry]
    references: Sequence[Reference]
    terms: Terms

    def verdict(self, outcome: Outcome, why: str, advice: Sequence[str] = ()) -> Verdict:
        """Without figures yet."""
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


def _job(entry: Entry, history: Sequence[Entry], references: Sequence[Reference], terms: Terms) -> list[Verdict]:
    found = run_groups.of(entry)
    earlier = [each for each in history if each.study != entry.study and each.ended <= entry.ended]
    told = [
        _verdict(_Case(group, run_groups.alone(found, group), metric, earlier, references, terms))
        for group in found
        for metric in terms.metrics
    ]
    if entry.fault is not None and not any(verdict.outcome in _FAULTS for verdict in told):
        outcome = _fault(entry.exit_code)
        code = OUTCOMES[outcome].exit_code
        told.append(Verdict(entry.job, terms.metrics[0], outcome, code, entry.fault, terms.tolerance))
    if not told:
        code = OUTCOMES["not_comparable"].exit_code
        why = "the job has no measured runs"
        told.append(Verdict(entry.job, terms.metrics[0], "not_comparable", code, why, terms.tolerance))
    return told


_FAULTS: tuple[Outcome, ...] = ("invalid", "infrastructure", "incomplete")


def _fault(code: int) -> Outcome:
    return "invalid" if code == 3 else "incomplete" if code == 7 else "infrastructure"


def _verdict(case: _Case) -> Verdict:
    """What keeps the group from being compared, else what came of it."""
    found = _unfit(case) or _against(case)
    lacking = len(case.group.good) - len(case.group.values(case.metric))
    if lacking and found.ratio is not None:
        words = f"{lacking} of {len(case.group.good)} runs have no {METRICS[case.metric].noun}, and are left out"
        return structs.replace(found, warnings=(*found.warnings, words))
    return found


def _unfit(case: _Case) -> Verdict | None:
    group = case.group
    if (bad := group.faulty) is not None:
        return case.verdict(_fault(bad.exit_code), f"{bad.run}: {bad.fault}")
    if not group.is_of_storage and not case.terms.force:
        return case.verdict("cached", group.storage_words, [*group.advice, "--force compares it all the same"])
    if not case.alone:
        return case.verdict(
            "not_comparable",
            "the job measured this on several datasets, which are compared with each other",
            [f"dlio-hpc report {group.study}"],
        )
    if trend.night(group, case.metric) is None:
        return case.verdict("not_comparable", f"{METRICS[case.metric].noun} is unknown or 0 in it")
    return None


def _against(case: _Case) -> Verdict:
    """Its reference, if there is one that is like it, or that it is compared with by force."""
    like = next((each for each in case.references if each.group.key == case.group.key), None)
    near = like or _nearest(case)
    told = _unlike(case, near) if like is None and near is not None else []
    if near is None or (told and not case.terms.force):
        return _alone(case, near, told)
    if case.terms.against and not near.group.is_of_storage and not case.terms.force:
        why = f"of {near.name}: {near.group.storage_words}"
        return case.verdict("cached", why, [*near.group.advice, "--force compares it all the same"])
    there = trend.night(near.group, case.metric)
    if there is None:
        return case.verdict("not_comparable", f"{METRICS[case.metric].noun} is unknown or 0 in {near.name}")
    return _weighed(case, near, there, told)


def _nearest(case: _Case) -> Reference | None:
    """The reference that differs in least."""
    return min(case.references, key=lambda each: len(_unlike(case, each)), default=None)


def _unlike(case: _Case, other: Reference) -> list[str]:
    return entries_.differences(other.group.key, case.group.key, (other.group.workload, case.group.workload))


def _alone(case: _Case, near: Reference | None, told: list[str]) -> Verdict:
    """Nothing to compare with; but the history may tell of a change all by itself."""
    why, advice = "there is no baseline of this key", []
    if near is not None:
        differs = f"{near.name} differs in {'; '.join(told)}"
        why = differs if case.terms.against else f"{why}; the nearest, {differs}"
        advice = ["--force compares them all the same"]
    seen = trend.of(_nights(case), case.metric)
    last = seen.shifts[-1] if seen.shifts else None
    is_worse = last is not None and last.ratio < 1 - case.terms.tolerance and not case.terms.against
    if not case.terms.against and not is_worse:
        advice.append(f"dlio-hpc baseline accept {case.group.job} --message '...'")
    name = None if near is None else near.name
    found = structs.replace(
        case.verdict("not_comparable", why, advice), here=seen.nights[-1], reference=name, trend=seen
    )
    if last is None or not is_worse:
        return found
    return _as(found, "regression", f"{regression.shift_words(last)}; {why}", last)


def _nights(case: _Case) -> list[Night]:
    """Of the history, and this one."""
    here = trend.night(case.group, case.metric)
    assert here is not None
    return [*trend.nights(case.earlier, case.group, case.metric), here]


def _as(verdict: Verdict, outcome: Outcome, why: str, shift: Shift | None) -> Verdict:
    return structs.replace(verdict, outcome=outcome, exit_code=OUTCOMES[outcome].exit_code, why=why, shift=shift)


def _weighed(case: _Case, near: Reference, there: Night, unlike: list[str]) -> Verdict:
    """Repeats against repeats, then what the nights in between tell."""
    nights, tolerance = _nights(case), case.terms.tolerance
    told = regression.weigh(nights, there, case.metric, tolerance, is_like=not unlike)
    found, here = told.difference, nights[-1]
    advice = regression.advice(found, here, there, told.noise, tolerance) if told.outcome == "inconclusive" else []
    return structs.replace(
        case.verdict(told.outcome, regression.words(told, near.name, here, tolerance), advice),
        here=here,
        there=there,
        reference=near.name,
        ratio=math.exp(found.value),
        low=None if found.low is None else math.exp(found.low),
        high=None if found.high is None else math.exp(found.high),
        noise=None if told.noise is None else math.expm1(told.noise.sd),
        shift=told.shift,
        trend=told.trend,
        warnings=tuple(_warnings(case, near, unlike)),
        disturbances=tuple(_disturbances(case, near)) if told.outcome in ("inconclusive", "regression") else (),
    )


def _disturbances(case: _Case, near: Reference) -> list[str]:
    """Lines on activity during the job's slower repeats, and during all repeats compared with the reference."""
    repeats, theirs = case.group.repeats(case.metric), near.group.repeats(case.metric)
    lines = disturbances.explained(repeats)
    more = disturbances.differing([repeat.disturbance for repeat in repeats], [repeat.disturbance for repeat in theirs])
    if more:
        difference = f"against {near.name}: {', '.join(more)}"
        lines = [difference] if lines == [disturbances.UNEXPLAINED] else [*lines, difference]
    return lines


def _warnings(case: _Case, near: Reference, unlike: list[str]) -> list[str]:
    told = [f"the keys differ: {words}" for words in unlike]
    if not case.group.is_of_storage:
        told.append(case.group.storage_words)
    if case.terms.against and not near.group.is_of_storage:
        told.append(f"of {near.name}: {near.group.storage_words}")
    return told + [f"of the baseline: {words}" for words in near.admitted]
