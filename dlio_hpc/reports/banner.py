"""The banner that opens every page and every terminal summary: a state in its colour, then one sentence."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from dlio_hpc.errors import DlioError, Incomplete

State = Literal["good", "inconclusive", "not measured", "bad"]
# Colours of a terminal. The page has its own in templates/report.html.j2.
COLOURS: dict[State, str] = {"bad": "red", "not measured": "blue", "inconclusive": "yellow", "good": "green"}
# Exit codes of verdicts: pass, not_comparable, cached, inconclusive, incomplete. Every other code is bad.
_STATES: dict[int, State] = {
    0: "good", 2: "inconclusive", 4: "not measured", 5: "inconclusive", 7: "not measured",
}  # fmt: skip


class Banner(NamedTuple):
    """A banner. text: one or two sentences, without the state."""

    state: State
    text: str

    @property
    def label(self) -> str:
        """The state with a capital letter."""
        return self.state.capitalize()

    @property
    def line(self) -> str:
        """State and text for output without colours."""
        return f"{self.label}: {self.text}"


def state_of(exit_code: int) -> State:
    """Return the state for the exit code of a verdict."""
    return _STATES.get(exit_code, "bad")


def of_fault(fault: DlioError) -> Banner:
    """Return the banner for results that a fault makes unusable or incomplete."""
    state: State = "not measured" if isinstance(fault, Incomplete) else "bad"
    lead = "Incomplete" if state == "not measured" else "Do not use the numbers"
    return Banner(state, f"{lead}: {fault}")


def gravest(banners: Iterable[Banner]) -> Banner:
    """Return the first banner of the worst state. There is at least one banner."""
    return min(banners, key=lambda banner: list(COLOURS).index(banner.state))
