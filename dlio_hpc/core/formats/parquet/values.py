"""The `posix` mode for Parquet: read the values of samples at their offsets, without the rest of a row group."""

from typing import NamedTuple

import numpy as np

from dlio_hpc.config.reader_keys import columns_read
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged
from dlio_hpc.core.files import MOST_VIEWS, ReadRequests
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.parquet import layout
from dlio_hpc.core.formats.parquet.layout import ColumnChunk
from dlio_hpc.core.formats.posix import transport
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Places

# Bytes of the values of a sample from which they are read directly into the row of the sample.
_DIRECT = 4096


class _Run(NamedTuple):
    """Values of a column that are to be copied to rows. begin, end: range of the samples in the batch. chunk: column
    chunk from which the values were read. values: values as read, shape (samples, bytes of the column).
    """

    begin: int
    end: int
    chunk: ColumnChunk
    values: Rows


class ValuesReader:
    """Reader that reads the values of each column with separate requests. Values of samples that follow each other in a
    row group are read in one request. Before the first values of a file, the footer of the file is read and compared
    with the generated footer.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._paths = paths
        self._layout = layout.of(workload.dataset)
        self._columns = columns_read(workload.dataset, workload.reader)
        self._transport = transport(workload, paths, None)
        self._checked: set[int] = set()

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        files, withins = places.file.tolist(), places.within.tolist()
        for number in dict.fromkeys(files):
            if number not in self._checked:
                self._check_footer(number, tally)
        reads, copies = ReadRequests([], [], [], []), list[_Run]()
        for begin, end in layout.runs(files, withins, self._layout.group_samples):
            self._add(reads, copies, files[begin], withins[begin], slice(begin, end), buffer)
        self._transport.fetch(reads, tally)
        for run in copies:
            first = run.chunk.first
            layout.copy(buffer.rows[run.begin : run.end, first : first + run.chunk.width], run.values)

    def _add(
        self, reads: ReadRequests, copies: list[_Run], file: int, within: int, which: slice, buffer: Buffer
    ) -> None:
        """Add the requests for a run of samples. file, within: location of the first sample. which: positions of the
        samples in the batch.
        """
        group = self._layout.group(within // self._layout.group_samples)
        samples = which.stop - which.start
        for column in self._columns:
            chunk = group.chunks[column]
            if samples == 1 or (chunk.width >= _DIRECT and samples <= MOST_VIEWS):
                views = [view[chunk.first : chunk.first + chunk.width] for (view,) in buffer.views[which]]
            else:
                values = np.empty((samples, chunk.width), np.uint8)
                copies.append(_Run(which.start, which.stop, chunk, values))
                views = [values.reshape(-1).data]
            reads.files.append(file)
            reads.offsets.append(group.offset + chunk.values_at + (within - group.first) * chunk.width)
            reads.sizes.append(samples * chunk.width)
            reads.views.append(views)

    def _check_footer(self, number: int, tally: Tally) -> None:
        expected = self._layout.footer
        footer = bytearray(len(expected))
        before = tally.bytes_read
        self._transport.fetch(ReadRequests.single(number, self._layout.footer_at, [memoryview(footer)]), tally)
        tally.move_to_overhead(tally.bytes_read - before)
        if footer != expected:
            raise damaged(self._paths(number), "its footer differs from the generated footer")
        self._checked.add(number)

    def close(self) -> None:
        self._checked.clear()
        self._transport.close()
