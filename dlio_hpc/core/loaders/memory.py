"""A loader that reads all samples into memory before the first step, as applications do if their data fit into
memory.
"""

import os
from collections.abc import Iterator

import numpy as np

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.content import Rows
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import Batch, Loader
from dlio_hpc.dataset.sample_layout import Places
from dlio_hpc.dataset.sample_order import Order


class MemoryLoader:
    """Loader that delivers batches from memory. A rank keeps the samples that it reads in its first epoch. In later
    epochs, the rank gets the same samples, in a new order if the workload shuffles in every epoch.

    In its first epoch, a rank reads all its samples in `steps` batches before it delivers its first batch. These reads
    are counted for that batch, and their time is part of the wait of the first step.
    """

    def __init__(self, workload: Workload, loader: Loader, steps: int, ranks_on_node: int) -> None:
        self._loader = loader
        self._steps = steps
        self._batch_size = workload.reader.batch_size
        self._width = workload.row_bytes
        self._ranks_on_node = ranks_on_node
        self._rows: Rows | None = None
        self._places: Places

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        tally = Tally()
        if self._rows is None:
            self._places, self._rows = self._load(order, first, last, tally)
            indices = np.arange(len(self._rows))
        else:
            indices = order.among(len(self._rows)).astype(np.int64)
        for step in range(steps):
            chosen = indices[step * self._batch_size : (step + 1) * self._batch_size]
            yield Batch(self._places.part(chosen), self._rows[chosen], tally)
            tally = Tally()

    def _load(self, order: Order, first: int, last: int, tally: Tally) -> tuple[Places, Rows]:
        self._check_memory(last - first)
        tables, rows = [], np.empty((last - first, self._width), np.uint8)
        done = 0
        for batch in self._loader.epoch(order, first, last, self._steps):
            end = done + len(batch.rows)
            rows[done:end] = batch.rows
            tables.append(batch.places.table)
            done = end
            tally.merge(batch.tally)
        return Places(np.concatenate(tables, axis=1)), rows

    def _check_memory(self, samples: int) -> None:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        try:
            with open("/proc/meminfo", encoding="ascii") as file:
                free = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
        except (OSError, StopIteration, ValueError):
            pass
        wanted = samples * self._width * self._ranks_on_node
        if wanted > free:
            raise ConfigError(
                f"reader.load=memory needs {units.format_size(wanted)} on a node, but only {units.format_size(free)} "
                "are free; use more nodes, a smaller --dataset-size or reader.load=on_demand"
            )

    def close(self) -> None:
        self._loader.close()
