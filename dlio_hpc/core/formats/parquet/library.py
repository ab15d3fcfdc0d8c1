"""The `framework` mode for Parquet: read row groups with pyarrow."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from dlio_hpc.base.units import counted
from dlio_hpc.config.reader_keys import columns_read
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import darshan_fd_gate, procfs
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged, unopened, unplanned
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.parquet import layout
from dlio_hpc.core.handle_cache import HandleCache
from dlio_hpc.core.io_counters import Tally, looking_up
from dlio_hpc.dataset.sample_layout import Places


class _OpenParquet(NamedTuple):
    """File that pyarrow has opened. lock: lock that a thread must hold to read the file. The process would crash if
    several threads read a ParquetFile at the same time.
    """

    path: str
    file: Any
    lock: threading.Lock

    def close(self) -> None:
        with darshan_fd_gate.closing(), suppress(OSError):
            self.file.close()


class _Column(NamedTuple):
    """Column that is read. name: name of the column. first: offset of the part of a sample that the column holds.
    dtype, size: type and number of the values of a sample.
    """

    name: str
    first: int
    dtype: np.dtype[Any]
    size: int
    width: int


class OpenedFiles:
    """Files that pyarrow.parquet.ParquetFile has opened, and their row groups.

    Threads of pyarrow make the requests. The number of requests and their bytes are taken from the kernel's I/O
    counters of the calling thread and of all threads that Python did not start.

    check: function that raises InvalidRun if a file is not as expected. Its arguments are the number of the file, its
    path, and the ParquetFile.
    """

    def __init__(self, paths: Paths, names: list[str] | None, check: Callable[[int, str, Any], None]) -> None:
        self._paths = paths
        self._names = names
        self._check = check
        self._files = HandleCache(self._opened, by_library=True)
        self._requests = _Requests()

    def _opened(self, number: int, tally: Tally) -> _OpenParquet:
        """Open a file. pyarrow then reads the footer of the file. Raise InvalidRun if the file is not as expected."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._paths(number)
        try:
            with looking_up(tally), darshan_fd_gate.opening():
                file = pq.ParquetFile(path)
        except pa.ArrowException as fault:
            raise damaged(path, _line(fault)) from fault
        except OSError as fault:
            raise _unusable(path, fault) from fault
        try:
            self._check(number, path, file)
        except BaseException:
            file.close()
            raise
        return _OpenParquet(path, file, threading.Lock())

    def row_group(self, number: int, group: int, tally: Tally, payload: int, columns: int) -> tuple[str, Any]:
        """Return the path of file `number`, and the chosen columns of a row group as a table. payload, columns: bytes
        and columns that are counted if the kernel does not tell.
        """
        import pyarrow as pa

        file = self._files.get(number, tally)
        mine, started = self._requests.begin(), now()
        try:
            with file.lock:
                table = file.file.read_row_group(group, columns=self._names)
        except pa.ArrowException as fault:
            raise damaged(file.path, f"row group {group}: {_line(fault)}") from fault
        except OSError as fault:
            raise _unusable(file.path, fault, f"row group {group}: ") from fault
        tally.timed(started)
        counted = self._requests.end(mine)
        tally.bytes_read += payload if counted is None else counted.requested
        tally.requests += columns if counted is None else counted.calls
        return file.path, table

    def close(self) -> None:
        self._files.close()


