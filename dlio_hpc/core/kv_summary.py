"""Summary of an inference workload over all ranks and epochs."""

from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.core import distributions
from dlio_hpc.core.distributions import Floats
from dlio_hpc.core.kv_record import (
    ARRIVED,
    BEGAN,
    BLOCKS_READ,
    BLOCKS_WRITTEN,
    COMPUTED_TOKENS,
    DROPPED,
    END_QUEUE,
    ENDED,
    HALF_QUEUE,
    LATE,
    LOAD,
    MEMORY_TOKENS,
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
    WRITE,
    WRITING_S,
)
from dlio_hpc.results.run_result import Distribution, InferenceSummary


def of_ranks(served: Floats, histograms: distributions.Counts, keys: InferenceKeys | None) -> InferenceSummary | None:
    """Return the summary of the records of all ranks; None for other workloads, or if no epoch ended. served: shape
    (ranks, epochs, columns). histograms: shape (ranks, epochs, kinds, bins).
    """
    if keys is None or not served.shape[1]:
        return None
    totals = served.sum(axis=(0, 1))

    def count(column: int) -> int:
        return int(totals[column])

    def times(kind: int) -> Distribution | None:
        sums = SUMS + 2 * kind
        counts = histograms[:, :, kind].sum(axis=(0, 1))
        return distributions.of_histogram(counts, float(totals[sums]), float(served[..., sums + 1].max()))

    grown = (served[..., END_QUEUE] > keys.slots) & (served[..., END_QUEUE] > served[..., HALF_QUEUE])
    of_epochs = served.sum(axis=0)
    return InferenceSummary(
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
        ttft_s=times(TTFT),
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
    )


def _rate(totals: Floats, amount: int, seconds: int, unit: float) -> float | None:
    """Return an amount in a unit, divided by seconds; None if the amount is 0. amount, seconds: columns."""
    return float(totals[amount] * unit / totals[seconds]) if totals[amount] else None
