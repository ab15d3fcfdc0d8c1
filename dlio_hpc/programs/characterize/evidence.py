"""Values derived from a log or a recording, with their evidence and confidence."""

from typing import Any, Literal, NamedTuple

Confidence = Literal["recorded", "high", "medium", "low", "unknown"]


class DerivedValue(NamedTuple):
    """Value of a workload key. evidence: a phrase with the numbers that support the value. confidence: "recorded" if
    the recording of the program shows the value; "unknown" if the log does not show the value and it is therefore a
    default.
    """

    value: Any
    confidence: Confidence
    evidence: str

    def __str__(self) -> str:
        return f"{self.confidence}: {self.evidence}"

    def at_most(self, most: Confidence, doubt: str = "") -> "DerivedValue":
        """Return the value with its confidence limited to `most`. doubt: reason for the limit; it is added to the
        evidence.
        """
        evidence = f"{self.evidence}; {doubt}" if doubt else self.evidence
        return self._replace(confidence=weaker(self.confidence, most), evidence=evidence)


def sureness(confidence: Confidence) -> int:
    """Return a number that is larger for a higher confidence."""
    order: tuple[Confidence, ...] = ("unknown", "low", "medium", "high", "recorded")
    return order.index(confidence)


def weaker(a: Confidence, b: Confidence) -> Confidence:
    """Return the lower of two confidences."""
    return min(a, b, key=sureness)
