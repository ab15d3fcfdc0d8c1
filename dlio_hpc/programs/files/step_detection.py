"""Detection of training steps from the times of reads. A step reads in a burst of requests and then pauses while it
computes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.programs.files.extents import Integers, Reads
from dlio_hpc.results import intervals

Floats = npt.NDArray[np.float64]

# Shorter pauses do not separate steps. They are between two calls of a loop, or are waits for a page.
_LEAST_S = 0.5e-3
_FEW, _SHARE, _APART = 5, 0.25, 4.0
# Smallest ratio of two successive pauses, sorted by length, between which the limit may be. Bytes of two bursts that
# differ by less than _EVEN are equal. A limit that divides the pauses less clearly than _CLEAR is no limit.
_GAP, _EVEN, _CLEAR = 1.05, 0.02, 0.25
# Number of batches that a worker of PyTorch's DataLoader reads ahead by default. Workers read more in their first burst
# if the first step takes longer than others, up to this many times a batch.
_PYTORCH_AHEAD, _LATE_START = 2, 3.6
# Largest number of limits that are tried.
_MOST_LIMITS = 40
# Smallest number of bursts of a rank for a reliable pace.
ENOUGH = 8


class DetectedSteps(NamedTuple):
    """Steps that appear as bursts of reads. pause_s: median seconds from the end of a burst to the start of the next
    burst. period_s: median seconds from the start of a burst to the start of the next burst. spread: half the
    interquartile range of the periods, divided by their median. bytes: median bytes of a burst. first: bytes of a
    rank's first burst, divided by `bytes`. number: median number of bursts of a rank. begins: start times of all bursts
    of one rank in seconds. workers: number of processes of a rank that read at the same time. If there are several
    processes, pause_s, period_s, spread, bytes, first and number describe one process, which reads for only one of
    every `workers` steps.
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
    spans = [span(reads, mine) for mine in readers]
    limit = _limit(reads, readers, spans)
    if limit is None:
        return None
    made = [_bursts(reads, mine, covered, limit) for mine, covered in zip(readers, spans, strict=True)]
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


def span(reads: Reads, mine: Integers) -> Floats:
    """Return the intervals with at least one of the reads `mine` in flight, shape (2, n)."""
    return intervals.union(np.stack([reads.start, np.maximum(reads.start, reads.end)])[:, mine])


def _limit(reads: Reads, readers: list[Integers], spans: list[Floats]) -> float | None:
    """Return a limit in seconds that separates pauses between steps (longer) from pauses within a step (shorter).
    Return None if there is no such limit. A good limit meets three conditions: pauses above the limit are far longer
    than pauses below the limit, pauses above the limit are similar, and the bursts that these pauses separate have
    similar numbers of bytes.
    """
    pauses = np.sort(np.concatenate([span[0, 1:] - span[1, :-1] for span in spans]))
    whole = sum(float(span[1, -1] - span[0, 0]) for span in spans if span.size)
    tall = pauses[pauses > _LEAST_S]
    if len(tall) < _FEW or tall.sum() < _SHARE * whole:
        return None
    wide = np.flatnonzero(tall[1:] > _GAP * tall[:-1]) + 1
    wide = wide[np.argsort(-tall[wide] / tall[wide - 1])][:_MOST_LIMITS]
    limits = [(float(np.sqrt(tall[at] * tall[at - 1])), int(at)) for at in wide.tolist()]
    limits += [(_LEAST_S, 0)] if np.median(tall) > _APART * _LEAST_S else []
    # The pauses above the limit must make up much of the time: a pause between epochs is not a step.
    rest = np.cumsum(tall[::-1])[::-1]
    limits = [(limit, at) for limit, at in limits if len(tall) - at >= _FEW and rest[at] > _SHARE * tall.sum()]
    ranked = [(round(_clearness(tall, at) * _evenness(reads, readers, spans, limit), 2), limit) for limit, at in limits]
    best, limit = max(ranked, default=(0.0, 0.0))
    return limit if best > _CLEAR else None


def _clearness(pauses: Floats, at: int) -> float:
    """Return how clearly index `at` separates short pauses from long ones, from 0 to 1. A few extreme pauses on each
    side are ignored. pauses: in ascending order.
    """
    rim = (len(pauses) - 1 - at) // 10
    low, high = pauses[at + rim], pauses[len(pauses) - 1 - rim]
    below = pauses[max(at - 1 - rim, 0)] if at else _LEAST_S
    return float(min(low / below / _APART, 1.0) * np.sqrt(low / high))


