"""Verdict on a finished suite: one outcome and one line, derived from baselines, criteria and the comparison of two
file systems.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, structs

from dlio_hpc.analysis.study import file_system_pairs
from dlio_hpc.analysis.study.file_system_pairs import PairedEffect
from dlio_hpc.base.counted_progress import Report
from dlio_hpc.plan.plan import workload_of
from dlio_hpc.plan.study import Study
from dlio_hpc.records.outcomes import FAULTS, OUTCOMES, Outcome, label, of_exit_code, severity, worst
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.verdict import (
    acceptance,
    baseline_comparison,
    baselines,
    criteria_file,
    history_entry,
    judged_jobs,
    regression,
)
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.baseline_comparison import Judgement, Terms, Verdict
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.criteria_file import Criteria
from dlio_hpc.verdict.history_entry import Key


class SuiteVerdict(Struct, frozen=True):
    """Verdict on a suite. summary: one line that can serve as the subject of a mail. outcome: the most severe outcome;
    "fail" if criteria are not met and nothing is slower. effects: differences between two file systems; empty if the
    suite does not compare file systems.
    """

    summary: str
    outcome: Outcome
    exit_code: int
    judgement: Judgement
    acceptance: Acceptance
    effects: tuple[PairedEffect, ...]

    @property
    def is_first(self) -> bool:
        """True if no measurement could be compared, because there were neither baselines nor earlier jobs."""
        return all(verdict.outcome == "not_comparable" and not verdict.reference for verdict in self.judgement.verdicts)


# A suite without a criteria file still requires that runs are valid and that storage was measured.
_NO_CRITERIA = Criteria(name="none")


def judge_study(outcome: StudyOutcome, effects: tuple[PairedEffect, ...], report: Report) -> SuiteVerdict:
    """Judge a suite against its criteria, and against the history and the baselines in the folder of its archives.
    effects: differences between two file systems; empty if the suite does not compare file systems.
    """
    study, judging = outcome.study, outcome.study.verdict
    assert judging is not None
    folder = Path(study.archive)
    entries = [history_entry.of(job) for job in outcome.jobs]
    terms = Terms(metrics=judging.metrics, tolerance=judging.tolerance)
    active = baselines.active_in(folder, report) if folder.is_dir() else ()
    known = judged_jobs.entries(folder, report)
    judgement = baseline_comparison.judge([entry for entry in entries if entry.measurements], known, active, terms)
    criteria = criteria_file.of_study(study) or _NO_CRITERIA
    accepted = acceptance.judge(criteria, entries, judged_jobs.absent(outcome), acceptance.prior_of(known, entries))
    return judge(study, judgement, accepted, effects, active)


def judge(
    study: Study,
    judgement: Judgement,
    accepted: Acceptance,
    effects: tuple[PairedEffect, ...],
    active: Sequence[Accepted],
) -> SuiteVerdict:
    """Return the verdict on a suite. Its outcome is the most severe of three: the outcomes of the comparisons with
    baselines, of the acceptance test, and of the comparison of file systems. active: the active baselines.
    """
    known = [baseline.group.key for baseline in active]
    lost = _unmeasured(study, judgement, active)
    codes = {accepted.exit_code, *_compared(judgement, known), *(_sides(study, effects) if study.is_ab else ())}
    codes |= {OUTCOMES["incomplete"].exit_code} if lost else set()
    outcome = worst(map(of_exit_code, codes)) or "pass"
    code = OUTCOMES[outcome].exit_code
    is_drop = (study.is_ab and 1 in _sides(study, effects)) or any(
        verdict.outcome == "regression" for verdict in judgement.verdicts
    )
    if code in (0, 1):
        outcome = "pass" if code == 0 else "regression" if is_drop else "fail"
    details = "; ".join(filter(None, [*_details(judgement, accepted, effects, known), lost]))
    summary = f"{workload_of(study.study)} on {study.site.name}: {label(outcome)}; {details}"
    return SuiteVerdict(summary, outcome, code, judgement, accepted, effects)


def _compared(judgement: Judgement, known: Sequence[Key]) -> set[int]:
    """Return the exit codes of the comparisons with baselines. A measurement that is the baseline itself is ignored. A
    measurement without a baseline is ignored, unless another measurement of the same workload on the same site has a
    baseline.
    """
    return {
        verdict.exit_code
        for verdict in judgement.verdicts
        if not verdict.is_of_itself and (verdict.outcome != "not_comparable" or _was_known(verdict, known))
    }


def _was_known(verdict: Verdict, known: Sequence[Key]) -> bool:
    """Return whether there is a baseline of the same workload on the same site, or a baseline that differs only by the
    name of the site or of the workload.
    """
    key = verdict.key
    return key is not None and any(
        (baseline.site, baseline.workload) == (key.site, key.workload)
        or structs.replace(baseline, site=key.site) == key
        or structs.replace(baseline, workload=key.workload) == key
        for baseline in known
    )


def _unmeasured(study: Study, judgement: Judgement, active: Sequence[Accepted]) -> str:
    """Return a clause that names the baselines of this suite whose workload and point were not measured. Return "" if
    there are none.
    """
    measured = {(verdict.key.workload, verdict.title) for verdict in judgement.verdicts if verdict.key is not None}
    own = (workload_of(study.study), study.site.name)
    lost = [
        baseline.group.key.title
        for baseline in active
        if (workload_of(baseline.group.study), baseline.group.key.site) == own
        and (baseline.group.key.workload, baseline.group.title) not in measured
    ]
    advice = "retire a baseline that is no longer measured"
    return f"not measured although it has a baseline: {', '.join(lost)}; {advice}" if lost else ""


def _sides(study: Study, effects: Sequence[PairedEffect]) -> set[int]:
    """Return the exit codes for the comparison of two file systems, the old one (A) and the new one (B). 1: B is slower
    than A by more than the noise and the tolerance. 5: it cannot be decided whether B is slower. Return an empty set if
    B is not slower.
    """
    least = 1 - (0.0 if study.verdict is None else study.verdict.tolerance)
    slower = {1 for effect in effects if effect.better == "A" and effect.ratio < least}
    wholes = file_system_pairs.overall(effects)
    is_open = not wholes or any(whole.low is None or (whole.low < least and not slower) for whole in wholes)
    return slower | ({5} if is_open else set())


def _details(
    judgement: Judgement, accepted: Acceptance, effects: Sequence[PairedEffect], known: Sequence[Key]
) -> Iterator[str]:
    verdicts = judgement.verdicts
    if faulty := [verdict for verdict in verdicts if verdict.outcome in FAULTS]:
        yield min(faulty, key=lambda verdict: severity(verdict.outcome)).why
    for outcome in ("regression", "inconclusive"):
        compared = [verdict for verdict in verdicts if verdict.ratio is not None and not verdict.is_of_itself]
        if concerned := [verdict for verdict in compared if verdict.outcome == outcome]:
            lowest = min(concerned, key=lambda verdict: verdict.ratio or 0.0)
            yield f"{lowest.title or lowest.subject} {regression.signed(lowest.ratio or 0.0)}"
            break
    if effects:
        yield f"B / A {', '.join(f'{whole.ratio:.3g}' for whole in file_system_pairs.overall(effects))}"
    uncompared = [verdict for verdict in verdicts if verdict.outcome == "not_comparable"]
    if not verdicts:
        yield "nothing was measured"
    elif all(verdict.is_of_itself for verdict in verdicts):
        yield "it is the baseline itself, so nothing is compared"
    elif len(uncompared) < len(verdicts):
        tolerances = [verdict.tolerance for verdict in verdicts if verdict.ratio is not None]
        yield judgement.text + (f" (tolerance {100 * max(tolerances):.3g} %)" if tolerances else "")
    elif not effects:
        is_known = any(_was_known(verdict, known) for verdict in uncompared)
        yield "all baselines are of other configurations" if is_known else "no baseline"
    yield f"criteria: {acceptance.counted(accepted)}"
    if unmet := accepted.unmet:
        check = min(unmet, key=lambda check: severity(check.outcome))
        more = f", and {len(unmet) - 1} more" if len(unmet) > 1 else ""
        yield ": ".join(filter(None, (check.group.partition(": ")[0], check.title))) + more
