"""CSV: a line per sample. Values have seven digits after the point, such as 0.1234567, and fit a 32-bit float.

Mode `framework` reads whole files with pandas.read_csv. Mode `posix` reads lines at their offsets and converts their
fixed-width digits to numbers. The difference between the two modes is the cost of parsing.
"""

import functools
import io
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dataset_keys import CSV_VALUE, Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Compressibility, Rows
from dlio_hpc.core.dataset_faults import damaged
from dlio_hpc.core.files import ReadRequests, write_file
from dlio_hpc.core.formats.format import Expected, Paths, SampleReader
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.formats.whole_file import Array, CountedFile, WholeFileReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset.sample_layout import Place, Places

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_TEN = 10**7
# Bytes of a value in memory.
_FLOAT = 4
# Number of values that are computed together; their arrays fit into the cache of a core.
_VALUES_AT_ONCE = 1 << 15
# The text of a value. The tables of _digits() hold the point with the three digits after it, and the last four digits.
_TEMPLATE = np.frombuffer(b"0.0000000,", np.uint8)
_TEXT = np.dtype({"names": ["high", "low"], "formats": ["u4", "u4"], "offsets": [1, 5], "itemsize": CSV_VALUE})
# The point and the seven digits of a value, as eight bytes.
_WORD = np.dtype({"names": ["digits"], "formats": ["<u8"], "offsets": [1], "itemsize": CSV_VALUE})


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    write_file(descriptor, written_early(descriptor, _pieces(dataset, number)))


def _pieces(dataset: Dataset, number: int) -> Iterator[memoryview]:
    """Yield all bytes of file `number` in pieces. A piece is valid only until the next piece is requested."""
    columns = math.prod(dataset.sample.array_shape)
    values = dataset.samples_per_file * columns
    text = np.tile(_TEMPLATE, (min(values, _VALUES_AT_ONCE), 1))
    for first in range(0, values, _VALUES_AT_ONCE):
        part = text[: values - first]
        spell(part, _numbers(len(part), (number * values + first) * _FLOAT, compressibility(dataset)))
        part[:, -1] = ord(",")
        part[columns - 1 - first % columns :: columns, -1] = ord("\n")
        yield part.reshape(-1).data


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    count, line = dataset.samples_per_file, dataset.sample_bytes
    return file_comparison.of_file(
        path, count * line, None if quick else _pieces(dataset, number), lambda at: number * count + at // line
    )


def spell(text: Rows, numbers: npt.NDArray[np.uint32]) -> None:
    """Write the point and the seven digits of each number into its row of `text`. The shape of `text` is (values, bytes
    of a value).
    """
    high_digits, low_digits = _digits()
    high = numbers // np.uint32(len(low_digits))
    values = text.reshape(-1).view(_TEXT)
    # "clip" is fast because it does not check the indexes.
    values["high"] = high_digits.take(high, mode="clip")
    values["low"] = low_digits.take(numbers - high * np.uint32(len(low_digits)), mode="clip")


@functools.cache
def _digits() -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """Return two tables of texts of four bytes: a point followed by three digits, for each number below 1000; and four
    digits, for each number below 10,000.
    """
    high = [b".%03d" % number for number in range(1000)]
    low = [b"%04d" % number for number in range(10_000)]
    return np.array(high).view(np.uint32), np.array(low).view(np.uint32)


def numbers_of(lines: Rows) -> npt.NDArray[np.uint64]:
    """Convert the text in `lines` to seven-digit numbers. Neighbouring values are combined in three steps: digits to
    numbers below 100, these numbers to numbers below 10,000, and those to the results. The text is not checked.
    """
    digits = lines.reshape(-1).view(_WORD)["digits"] & np.uint64(0x0F0F0F0F0F0F0F00)
    for base, bits, mask in ((10, 8, 0x00FF00FF00FF00FF), (100, 16, 0x0000FFFF0000FFFF), (10_000, 32, 0xFFFFFFFF)):
        digits *= np.uint64((base << bits) + 1)
        digits >>= np.uint64(bits)
        digits &= np.uint64(mask)
    return digits


def _numbers(count: int, position: int, compressibility: Compressibility) -> npt.NDArray[np.uint32]:
    """Return `count` numbers of up to seven digits. They are computed from the content stream at `position`."""
    data = np.empty(count * _FLOAT, np.uint8)
    content.fill(data, position, compressibility)
    drawn: npt.NDArray[np.uint32] = data.view("<u4")
    return drawn - drawn // np.uint32(_TEN) * np.uint32(_TEN)  # faster than %


def expected(dataset: Dataset) -> Expected:
    """Return the function that fills a row with the binary form of the values of a sample."""
    kind = compressibility(dataset)

    def fill(row: Rows, place: Place, begin: int) -> None:
        values = _numbers(-(-len(row) // _FLOAT), place.position + begin, kind) / _TEN
        row[:] = values.astype(np.float32).view(np.uint8)[: len(row)]

    return fill


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.reader.mode == "framework":
        try:
            import pandas  # noqa: F401 - checks that it is installed
        except ImportError as fault:
            raise ConfigError(
                "dataset.format=csv with reader.mode=framework needs pandas, which is not installed; run pip "
                "install pandas"
            ) from fault
        return WholeFileReader(workload, paths, _Load(workload.dataset))
    return PosixCsv(workload, paths, comm)


class _Load:
    """Callable that loads a whole file with pandas.read_csv, as applications do."""

    def __init__(self, dataset: Dataset) -> None:
        self._shape = dataset.array_shape

    def __call__(self, path: str, tally: Tally) -> list[Array]:
        import pandas as pd

        try:
            with io.BufferedReader(CountedFile(path, tally)) as file:
                table = pd.read_csv(file, header=None, dtype=np.float32)
            array: Array = table.to_numpy()
            return [array.reshape(self._shape)]
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
        self.bring(ReadRequests(places.file.tolist(), begins.tolist(), sizes, views), tally)
        for file, begin, line, row in zip(places.file.tolist(), begins.tolist(), lines, buffer.rows, strict=False):
            values = line.reshape(-1, CSV_VALUE)
            row.view(np.float32)[:] = numbers_of(line) / _TEN
            if (values[:, 1] != ord(".")).any() or line[-1] != ord("\n"):
                raise damaged(self._paths(file), f"no valid line at byte {begin}")
