"""Verdict on the steps of a derived workload: whether an epoch of a check run has the same number of steps as an epoch
of the recorded program, and whether a step reads the same amount and computes for the same time.
"""

from typing import Literal, NamedTuple

from msgspec import Struct

from dlio_hpc.records.outcomes import OUTCOMES, Outcome

StepFigure = Literal["steps", "bytes", "compute_s", "wait_s"]
# Smallest number of judged figures that must agree for a positive verdict. A single figure that differs is enough for a
# negative verdict.
_LEAST = 2
# Largest differences that are ignored. Timers are not exact, and the kernel also counts messages and small files. If
# the data are in memory, a step reads nothing else.
_SLACK: dict[StepFigure, float] = {"steps": 0, "bytes": 512, "compute_s": 0.0005, "wait_s": 0.0005}
_SLACK_IN_MEMORY = 16384


class KeptBytes(NamedTuple):
    """Bytes of a step of a program that keeps samples in memory: in its first pass, and in the later passes."""

    first: float
    later: float


class StepProfile(NamedTuple):
    """Steps of a training. steps: number of steps of a rank in an epoch. bytes: bytes that a rank reads per step.
    compute_s: mean computation time of a step. wait_s: mean wait of a step, without the first step of each epoch.
    Values are None if they are unknown. doubt: reason why the data of the steps may differ from the data of the
    workload; empty if there is none. lost: reason why the recording lacks events at its end; empty if there is none.
    lacking: figures that may be wrong because of these events. kept: bytes of a step if the program keeps samples in
    memory after the first pass. cause: reason why the workload reads other bytes in a step than the program; empty if
    none is known.
    """

    steps: float | None
    bytes: float | None
    compute_s: float | None
    wait_s: float | None
    doubt: str = ""
    lost: str = ""
    lacking: frozenset[StepFigure] = frozenset()
    kept: KeptBytes | None = None
    cause: str = ""

    def compared_with(self, is_in_memory: bool, epochs: int) -> "StepProfile":
        """Return the steps with the bytes that a workload shall read. is_in_memory: whether the workload reads the
        dataset before the first step. epochs: number of its epochs.
        """
        if self.kept is None or (epochs > 1 and not is_in_memory):
            return self
        return self._replace(bytes=self.kept.later if is_in_memory else self.kept.first)


class StepFactor(Struct, frozen=True):
    """A value of a step, for the program and for the check run."""

    name: StepFigure
    """steps: number of steps of a rank in an epoch. bytes: bytes that a rank reads per step. compute_s, wait_s: seconds
    per step.
    """
    program: float | None
    """Value of the recorded program; null if it is unknown."""
    run: float | None
    """Value of the check run; null if it is unknown."""
    apart: float | None
    """Difference of the two values, divided by the larger one; null if one of them is unknown."""
    is_judged: bool
    """True if the verdict depends on this value. The verdict does not depend on the wait, because storage and caches
    determine it.
    """


class StepVerdict(Struct, frozen=True):
    """Verdict on the steps of a check run."""

    outcome: Outcome
    """pass, fail or incomplete. incomplete: none of the judged values differs, but the bytes or all other values are
    unknown, or the data of the program are in doubt; or the only values that differ are those of which the recording
    lacks events.
    """
    tolerance: float
    """Values pass if the smaller divided by the larger is at least this."""
    factors: tuple[StepFactor, ...]
    """All values of a step."""
    doubt: str = ""
    """Reason why the data of the program's steps may differ from the data of the workload; empty if there is none."""
    lost: str = ""
    """Reason why the recording lacks events of a value that differs; empty if there is none."""
    cause: str = ""
    """Reason why the bytes of a step differ; empty if they do not differ, or if no reason is known."""

    @property
    def exit_code(self) -> int:
        return OUTCOMES[self.outcome].exit_code

    @property
    def differing(self) -> list[StepFactor]:
        return [factor for factor in self.factors if factor.is_judged and _differs(factor, self.tolerance)]


def judge(program: StepProfile, run: StepProfile, tolerance: float) -> StepVerdict:
    """Return the verdict on the steps of a check run. tolerance: smallest ratio that passes, from 0 to 1."""
    factors = (
        _factor("steps", program.steps, run.steps),
        _factor("bytes", program.bytes, run.bytes),
        _factor("compute_s", program.compute_s, run.compute_s),
        _factor("wait_s", program.wait_s, run.wait_s),
    )
    known = [factor for factor in factors if factor.is_judged and factor.apart is not None]
    has_bytes = any(factor.name == "bytes" for factor in known)
    outcome: Outcome = "pass" if len(known) >= _LEAST and has_bytes and not program.doubt else "incomplete"
    differing = {factor.name for factor in known if _differs(factor, tolerance)}
    lost = program.lost if differing & program.lacking else ""
    if lost:
        outcome = "incomplete"
    if differing - program.lacking:
        outcome = "fail"
    cause = program.cause if "bytes" in differing else ""
    return StepVerdict(outcome, tolerance, factors, program.doubt, lost, cause)


def _factor(name: StepFigure, program: float | None, run: float | None) -> StepFactor:
    apart = None
    if program is not None and run is not None:
        larger = max(program, run)
        apart = abs(program - run) / larger if larger else 0.0
    return StepFactor(name, program, run, apart, name != "wait_s")


def _differs(factor: StepFactor, tolerance: float) -> bool:
    if factor.apart is None or factor.program is None or factor.run is None:
        return False
    slack = _SLACK[factor.name]
    if factor.name == "bytes" and factor.run == 0:
        slack = _SLACK_IN_MEMORY
    return factor.apart > 1 - tolerance and abs(factor.program - factor.run) > slack
