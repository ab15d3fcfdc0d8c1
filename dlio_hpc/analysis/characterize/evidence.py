"""What a log lets one say of a program, and how far it is to be believed."""

from typing import Any, Literal, NamedTuple

Confidence = Literal["high", "medium", "low", "unknown"]


class Estimate(NamedTuple):
    """value: as a workload has it. evidence: in words, with the numbers. unknown: a default, as no log can tell."""

    value: Any
    confidence: Confidence
    evidence: str

    def __str__(self) -> str:
        return f"{self.confidence}: {self.evidence}"


def weaker(one: Confidence, other: Confidence) -> Confidence:
    """Of what follows from both."""
    order: tuple[Confidence, ...] = ("unknown", "low", "medium", "high")
    return min(one, other, key=order.index)
