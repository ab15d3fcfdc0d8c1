"""What feeds the pipeline: TensorFlow's own reading of records, or our readers."""

import threading
from typing import Any, NamedTuple, Protocol

from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.content import Rows
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.native import preprocess
from dlio_hpc.errors import DlioError
from dlio_hpc.plan.interleave import Turns
from dlio_hpc.plan.sample_order import Order


class Span(NamedTuple):
    """The positions that a rank takes in every epoch, and in how many steps."""

    first: int
    last: int
    steps: int


def parallel(keys: Reader, calls: int) -> dict[str, Any]:
    """How tf.data's map makes its calls: parallel ones run ahead of the loop, which prefetch: 0 does not want."""
    if calls == 1 and not keys.batches_ahead:
        return {}
    return {"num_parallel_calls": calls, "deterministic": True}


class Source(Protocol):
    """Batches in the order of the epoch that began last."""

    def pipeline(self, span: Span, turns: Turns) -> Any:
        """A tf.data.Dataset of batches that serves every epoch; it is empty before the first epoch begins."""

    def begin(self, order: Order) -> None:
        """A new epoch."""

    def resumed(self) -> None:
        """The training loop comes for a batch, after whatever else it did."""

    def taken(self, got: Any) -> tuple[Rows, Tally]:
        """What the pipeline gave as a batch, and what reading it did."""

    def fault(self, fault: Any, paths: list[str]) -> DlioError:
        """What went wrong when the pipeline raised `fault` over samples of the files at `paths`."""

    def close(self) -> None:
        """The end of an epoch."""


class Preprocessing:
    """What tf.data's map does to each sample: it takes its time."""

    def __init__(self, tf: Any, workload: Workload) -> None:
        self._tf = tf
        self._seconds = workload.reader.preprocess_time
        self._mode = workload.compute.mode
        self._lock = threading.Lock()
        self._took = 0.0

    def __call__(self, sample: Any) -> Any:
        """`sample`, later."""
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
        """Seconds of all threads since the last question."""
        with self._lock:
            took, self._took = self._took, 0.0
        return took
