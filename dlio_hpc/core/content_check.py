"""Comparison of samples in memory with the generated contents."""

import numpy as np

from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.config.reader_keys import spans_read
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import BLOCK, Rows
from dlio_hpc.core.file_comparison import difference
from dlio_hpc.core.formats.format import Paths, expected
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.dataset.sample_layout import Place, Places

_REMEDY = "the sample differs from the generated contents; remove the dataset's folder and generate the dataset again"

# Number of beginnings that are compared together.
_AT_ONCE = 64


class Verification:
    """Comparison of the samples of batches with the generated contents. The key reader.verify_content selects what is
    compared. "none": nothing is compared. "first": the beginning of the first sample of each batch is compared. This
    takes microseconds and detects foreign and overwritten files. "all": every byte of every sample is compared.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._format = FORMATS[workload.dataset.format]
        is_known = workload.dataset.facts.holds_data and workload.dataset.existing is None
        self._extent = workload.reader.verify_content if is_known else "none"
        self._fill = self._format.expected(workload.dataset)
        self._stream = compressibility(workload.dataset) if self._format.expected is expected else None
        self._paths = paths
        self._beginnings: list[tuple[Places, bytes]] = []
        self._spans = spans_read(workload.dataset, workload.reader)
        self._expected = np.empty(BLOCK if self.is_whole else self._format.beginning, np.uint8)

    @property
    def is_whole(self) -> bool:
        """Whether every byte of every sample is compared."""
        return self._extent == "all"

    def __call__(self, batch: Batch) -> int:
        """Compare a batch, and return the number of samples that are compared. Raise InvalidRun if a sample differs
        from the generated contents. If only beginnings of samples are compared, they are collected and compared later,
        because it is faster to compare many at a time.
        """
        if self._extent == "none" or not len(batch.rows):
            return 0
        if not self.is_whole:
            begin, end = self._spans[0]
            beginning = batch.rows[0, begin:end][: self._format.beginning].tobytes()
            self._beginnings.append((batch.places, beginning))
            if len(self._beginnings) == _AT_ONCE:
                self.finish()
            return 1
        for place, row in zip(batch.places, batch.rows, strict=True):
            self._compare_whole(place, row)
        return len(batch.rows)

    def finish(self) -> None:
        """Compare the beginnings of samples that have not been compared yet. Raise InvalidRun if one of them differs
        from the generated contents.
        """
        beginnings, self._beginnings = self._beginnings, []
        if not beginnings:
            return
        if self._stream is not None and self._spans[0] == (0, None):
            positions = np.array([places.table[-1, 0] for places, _ in beginnings])
            beginning_words = content.words_at(positions, self._stream)
            if b"".join(beginning for _, beginning in beginnings) == beginning_words.tobytes():
                return
        for places, beginning in beginnings:
            self._compare_beginning(next(iter(places)), beginning)

    def _compare_beginning(self, place: Place, beginning: bytes) -> None:
        begin, end = self._spans[0]
        size = place.size if end is None else end - begin
        size = min(size, len(beginning))  # a row is shorter than a word with a small reader.resize
        generated = self._expected[:size]
        self._fill(generated, place, begin)
        if beginning[:size] != generated.tobytes():
            raise InvalidRun(
                f"{self._paths(place.file)}: sample {place.sample} begins with {beginning[:size].hex()}, "
                f"expected {generated.tobytes().hex()}: {_REMEDY}"
            )

    def _compare_whole(self, place: Place, row: Rows) -> None:
        for first, last in self._spans:
            self._compare_span(place, row, first, place.size if last is None else last)

    def _compare_span(self, place: Place, row: Rows, first: int, last: int) -> None:
        """Compare the bytes `first` to `last` (exclusive) of a sample."""
        for begin in range(first, last, BLOCK):
            block = row[begin : min(begin + BLOCK, last)]
            generated = self._expected[: len(block)]
            self._fill(generated, place, begin)
            at = difference(block, generated)
            if at is not None:
                raise InvalidRun(
                    f"{self._paths(place.file)}: sample {place.sample} has {block[at]:#04x} at its byte {begin + at}, "
                    f"expected {generated[at]:#04x}: {_REMEDY}. If dlio-hpc datasets verify finds no fault, "
                    "the dataset is intact, and only the read was wrong"
                )
