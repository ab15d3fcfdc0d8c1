"""I/O profiles: metrics by which the I/O of programs is compared. A profile is made from a Darshan log, from a run of
dlio-hpc or from a reference file.
"""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.analysis.log.findings import LAST_SIZES, SIZE_BINS, Analysis, Operation
from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.base.units import format_size
from dlio_hpc.programs.similarity import request_distance
from dlio_hpc.programs.similarity.reference_profile import Named
from dlio_hpc.programs.similarity.request_distance import Grain, RequestDistribution
from dlio_hpc.results.run_result import Result, Summary

Kind = Literal["job", "log", "reference"]
# Pattern of the paths of data files in logs of other programs, used unless --only is given. It excludes system files,
# programs and libraries.
DATA = (
    r"^(?!/(?:proc|sys|dev|etc)/)"
    r"(?!.*(?:/(?:site|dist)-packages/|/lib(?:64)?/python\d|[.](?:py|pyc|pyi|so)$|[.]so[.]\d))"
)
# Share of the requests that may differ between two programs without a difference in their pattern similarity.
SLACK = 0.01
# If more than this share of the bytes was transferred through STDIO, Darshan does not show the requests to storage.
_HIDDEN = 0.5
# Source of profiles of runs without a Darshan log.
MEASURED = "the benchmark's own measurements"
_GIB = 2.0**30


