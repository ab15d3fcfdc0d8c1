"""Disturbances of a run: stops of its ranks, CPU quotas, computation that took far longer than requested, and epochs
that took far longer than the others.
"""

import statistics
from collections.abc import Sequence

from dlio_hpc.base.units import format_seconds
from dlio_hpc.results.run_result import Disturbance, Epoch, Interruption, Result, Summary

# Share of the run's time up to which interruptions do not matter.
_TOLERATED = 0.01
# An epoch is outlying if it takes this multiple of the median of the other epochs, and this many seconds longer. With
# two epochs, the first may be slower because it opens files.
_MULTIPLE, _MULTIPLE_OF_TWO, _LONGER_S = 2.0, 4.0, 1.0
# Share of the periods of a CPU quota in which it may be used up.
_THROTTLED = 0.05


def stop(result: Result) -> str | None:
    """Return a sentence on the time for which ranks were stopped, if it is long enough to make the run invalid.
    Otherwise, return None.
    """
    return _described(result.summary, ("stopped", "suspended"), "its ranks were stopped for {}, and its epochs took {}")


def remarks(result: Result) -> list[str]:
    """Return sentences on computation and epochs that took far longer than expected, and on CPU quotas. Any of them
    makes the run inconclusive.
    """
    computed = _described(result.summary, ("compute",), "computation took {} longer than requested, of {}")
    searches = bool(result.summary and result.summary.inference and result.summary.inference.tries)
    epochs = [] if searches else result.epochs  # epochs of a search have different numbers of users
    return [*([computed] if computed else []), *_throttled(result.disturbance), *_outlying(epochs)]


def _throttled(disturbance: Disturbance | None) -> list[str]:
    """Return a sentence if a CPU quota stopped the ranks. The storage does not cause such a delay."""
    level = None if disturbance is None else disturbance.throttled
    if level is None or level.max <= _THROTTLED:
        return []
    return [f"a CPU quota stopped the ranks in {100 * level.max:.0f} % of its periods on {level.host}"]


def _described(summary: Summary | None, kinds: tuple[str, ...], text: str) -> str | None:
    if summary is None:
        return None
    listed = [interruption for interruption in summary.interruptions if interruption.kind in kinds]
    seconds = sum(interruption.seconds for interruption in listed)
    if not listed or seconds <= _TOLERATED * summary.wall_s:
        return None
    more = f", and {len(listed) - 1} more" if len(listed) > 1 else ""
    return f"{text.format(format_seconds(seconds), format_seconds(summary.wall_s))} ({_place(listed[0])}{more})"


def _place(interruption: Interruption) -> str:
    if interruption.kind == "suspended":
        return "the node was suspended"
    ranks = f"{interruption.ranks} rank{'s' * (interruption.ranks > 1)}"
    step = f"epoch {interruption.epoch}, step {interruption.step}"
    if not interruption.step:
        return f"outside of steps, {ranks}"
    asked_s = interruption.asked_s
    if asked_s is None:
        return f"{step}, {ranks} stood still"
    times = f"{interruption.seconds / asked_s + 1:.0f} x " if asked_s else ""
    return f"{step}: {times}the {format_seconds(asked_s)} asked, {ranks}"


def _outlying(epochs: Sequence[Epoch]) -> list[str]:
    """Return a sentence for each epoch that took far longer than the others, or far less time than most of the others.
    Epochs that were cut short are ignored.
    """
    whole = [epoch for epoch in epochs if epoch.steps == epochs[0].steps]
    sentences = []
    for epoch in whole:
        others = [other.wall_s for other in whole if other is not epoch]
        if not others:
            continue
        median, multiple = statistics.median(others), _MULTIPLE if len(others) > 1 else _MULTIPLE_OF_TWO
        most = statistics.median([epoch.wall_s, *others])  # few slow epochs make no fast ones of the rest
        is_fast = len(others) > 1 and most > multiple * epoch.wall_s and most > epoch.wall_s + _LONGER_S
        if is_fast or (epoch.wall_s > multiple * median and epoch.wall_s > median + _LONGER_S):
            phases = {"waiting for data": epoch.wait_s, "compute": epoch.compute_s, "synchronisation": epoch.sync_s}
            phase = max(phases, key=lambda name: phases[name])
            sentences.append(
                f"epoch {epoch.epoch} took {format_seconds(epoch.wall_s)}, {epoch.wall_s / median:.2g} x the median of "
                f"the others ({phase} {format_seconds(phases[phase])})"
            )
    return sentences
