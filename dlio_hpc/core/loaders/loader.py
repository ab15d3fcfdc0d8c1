"""What a loader has to offer, and the steps that all of them follow."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from dlio_hpc.core.content import Rows
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.sample_layout import Samples
from dlio_hpc.plan.sample_order import Order

# Positions whose samples are computed at once: 64 KiB of numbers.
STRETCH = 8192


class Batch(NamedTuple):
    """Samples of one step. samples: their numbers. rows: a row for each, valid until the next batch is requested.
    tally: counts of the reads.
    """

    samples: Samples
    rows: Rows
    tally: Tally


class Loader(Protocol):
    """How batches come to the training loop."""

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        """`steps` batches over the positions `first` to `last` of `order`; the last ones may be short, or empty.

        With the end of the iteration the epoch's files are closed.
        """

    def close(self) -> None:
        """Let threads and processes end; what they have not begun is dropped."""


def in_steps(order: Order, first: int, last: int, steps: int, size: int) -> Iterator[Samples]:
    """Each step's sample numbers; the order is asked for many steps at a time, which costs hardly more than one."""
    stretch = max(1, STRETCH // size) * size
    for begin in range(first, first + steps * size, stretch):
        samples = order.samples(min(begin, last), min(begin + stretch, last))
        for at in range(0, min(stretch, first + steps * size - begin), size):
            yield order.batch(samples[at : at + size])
