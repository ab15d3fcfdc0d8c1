"""Source of batches from TFRecord files that are read by TensorFlow itself."""

import ctypes
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.errors import ConfigError, DlioError, InvalidRun
from dlio_hpc.config.dataset_keys import TFRECORD_FRAME
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import procfs
from dlio_hpc.core.content import WORD, Rows
from dlio_hpc.core.dataset_faults import unplanned
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.tensorflow.source import DatasetPreprocessing, TimeSpan, parallel
from dlio_hpc.dataset.interleave import FileGroups
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.dataset.sample_order import Order

# Parameters of mallopt(3), and the largest value to which malloc raises M_MMAP_THRESHOLD by itself.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _LARGEST_THRESHOLD = -1, -3, 32 << 20

Withins = npt.NDArray[np.int64]


class Records:
    """Source that reads with TFRecordDataset, either one file after the other or several files interleaved.

    whole: if True, the rows of a batch hold whole samples. If False, the pipeline delivers the records as strings, as
    TFRecordDataset reads them, and rows hold only the first bytes of each sample. If records were decoded into rows,
    and rows were combined into a batch, each byte would be copied twice. This is work of an application, and the key
    preprocess_time emulates it.

    Bytes are counted by the kernel, for the whole process. TensorFlow's threads also read 4 bytes of /dev/urandom each.
    Bytes beyond the size of all files that were opened in an epoch are therefore not counted.
    """

    def __init__(self, tf: Any, workload: Workload, paths: Paths, whole: bool) -> None:
        self._tf = tf
        self._whole = whole
        self._workload = workload
        self._paths = paths
        self._preprocessing = DatasetPreprocessing(tf, workload)
        self._places = SampleLayout(workload.dataset)
        self._compression = workload.dataset.compression.upper() if workload.dataset.is_packed else ""
        self._opens = 0
        self._left = 0  # bytes of the files opened in this epoch that are not counted yet
        self._sizes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._order: Order | None = None
        self._process_before: procfs.IO | None = None
        self._thread_before: procfs.IO | None = None
        self._other_reads = (0, 0)

    def begin(self, order: Order) -> None:
        """Start a new epoch."""
        _keep_freed_memory()
        self._order = order
        with self._lock:
            self._left = 0
        self._process_before, self._thread_before = procfs.process_io(), procfs.thread_io()
        self._other_reads = (0, 0)

    def resumed(self) -> None:
        """Note the bytes and the read calls of this thread since the last batch. These reads are for auxiliary files
        and checkpoints, so taken() must not count them as reads of samples.
        """
        after = procfs.thread_io()
        if after is not None and self._thread_before is not None:
            difference = after.since(self._thread_before)
            requested = difference.requested + self._thread_before.asking + after.asking
            self._other_reads = (requested, difference.calls + 2)

    def pipeline(self, span: TimeSpan, groups: FileGroups) -> Any:
        tf = self._tf
        if self._workload.dataset.counts_vary:
            return self._batched(self._irregular(span))
        parts = [self._in_turn(begin, end, groups) for begin, end in groups.parts(span.first, span.last)]
        records = parts[0] if parts else tf.data.Dataset.from_tensor_slices(tf.constant([], tf.string))
        for part in parts[1:]:
            records = records.concatenate(part)
        return self._batched(records)

    def _batched(self, records: Any) -> Any:
        """Return a tf.data.Dataset of batches of these records."""
        keys = self._workload.reader
        if self._whole or keys.preprocess_time:
            records = records.map(self._prepared, **parallel(keys, keys.preprocess_threads))
        batches = records.batch(keys.batch_size)
        return batches if self._whole else batches.map(self._with_beginnings)

    def _in_turn(self, first: int, last: int, groups: FileGroups) -> Any:
        """Return a tf.data.Dataset of the records at positions `first` to `last` (exclusive) in the order of the epoch.
        The positions cover either whole groups of interleaved files or a part of one group. If `first` is inside a
        group, each file of the group is read from the first needed record of the file on. groups: division of the epoch
        into groups.
        """
        tf, keys = self._tf, self._workload.reader
        signature = (tf.TensorSpec((), tf.string), tf.TensorSpec((None,), tf.int64))
        files = tf.data.Dataset.from_generator(lambda: self._files(first, last, groups), output_signature=signature)
        opening, after = groups.group(first)
        if opening != first and not hasattr(tf.raw_ops, "TFRecordDatasetV2"):
            raise ConfigError(
                "this version of TensorFlow cannot start to read in the middle of a TFRecord file, but ranks that "
                "share a file must do this; use at least as many files as ranks, or a newer TensorFlow"
            )
        in_order = self._from_start if opening == first else self._from_offset
        records = self._shuffled if keys.shuffle.samples else in_order
        if groups.at_once > 1:
            calls = min(keys.read_threads, groups.at_once)
            return files.interleave(records, groups.at_once, 1, num_parallel_calls=calls, deterministic=True)
        if opening == first and last >= after and not keys.shuffle.samples:
            return self._records(files.map(lambda path, _: path))  # whole files, one after the other
        return files.flat_map(records)

    def _files(self, first: int, last: int, groups: FileGroups) -> Iterator[tuple[str, Withins]]:
        """Yield two values for each file that holds records at positions `first` to `last` (exclusive): the path of the
        file and the records to read from it. Files come in the order in which they are first read. If records are
        shuffled, the records are given by their indices in the file. Otherwise they are given by two numbers: the
        offset of the first record, and the number of records.
        """
        if self._order is None:
            return  # no epoch has begun
        count = self._workload.dataset.samples_per_file
        shuffled = self._workload.reader.shuffle.samples
        begin = first
        while begin < last:
            end = min(last, groups.group(begin)[1])
            if groups.at_once == 1 and not shuffled:
                sample = int(self._order.samples(begin, begin + 1)[0])
                yield self._path(sample // count), np.array([self._byte(sample), end - begin])
            else:
                samples = self._order.samples(begin, end)
                files = samples // np.uint64(count)
                numbers, where = np.unique(files, return_index=True)
                for number in numbers[np.argsort(where)].tolist():
                    wanted = samples[files == number]
                    places = (wanted % np.uint64(count)).astype(np.int64)
                    yield self._path(number), places if shuffled else np.array([self._byte(wanted[0]), len(wanted)])
            begin = end

    def _irregular(self, span: TimeSpan) -> Any:
        """Return a tf.data.Dataset of the records of files that have different numbers of records. The limits of the
        groups of files then differ between epochs. Therefore, a generator yields the groups of an epoch, and the files
        of each group are interleaved.
        """
        tf, keys = self._tf, self._workload.reader
        records = self._shuffled if keys.shuffle.samples else self._from_offset
        signature = (tf.TensorSpec((None,), tf.string), tf.TensorSpec((None, None), tf.int64))
        groups = tf.data.Dataset.from_generator(lambda: self._groups(span), output_signature=signature)

        def in_turn(paths: Any, wanted: Any) -> Any:
            files = tf.data.Dataset.from_tensor_slices((paths, wanted))
            return files.interleave(
                records, keys.files_in_turn(self._workload.dataset), 1,
                num_parallel_calls=keys.read_threads, deterministic=True,
            )  # fmt: skip

        return groups.flat_map(in_turn)

    def _groups(self, span: TimeSpan) -> Iterator[tuple[list[str], Withins]]:
        """Yield two values for each group: the paths of its files, and an array with a row per file. A row has the
        records to read from the file, in the form that _files() uses. Rows of indices are filled up with -1.
        """
        order = None if self._order is None else self._order.irregular
        if self._order is None or order is None:
            return
        shuffled, begin = self._workload.reader.shuffle.samples, span.first
        while begin < span.last:
            end = min(span.last, order.positions(order.group(begin))[1])
            places = self._places.of(self._order.samples(begin, end))
            files, where, counts = np.unique(places.file, return_index=True, return_counts=True)
            rows = np.full((len(files), counts.max() if shuffled else 2), -1, np.int64)
            for row, number, first, count in zip(rows, files, where, counts, strict=True):
                if shuffled:
                    row[:count] = places.within[places.file == number]
                else:
                    row[:] = self._byte(places.sample[first]), count
            by_turn = np.argsort(where)
            yield [self._path(number) for number in files[by_turn].tolist()], rows[by_turn]
            begin = end

    def _byte(self, sample: int) -> int:
        """Return the offset in the file at which the record of the sample begins. Return the index of the record if the
        file is compressed.
        """
        (place,) = self._places.of(np.array([sample], np.uint64))
        return place.within if self._compression else place.offset + place.within * TFRECORD_FRAME

    def _path(self, number: int) -> str:
        with self._lock:
            if number not in self._sizes:
                frames = self._places.count(number) * TFRECORD_FRAME
                whole = self._places.file_size(number) + frames
                self._sizes[number] = _size(self._paths(number)) if self._compression else whole
            self._opens += 1
            self._left += self._sizes[number]
        return self._paths(number)

    def _from_start(self, path: Any, wanted: Any) -> Any:
        return self._records(path).take(wanted[1])

    def _from_offset(self, path: Any, wanted: Any) -> Any:
        """Return the records of a file from a given byte offset on. TFRecordDataset's skip() would also read the
        records before that offset. It has to, if the file is compressed.
        """
        if self._compression:
            return self._records(path).skip(wanted[0]).take(wanted[1])
        tf = self._tf
        records = tf.raw_ops.TFRecordDatasetV2(
            filenames=path[tf.newaxis],
            compression_type="",
            buffer_size=self._workload.request_size,
            byte_offsets=wanted[:1],
        )
        return tf.data.experimental.from_variant(records, tf.TensorSpec((), tf.string)).take(wanted[1])

    def _shuffled(self, path: Any, wanted: Any) -> Any:
        """Return the wanted records of a file that is read as a whole."""
        whole = self._records(path).batch(self._workload.dataset.samples_per_file)
        wanted = self._tf.boolean_mask(wanted, wanted >= 0)
        return whole.map(lambda all_records: self._tf.gather(all_records, wanted)).unbatch()

    def _records(self, paths: Any) -> Any:
        return self._tf.data.TFRecordDataset(paths, self._compression, buffer_size=self._workload.request_size)

    def _prepared(self, record: Any) -> Any:
        """Return a record after its preprocessing, decoded to bytes if rows hold whole samples."""
        tf, dataset = self._tf, self._workload.dataset
        record = self._preprocessing(record)
        if not self._whole:
            return record
        if not dataset.sizes_vary and not self._workload.reader.resizes:
            return tf.ensure_shape(tf.io.decode_raw(record, tf.uint8), (dataset.sample.size,))
        return tf.io.decode_raw(record, tf.uint8, fixed_length=self._workload.row_bytes)

    def _with_beginnings(self, records: Any) -> tuple[Any, Any, Any]:
        """Return three values: a batch of records, the first bytes of each record, and the size of each record."""
        tf = self._tf
        beginnings = tf.io.decode_raw(tf.strings.substr(records, 0, WORD), tf.uint8, fixed_length=WORD)
        return records, beginnings, tf.strings.length(records)

    def taken(self, got: Any) -> tuple[Rows, Tally]:
        """Return the rows of the batch, and the counts of the process's reads since the previous batch."""
        tally = Tally()
        after = procfs.process_io()
        rows = np.asarray(got if self._whole else got[1])
        if not self._whole:
            self._check_sizes(np.asarray(got[2]))
        if after is not None and self._process_before is not None:
            difference, (requested, calls) = after.since(self._process_before), self._other_reads
            tally.bytes_read = max(0, difference.requested - requested)
            tally.requests = max(0, difference.calls - calls)
        else:
            tally.bytes_read = len(rows) * self._workload.dataset.sample.size
        self._process_before, self._thread_before = after, procfs.thread_io()
        with self._lock:
            tally.opens, self._opens = self._opens, 0
            tally.bytes_read = min(tally.bytes_read, self._left)
            self._left -= tally.bytes_read
        tally.preprocess_s = self._preprocessing.took()
        return rows, tally

    def _check_sizes(self, sizes: npt.NDArray[np.int32]) -> None:
        dataset = self._workload.dataset
        sample = dataset.sample
        if not dataset.sizes_vary and (sizes != sample.size).any():
            fault = unplanned(
                f"TensorFlow delivered records of {sorted(set(sizes.tolist()))} bytes, expected {sample.size}"
            )
            raise fault if dataset.existing is None else InvalidRun(fault.existing)

    def fault(self, fault: Any, paths: list[str]) -> DlioError:
        """Return the error for a failed batch. It names all files of the batch, because TensorFlow does not always name
        the file.
        """
        return InvalidRun(
            f"TensorFlow cannot read {', '.join(paths)}: {fault.message}; a file may be corrupted or removed"
        )

    def close(self) -> None:
        """Do nothing, because TensorFlow closes its files with the pipeline."""


def _size(path: str) -> int:
    """Return the size of a file in bytes; 0 if there is none, of which TensorFlow tells."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _keep_freed_memory() -> None:
    """Let malloc(3) keep freed memory for the next records. Without this call, it keeps freed memory only in programs
    whose pipelines have no generator.

    tf.data's generators call mallopt(3), after which malloc returns each freed record to the kernel, and the next
    record is read into new pages. This halves the rate of records of 1 MiB. The thresholds set here are the values to
    which malloc raises its thresholds by itself in other programs. C libraries other than glibc have no mallopt.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD)
