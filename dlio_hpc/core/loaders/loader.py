"""Interface of loaders, and division of an epoch into steps."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dlio_hpc.core.content import Rows
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Places, SampleLayout
from dlio_hpc.dataset.sample_order import Indices, Order

if TYPE_CHECKING:
    from concurrent.futures import Future

# Number of positions in the order of an epoch whose samples are located in one call (448 KiB).
STRETCH = 8192


class Batch(NamedTuple):
    """The samples of a step. places: locations of the samples. rows: one row of bytes per sample, valid until the next
    batch is requested; if nothing needs whole samples, a row may hold only the first bytes of its sample. tally: counts
    of the reads. preprocessed: one future for each thread that is preprocessing the batch. The result of a future is
    the number of seconds that the thread spent.
    """

    places: Places
    rows: Rows
    tally: Tally
    preprocessed: "Sequence[Future[float]]" = ()


class SampleOrder(Protocol):
    """Interface of orders in which the samples of an epoch are read."""

    @property
    def ascending(self) -> bool:
        """Whether the samples of a batch are read in ascending order."""

    def samples(self, first: int, last: int) -> Indices:
        """Return the numbers of the samples at positions `first` to `last` (exclusive)."""


class Loader(Protocol):
    """Interface of objects that deliver batches to the training loop."""

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        """Yield `steps` batches with the samples at positions `first` to `last` (exclusive) of `order`. The last
        batches may be short or empty.

        The files of the epoch are closed when the iterator is exhausted.
        """

    def close(self) -> None:
        """End threads and processes, and cancel reads that have not started."""


def in_steps(
    order: SampleOrder, layout: SampleLayout, first: int, last: int, steps: int, size: int
) -> Iterator[Places]:
    """Yield the locations of the samples of each step. size: samples per step. Samples are located for many steps in
    one call, which takes little longer than for one step.
    """
    stretch = max(1, STRETCH // size) * size
    for begin in range(first, first + steps * size, stretch):
        samples = order.samples(min(begin, last), min(begin + stretch, last))
        parts = range(0, min(stretch, first + steps * size - begin), size)
        if order.ascending:
            samples = np.concatenate([np.sort(samples[at : at + size]) for at in parts])
        places = layout.of(samples)
        for at in parts:
            yield places.part(slice(at, at + size))
