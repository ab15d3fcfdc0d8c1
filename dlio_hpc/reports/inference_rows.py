"""Measurements of inference workloads as table rows and lines."""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from dlio_hpc.base.safe_text import single_line
from dlio_hpc.base.units import counted, format_seconds, format_size
from dlio_hpc.config.inference_keys import InferenceKeys, Lengths
from dlio_hpc.results.run_result import Distribution, InferenceSummary

REQUESTS = ("requests", "served", "late", "tokens in memory", "on storage", "computed")
BLOCKS = ("blocks", "number", "bytes", "MB/s of a rank")
REQUESTS_LEGEND = (
    "served: begun within inference.time, or within inference.target of its arrival. late: time to the first token "
    "above inference.target. tokens: of histories and prompts, by where they were found."
)
BLOCKS_LEGEND = "MB/s of a rank: bytes / seconds with at least one block of the rank in flight, over all ranks."
TRIES = ("epoch", "users", "requests", "late or unserved", "first token p99", "in time")
RUNS = ("run", "first token p50 s", "first token p99 s", "MB/s read", "MB/s written", "late", "storage")
RUNS_LEGEND = (
    "MB/s: of a rank, while blocks are in flight. late: late or not served. storage: share of the bytes read that "
    "came from storage and not from memory of the nodes."
)


class QueueShares(Protocol):
    """What requests waited for: a summary, or a try of a search."""

    @property
    def computation_share(self) -> float | None: ...

    @property
    def queue_share(self) -> float | None: ...


def described(keys: InferenceKeys, nodes: str, repeats: str) -> str:
    """Return a description of an inference workload in three lines. nodes, repeats: numbers of nodes and repeats."""
    model = keys.model if isinstance(keys.model, str) else "a model of its own"
    space = "no limit" if keys.capacity is None else f"{format_size(keys.capacity)} a rank"
    memory = f"{format_size(keys.memory)} of memory a rank, " if keys.memory else ""
    way = f"{'direct' if keys.direct else 'through the page cache'}{', fsync' if keys.fsync else ''}"
    return (
        f"{model}, {counted(keys.users, 'user')}, {_arrivals(keys)}, for {format_seconds(keys.time)}; {_tokens(keys)}"
        "\n"
        f"{nodes} with {counted(keys.slots, 'slot')}, {repeats}\n"
        f"blocks of {keys.block_tokens} tokens ({format_size(keys.block_bytes)}), {_FILES[keys.file_layout]}, {way}; "
        f"{memory}storage: {space}"
    )


def _arrivals(keys: InferenceKeys) -> str:
    """Return in words when requests arrive."""
    if keys.interval is not None:
        return f"each asks {format_seconds(keys.interval)} after an answer (mean)"
    assert keys.trace is not None
    return "requests arrive as in the trace" + ("" if keys.trace.speed == 1 else f", {keys.trace.speed:g} x as fast")


def _tokens(keys: InferenceKeys) -> str:
    """Return in words how many tokens requests have."""
    if keys.trace is None:
        return f"prompts of {_lengths(keys.prompt)}, answers of {_lengths(keys.answer)}"
    text = f"tokens of {single_line(keys.trace.file)}"
    if keys.trace.scan is None:
        return text
    times = "" if keys.trace.has_arrivals else " without times of arrival"
    return f"{text} ({counted(keys.trace.scan.requests, 'request')}{times})"


def _lengths(lengths: Lengths | None) -> str:
    assert lengths is not None
    if lengths.mean is None:
        return f"{lengths.min:,} to {lengths.max:,} tokens"
    return f"{lengths.mean:,} tokens{' (mean)' if lengths.stdev else ''}"


def requests(summary: InferenceSummary) -> list[list[str]]:
    """Return the row of the requests (header: REQUESTS)."""
    tokens = (summary.memory_tokens, summary.storage_tokens, summary.computed_tokens)
    shares = (f"{100 * part / summary.tokens:.1f} %" if summary.tokens else "-" for part in tokens)
    return [[f"{summary.requests:,}", f"{summary.served:,}", f"{summary.late:,}", *shares]]


