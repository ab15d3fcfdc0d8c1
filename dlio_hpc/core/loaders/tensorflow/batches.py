"""Source of batches for tf.data. Its pipeline calls the readers of dlio-hpc, which read the samples."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dlio_hpc.base.errors import DlioError, InvalidRun
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import buffers
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.content import Rows
from dlio_hpc.core.formats import format_table
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import in_steps
from dlio_hpc.core.loaders.tensorflow.source import DatasetPreprocessing, TimeSpan, parallel
from dlio_hpc.dataset.interleave import FileGroups
from dlio_hpc.dataset.sample_layout import SampleLayout, Samples
from dlio_hpc.dataset.sample_order import Order


class Batches:
    """Source that calls a reader of dlio-hpc once per batch. Up to `read_threads` calls run at the same time. The
    memory of a batch is aligned, so TensorFlow uses it without a copy. When the training loop takes a batch, the memory
    of the previous batch becomes free.
    """

    def __init__(self, tf: Any, workload: Workload, paths: Paths) -> None:
        self._tf = tf
        self._workload = workload
        self._reader = format_table.reader(workload, paths, None)
        self._layout = SampleLayout(workload.dataset)
        self._width = workload.row_bytes
        self._preprocessing = DatasetPreprocessing(tf, workload)
        self._tallies: dict[int, Tally] = {}
        self._faults: list[DlioError] = []
        self._order: Order | None = None
        self._next = 0
        self._in_use: dict[int, Buffer] = {}
        self._free: list[Buffer] = []

    def begin(self, order: Order) -> None:
        """Start a new epoch."""
        self._order = order
        self._next = 0
        self._tallies.clear()
        self._free += self._in_use.values()
        self._in_use.clear()

    def pipeline(self, span: TimeSpan, groups: FileGroups) -> Any:
        tf, keys = self._tf, self._workload.reader

        def numbered() -> Iterator[tuple[int, Samples]]:
            if self._order is None:
                return  # no epoch has begun
            for number, places in enumerate(in_steps(self._order, self._layout, *span, keys.batch_size)):
                if len(places):
                    yield number, places.sample.astype(np.uint64)

        def read(number: Any, samples: Any) -> Any:
            rows = tf.numpy_function(self._read, (number, samples), tf.uint8)
            return tf.ensure_shape(rows, (None, self._width))

        signature = (tf.TensorSpec((), tf.int64), tf.TensorSpec((None,), tf.uint64))
        batches = tf.data.Dataset.from_generator(numbered, output_signature=signature)
        batches = batches.map(read, **parallel(keys, keys.read_threads))
        if keys.preprocess_time:
            samples = batches.unbatch().map(self._preprocessing, **parallel(keys, keys.preprocess_threads))
            batches = samples.batch(keys.batch_size)
        return batches

    def _read(self, number: int, samples: Samples) -> Rows:
        tally = Tally()
        buffer = self._memory()
        part = buffer.part(slice(len(samples)))
        try:
            self._reader.read(self._layout.of(samples), part, tally)
        except DlioError as fault:
            self._faults.append(fault)
            raise
        self._tallies[int(number)], self._in_use[int(number)] = tally, buffer
        return part.rows

    def _memory(self) -> Buffer:
        """Return free memory for a batch."""
        try:
            return self._free.pop()
        except IndexError:
            size = self._workload.reader.batch_size
            return buffers.over(buffers.allocate(1, size * self._width).rows.reshape(size, self._width))

    def resumed(self) -> None:
        """Do nothing. The readers count only their own requests, so other work of the training loop does not disturb
        the counts.
        """

    def taken(self, got: Any) -> tuple[Rows, Tally]:
        tally = self._tallies.pop(self._next)
        if self._next:
            self._free.append(self._in_use.pop(self._next - 1))
        self._next += 1
        rows = np.asarray(got)
        tally.preprocess_s += self._preprocessing.took()
        return rows, tally

    def fault(self, fault: Any, paths: list[str]) -> DlioError:
        return (
            self._faults[0]
            if self._faults
            else InvalidRun(f"TensorFlow failed to read {', '.join(paths)}: {fault.message}")
        )

    def close(self) -> None:
        self._reader.close()
