"""CSV: a line per sample. Values have seven digits after the point, such as 0.1234567, and fit a 32-bit float.

Mode `framework` reads whole files with pandas.read_csv. Mode `posix` reads lines at their offsets and converts their
fixed-width digits to numbers. The difference between the two modes is the cost of parsing.
"""

import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.dataset_keys import CSV_VALUE, Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Compressibility, Rows
from dlio_hpc.core.files import Reads, write_file
from dlio_hpc.core.formats.format import Paths, SampleReader, damaged
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.formats.whole_file import Array, CountedFile, WholeFileReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.sample_layout import Places
from dlio_hpc.errors import ConfigError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_DIGITS = 7
_TEN = 10**_DIGITS
# Bytes of a value in memory.
_FLOAT = 4
_VALUES_AT_ONCE = 1 << 18


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    write_file(descriptor, _pieces(dataset, number))


def _pieces(dataset: Dataset, number: int) -> Iterator[memoryview]:
    """Yield all bytes of file `number` in pieces."""
    columns = math.prod(dataset.sample.array_shape)
    values = dataset.samples_per_file * columns
    for first in range(0, values, _VALUES_AT_ONCE):
        count = min(_VALUES_AT_ONCE, values - first)
        text = spelled(_numbers(count, (number * values + first) * _FLOAT, compressibility(dataset)))
        text[columns - 1 - first % columns :: columns, -1] = ord("\n")
        yield text.reshape(-1).data


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    count, line = dataset.samples_per_file, dataset.sample_bytes
    return file_comparison.of_file(
        path, count * line, None if quick else _pieces(dataset, number), lambda at: number * count + at // line
    )


def spelled(numbers: npt.NDArray[np.uint32]) -> Rows:
    """Return the CSV text of `numbers`. The shape of the result is (values, bytes of a value). Each number has seven
    digits. Its text is 0.NNNNNNN, followed by a separator.
    """
    text = np.empty((len(numbers), CSV_VALUE), np.uint8)
    text[:, 0], text[:, 1], text[:, -1] = ord("0"), ord("."), ord(",")
    for digit in range(_DIGITS, 0, -1):
        numbers, rest = np.divmod(numbers, np.uint32(10))
        text[:, 1 + digit] = rest + ord("0")
    return text


def _numbers(count: int, position: int, compressibility: Compressibility) -> npt.NDArray[np.uint32]:
    """Return `count` numbers of up to seven digits. They are computed from the content stream at `position`."""
    data = np.empty(count * _FLOAT, np.uint8)
    content.fill(data, position, compressibility)
    return data.view("<u4") % np.uint32(_TEN)


def fill(row: Rows, position: int, compressibility: Compressibility) -> None:
    """Fill `row` with the binary form of the values that are computed from the content stream at `position`."""
    row.view(np.float32)[:] = _numbers(len(row) // _FLOAT, position, compressibility) / _TEN


def head(position: int, compressibility: Compressibility) -> bytes:
    """Return the binary form of the value that is computed from the content stream at `position`."""
    row = np.empty(_FLOAT, np.uint8)
    fill(row, position, compressibility)
    return row.tobytes()


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.reader.mode == "framework":
        try:
            import pandas  # noqa: F401 - checks that it is installed
        except ImportError as fault:
            raise ConfigError(
                "dataset.format: csv with reader.mode: framework needs pandas, which is not installed; run pip "
                "install pandas"
            ) from fault
        return WholeFileReader(workload, paths, _Load(workload.dataset))
    return PosixCsv(workload, paths, comm)


class _Load:
    """Callable that loads a whole file with pandas.read_csv, as applications do."""

    def __init__(self, dataset: Dataset) -> None:
        self._shape = dataset.array_shape

    def __call__(self, path: str, tally: Tally) -> Array:
        import pandas as pd

        try:
            with io.BufferedReader(CountedFile(path, tally)) as file:
                table = pd.read_csv(file, header=None, dtype=np.float32)
            array: Array = table.to_numpy()
            return array.reshape(self._shape)
        except ValueError as fault:  # includes pandas' own errors and those for text that is not a number
            raise damaged(path, fault) from fault


class PosixCsv(FlatReader):
    """Reader that reads lines of CSV files at their offsets."""

    def __init__(self, workload: Workload, paths: Paths, comm: "Intracomm | None") -> None:
        super().__init__(workload, paths, comm, lambda *_: 0)
        self._line = workload.dataset.sample_bytes

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        lines = np.empty((len(places), self._line), np.uint8)
        sizes, views = [self._line] * len(places), [[line.data] for line in lines]
        begins = places.within * self._line
        self.bring(Reads(places.file.tolist(), begins.tolist(), sizes, views), tally)
        for file, begin, line, row in zip(places.file.tolist(), begins.tolist(), lines, buffer.rows, strict=False):
            values = line.reshape(-1, CSV_VALUE)
            row.view(np.float32)[:] = numbers_of(values)
            if (values[:, 1] != ord(".")).any() or line[-1] != ord("\n"):
                raise damaged(self._paths(file), f"no valid line at byte {begin}")


def numbers_of(text: Rows) -> npt.NDArray[np.float64]:
    """Return the numbers of a line. text: their text, shape (values, bytes of a value)."""
    numbers = np.zeros(len(text), np.float64)
    for digit in range(2, 2 + _DIGITS):
        numbers = numbers * 10 + (text[:, digit] - ord("0"))
    numbers /= _TEN
    return numbers
