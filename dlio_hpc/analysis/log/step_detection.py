"""When a program read: bursts of requests and the pauses between them, which are its steps and their computing."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc import intervals
from dlio_hpc.analysis.characterize.evidence import Confidence, Estimate, weaker
from dlio_hpc.analysis.log.extents import Integers, Reads
from dlio_hpc.units import format_seconds, format_size

Floats = npt.NDArray[np.float64]

# Pauses that are no steps': between two calls of a loop, waiting for a page.
_LEAST_S = 0.5e-3
_FEW, _SHARE, _APART = 5, 0.3, 4.0
# Bursts of a rank that make a habit.
ENOUGH = 8


class Steps(NamedTuple):
    """pause_s, period_s: median, from a burst's end and begin to the next one's begin; spread: of the period, half the
    width of its middle half over the median. bytes: of a burst, the median; first: of a rank's first burst over that.
    number: of a rank, the median. begins: seconds, of all bursts of one rank. workers: processes of a rank that read at
    a time; all other figures are of one of them then, which has every workers-th step.
    """

    pause_s: float
    period_s: float
    spread: float
    bytes: float
    first: float
    number: int
    begins: Floats
    workers: int = 1


def find(reads: Reads) -> Steps | None:
    """None where reading has no pauses that stand out."""
    readers = reads.readers
    spans = [_span(reads, mine) for mine in readers]
    limit = _limit(spans)
    if limit is None:
        return None
    made = [_bursts(reads, mine, span, limit) for mine, span in zip(readers, spans, strict=True)]
    found = [bursts for bursts in made if len(bursts.begin) > 2]
    if not found:
        return None
    of_first = [
        bursts.begin for bursts, mine in zip(made, readers, strict=True) if reads.rank[mine[0]] == reads.rank[0]
    ]
    periods = np.concatenate([np.diff(bursts.begin) for bursts in found])
    pauses = np.concatenate([bursts.begin[1:] - bursts.end[:-1] for bursts in found])
    low, middle, high = np.percentile(periods, [25, 50, 75])
    usual = float(np.median(np.concatenate([bursts.bytes[1:] for bursts in found])))
    return Steps(
        float(np.median(pauses)),
        float(middle),
        float((high - low) / 2 / middle) if middle else 1.0,
        usual,
        float(np.median([bursts.bytes[0] for bursts in found])) / max(usual, 1),
        int(np.median([len(bursts.begin) for bursts in found])),
        np.sort(np.concatenate(of_first)),
        reads.workers,
    )


class _Bursts(NamedTuple):
    begin: Floats
    end: Floats
    bytes: Floats


def _span(reads: Reads, mine: Integers) -> Floats:
    """(2, n): when one of `mine` was under way."""
    return intervals.union(np.stack([reads.start, np.maximum(reads.start, reads.end)])[:, mine])


def _limit(spans: list[Floats]) -> float | None:
    """Seconds that tell pauses between steps from those within: where those above are most alike, and furthest from
    those below; a tenth as many as those above do not count, at every rim. With no two kinds all of them are steps',
    when they are long and alike.
    """
    pauses = np.sort(np.concatenate([span[0, 1:] - span[1, :-1] for span in spans]))
    whole = sum(float(span[1, -1] - span[0, 0]) for span in spans if span.size)
    tall = pauses[pauses > _LEAST_S]
    if len(tall) < _FEW or tall.sum() < _SHARE * whole:
        return None
    # What is split off at the top must still be most of the time: a pause between epochs is not a step.
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
    """batch: in samples; ahead: batches, 0 where nobody reads ahead of the computing. begins: as of Steps."""

    batch: Estimate
    compute_s: Estimate
    ahead: Estimate
    begins: Floats | None


def pace(found: Steps | None, sample: Estimate) -> Pace:
    if found is None:
        nothing = "reading has no regular pauses"
        return Pace(
            Estimate(1, "unknown", nothing),
            Estimate(0.0, "unknown", f"{nothing}: storage is the bottleneck, or steps cannot be seen"),
            Estimate(None, "unknown", nothing),
            None,
        )
    level: Confidence = "high" if found.spread < 0.15 else "medium" if found.spread < 0.4 else "low"
    level = weaker(level, "high" if found.number >= ENOUGH else "low")
    whose = "rank" if found.workers == 1 else f"worker process, of {found.workers}"
    bursts = f"{found.number:,} bursts of {format_size(found.bytes)} a {whose}"
    is_ahead = found.first > 1.7 or found.workers > 1
    seconds, what = (found.period_s, "begin to begin") if is_ahead else (found.pause_s, "end to begin")
    words = f"{bursts}, {format_seconds(seconds)} from {what} (median, middle half within {found.spread:.0%})"
    batch = _batch(found, sample, bursts, level)
    return Pace(batch, Estimate(seconds / found.workers, level, words), _ahead(found, is_ahead), found.begins)


def _ahead(found: Steps, is_ahead: bool) -> Estimate:
    """The first burst is what is read ahead, and the batch that is taken at once; of workers, what is asked of them."""
    times = f"{found.first:.1f} times"
    if not is_ahead:
        return Estimate(0, "medium", f"the first burst is no larger than the others ({times})")
    if found.workers > 1 and found.first <= 1.7:
        return Estimate(found.workers, "low", f"each of {found.workers} worker processes reads a batch ahead, at least")
    batches = max(found.workers * round(found.first) - (found.workers == 1), found.workers)
    return Estimate(batches, "medium", f"the first burst is {times} the others")


def _batch(found: Steps, sample: Estimate, bursts: str, level: Confidence) -> Estimate:
    if not sample.value:
        return Estimate(1, "unknown", f"{bursts}; how many samples that is does not show")
    count = found.bytes / sample.value
    near = abs(count - round(count)) < 0.1 * max(count, 1)
    strength: Confidence = (
        "low" if sample.confidence in ("low", "unknown") or not near else "medium" if level == "high" else "low"
    )
    return Estimate(max(1, round(count)), strength, f"{bursts}, {count:.3g} samples")
