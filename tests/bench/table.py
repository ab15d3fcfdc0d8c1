"""The rows that a bench prints."""

import statistics
import time
from collections.abc import Callable

ROUNDS = 9


def heading(other: str = "bare") -> None:
    print(f"{'what':58}{'ours':>14} {other:>14}{'ratio':>7}{'fio':>14}{'ratio':>7}  goal", flush=True)


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
    print(f"{what:58}{ours:>14} {bare:>14}{_ratio(ratio):>7}{fio:>14}{_ratio(of_fio):>7}  {goal}", flush=True)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def compare(
    what: str, ours: Callable[[], object], bare: Callable[[], object], size: int, goal: str, rounds: int = ROUNDS
) -> None:
    """Print the rates of both in MB/s, and ours divided by the bare one. The two runs of a pair change their order from
    pair to pair. A first run of each only warms up.
    """
    ours()
    bare()
    pairs = []
    for number in range(rounds):
        if number % 2:
            pairs.append((seconds(ours), seconds(bare)))
        else:
            theirs_first = seconds(bare)
            pairs.append((seconds(ours), theirs_first))
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    row(what, f"{size / mine / 1e6:.0f} MB/s", f"{size / theirs / 1e6:.0f} MB/s", ratio, goal)
