"""Verdict on a derived workload: whether the I/O of a check run is similar enough to the I/O in the log."""

from msgspec import Struct

from dlio_hpc.programs.similarity.similarity import PATTERN, SEEN, Factor, Similarity
from dlio_hpc.records.outcomes import OUTCOMES, Outcome

# Smallest number of factors whose agreement is a verdict. One that differs is enough for the opposite.
_LEAST = 2
# Error of a sum of a few shares.
_ROUNDING = 1e-9


class CheckVerdict(Struct, frozen=True):
    """Verdict on a check run. outcome: pass, fail or incomplete. It is incomplete if fewer than two factors are known
    for both the log and the run, and none of them differs. similarity: pattern similarity; None if no factor is known
    for both. tolerance: smallest pattern similarity that passes. differing: factors with a difference above 1 -
    tolerance, the largest difference first. not_compared: observed factors that are unknown for the log or the run.
    """

    outcome: Outcome
    similarity: float | None
    tolerance: float
    differing: tuple[Factor, ...]
    not_compared: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        return OUTCOMES[self.outcome].exit_code


def judge(compared: Similarity, tolerance: float) -> CheckVerdict:
    """Return the verdict on a check run. compared: similarity of the log and the run. tolerance: smallest pattern
    similarity that passes, from 0 to 1.
    """
    score = compared.pattern.ratio
    known = [factor for factor in compared.factors if factor.name in PATTERN and factor.apart is not None]
    differing = [factor for factor in known if (factor.apart or 0.0) > 1 - tolerance + _ROUNDING]
    not_compared = tuple(name for name in compared.pattern.left_out if name in SEEN)
    outcome: Outcome = "incomplete"
    if score is not None and score < tolerance - _ROUNDING:
        outcome = "fail"
    elif score is not None and len(SEEN) - len(not_compared) >= _LEAST:
        outcome = "pass"
    return CheckVerdict(
        outcome,
        score,
        tolerance,
        tuple(sorted(differing, key=lambda factor: -(factor.apart or 0.0))),
        not_compared,
    )
