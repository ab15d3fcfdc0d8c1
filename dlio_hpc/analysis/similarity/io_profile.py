"""What a program's I/O was like, in the figures by which programs are compared, wherever they come from."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.analysis.log.findings import LAST_SIZES, SIZE_BINS, Analysis, Operation
from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.analysis.similarity import request_distance
from dlio_hpc.analysis.similarity.reference_profile import Named
from dlio_hpc.analysis.similarity.request_distance import Distribution, Grain
from dlio_hpc.results import Result, Summary
from dlio_hpc.units import format_size

Kind = Literal["job", "log", "reference"]
# Files that a program is made of rather than works on: left out of the logs of others, unless --only says which count.
DATA = (
    r"^(?!/(?:proc|sys|dev|etc)/)"
    r"(?!.*(?:/(?:site|dist)-packages/|/lib(?:64)?/python\d|[.](?:py|pyc|pyi|so)$|[.]so[.]\d))"
)
# One request in a hundred makes no other pattern.
SLACK = 0.01
_GIB = 2.0**30


class Profile(Struct, frozen=True):
    """title: as a user names it. application: whose I/O it is or emulates, "" where nobody says. source: in words.

    io_s: with a request in flight, mean over ranks. bytes: read and written by all ranks. rate_*: MB/s (1e6 bytes) of
    single requests. sequential, consecutive: shares of all requests. None: not known. around_median: request sizes
    SLACK of all requests below the median and above it. sizes: of requests, each counting
    once; volumes: each counting by its bytes; jumps: between requests (octaves.jumps).
    """

    title: str
    kind: Kind
    application: str
    source: str
    ranks: int | None = None
    io_s: float | None = None
    bytes: float | None = None
    files: float | None = None
    request_min: float | None = None
    request_max: float | None = None
    request_mean: float | None = None
    request_median: float | None = None
    around_median: tuple[float, float] | None = None
    rate_mean: float | None = None
    rate_median: float | None = None
    sequential: float | None = None
    consecutive: float | None = None
    bytes_per_sample: float | None = None
    notes: tuple[str, ...] = ()
    sizes: Distribution | None = None
    volumes: Distribution | None = None
    jumps: Distribution | None = None


def of_reference(named: Named) -> Profile:
    found = named.reference
    gib, sequential, consecutive = found.data_accessed_gib, found.sequential_pct, found.consecutive_pct
    return Profile(
        named.title,
        "reference",
        named.name,
        named.source,
        ranks=found.ranks,
        io_s=found.io_time_s,
        bytes=None if gib is None else gib * _GIB,
        files=found.files,
        request_min=found.request_bytes.min,
        request_max=found.request_bytes.max,
        request_mean=found.request_bytes.mean,
        request_median=found.request_bytes.median,
        rate_mean=found.bandwidth_per_op_MBps.mean,
        rate_median=found.bandwidth_per_op_MBps.median,
        sequential=None if sequential is None else sequential / 100,
        consecutive=None if consecutive is None else consecutive / 100,
        bytes_per_sample=found.bytes_per_sample,
        notes=(found.note,) if found.note else (),
    )


def of_log(
    title: str, kind: Kind, application: str, analysis: Analysis, requests: Requests | None,
    notes: tuple[str, ...] = (), bytes_per_sample: float | None = None,
) -> Profile:  # fmt: skip
    """requests: of its whole trace; None to do with counters, which know no single requests."""
    operations = [each for each in (analysis.read, analysis.write) if each is not None]
    known = _of_counters(operations) if requests is None else _of_requests(requests)
    source = "Darshan's counters (no whole trace)" if requests is None else "Darshan's trace (DXT)"
    return Profile(
        title,
        kind,
        application,
        source,
        ranks=analysis.ranks,
        io_s=analysis.io_s,
        bytes=analysis.bytes_read + analysis.bytes_written,
        files=sum(file.reads + file.writes > 0 for file in analysis.files),
        sequential=_share(operations, [each.sequential for each in operations]),
        consecutive=_share(operations, [each.consecutive for each in operations]),
        bytes_per_sample=bytes_per_sample,
        notes=(*notes, *_untraced(analysis)),
        **known,
    )


def of_core(title: str, result: Result, timeline: bytes | None, application: str, why: str) -> Profile:
    """A run of ours without a log: what the core counted. why: there is none."""
    summary = result.summary
    assert summary is not None
    known: dict[str, Any] = {}
    if timeline is not None:
        with timeline_reader.opened(timeline) as record:
            known = _of_histogram(timeline_reader.sizes(record), summary.reads)
    dataset = result.dataset
    moved = summary.bytes_read + summary.overhead_bytes_read
    return Profile(
        title,
        "job",
        application,
        "the core's own record",
        ranks=result.ranks,
        io_s=summary.io_time_s,
        bytes=moved + _beside(summary),
        files=dataset.files,
        request_mean=moved / summary.reads if summary.reads else None,
        bytes_per_sample=sample_bytes(result),
        notes=(
            f"no Darshan log ({why}): without rates of requests, shares of sequential ones, and the requests of "
            "checkpoints and auxiliary files",
        ),
        **known,
    )


def _untraced(analysis: Analysis) -> list[str]:
    size = format_size(analysis.untraced_bytes)
    return [f"{size} went through STDIO, which leaves no trace: left out"] if analysis.untraced_bytes else []


def _of_requests(requests: Requests) -> dict[str, Any]:
    lengths = requests.length
    if not len(lengths):
        return {}
    took = requests.end - requests.start
    timed = took > 0
    rates = lengths[timed] / took[timed] / 1e6
    jumps = request_distance.jumps(requests)
    return {
        **of_lengths(lengths),
        "rate_mean": float(rates.mean()) if len(rates) else None,
        "rate_median": float(np.median(rates)) if len(rates) else None,
        "sizes": request_distance.of_sizes(lengths, np.ones(len(lengths)), Grain.EXACT),
        "volumes": request_distance.of_sizes(lengths, lengths, Grain.EXACT),
        "jumps": request_distance.of_jumps(jumps) if len(jumps) else None,
    }


def of_lengths(lengths: npt.NDArray[np.int64]) -> dict[str, Any]:
    """What a profile has of the sizes of single requests, of which there are some."""
    around = np.quantile(lengths, [0.5 - SLACK, 0.5 + SLACK], method="nearest")
    return {
        "request_min": float(lengths.min()),
        "request_max": float(lengths.max()),
        "request_mean": float(lengths.mean()),
        "request_median": float(np.median(lengths)),
        "around_median": (float(around[0]), float(around[1])),
    }


def sample_bytes(result: Result) -> float | None:
    """Of the dataset's payload; 0 where there is none to read."""
    found = result.dataset
    return found.bytes / found.samples if found.samples else None