class RowGroups:
    """Reader of generated files. Each thread keeps the columns of the row group that it read last. Successive samples
    of the same row group therefore need one call.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        dataset = workload.dataset
        self._layout = layout.of(dataset)
        chunks = self._layout.group(0).chunks
        self._columns = [
            _Column(
                dataset.column_names[at],
                chunks[at].first,
                np.dtype(dataset.all_columns[at].dtype),
                dataset.all_columns[at].size,
                chunks[at].width,
            )
            for at in columns_read(dataset, workload.reader)
        ]
        names = None if workload.reader.columns is None else [column.name for column in self._columns]
        self._expected = (dataset.samples_per_file, self._layout.groups, dataset.column_names)
        self._files = OpenedFiles(paths, names, self._check)
        self._last = threading.local()

    def _check(self, number: int, path: str, file: Any) -> None:
        metadata = file.metadata
        actual = (metadata.num_rows, metadata.num_row_groups, tuple(file.schema_arrow.names))
        if actual != self._expected:
            raise unplanned(f"{path} holds {_described(*actual)}, expected {_described(*self._expected)}")

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        files, withins = places.file.tolist(), places.within.tolist()
        for begin, end in layout.runs(files, withins, self._layout.group_samples):
            number, first = divmod(withins[begin], self._layout.group_samples)
            which = slice(first, first + end - begin)
            for column, values in zip(self._columns, self._group(files[begin], number, tally), strict=True):
                layout.copy(buffer.rows[begin:end, column.first : column.first + column.width], values[which])

    def _group(self, file: int, number: int, tally: Tally) -> list[Rows]:
        """Return the columns of a row group, each of shape (samples, bytes of the column)."""
        if getattr(self._last, "key", None) != (file, number):
            self._last.key = self._last.columns = None  # frees the old row group before the next is read
            self._last.columns = self._loaded(file, number, tally)
            self._last.key = file, number
        columns: list[Rows] = self._last.columns
        return columns

    def _loaded(self, file: int, number: int, tally: Tally) -> list[Rows]:
        samples = self._layout.group(number).samples
        payload = sum(samples * column.width for column in self._columns)
        path, table = self._files.row_group(file, number, tally, payload, len(self._columns))
        return [self._values(path, table.column(column.name), column, samples) for column in self._columns]

    def _values(self, path: str, array: Any, column: _Column, samples: int) -> Rows:
        """Return the values of a column as bytes. array: the column as pyarrow delivers it. The values are taken from
        its memory, because its to_numpy() would import pandas.
        """
        import pyarrow as pa

        joined = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        is_list = pa.types.is_list(joined.type)
        values = joined.flatten() if is_list else joined
        expected = pa.from_numpy_dtype(column.dtype)
        if is_list != (column.size > 1) or values.type != expected or len(values) != samples * column.size:
            raise damaged(path, f"its column {column.name} holds {len(values)} values of type {joined.type}")
        if values.null_count:
            raise damaged(path, f"its column {column.name} holds {values.null_count} nulls")
        data = np.frombuffer(values.buffers()[1], column.dtype, len(values), values.offset * column.dtype.itemsize)
        return data.view(np.uint8).reshape(samples, column.width)

    def close(self) -> None:
        self._files.close()
        self._last = threading.local()


class _Requests:
    """Counters of pyarrow's reads. The reads are made by the calling thread and by threads that Python does not know.
    Threads that Python does not know serve all callers, so each call counts only reads that no other call has counted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._foreign = procfs.ForeignThreads()
        self._taken: dict[int, procfs.IO] = {}
        self._is_known = False

    def begin(self) -> procfs.IO | None:
        """Return the counters of the calling thread before a call."""
        if not self._is_known:
            with self._lock:
                if not self._is_known:
                    self._taken = self._foreign.io()
                    self._is_known = True
        return procfs.thread_io()

    def end(self, before: procfs.IO | None) -> procfs.IO | None:
        """Return the increase of the counters since begin(), or None if the increase is not known. before: return value
        of begin().
        """
        after = procfs.thread_io()
        if before is None or after is None:
            return None
        mine = after.since(before)
        with self._lock:
            counters = self._foreign.io()
            requested, calls = mine.requested, mine.calls
            for thread, counter in counters.items():
                taken = self._taken.get(thread)
                requested += counter.requested - (taken.requested if taken else 0)
                calls += counter.calls - (taken.calls if taken else 0)
            self._taken = counters
        return procfs.IO(requested, calls, 0, 0)


def _unusable(path: str, fault: OSError, where: str = "") -> Exception:
    """Return the error for a file that cannot be read. An OSError without a number is an error of Arrow itself. where:
    text before this error.
    """
    if fault.errno is None:
        return damaged(path, where + _line(fault))
    return unopened(path, fault)


def _line(fault: BaseException) -> str:
    return " ".join(str(fault).split())


def _described(samples: int, groups: int, names: tuple[str, ...]) -> str:
    listed = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    return f"{samples} samples in {counted(groups, 'row group')} with {counted(len(names), 'column')} {listed}"