def _evenness(reads: Reads, readers: list[Integers], spans: list[Floats], limit: float) -> float:
    """Return the larger of two shares: the share of the bursts with similar numbers of bytes, and the share of the
    bursts with similar numbers of visits to files. If files vary in size, steps are similar in the number of visits.
    The first and the last burst of each reader are ignored: the first also reads ahead, and the last reads the
    remainder.
    """
    starts = np.concatenate(([True], np.diff(reads.file) != 0))
    shares = [0.0]
    for weight in (reads.length.astype(np.float64), starts.astype(np.float64)):
        bursts = [
            _amounts(reads, mine, covered, limit, weight)[1:-1] for mine, covered in zip(readers, spans, strict=True)
        ]
        amounts = np.concatenate(bursts)
        if len(amounts):
            usual = np.median(amounts)
            shares.append(float((np.abs(amounts - usual) <= _EVEN * usual).mean()))
    return max(shares)


def _amounts(reads: Reads, mine: Integers, span: Floats, limit: float, weight: Floats) -> Floats:
    """Return the sum of the weights of the reads in each burst. weight: weight of each read."""
    joined = intervals.joined(span, limit)
    at = np.searchsorted(joined[:, 0], reads.start[mine], "right") - 1
    return np.bincount(np.maximum(at, 0), weight[mine], len(joined)).astype(np.float64)


def _bursts(reads: Reads, mine: Integers, span: Floats, limit: float) -> _Bursts:
    joined = intervals.joined(span, limit)
    size = _amounts(reads, mine, span, limit, reads.length.astype(np.float64))
    return _Bursts(joined[:, 0], joined[:, 1], size)


class Pace(NamedTuple):
    """Pace of a training run. batch: samples per step. compute_s: seconds of computation per step. ahead: number of
    batches read ahead; 0 without prefetching. begins: start times of steps, as in DetectedSteps; None if they are
    unknown. bytes: median bytes that a reader reads in a step.
    """

    batch: DerivedValue
    compute_s: DerivedValue
    ahead: DerivedValue
    begins: Floats | None
    bytes: float = 0.0


def pace(steps: DetectedSteps | None, sample: DerivedValue, shown: Callable[[float], str] = format_size) -> Pace:
    """Return the pace of a training run. steps: None if no steps were detected; all values are then unknown. sample:
    size of a sample in bytes, 0 if it is unknown. shown: function that formats the size of a burst.
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
    bursts = f"{steps.number:,} bursts of {shown(steps.bytes)} per {reader}"
    is_ahead = steps.first > 1.7 or steps.workers > 1
    seconds, ends = (steps.period_s, "start to start") if is_ahead else (steps.pause_s, "end to start")
    evidence = f"{bursts}, {format_seconds(seconds)} from {ends} (median; half of them within +-{steps.spread:.0%})"
    batch = _batch(steps, sample, bursts, level)
    if steps.workers > 1 and batch.confidence == "low":  # a worker pauses between samples, too
        level = weaker(level, "low")
    return Pace(
        batch,
        DerivedValue(seconds / steps.workers, level, evidence),
        _ahead(steps, is_ahead),
        steps.begins,
        steps.bytes,
    )


def _ahead(steps: DetectedSteps, is_ahead: bool) -> DerivedValue:
    """Return `reader.prefetch`. The first burst reads all batches that are read ahead. If the rank reads without worker
    processes, the first burst also reads the batch of the first step.
    """
    times = f"{steps.first:.1f} times"
    if not is_ahead:
        return DerivedValue(0, "medium", f"the first burst is no larger than the others ({times})")
    if steps.workers > 1 and steps.first <= 1.7:
        return DerivedValue(
            steps.workers, "low", f"each of {steps.workers} worker processes reads at least one batch ahead"
        )
    is_default = steps.workers > 1 and steps.first < _LATE_START
    times_ahead = _PYTORCH_AHEAD if is_default else round(steps.first)
    batches = max(steps.workers * times_ahead - (steps.workers == 1), steps.workers)
    level: Confidence = "medium" if steps.workers > 1 else "low"
    return DerivedValue(batches, level, f"the first burst is {times} as large as the others")


def _batch(steps: DetectedSteps, sample: DerivedValue, bursts: str, level: Confidence) -> DerivedValue:
    if not sample.value:
        return DerivedValue(1, "unknown", f"{bursts}; the number of samples in a burst is unknown")
    count = steps.bytes / sample.value
    near = abs(count - round(count)) < 0.1 * max(count, 1)
    strength: Confidence = (
        "low" if sample.confidence in ("low", "unknown") or not near else "medium" if level == "high" else "low"
    )
    return DerivedValue(max(1, round(count)), strength, f"{bursts}, {count:.3g} samples")
