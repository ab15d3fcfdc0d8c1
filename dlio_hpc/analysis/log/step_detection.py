"""Detection of training steps from the times of reads. A step reads in a burst of requests and then pauses while it
computes.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.analysis.log.extents import Integers, Reads
from dlio_hpc.results import intervals
from dlio_hpc.units import format_seconds, format_size

Floats = npt.NDArray[np.float64]

# Shorter pauses do not separate steps. They lie between two calls of a loop, or are waits for a page.
_LEAST_S = 0.5e-3
_FEW, _SHARE, _APART = 5, 0.3, 4.0
# Smallest number of bursts of a rank for a reliable pace.
ENOUGH = 8


class DetectedSteps(NamedTuple):
    """Steps that appear as bursts of reads. pause_s: median seconds from the end of a burst to the start of the next
    burst. period_s: median seconds from the start of a burst to the start of the next burst. spread: half the
    interquartile range of the periods, divided by their median. bytes: median bytes of a burst. first: bytes of a
    rank's first burst, divided by `bytes`. number: median number of bursts of a rank. begins: start times of all bursts
    of one rank in seconds. workers: number of processes of a rank that read at the same time. If there are several,
    pause_s, period_s, spread, bytes, first and number are those of one process, which reads for only one of every
    `workers` steps.
    """

    pause_s: float
    period_s: float
    spread: float
    bytes: float
    first: float
    number: int
    begins: Floats
    workers: int = 1


def find(reads: Reads) -> DetectedSteps | None:
    """Return the steps of a program, or None if no pauses separate bursts of reads."""
    readers = reads.readers
    spans = [_span(reads, mine) for mine in readers]
    limit = _limit(spans)
    if limit is None:
        return None
    made = [_bursts(reads, mine, span, limit) for mine, span in zip(readers, spans, strict=True)]
    several = [bursts for bursts in made if len(bursts.begin) > 2]
    if not several:
        return None
    of_first = [
        bursts.begin for bursts, mine in zip(made, readers, strict=True) if reads.rank[mine[0]] == reads.rank[0]
    ]
    periods = np.concatenate([np.diff(bursts.begin) for bursts in several])
    pauses = np.concatenate([bursts.begin[1:] - bursts.end[:-1] for bursts in several])
    low, middle, high = np.percentile(periods, [25, 50, 75])
    usual = float(np.median(np.concatenate([bursts.bytes[1:] for bursts in several])))
    return DetectedSteps(
        float(np.median(pauses)),
        float(middle),
        float((high - low) / 2 / middle) if middle else 1.0,
        usual,
        float(np.median([bursts.bytes[0] for bursts in several])) / max(usual, 1),
        int(np.median([len(bursts.begin) for bursts in several])),
        np.sort(np.concatenate(of_first)),
        reads.workers,
    )


class _Bursts(NamedTuple):
    begin: Floats
    end: Floats
    bytes: Floats


def _span(reads: Reads, mine: Integers) -> Floats:
    """Return the intervals with at least one of the reads `mine` in flight, shape (2, n)."""
    return intervals.union(np.stack([reads.start, np.maximum(reads.start, reads.end)])[:, mine])


def _limit(spans: list[Floats]) -> float | None:
    """Return a limit in seconds: longer pauses are between steps, shorter pauses are within a step. Return None if
    there is no such limit. The limit is chosen such that the pauses above the limit are most alike, and differ most
    from the pauses below the limit. A few extreme pauses are ignored in this comparison. If the pauses do not divide
    into two kinds but their median is long, all of them count as pauses between steps.
    """
    pauses = np.sort(np.concatenate([span[0, 1:] - span[1, :-1] for span in spans]))
    whole = sum(float(span[1, -1] - span[0, 0]) for span in spans if span.size)
    tall = pauses[pauses > _LEAST_S]
    if len(tall) < _FEW or tall.sum() < _SHARE * whole:
        return None
    # The pauses above the limit must make up most of the time: a pause between epochs is not a step.
    rest = np.cumsum(tall[::-1])[::-1]
    at = np.arange(1, len(tall) - _FEW + 1)
    at = at[rest[at] > 0.5 * tall.sum()]
    if len(at):
        above = len(tall) - 1 - at
        rim = above // 10
        low, high, below = tall[at + rim], tall[at + above - rim], tall[np.maximum(at - 1 - rim, 0)]
        best = int(np.argmax(low**2 / (below * high)))
        if low[best] > 2 * below[best] and low[best] > _APART * np.median(tall[: at[best]]):
            return float(np.sqrt(tall[at[best]] * tall[at[best] - 1]))
    return float(_LEAST_S) if np.median(tall) > _APART * _LEAST_S else None


def _bursts(reads: Reads, mine: Integers, span: Floats, limit: float) -> _Bursts:
    joined = intervals.joined(span, limit)
    at = np.searchsorted(joined[:, 0], reads.start[mine], "right") - 1
    size = np.bincount(np.maximum(at, 0), reads.length[mine], len(joined)).astype(np.float64)
    return _Bursts(joined[:, 0], joined[:, 1], size)


class Pace(NamedTuple):
    """Pace of a training run. batch: samples per step. compute_s: seconds of computation per step. ahead: number of
    batches read ahead; 0 without prefetching. begins: start times of steps, as in DetectedSteps; None if they are
    unknown.
    """

    batch: DerivedValue
    compute_s: DerivedValue
    ahead: DerivedValue
    begins: Floats | None


def pace(steps: DetectedSteps | None, sample: DerivedValue) -> Pace:
    """Return the pace of a training run. steps: None if no steps were detected; all values are then unknown. sample:
    size of a sample in bytes, 0 if it is unknown.
    """
    if steps is None:
        nothing = "reads have no regular pauses"
        return Pace(
            DerivedValue(1, "unknown", nothing),
            DerivedValue(0.0, "unknown", f"{nothing}: storage is the bottleneck, or steps cannot be detected"),
            DerivedValue(None, "unknown", nothing),
            None,
        )
    level: Confidence = "high" if steps.spread < 0.15 else "medium" if steps.spread < 0.4 else "low"
    level = weaker(level, "high" if steps.number >= ENOUGH else "low")
    reader = "rank" if steps.workers == 1 else f"worker process ({steps.workers} per rank)"
    bursts = f"{steps.number:,} bursts of {format_size(steps.bytes)} per {reader}"
    is_ahead = steps.first > 1.7 or steps.workers > 1
    seconds, ends = (steps.period_s, "start to start") if is_ahead else (steps.pause_s, "end to start")
    evidence = f"{bursts}, {format_seconds(seconds)} from {ends} (median; half of them within +-{steps.spread:.0%})"
    batch = _batch(steps, sample, bursts, level)
    return Pace(batch, DerivedValue(seconds / steps.workers, level, evidence), _ahead(steps, is_ahead), steps.begins)


def _ahead(steps: DetectedSteps, is_ahead: bool) -> DerivedValue:
    """Return `reader.prefetch`. The first burst reads all batches that are read ahead. If the rank itself reads,
    without worker processes, the first burst also reads the batch that is used at once.
    """
    times = f"{steps.first:.1f} times"
    if not is_ahead:
        return DerivedValue(0, "medium", f"the first burst is no larger than the others ({times})")
    if steps.workers > 1 and steps.first <= 1.7:
        return DerivedValue(
            steps.workers, "low", f"each of {steps.workers} worker processes reads at least one batch ahead"
        )
    batches = max(steps.workers * round(steps.first) - (steps.workers == 1), steps.workers)
    return DerivedValue(batches, "medium", f"the first burst is {times} as large as the others")


def _batch(steps: DetectedSteps, sample: DerivedValue, bursts: str, level: Confidence) -> DerivedValue:
    if not sample.value:
        return DerivedValue(1, "unknown", f"{bursts}; the number of samples in a burst is unknown")
    count = steps.bytes / sample.value
    near = abs(count - round(count)) < 0.1 * max(count, 1)
    strength: Confidence = (
        "low" if sample.confidence in ("low", "unknown") or not near else "medium" if level == "high" else "low"
    )
    return DerivedValue(max(1, round(count)), strength, f"{bursts}, {count:.3g} samples")
