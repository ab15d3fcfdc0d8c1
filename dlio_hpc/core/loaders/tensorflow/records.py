"""TFRecord files that TensorFlow reads itself."""

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.core import kernel
from dlio_hpc.core.content import Rows
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.loaders.tensorflow.source import Preprocessing, Span, parallel
from dlio_hpc.core.tally import Tally
from dlio_hpc.errors import DlioError, InvalidRun
from dlio_hpc.order import Order
from dlio_hpc.workload import Workload

Withins = npt.NDArray[np.int64]


class Records:
    """TFRecordDataset, file by file or several in turn."""

    def __init__(self, tf: Any, workload: Workload, paths: Paths) -> None:
        self._tf = tf
        self._workload = workload
        self._paths = paths
        self._preprocessing = Preprocessing(tf, workload)
        self._turn = workload.reader.files_in_turn(workload.dataset)
        self._opens = 0
        self._lock = threading.Lock()
        self._order: Order | None = None
        self._seen: kernel.IO | None = None
        self._left: kernel.IO | None = None
        self._beside = (0, 0)

    def begin(self, order: Order) -> None:
        """A new epoch."""
        self._order = order
        self._seen, self._left = kernel.process_io(), kernel.thread_io()
        self._beside = (0, 0)

    def resumed(self) -> None:
        """What this thread has read since the last batch are side files and checkpoints."""
        back = kernel.thread_io()
        if back is not None and self._left is not None:
            did = back.since(self._left)
            self._beside = (did.requested + self._left.asking + back.asking, did.calls + 2)

    def pipeline(self, span: Span) -> Any:
        tf, keys = self._tf, self._workload.reader
        parts = [self._in_turn(begin, end) for begin, end in self._cycles(span.first, span.last)]
        records = parts[0] if parts else tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
        for part in parts[1:]:
            records = records.concatenate(part)
        return records.map(self._decoded, **parallel(keys, keys.preprocess_threads)).batch(keys.batch_size)

    def _cycles(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of positions that one interleave can bring in order: a rank's share may begin and end amid the turn
        of a group of files, and these rests take their turns by themselves.
        """
        dataset = self._workload.dataset
        group = min(self._turn, dataset.files) * dataset.samples_per_file
        begin, end = -(-first // group) * group, last // group * group
        cuts = [first, begin, end, last] if begin < end else [first, min(max(first, begin), last), last]
        for one, other in itertools.pairwise(cuts):
            if one < other:
                yield one, other

    def _in_turn(self, first: int, last: int) -> Any:
        tf, keys = self._tf, self._workload.reader
        signature = (tf.TensorSpec((), tf.string), tf.TensorSpec((None,), tf.int64))
        files = tf.data.Dataset.from_generator(lambda: self._files(first, last), output_signature=signature)
        if self._turn == 1:
            count = self._workload.dataset.samples_per_file
            if first % count or last % count or keys.shuffle.samples:
                return files.flat_map(self._file)
            return self._records(files.map(lambda path, _: path))  # whole files, one after the other
        return files.interleave(
            self._file, self._turn, 1, num_parallel_calls=keys.read_threads, deterministic=True
        )  # fmt: skip

    def _files(self, first: int, last: int) -> Iterator[tuple[str, Withins]]:
        """Each file in the order of its turn, with the records wanted of it: their places where they are shuffled,
        else the first one's and how many.
        """
        if self._order is None:
            return  # no epoch has begun
        count = self._workload.dataset.samples_per_file
        group = min(self._turn, self._workload.dataset.files) * count
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
        records = self._records(path)
        if not keys.shuffle.samples:
            return records.skip(wanted[0]).take(wanted[1])
        whole = records.batch(self._workload.dataset.samples_per_file)
        return whole.map(lambda all_records: tf.gather(all_records, wanted)).unbatch()

    def _records(self, paths: Any) -> Any:
        return self._tf.data.TFRecordDataset(paths, buffer_size=self._workload.request_size)

    def _decoded(self, record: Any) -> Any:
        tf, sample = self._tf, self._workload.dataset.sample
        record = self._preprocessing(record)
        if sample.stdev is None:
            return tf.ensure_shape(tf.io.decode_raw(record, tf.uint8), (sample.size,))
        return tf.io.decode_raw(record, tf.uint8, fixed_length=sample.largest)

    def taken(self, got: Any) -> tuple[Rows, Tally]:
        """The batch, and what the process has read since the one before."""
        tally = Tally()
        seen = kernel.process_io()
        rows = np.asarray(got)
        if seen is not None and self._seen is not None:
            came, (requested, calls) = seen.since(self._seen), self._beside
            tally.bytes_read, tally.requests = max(0, came.requested - requested), max(0, came.calls - calls)
        else:
            tally.bytes_read = rows.nbytes
        self._seen, self._left = seen, kernel.thread_io()
        with self._lock:
            tally.opens, self._opens = self._opens, 0
        tally.preprocess_s = self._preprocessing.took()
        return rows, tally

    def fault(self, fault: Any, paths: list[str]) -> DlioError:
        """TensorFlow does not always say which file it means."""
        return InvalidRun(f"TensorFlow cannot read {', '.join(paths)}: {fault.message}; was it damaged or removed?")

    def close(self) -> None:
        """TensorFlow closes its files with the pipeline."""
