"""The rows that a bench prints."""

import statistics
import time
from collections.abc import Callable

ROUNDS = 9


def heading(other: str = "bare") -> None:
    print(f"{'what':50}{'ours':>14} {other:>14}{'ratio':>7}  goal", flush=True)


def row(what: str, ours: str, bare: str = "", ratio: float | None = None, goal: str = "") -> None:
    print(f"{what:50}{ours:>14} {bare:>14}{'' if ratio is None else f'{ratio:.2f}':>7}  {goal}", flush=True)


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
    for number in range(ROUNDS):
        if number % 2:
            pairs.append((timed(ours), timed(bare)))
        else:
            theirs_first = timed(bare)
            pairs.append((timed(ours), theirs_first))
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    row(what, f"{size / mine / 1e6:.0f} MB/s", f"{size / theirs / 1e6:.0f} MB/s", ratio, goal)