def _of_counters(operations: list[Operation]) -> dict[str, Any]:
    """Ten bins of sizes, and the mean."""
    requests = sum(each.requests for each in operations)
    if not requests:
        return {}
    counts = np.array([sum(each.histogram.get(name, 0) for each in operations) for name in SIZE_BINS])
    return {
        "request_mean": sum(each.bytes for each in operations) / requests,
        "sizes": request_distance.of_sizes(np.array(LAST_SIZES), counts, Grain.DARSHAN) if counts.any() else None,
    }


def _of_histogram(found: Any, requests: int) -> dict[str, Any]:
    """At the lower edges of its bins, where powers of two lie. It lacks requests of nothing, and those of libraries:
    where there were more than it has, neither the smallest nor the median is known.
    """
    begin, counts = found.edges[:-1], found.reads
    some = np.flatnonzero(counts)
    if not len(some):
        return {}
    middle = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    is_whole = counts.sum() >= requests
    return {
        "request_min": float(begin[some[0]]) if is_whole else None,
        "request_max": float(begin[some[-1]]),
        "request_median": float(begin[middle]) if is_whole else None,
        "sizes": request_distance.of_sizes(begin, counts, Grain.QUARTER),
        "volumes": request_distance.of_sizes(begin, counts * begin, Grain.QUARTER),
    }


def _share(operations: list[Operation], shares: list[float | None]) -> float | None:
    """Of reads and writes together."""
    known = [(each.requests, share) for each, share in zip(operations, shares, strict=True) if share is not None]
    total = sum(count for count, _ in known)
    return sum(count * share for count, share in known) / total if total else None


def _beside(summary: Summary) -> int:
    """Bytes of auxiliary files and checkpoints."""
    side, checkpoint = summary.auxiliary_files, summary.checkpoint
    return (side.bytes_read + side.bytes_written if side else 0) + (checkpoint.bytes_written if checkpoint else 0)
