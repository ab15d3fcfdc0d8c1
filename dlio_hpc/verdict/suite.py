"""A suite at its end: what baselines, criteria and its two file systems come to, in one verdict and one line."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from dlio_hpc.analysis.paired import Effect
from dlio_hpc.study import Study
from dlio_hpc.verdict import acceptance, verdictrows, weighing
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.comparison import Judgement

# The gravest first; what has no baseline yet is no fault.
_GRAVEST = (3, 6, 7, 4, 1, 5, 0)
_WORDS = {3: "INVALID", 6: "INFRASTRUCTURE", 7: "INCOMPLETE", 4: "CACHED", 1: "NOT MET", 5: "NOISY", 0: "FINE"}


class SuiteVerdict(Struct, frozen=True):
    """summary: fit for a mail's subject. acceptance: None where the suite has no criteria. effects: of two file systems
    that were compared.
    """

    summary: str
    exit_code: int
    judgement: Judgement
    acceptance: Acceptance | None
    effects: tuple[Effect, ...]

    @property
    def is_compared(self) -> bool:
        """Was there anything to compare with?"""
        return any(verdict.outcome != "not comparable" for verdict in self.judgement.verdicts)


def judge(
    study: Study, judgement: Judgement, accepted: Acceptance | None, effects: tuple[Effect, ...], missing: int
) -> SuiteVerdict:
    """The gravest of all of them. missing: measurements that nobody has."""
    told = {verdict.exit_code for verdict in judgement.verdicts if verdict.outcome != "not comparable"}
    told |= {accepted.exit_code} if accepted is not None else set()
    told |= {7} if missing else set()
    told |= {1} if is_slower(study, effects) else set()
    code = next(code for code in _GRAVEST if code in {*told, 0})
    is_drop = any(verdict.outcome == "regression" for verdict in judgement.verdicts) or is_slower(study, effects)
    word = "REGRESSION" if code == 1 and is_drop else _WORDS[code]
    details = "; ".join(filter(None, _details(judgement, accepted, effects, missing)))
    summary = f"{study.study.rpartition('-')[0].rpartition('-')[0].rpartition('-')[0]} on {study.site.name}: {word}"
    return SuiteVerdict(f"{summary}; {details}" if details else summary, code, judgement, accepted, effects)


def is_slower(study: Study, effects: Sequence[Effect]) -> bool:
    """Is the new file system slower than the old one, beyond noise and tolerance?"""
    tolerance = 0.0 if study.verdict is None else study.verdict.tolerance
    return any(effect.better == "A" and effect.ratio < 1 - tolerance for effect in effects)


def _details(
    judgement: Judgement, accepted: Acceptance | None, effects: Sequence[Effect], missing: int
) -> Iterator[str]:
    drops = [one for one in judgement.verdicts if one.outcome == "regression" and one.ratio is not None]
    if drops:
        worst = min(drops, key=lambda one: one.ratio or 0.0)
        yield f"{verdictrows.subject(worst)} {weighing.signed(worst.ratio or 0.0)}"
    if missing:
        yield f"{missing} measurements missing"
    if effects:
        yield f"B / A {effects[-1].ratio:.3g}"
    compared = [one for one in judgement.verdicts if one.outcome != "not comparable"]
    yield judgement.words if compared else "no baseline"
    if accepted is not None:
        yield f"criteria: {acceptance.counted(accepted)}"
