"""Banner of a report: a state in a colour, and one or two sentences. Every page and every terminal summary starts with
a banner.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from dlio_hpc.base.errors import DlioError, Incomplete

State = Literal["good", "inconclusive", "not measured", "bad"]
# States from worst to best, with their colours on a terminal. templates/report.html.j2 has the colours of the page.
COLOURS: dict[State, str] = {"bad": "red", "not measured": "blue", "inconclusive": "yellow", "good": "green"}
# State for each exit code of a verdict (pass, not_comparable, cached, inconclusive, incomplete). Any other exit code
# has the state "bad".
_STATES: dict[int, State] = {
    0: "good", 2: "inconclusive", 4: "not measured", 5: "inconclusive", 7: "not measured",
}  # fmt: skip


class Banner(NamedTuple):
    """A banner. text: one or two sentences that do not repeat the state."""

    state: State
    text: str

    @property
    def label(self) -> str:
        """The state, starting with a capital letter."""
        return self.state.capitalize()

    @property
    def line(self) -> str:
        """State and text as one line without colours."""
        return f"{self.label}: {self.text}"


def state_of(exit_code: int) -> State:
    """Return the state for the exit code of a verdict."""
    return _STATES.get(exit_code, "bad")


def of_fault(fault: DlioError) -> Banner:
    """Return the banner for results that have this fault. If the fault is Incomplete, the banner says that measurements
    are missing. For any other fault, it says that the numbers must not be used.
    """
    state: State = "not measured" if isinstance(fault, Incomplete) else "bad"
    lead = "Incomplete" if state == "not measured" else "Do not use the numbers"
    return Banner(state, f"{lead}: {fault}")


def gravest(banners: Iterable[Banner]) -> Banner:
    """Return the banner with the worst state. If several banners have this state, return the first of them. `banners`
    must not be empty.
    """
    return min(banners, key=lambda banner: list(COLOURS).index(banner.state))
