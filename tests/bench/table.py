"""The rows that a bench prints: a table in Markdown, from which the documentation's page of performance is made."""

import statistics
import time
from collections.abc import Callable

ROUNDS = 9
_WIDTHS = (58, 14, 14, 6, 14, 6, 16)


def heading(other: str = "bare") -> None:
    """Print the header. other: what ours is compared with."""
    _line("what", "ours", other, "ratio", "fio", "ratio", "goal")
    _line(*("-" * width for width in _WIDTHS))


def row(
    what: str,
    ours: str,
    bare: str = "",
    ratio: float | None = None,
    goal: str = "",
    fio: str = "",
    of_fio: float | None = None,
) -> None:
    """Print a row. ratio, of_fio: ours divided by the bare counterpart, and by fio."""
    _line(what, ours, bare, _ratio(ratio), fio, _ratio(of_fio), goal)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _line(*cells: str) -> None:
    padded = (cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
    print("| " + " | ".join(padded) + " |", flush=True)


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def compare(
    what: str,
    ours: Callable[[], object],
    bare: Callable[[], object],
    size: int,
    goal: str,
    rounds: int = ROUNDS,
    between: Callable[[], object] = lambda: None,
) -> None:
    """Print the rates of both in MB/s, and ours divided by the bare one. The two runs of a pair change their order from
    pair to pair. A first run of each only warms up. `between` runs before each of them and is not timed.
    """

    def timed(function: Callable[[], object]) -> float:
        between()
        return seconds(function)

    timed(ours)
    timed(bare)
    pairs = []
    for number in range(rounds):
        if number % 2:
            pairs.append((timed(ours), timed(bare)))
        else:
            theirs_first = timed(bare)
            pairs.append((timed(ours), theirs_first))
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    row(what, f"{size / mine / 1e6:.0f} MB/s", f"{size / theirs / 1e6:.0f} MB/s", ratio, goal)
