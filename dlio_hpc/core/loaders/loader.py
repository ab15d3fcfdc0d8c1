"""Interface of loaders, and division of an epoch into steps."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from dlio_hpc.core.content import Rows
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.sample_layout import Samples
from dlio_hpc.plan.sample_order import Order

# Number of positions in the order of an epoch whose sample numbers are computed at once (64 KiB).
STRETCH = 8192


class Batch(NamedTuple):
    """The samples of a step. samples: their numbers. rows: one row of bytes per sample, valid until the next batch is
    requested. tally: counts of the reads.
    """

    samples: Samples
    rows: Rows
    tally: Tally


class Loader(Protocol):
    """Interface of objects that deliver batches to the training loop."""

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        """Yield `steps` batches with the samples at positions `first` to `last` (exclusive) of `order`. The last
        batches may be short or empty.

        The files of the epoch are closed when the iterator is exhausted.
        """

    def close(self) -> None:
        """End threads and processes, and cancel reads that have not started."""


def in_steps(order: Order, first: int, last: int, steps: int, size: int) -> Iterator[Samples]:
    """Yield the sample numbers of each step. size: samples per step. Sample numbers are computed for many steps at
    once, which takes little longer than for one step.
    """
    stretch = max(1, STRETCH // size) * size
    for begin in range(first, first + steps * size, stretch):
        samples = order.samples(min(begin, last), min(begin + stretch, last))
        for at in range(0, min(stretch, first + steps * size - begin), size):
            yield order.batch(samples[at : at + size])