def blocks(summary: InferenceSummary) -> list[list[str]]:
    """Return a row for the blocks that were read, and one for those that were written (header: BLOCKS)."""
    rows = (
        ("read", summary.blocks_read, summary.bytes_read, summary.read_MBps),
        ("written", summary.blocks_written, summary.bytes_written, summary.write_MBps),
    )
    return [
        [name, f"{number:,}", format_size(size), "-" if rate is None else f"{rate:,.1f}"]
        for name, number, size, rate in rows
    ]


def tries(summary: InferenceSummary) -> list[list[str]]:
    """Return a row for each number of users that a search has tried (header: TRIES)."""
    return [
        [
            str(number),
            f"{one.users:,}",
            f"{one.requests:,}",
            f"{one.not_in_time:,}",
            "-" if one.ttft_p99_s is None else format_seconds(one.ttft_p99_s),
            "yes" if one.is_in_time else "no",
        ]
        for number, one in enumerate(summary.tries, 1)
    ]


def takes(summary: InferenceSummary) -> list[tuple[str, Distribution | None]]:
    """Return the times of requests and blocks."""
    return [
        ("first token", summary.ttft_s),
        ("  wait in the queue", summary.queue_s),
        ("  reads from storage", summary.load_s),
        ("  computation (emulated)", summary.prefill_s),
        ("read of a block", summary.read_s),
        ("write of a block", summary.write_s),
    ]


def facts(keys: InferenceKeys, summary: InferenceSummary) -> Iterator[tuple[str, str]]:
    """Yield the facts about the requests that are not in the tables."""
    if not summary.is_sustained:
        yield "queue", f"{NOT_SUSTAINED}; mean times are those of requests that were served"
    if summary.requests > summary.served:
        left = summary.requests - summary.served
        yield (
            "unserved",
            f"{left:,} of {summary.requests:,} requests had not begun inference.target after they arrived; they count "
            "as the longest, so that quantiles of the first token that fall among them are too low",
        )
    if 0 < summary.served < _ENOUGH:
        yield (
            "few",
            f"the p99 of {counted(summary.served, 'request')} is one of the slowest; set a longer inference.time",
        )
    if summary.blocks_prepared:
        size = format_size(summary.blocks_prepared * summary.block_bytes)
        yield "prepared", f"{summary.blocks_prepared:,} blocks, {size}, were written before, and are not measured"
    if summary.removed_blocks or summary.dropped_blocks:
        yield (
            "evicted",
            f"{summary.removed_blocks:,} blocks from storage, {summary.dropped_blocks:,} blocks from memory",
        )
    if summary.tokens_per_s is not None:
        yield (
            "tokens",
            f"storage allows a rank {summary.tokens_per_s:,.0f} tokens/s: {summary.storage_tokens:,} tokens in the "
            "seconds in which it read",
        )
    if keys.verify:
        yield "verified", f"{summary.blocks_read:,} blocks read had the content that was written"


_FILES = {
    "block": "a file each", "sequence": "in a file for each conversation", "pool": "in a file for each rank",
    "lmcache": "a file each as LMCache's local disk backend", "lmcache_fs": "a file each as LMCache's adapter fs",
}  # fmt: skip
# Number of requests from which on some are above the 99th percentile.
_ENOUGH = 200
# Share of the time to the first token above which the queue is explained, and shares of the time to the first token and
# of the time of slots from which on the queue and computation limit the number of users.
_QUEUED, _LIMITS = 0.2, 0.5
NOT_SUSTAINED = "not sustained: more requests wait than the rank has slots, and their number grows"


