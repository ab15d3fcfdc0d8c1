"""The rows that a bench prints."""

import statistics
import time
from collections.abc import Callable

ROUNDS = 9


def heading(other: str = "bare") -> None:
    print(f"{'what':50}{'ours':>14} {other:>14}{'ratio':>7}  goal", flush=True)


def row(what: str, ours: str, bare: str = "", ratio: float | None = None, goal: str = "") -> None:
    print(f"{what:50}{ours:>14} {bare:>14}{'' if ratio is None else f'{ratio:.2f}':>7}  {goal}", flush=True)


def limits_heading() -> None:
    print(f"{'what':56}{'ours':>14}{'bare loop':>14}{'ratio':>7}{'fio':>14}{'ratio':>7}  goal", flush=True)


def limits(what: str, ours: str, bare: str, ratio: float, fio: str, of_fio: float | None, goal: str) -> None:
    """Print a row with two limits: a bare loop, and fio."""
    against = "" if of_fio is None else f"{of_fio:.2f}"
    print(f"{what:56}{ours:>14}{bare:>14}{ratio:>7.2f}{fio:>14}{against:>7}  {goal}", flush=True)


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def compare(what: str, ours: Callable[[], object], bare: Callable[[], object], size: int, goal: str) -> None:
    """Print the rates of both in MB/s, and ours divided by the bare one. The two runs of a pair change their order from
    pair to pair. A first run of each only warms up.
    """
    ours()
    bare()
    pairs = []
    for number in range(ROUNDS):
        if number % 2:
            pairs.append((seconds(ours), seconds(bare)))
        else:
            theirs_first = seconds(bare)
            pairs.append((seconds(ours), theirs_first))
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in pairs)
    row(what, f"{size / mine / 1e6:.0f} MB/s", f"{size / theirs / 1e6:.0f} MB/s", ratio, goal)
