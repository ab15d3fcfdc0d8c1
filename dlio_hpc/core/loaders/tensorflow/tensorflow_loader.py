"""Loader with tf.data.

In framework mode, TensorFlow itself reads TFRecord files with TFRecordDataset. It reads through a transfer buffer,
interleaves files, decodes in parallel, batches and prefetches, as in CosmoFlow and ImageNet training. In all other
cases, the readers of dlio-hpc read the files within the same pipeline, as applications do with HDF5 or NumPy files
(tf.numpy_function).
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.config.reader_keys import reads_records
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import Batch, in_steps
from dlio_hpc.core.loaders.tensorflow.batches import Batches
from dlio_hpc.core.loaders.tensorflow.records import Records
from dlio_hpc.core.loaders.tensorflow.source import Source, TimeSpan
from dlio_hpc.dataset.sample_layout import Places, SampleLayout
from dlio_hpc.dataset.sample_order import Order


class TensorFlowLoader:
    """Loader with a single pipeline, which is built in the first epoch and used in all epochs. The source of the
    pipeline delivers samples in the order of the current epoch. If TensorFlow does the reading itself, bytes and
    requests are taken from the kernel's I/O counters of the process, and individual reads are not timed.

    whole: whether rows must hold whole samples. If False, rows may hold only the first bytes of each sample.
    """

    def __init__(self, workload: Workload, paths: Paths, whole: bool) -> None:
        self._tf = _tensorflow()
        self._workload = workload
        self._paths = paths
        self._layout = SampleLayout(workload.dataset)
        self._width = workload.row_bytes
        self._pipeline: Any = None
        self._span: TimeSpan | None = None
        self._source: Source
        if reads_records(workload.dataset, workload.reader):
            self._source = Records(self._tf, workload, paths, whole or workload.reader.resizes)
        else:
            self._source = Batches(self._tf, workload, paths)

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        keys = self._workload.reader
        span = TimeSpan(first, min(last, first + steps * keys.batch_size), steps)
        if self._pipeline is None or self._span != span:
            self._span, self._pipeline = span, self._source.pipeline(span, order.file_groups)
            if keys.batches_ahead:
                self._pipeline = self._pipeline.prefetch(keys.batches_ahead)
            # The pipeline yields nothing before the first epoch begins. Iterating makes TensorFlow load its own
            # files now, before reads are counted.
            for _ in self._pipeline:
                pass
        self._source.begin(order)
        batches = iter(self._pipeline)
        for places in in_steps(order, self._layout, first, last, steps, keys.batch_size):
            yield self._next(batches, places)
        del batches
        self._source.close()

    def _next(self, batches: Iterator[Any], places: Places) -> Batch:
        if not len(places):
            return Batch(places, np.empty((0, self._width), np.uint8), Tally())
        self._source.resumed()
        try:
            got = next(batches)
        except StopIteration:
            raise InvalidRun(f"TensorFlow has no more records, but sample {places.sample[0]} was expected") from None
        except self._tf.errors.OpError as fault:
            raise self._source.fault(fault, sorted({self._paths(place.file) for place in places})) from fault
        rows, tally = self._source.taken(got)
        if len(rows) != len(places):
            numbers = places.sample.tolist()
            raise InvalidRun(f"TensorFlow delivered {len(rows)} records, but samples {numbers} were expected")
        return Batch(places, rows, tally)

    def close(self) -> None:
        self._source.close()


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow as tf
    except ImportError as fault:
        raise ConfigError(
            "reader.loader=tensorflow needs TensorFlow, which is not installed; run pip install tensorflow-cpu"
        ) from fault
    tf.config.set_visible_devices([], "GPU")
    return tf
