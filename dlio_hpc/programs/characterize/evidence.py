"""Values derived from a log, with their evidence and confidence."""

from typing import Any, Literal, NamedTuple

Confidence = Literal["high", "medium", "low", "unknown"]


class DerivedValue(NamedTuple):
    """Value of a workload key. evidence: a phrase with the numbers that support the value. confidence: "unknown" if the
    log does not show the value; the value is then a default.
    """

    value: Any
    confidence: Confidence
    evidence: str

    def __str__(self) -> str:
        return f"{self.confidence}: {self.evidence}"


def weaker(a: Confidence, b: Confidence) -> Confidence:
    """Return the lower of two confidences."""
    order: tuple[Confidence, ...] = ("unknown", "low", "medium", "high")
    return min(a, b, key=order.index)
