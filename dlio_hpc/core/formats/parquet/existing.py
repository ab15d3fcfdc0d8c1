"""Parquet files that exist already. A sample is a row group: the column chunks of all columns, or of the columns that
`reader.columns` names. Columns may be nested, compressed, and have dictionaries and nulls.

Mode `framework` reads a row group with pyarrow, as for generated files. Mode `posix` reads the footer of a file in one
request, whose place the scan has found, and then each column chunk of a row group in one request. It decodes nothing.
"""

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from dlio_hpc.config.reader_keys import columns_read
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged, unplanned
from dlio_hpc.core.files import ReadRequests
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.parquet.library import OpenedFiles
from dlio_hpc.core.formats.posix import transport
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset import parquet_footer, sample_index
from dlio_hpc.dataset.parquet_footer import StoredRowGroup
from dlio_hpc.dataset.sample_layout import Place, Places, SampleLayout
from dlio_hpc.dataset.thrift_reader import Malformed

# Number of files whose footers are kept in memory, like the number of files that stay open.
_MOST = 64


def _chosen(workload: Workload) -> set[str]:
    """Return the names of the columns that are read."""
    names = workload.dataset.column_names
    return {names[at] for at in columns_read(workload.dataset, workload.reader)}


class ChunkReader:
    """Reader that reads the chosen column chunks of row groups. The row of a sample holds them one after the other."""

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._paths = paths
        self._chosen = _chosen(workload)
        self._index = sample_index.of(workload.dataset)
        self._transport = transport(workload, paths, None)
        self._lock = threading.Lock()
        self._footers: OrderedDict[int, list[StoredRowGroup]] = OrderedDict()

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        reads = ReadRequests([], [], [], [])
        for place, (view,) in zip(places, buffer.views, strict=False):
            begin = 0
            for chunk in self._group(place, tally).chunks:
                if chunk.column in self._chosen and chunk.size:
                    reads.files.append(place.file)
                    reads.offsets.append(chunk.offset)
                    reads.sizes.append(chunk.size)
                    reads.views.append([view[begin : begin + chunk.size]])
                    begin += chunk.size
        self._transport.fetch(reads, tally)

    def _group(self, place: Place, tally: Tally) -> StoredRowGroup:
        """Return the row group that is a sample. Raise InvalidRun if it is not as the scan has found it."""
        groups = self._footer(place.file, tally)
        if place.within >= len(groups) or groups[place.within].size != place.size:
            raise unplanned(f"{self._paths(place.file)}: row group {place.within} has not {place.size} bytes")
        return groups[place.within]

    def _footer(self, number: int, tally: Tally) -> list[StoredRowGroup]:
        """Return the row groups of a file. Threads that need the footer at the same time read it once."""
        with self._lock:
            if number not in self._footers:
                self._footers[number] = self._read_footer(number, tally)
                if len(self._footers) > _MOST:
                    self._footers.popitem(last=False)
            return self._footers[number]

    def _read_footer(self, number: int, tally: Tally) -> list[StoredRowGroup]:
        assert self._index is not None
        begin, before = int(self._index.begins[number]), tally.bytes_read
        footer = bytearray(int(self._index.sizes[number]) - begin)
        self._transport.fetch(ReadRequests.single(number, begin, [memoryview(footer)]), tally)
        tally.move_to_overhead(tally.bytes_read - before)
        try:
            if not footer.endswith(parquet_footer.MAGIC):
                raise Malformed(f"it does not end with {parquet_footer.MAGIC.decode()}")
            return parquet_footer.parsed(bytes(footer), begin)
        except (Malformed, parquet_footer.Unreadable) as fault:
            raise damaged(self._paths(number), fault) from fault

    def close(self) -> None:
        self._footers.clear()
        self._transport.close()


class TableReader:
    """Reader that reads row groups with pyarrow. The row of a sample gets the decoded values, as far as they fit."""

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._places = SampleLayout(workload.dataset)
        self._columns = len(_chosen(workload))
        names = None if workload.reader.columns is None else list(workload.reader.columns)
        self._files = OpenedFiles(paths, names, self._check)

    def _check(self, number: int, path: str, file: Any) -> None:
        actual, expected = file.metadata.num_row_groups, self._places.count(number)
        if actual != expected:
            raise unplanned(f"{path} has {actual} row groups, expected {expected}")

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        for place, row in zip(places, buffer.rows, strict=False):
            # The table has no name, so that its memory is free before the next one is read.
            _fill(
                row[: place.size], self._files.row_group(place.file, place.within, tally, place.size, self._columns)[1]
            )

    def close(self) -> None:
        self._files.close()


def _fill(row: Rows, table: Any) -> None:
    """Copy the memory of the values of a table to a row, until it is full."""
    begin = 0
    for column in table.columns:
        for part in column.chunks:
            for memory in filter(None, part.buffers()):
                count = min(len(row) - begin, memory.size)
                row[begin : begin + count] = np.frombuffer(memory, np.uint8, count)
                begin += count
