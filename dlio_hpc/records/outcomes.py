"""Outcomes of comparisons, criteria and suites. A table gives the exit code, the JUnit element and the colour of each
outcome.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Outcome = Literal[
    "bug", "invalid", "infrastructure", "incomplete", "cached", "regression", "fail", "inconclusive", "not_comparable",
    "improved", "pass", "skipped",
]  # fmt: skip
JUnitKind = Literal["pass", "failure", "error", "skipped"]
Colour = Literal["red", "yellow", "green", "dim"]


class Meaning(NamedTuple):
    """Representation of an outcome: exit code of the command, kind of the JUnit case, and colour on a terminal."""

    exit_code: int
    junit: JUnitKind
    colour: Colour


# All outcomes, from the most to the least severe.
OUTCOMES: dict[Outcome, Meaning] = {
    "bug": Meaning(70, "error", "red"),
    "invalid": Meaning(3, "error", "red"),
    "infrastructure": Meaning(6, "error", "red"),
    "incomplete": Meaning(7, "error", "red"),
    "cached": Meaning(4, "error", "yellow"),
    "regression": Meaning(1, "failure", "red"),
    "fail": Meaning(1, "failure", "red"),
    "inconclusive": Meaning(5, "error", "yellow"),
    "not_comparable": Meaning(2, "error", "yellow"),
    "improved": Meaning(0, "pass", "green"),
    "pass": Meaning(0, "pass", "green"),
    "skipped": Meaning(0, "skipped", "dim"),
}


# Outcomes of jobs and runs whose results cannot be used.
FAULTS: tuple[Outcome, ...] = ("bug", "invalid", "infrastructure", "incomplete")


def severity(outcome: Outcome) -> int:
    """Return the rank of an outcome: 0 is the most severe."""
    return list(OUTCOMES).index(outcome)


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the most severe of these outcomes, or None if there are none."""
    present = set(outcomes)
    return next((outcome for outcome in OUTCOMES if outcome in present), None)


def of_exit_code(code: int, outcomes: Iterable[Outcome] = tuple(OUTCOMES)) -> Outcome:
    """Return the first of these outcomes, the most severe first, that has this exit code, or "infrastructure" if none
    has it.
    """
    return next((outcome for outcome in outcomes if OUTCOMES[outcome].exit_code == code), "infrastructure")


def of_fault(code: int) -> Outcome:
    """Return the outcome of a job or a run that has failed. code: its exit code."""
    return of_exit_code(code, FAULTS)


def label(outcome: Outcome) -> str:
    """Return the name of the outcome as it is printed in sentences and tables."""
    return outcome.replace("_", " ")
