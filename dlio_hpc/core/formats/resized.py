"""Reader that changes samples to the size that the key reader.resize gives."""

import threading

from dlio_hpc.core import buffers
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.formats.format import SampleReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Places


class ResizingReader:
    """Reader that reads whole samples into its own memory and copies the first bytes of each sample into the batch. If
    a sample is shorter than a row of the batch, the row is filled up with zeros. Each thread has its own memory, which
    it reuses.

    width: bytes of the largest sample.
    """

    def __init__(self, reader: SampleReader, width: int) -> None:
        self._reader = reader
        self._width = width
        self._local = threading.local()

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        whole = self._memory(len(places))
        self._reader.read(places, whole, tally)
        for place, row, sample in zip(places, buffer.rows, whole.rows, strict=True):
            kept = min(place.size, len(row))
            row[:kept] = sample[:kept]
            row[kept:] = 0

    def _memory(self, samples: int) -> Buffer:
        """Return rows for `samples` whole samples."""
        buffer: Buffer | None = getattr(self._local, "buffer", None)
        if buffer is None or len(buffer.views) < samples:
            buffer = self._local.buffer = buffers.allocate(samples, self._width)
        return buffer.part(slice(samples))

    def close(self) -> None:
        self._reader.close()