class Profile(Struct, frozen=True):
    """I/O profile of a program. title: name for the user. application: name of the application that does this I/O or is
    emulated; "" if it is unknown. source: name of the data that the profile is made from. Metrics are None if they are
    unknown.

    io_s: seconds with at least one request in flight, as the mean over ranks. bytes: bytes read and written by all
    ranks. request_*: sizes of requests in bytes. rate_*: bandwidth of individual requests in MB/s (1e6 bytes).
    sequential, consecutive: shares of all requests. around_median: request sizes at the quantiles 0.5 - SLACK and 0.5 +
    SLACK. around_min: smallest size, and the size at the quantile SLACK. sizes: distribution of request sizes, in which
    each request has the same weight. volumes: distribution of request sizes, in which each request is weighted by its
    bytes. jumps: distribution of the distances in a file between successive requests (request_distance.jumps).
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
    around_min: tuple[float, float] | None = None
    rate_mean: float | None = None
    rate_median: float | None = None
    sequential: float | None = None
    consecutive: float | None = None
    bytes_per_sample: float | None = None
    notes: tuple[str, ...] = ()
    sizes: RequestDistribution | None = None
    volumes: RequestDistribution | None = None
    jumps: RequestDistribution | None = None


def of_reference(named: Named) -> Profile:
    """Return the profile of a program in a reference file."""
    reference = named.reference
    gib, sequential, consecutive = reference.data_accessed_gib, reference.sequential_pct, reference.consecutive_pct
    return Profile(
        named.title,
        "reference",
        named.name,
        named.source,
        ranks=reference.ranks,
        io_s=reference.io_time_s,
        bytes=None if gib is None else gib * _GIB,
        files=reference.files,
        request_min=reference.request_bytes.min,
        request_max=reference.request_bytes.max,
        request_mean=reference.request_bytes.mean,
        request_median=reference.request_bytes.median,
        rate_mean=reference.bandwidth_per_op_MBps.mean,
        rate_median=reference.bandwidth_per_op_MBps.median,
        sequential=None if sequential is None else sequential / 100,
        consecutive=None if consecutive is None else consecutive / 100,
        bytes_per_sample=reference.bytes_per_sample,
        notes=(reference.note,) if reference.note else (),
    )


def of_log(
    title: str, kind: Kind, application: str, analysis: Analysis, requests: Requests | None,
    notes: tuple[str, ...] = (), bytes_per_sample: float | None = None,
) -> Profile:  # fmt: skip
    """Return the profile of a log. requests: all requests of the trace; None to use only Darshan's counters, which
    leave some metrics unknown.
    """
    operations = [operation for operation in (analysis.read, analysis.write) if operation is not None]
    known = _of_counters(operations) if requests is None else _of_requests(requests)
    if _is_hidden(analysis):  # requests of STDIO are calls of the program, not requests to storage
        known, operations = {}, []
    source = "Darshan's counters (no complete trace)" if requests is None else "Darshan's trace (DXT)"
    return Profile(
        title,
        kind,
        application,
        source,
        ranks=analysis.ranks,
        io_s=analysis.io_s,
        bytes=analysis.bytes_read + analysis.bytes_written,
        files=sum(file.reads + file.writes > 0 for file in analysis.files),
        sequential=_share(operations, [operation.sequential for operation in operations]),
        consecutive=_share(operations, [operation.consecutive for operation in operations]),
        bytes_per_sample=bytes_per_sample,
        notes=(*notes, *_untraced(analysis)),
        **known,
    )


def of_core(title: str, result: Result, timeline: bytes | None, application: str, why: str) -> Profile:
    """Return the profile of a dlio-hpc run without a Darshan log, from its result and its timeline.h5. timeline:
    content of timeline.h5; None if there is none. why: reason why there is no log.
    """
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
        MEASURED,
        ranks=result.ranks,
        io_s=summary.io_time_s,
        bytes=moved + _auxiliary_bytes(summary),
        files=dataset.files,
        request_mean=moved / summary.reads if summary.reads else None,
        bytes_per_sample=sample_bytes(result),
        notes=(
            f"no Darshan log ({why}): rates of requests, shares of sequential requests, and requests of checkpoints "
            "and auxiliary files are not known",
        ),
        **known,
    )


def by_bins(profile: Profile) -> Profile:
    """Return a profile whose smallest, largest and median request sizes are the lower edges of four bins per octave, as
    in profiles of runs without a Darshan log.
    """
    sizes = (profile.request_min, profile.request_max, profile.request_median)
    low, high, median = (request_distance.lower_edge(size) if size else size for size in sizes)
    around = {
        name: sizes and tuple(request_distance.lower_edge(size) if size else size for size in sizes)
        for name, sizes in (("around_median", profile.around_median), ("around_min", profile.around_min))
    }
    return replace(profile, request_min=low, request_max=high, request_median=median, **around)


def _is_hidden(analysis: Analysis) -> bool:
    moved = {name: module.bytes_read + module.bytes_written for name, module in analysis.interfaces.items()}
    return moved.get("STDIO", 0) > _HIDDEN * (moved.get("STDIO", 0) + moved.get("POSIX", 0))


def _untraced(analysis: Analysis) -> list[str]:
    size = format_size(analysis.untraced_bytes)
    return [f"{size} through STDIO are not included, because STDIO is not traced"] if analysis.untraced_bytes else []


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
    """Return the fields of a profile that follow from the sizes of individual requests. lengths: these sizes in bytes;
    not empty.
    """
    small, *around = np.quantile(lengths, [SLACK, 0.5 - SLACK, 0.5 + SLACK], method="nearest")
    return {
        "request_min": float(lengths.min()),
        "request_max": float(lengths.max()),
        "request_mean": float(lengths.mean()),
        "request_median": float(np.median(lengths)),
        "around_median": (float(around[0]), float(around[1])),
        "around_min": (float(lengths.min()), float(small)),
    }


def sample_bytes(result: Result) -> float | None:
    """Return the mean size of a sample in bytes, or None for a dataset without samples."""
    dataset = result.dataset
    return dataset.bytes / dataset.samples if dataset.samples else None


def _of_counters(operations: list[Operation]) -> dict[str, Any]:
    """Return the fields of a profile that follow from counters: the distribution of request sizes in ten bins, and the
    mean request size.
    """
    requests = sum(operation.requests for operation in operations)
    if not requests:
        return {}
    counts = np.array([sum(operation.histogram.get(name, 0) for operation in operations) for name in SIZE_BINS])
    return {
        "request_mean": sum(operation.bytes for operation in operations) / requests,
        "sizes": request_distance.of_sizes(np.array(LAST_SIZES), counts, Grain.DARSHAN) if counts.any() else None,
    }


def _of_histogram(histogram: Any, requests: int) -> dict[str, Any]:
    """Return the fields of a profile that follow from a histogram of request sizes. The lower edge of a bin stands for
    all sizes in the bin, because the usual sizes are powers of two, and these are lower edges. requests: total number
    of requests. Some requests may be missing from the histogram, because they returned no bytes or were made by
    libraries. The smallest size and the median are then unknown.
    """
    begin, counts = histogram.edges[:-1], histogram.reads
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
    """Return the share of all requests that have some property, such as being sequential. shares: the share of the
    reads and the share of the writes that have this property. A share that is None is left out. Return None if both are
    None.
    """
    known = [
        (operation.requests, share) for operation, share in zip(operations, shares, strict=True) if share is not None
    ]
    total = sum(count for count, _ in known)
    return sum(count * share for count, share in known) / total if total else None


def _auxiliary_bytes(summary: Summary) -> int:
    """Return the sum of the bytes read from and written to auxiliary files and the bytes written to checkpoints."""
    side, checkpoint = summary.auxiliary_files, summary.checkpoint
    return (side.bytes_read + side.bytes_written if side else 0) + (checkpoint.bytes_written if checkpoint else 0)
