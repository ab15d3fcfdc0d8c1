"""tf.data. TFRecord files in framework mode are read by TensorFlow itself: TFRecordDataset with a transfer buffer,
interleaved, decoded in parallel, batched, prefetched, as CosmoFlow and ImageNet do. Everything else goes through the
same pipeline out of our readers, as applications feed HDF5 or NumPy files to it (tf.numpy_function).
"""

import itertools
import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.combinations import reads_records
from dlio_hpc.core import kernel
from dlio_hpc.core.content import Rows
from dlio_hpc.core.formats import FORMATS
from dlio_hpc.core.formats.format import Paths, check
from dlio_hpc.core.loaders.loader import Batch, in_steps
from dlio_hpc.core.loaders.native import preprocess
from dlio_hpc.core.order import Order
from dlio_hpc.core.places import Places, Samples
from dlio_hpc.core.tally import Tally
from dlio_hpc.errors import ConfigError, DlioError, InvalidRun
from dlio_hpc.workload import TENSORFLOW_BUFFER, Workload

Withins = npt.NDArray[np.int64]


class TensorFlowLoader:
    """One pipeline, built with the first epoch, whose sources know the running epoch's order. Where TensorFlow reads,
    bytes and requests are the kernel's count for the process, and single reads have no times.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._tf = _tensorflow()
        self._workload = workload
        self._paths = paths
        self._places = Places(workload.dataset)
        self._width = workload.dataset.sample.largest
        self._pipeline: Any = None
        self._span: _Span | None = None
        self._source: _Records | _Batches
        if reads_records(workload):
            self._source = _Records(self._tf, workload, paths)
        else:
            self._source = _Batches(self._tf, workload, paths)

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        keys = self._workload.reader
        span = _Span(first, min(last, first + steps * keys.batch_size), steps)
        if self._pipeline is None or self._span != span:
            self._span, self._pipeline = span, self._source.pipeline(span)
            if keys.batches_ahead:
                self._pipeline = self._pipeline.prefetch(keys.batches_ahead)
        self._source.begin(order)
        batches = iter(self._pipeline)
        for samples in in_steps(order, first, last, steps, keys.batch_size):
            yield self._next(batches, samples)
        del batches
        self._source.close()

    def _next(self, batches: Iterator[Any], samples: Samples) -> Batch:
        if not len(samples):
            return Batch(np.empty((0, self._width), np.uint8), Tally())
        try:
            got = next(batches)
        except StopIteration:
            raise InvalidRun(f"TensorFlow found no more records, sample {samples[0]} was expected") from None
        except self._tf.errors.OpError as fault:
            places = self._places.of(samples)
            raise self._source.fault(fault, sorted({self._paths(place.file) for place in places})) from fault
        rows, tally = self._source.taken(got)
        if len(rows) != len(samples):
            raise InvalidRun(f"TensorFlow found {len(rows)} records where samples {samples.tolist()} were expected")
        (place,) = self._places.of(samples[:1])
        check(self._workload.dataset, place, rows[0], self._paths)
        return Batch(rows, tally)

    def close(self) -> None:
        self._source.close()


class _Span(NamedTuple):
    """The positions that a rank takes in every epoch, and in how many steps."""

    first: int
    last: int
    steps: int


class _Records:
    """TFRecordDataset, file by file or several in turn."""

    def __init__(self, tf: Any, workload: Workload, paths: Paths) -> None:
        self._tf = tf
        self._workload = workload
        self._paths = paths
        self._opens = 0
        self._lock = threading.Lock()
        self._order: Order
        self._seen = kernel.process_io()

    def begin(self, order: Order) -> None:
        """A new epoch."""
        self._order = order
        self._seen = kernel.process_io()

    def pipeline(self, span: _Span) -> Any:
        tf, keys = self._tf, self._workload.reader
        parts = [self._in_turn(begin, end) for begin, end in self._cycles(span.first, span.last)]
        records = parts[0] if parts else tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
        for part in parts[1:]:
            records = records.concatenate(part)
        return records.map(self._decoded, keys.preprocess_threads, deterministic=True).batch(keys.batch_size)

    def _cycles(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of positions that one interleave can bring in order: a rank's share may begin and end amid the turn
        of a group of files, and these rests take their turns by themselves.
        """
        dataset = self._workload.dataset
        group = min(self._workload.reader.interleave, dataset.files) * dataset.samples_per_file
        begin, end = -(-first // group) * group, last // group * group
        cuts = [first, begin, end, last] if begin < end else [first, min(max(first, begin), last), last]
        for one, other in itertools.pairwise(cuts):
            if one < other:
                yield one, other

    def _in_turn(self, first: int, last: int) -> Any:
        tf, keys = self._tf, self._workload.reader
        signature = (tf.TensorSpec((), tf.string), tf.TensorSpec((None,), tf.int64))
        files = tf.data.Dataset.from_generator(lambda: self._files(first, last), output_signature=signature)
        if keys.interleave == 1:
            return files.flat_map(self._file)
        return files.interleave(
            self._file, keys.interleave, 1, num_parallel_calls=keys.read_threads, deterministic=True
        )  # fmt: skip

    def _files(self, first: int, last: int) -> Iterator[tuple[str, Withins]]:
        """Each file in the order of its turn, with the records wanted of it: their places where they are shuffled,
        else the first one's and how many.
        """
        count = self._workload.dataset.samples_per_file
        group = min(self._workload.reader.interleave, self._workload.dataset.files) * count
        shuffled = self._workload.reader.shuffle.samples
        begin = first
        while begin < last:
            end = min(last, (begin // group + 1) * group)
            if group == count and not shuffled:
                number, within = divmod(int(self._order.samples(begin, begin + 1)[0]), count)
                yield self._path(number), np.array([within, end - begin])
            else:
                files, withins = np.divmod(self._order.samples(begin, end), np.uint64(count))
                numbers, where = np.unique(files, return_index=True)
                for number in numbers[np.argsort(where)].tolist():
                    wanted = withins[files == number].astype(np.int64)
                    yield self._path(number), wanted if shuffled else np.array([wanted[0], len(wanted)])
            begin = end

    def _path(self, number: int) -> str:
        with self._lock:
            self._opens += 1
        return self._paths(number)

    def _file(self, path: Any, wanted: Any) -> Any:
        tf, keys = self._tf, self._workload.reader
        records = tf.data.TFRecordDataset(path, buffer_size=keys.transfer_size or TENSORFLOW_BUFFER)
        if not keys.shuffle.samples:
            return records.skip(wanted[0]).take(wanted[1])
        whole = records.batch(self._workload.dataset.samples_per_file)
        return whole.map(lambda all_records: tf.gather(all_records, wanted)).unbatch()

    def _decoded(self, record: Any) -> Any:
        tf, keys, sample = self._tf, self._workload.reader, self._workload.dataset.sample
        if keys.preprocess_time:
            record = _delayed(tf, record, keys.preprocess_time, self._workload.compute.mode)
        if sample.stdev is None:
            return tf.ensure_shape(tf.io.decode_raw(record, tf.uint8), (sample.size,))
        return tf.io.decode_raw(record, tf.uint8, fixed_length=sample.largest)

    def taken(self, got: Any) -> tuple[Rows, Tally]:
        """The batch, and what the process has read since the one before."""
        tally = Tally()
        seen = kernel.process_io()
        rows = np.asarray(got)
        if seen is not None and self._seen is not None:
            came = seen.since(self._seen)
            tally.bytes_read, tally.requests = max(0, came.requested), max(0, came.calls)
        else:
            tally.bytes_read = rows.nbytes
        self._seen = seen
        with self._lock:
            tally.opens, self._opens = self._opens, 0
        tally.preprocess_s = len(rows) * self._workload.reader.preprocess_time
        return rows, tally

    def fault(self, fault: Any, paths: list[str]) -> DlioError:
        """TensorFlow does not always say which file it means."""
        return InvalidRun(f"TensorFlow cannot read {', '.join(paths)}: {fault.message}; was it damaged or removed?")

    def close(self) -> None:
        """TensorFlow closes its files with the pipeline."""


class _Batches:
    """Our own readers within tf.data: a call a batch, `read_threads` at once."""

    def __init__(self, tf: Any, workload: Workload, paths: Paths) -> None:
        self._tf = tf
        self._workload = workload
        self._reader = FORMATS[workload.dataset.format].reader(workload, paths, None)
        self._width = workload.dataset.sample.largest
        self._tallies: dict[int, Tally] = {}
        self._faults: list[DlioError] = []
        self._order: Order
        self._next = 0

    def begin(self, order: Order) -> None:
        """A new epoch."""
        self._order = order
        self._next = 0
        self._tallies.clear()

    def pipeline(self, span: _Span) -> Any:
        tf, keys = self._tf, self._workload.reader

        def numbered() -> Iterator[tuple[int, Samples]]:
            for number, samples in enumerate(in_steps(self._order, *span, keys.batch_size)):
                if len(samples):
                    yield number, samples

        def read(number: Any, samples: Any) -> Any:
            rows = tf.numpy_function(self._read, (number, samples), tf.uint8)
            return tf.ensure_shape(rows, (None, self._width))

        signature = (tf.TensorSpec((), tf.int64), tf.TensorSpec((None,), tf.uint64))
        batches = tf.data.Dataset.from_generator(numbered, output_signature=signature)
        batches = batches.map(read, keys.read_threads, deterministic=True)
        if keys.preprocess_time:

            def prepared(row: Any) -> Any:
                return _delayed(tf, row, keys.preprocess_time, self._workload.compute.mode)

            samples = batches.unbatch().map(prepared, keys.preprocess_threads, deterministic=True)
            batches = samples.batch(keys.batch_size)
        return batches

    def _read(self, number: int, samples: Samples) -> Rows:
        tally = Tally()
        rows = np.empty((len(samples), self._width), np.uint8)
        try:
            self._reader.read(samples, rows, tally)
        except DlioError as fault:
            self._faults.append(fault)
            raise
        self._tallies[int(number)] = tally
        return rows

    def taken(self, got: Any) -> tuple[Rows, Tally]:
        tally = self._tallies.pop(self._next)
        self._next += 1
        rows = np.asarray(got)
        tally.preprocess_s = len(rows) * self._workload.reader.preprocess_time
        return rows, tally

    def fault(self, fault: Any, paths: list[str]) -> DlioError:
        return self._faults[0] if self._faults else InvalidRun(f"TensorFlow at {', '.join(paths)}: {fault.message}")

    def close(self) -> None:
        self._reader.close()


def _delayed(tf: Any, value: Any, seconds: float, mode: str) -> Any:
    """`value`, after `seconds` of preprocessing."""

    def wait(content: Any) -> Any:
        preprocess(seconds, mode)
        return content

    return tf.ensure_shape(tf.numpy_function(wait, (value,), value.dtype), value.shape)


def _tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        import tensorflow as tf
    except ImportError as fault:
        raise ConfigError(
            "reader.loader: tensorflow needs TensorFlow, which is not installed: pip install 'dlio-hpc[tensorflow]'"
        ) from fault
    tf.config.set_visible_devices([], "GPU")
    return tf
