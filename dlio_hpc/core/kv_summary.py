"""Summary of an inference workload over all ranks and epochs."""

from msgspec import structs

from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.core import distributions
from dlio_hpc.core.distributions import Floats
from dlio_hpc.core.kv_record import (
    ARRIVED,
    BEGAN,
    BLOCKS_READ,
    BLOCKS_WRITTEN,
    COMPUTED_S,
    COMPUTED_TOKENS,
    DROPPED,
    END_QUEUE,
    ENDED,
    HALF_QUEUE,
    HELD_S,
    LATE,
    LOAD,
    MEMORY_TOKENS,
    OVERRUN_S,
    PREFILL,
    PREPARED,
    QUEUE,
    READ,
    READING_S,
    REMOVED,
    SERVED,
    STORAGE_TOKENS,
    SUMS,
    TTFT,
    USERS,
    WRITE,
    WRITING_S,
)
from dlio_hpc.dataset import kv_search
from dlio_hpc.dataset.kv_search import UserCount
from dlio_hpc.results.run_result import Distribution, InferenceSummary, UserTry


def of_ranks(served: Floats, histograms: distributions.Counts, keys: InferenceKeys | None) -> InferenceSummary | None:
    """Return the summary of the records of all ranks; None for other workloads, or if no epoch ended. served: shape
    (ranks, epochs, columns). histograms: shape (ranks, epochs, kinds, bins). After a search, the figures are those of
    the largest number of users in time or, if there is none, of the smallest number.
    """
    if keys is None or not served.shape[1]:
        return None
    if keys.search is None:
        return _of_epochs(served, histograms, keys)
    of_epochs = [_of_epochs(served[:, [epoch]], histograms[:, [epoch]], keys) for epoch in range(served.shape[1])]
    tries = tuple(
        UserTry(
            one.users,
            one.first_token("p99"),
            one.is_in_time,
            one.requests,
            one.not_in_time,
            one.computation_share,
            one.queue_share,
        )
        for one in of_epochs
    )
    largest, _ = kv_search.limits([UserCount(one.users, one.is_in_time) for one in tries])
    users = largest or min(one.users for one in tries)
    chosen = [epoch for epoch, one in enumerate(tries) if one.users == users]
    summary = _of_epochs(served[:, chosen], histograms[:, chosen], keys)
    return structs.replace(summary, tries=tries, users_in_time=largest)


def _of_epochs(served: Floats, histograms: distributions.Counts, keys: InferenceKeys) -> InferenceSummary:
    """Return the summary of epochs with the same number of users."""
    totals = served.sum(axis=(0, 1))

    def count(column: int) -> int:
        return int(totals[column])

    def times(kind: int, unfinished: int = 0) -> Distribution | None:
        sums = SUMS + 2 * kind
        counts = histograms[:, :, kind].sum(axis=(0, 1))
        return distributions.of_histogram(counts, float(totals[sums]), float(served[..., sums + 1].max()), unfinished)

    grown = (served[..., END_QUEUE] > keys.slots) & (served[..., END_QUEUE] > served[..., HALF_QUEUE])
    of_epochs = served.sum(axis=0)
    return InferenceSummary(
        users=int(served[0, 0, USERS]),
        requests=count(ARRIVED),
        served=count(SERVED),
        late=count(LATE),
        is_sustained=not grown.any(),
        wall_s=float((served[..., ENDED].max(axis=0) - served[..., BEGAN].min(axis=0)).sum()),
        blocks_prepared=count(PREPARED),
        blocks_read=count(BLOCKS_READ),
        blocks_written=count(BLOCKS_WRITTEN),
        block_bytes=keys.block_bytes,
        read_MBps=_rate(totals, BLOCKS_READ, READING_S, keys.block_bytes / 1e6),
        write_MBps=_rate(totals, BLOCKS_WRITTEN, WRITING_S, keys.block_bytes / 1e6),
        read_rates=tuple(_rate(one, BLOCKS_READ, READING_S, keys.block_bytes / 1e6) for one in of_epochs),
        tokens_per_s=_rate(totals, BLOCKS_READ, READING_S, keys.block_tokens),
        ttft_s=times(TTFT, count(ARRIVED) - count(SERVED)),
        queue_s=times(QUEUE),
        load_s=times(LOAD),
        prefill_s=times(PREFILL),
        read_s=times(READ),
        write_s=times(WRITE),
        memory_tokens=count(MEMORY_TOKENS),
        storage_tokens=count(STORAGE_TOKENS),
        computed_tokens=count(COMPUTED_TOKENS),
        dropped_blocks=count(DROPPED),
        removed_blocks=count(REMOVED),
        held_s=float(totals[HELD_S]),
        held_by_reads_s=float(totals[SUMS + 2 * LOAD]),
        held_by_writes_s=float(totals[OVERRUN_S]),
        held_by_computation_s=float(totals[COMPUTED_S]),
    )


def _rate(totals: Floats, amount: int, seconds: int, unit: float) -> float | None:
    """Return an amount in a unit, divided by seconds; None if the amount is 0. amount, seconds: columns."""
    return float(totals[amount] * unit / totals[seconds]) if totals[amount] else None
