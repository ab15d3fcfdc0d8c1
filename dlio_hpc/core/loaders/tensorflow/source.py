"""Interface of sources, which deliver batches to the pipeline. A source reads either with TensorFlow's own record
reader or with the readers of dlio-hpc.
"""

import threading
from typing import Any, NamedTuple, Protocol

from dlio_hpc.base.errors import DlioError
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.content import Rows
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.native import preprocess
from dlio_hpc.dataset.interleave import FileGroups
from dlio_hpc.dataset.sample_order import Order


class TimeSpan(NamedTuple):
    """Range of positions (not of times) that one rank reads in each epoch: `first` to `last` (exclusive). A position is
    an index into the samples in the order of the epoch. steps: number of steps of an epoch.
    """

    first: int
    last: int
    steps: int


def parallel(keys: Reader, calls: int) -> dict[str, Any]:
    """Return the arguments with which tf.data's map() makes `calls` calls in parallel. Return no arguments if `calls`
    is 1 and `prefetch` is 0. Without arguments, map() makes a call only when the training loop needs the result, and
    not ahead of that time.
    """
    if calls == 1 and not keys.batches_ahead:
        return {}
    return {"num_parallel_calls": calls, "deterministic": True}


class Source(Protocol):
    """Interface of objects that deliver batches to the pipeline, in the order of the current epoch."""

    def pipeline(self, span: TimeSpan, groups: FileGroups) -> Any:
        """Return a tf.data.Dataset of batches, which is used in all epochs. It yields no batches before the first epoch
        starts. groups: division of the epoch into groups of interleaved files.
        """

    def begin(self, order: Order) -> None:
        """Start a new epoch."""

    def resumed(self) -> None:
        """Record that the training loop is now requesting the next batch, after other work such as checkpoints."""

    def taken(self, got: Any) -> tuple[Rows, Tally]:
        """Return the rows of a batch that the pipeline delivered, and the counts of its reads."""

    def fault(self, fault: Any, paths: list[str]) -> DlioError:
        """Return the error for an exception `fault` that the pipeline raised for a batch. paths: files that hold the
        samples of the batch.
        """

    def close(self) -> None:
        """End the epoch."""


class DatasetPreprocessing:
    """Emulated preprocessing of samples in tf.data's map; each call takes the configured time."""

    def __init__(self, tf: Any, workload: Workload) -> None:
        self._tf = tf
        self._seconds = workload.reader.preprocess_time
        self._mode = workload.compute.mode
        self._lock = threading.Lock()
        self._took = 0.0

    def __call__(self, sample: Any) -> Any:
        """Return `sample` after the configured time has passed."""
        if not self._seconds:
            return sample
        later = self._tf.numpy_function(self._wait, (sample,), sample.dtype)
        return self._tf.ensure_shape(later, sample.shape)

    def _wait(self, content: Any) -> Any:
        took = preprocess(self._seconds, self._mode)
        with self._lock:
            self._took += took
        return content

    def took(self) -> float:
        """Return the seconds that all threads together spent on preprocessing since the previous call of this
        method.
        """
        with self._lock:
            took, self._took = self._took, 0.0
        return took