def sentence(summaries: Sequence[InferenceSummary], keys: InferenceKeys) -> str:
    """Return sentences on the requests of the repeats of a measurement: the result of a search, the times to the first
    token, and what held the slots if requests waited for them.
    """
    searched = [one for one in summaries if one.users_in_time is not None]
    requests, served = (sum(getattr(one, name) for one in summaries) for name in ("requests", "served"))
    sums = {name: sum(_total(one, name) for one in summaries) for name in ("ttft_s", "queue_s", "load_s", "prefill_s")}
    text = f"{' '.join([*(_searched(one, keys) for one in searched), ''])}Served {served:,} of {requests:,} requests"
    worst = max(summaries, key=_lateness)
    if worst.ttft_s is not None and sums["ttft_s"]:
        shares = (
            f"{name} {100 * sums[part] / sums['ttft_s']:.0f} %"
            for name, part in (("queue", "queue_s"), ("storage", "load_s"), ("computation", "prefill_s"))
        )
        where = " (the slowest repeat)" if len(summaries) > 1 else ""
        text += (
            f"; time to the first token {_quantile(worst, 'p50')} (median), {_quantile(worst, 'p99')} (p99){where}; on "
            f"average: {', '.join(shares)}"
        )
    late = sum(one.late for one in summaries)
    text += f"; {late:,} late." if late else "."
    if not all(one.is_sustained for one in summaries):
        text += " Not sustained: the queue of requests grows."
    if sums["queue_s"] > _QUEUED * sums["ttft_s"]:
        text += _holder(summaries)
    return text


def _lateness(summary: InferenceSummary) -> tuple[bool, int, float]:
    """Return a key that sorts repeats by their times to the first token: those with an unknown p99 are the last ones,
    and among these those with the most requests that were not served.
    """
    p99 = summary.first_token("p99")
    return p99 is None, summary.requests - summary.served if p99 is None else 0, p99 or 0.0


def _quantile(summary: InferenceSummary, name: Literal["p50", "p99"]) -> str:
    """Return a quantile of the time to the first token as text. If it is the time of a request that was not served, it
    is longer than all others.
    """
    assert summary.ttft_s is not None
    known = summary.first_token(name)
    return f"above {format_seconds(summary.ttft_s.max)}" if known is None else format_seconds(known)


def _holder(summaries: Sequence[InferenceSummary]) -> str:
    """Return a sentence on what held the slots for which requests waited."""
    held = sum(one.held_s or 0.0 for one in summaries)
    if not held:
        return ""
    names = ("held_by_reads_s", "held_by_writes_s", "held_by_computation_s")
    reads, writes, computation = (sum(getattr(one, name) or 0.0 for one in summaries) / held for name in names)
    rest = max(0.0, 1 - reads - writes - computation)
    return (
        f" Slots were held by reads for {100 * reads:.0f} % of their time, by writes for {100 * writes:.0f} %, by "
        f"computation for {100 * computation:.0f} %, and by waits for other requests for {100 * rest:.0f} %."
    )


def limited_by(queues: Sequence[QueueShares]) -> str:
    """Return a sentence if computation, and not storage, limits the number of users: requests wait for slots most of
    the time to their first token, and computation holds the slots most of their time. queues: those of numbers of users
    that are too large.
    """
    known = [one.computation_share for one in queues if one.computation_share is not None]
    waits = [one.queue_share for one in queues if one.queue_share is not None]
    if not known or not waits or min(*known, *waits, 1.0) < _LIMITS:
        return ""
    return (
        " Slots and computation limit the users, and not storage: computation held the slots for "
        f"{100 * min(known):.0f} % of their time."
    )


def _searched(summary: InferenceSummary, keys: InferenceKeys) -> str:
    """Return a sentence on the result of a search. The requests that are reported are those of this number of users."""
    too_large = min((one.users for one in summary.tries if not one.is_in_time), default=None)
    limit = limited_by([one for one in summary.tries if one.users == too_large])
    lead = f"Users in time (99 % of the first tokens within {format_seconds(keys.target)})"
    few = f" (of {counted(summary.requests, 'request')}; 99 % needs 100)" if not summary.has_enough else ""
    if not summary.users_in_time:
        return f"{lead}: fewer than {summary.users:,}, the smallest number tried.{limit}"
    if too_large is None:
        return f"{lead}: {summary.users_in_time:,} and perhaps more{few}; no larger number was tried."
    return f"{lead}: {summary.users_in_time:,}{few}; {too_large:,} are too many.{limit}"


def _total(summary: InferenceSummary, name: str) -> float:
    """Return the sum of a time over served requests."""
    times: Distribution | None = getattr(summary, name)
    return 0.0 if times is None else times.mean * summary.served
