"""The `framework` mode for Zarr: read samples with zarr-python."""

from typing import Any, NamedTuple

import numpy as np

from dlio_hpc.base.errors import ConfigError, DlioError, InvalidRun
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged, unopened
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.zarr import counting_store, folders
from dlio_hpc.core.formats.zarr.counting_store import BATCH, ChunkLimits, StoreFiles
from dlio_hpc.core.formats.zarr.expected_array import ExpectedArrays
from dlio_hpc.core.formats.zarr.kept_stores import KeptStores
from dlio_hpc.core.formats.zarr.store_reader import StoreReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset import zarr_metadata
from dlio_hpc.dataset.sample_layout import Place, Places
from dlio_hpc.dataset.zarr_store import METADATA

# Oldest version of zarr-python whose stores can count requests.
_OLDEST = 3


class _Opened(NamedTuple):
    """An array that zarr-python has opened. path: path of its metadata."""

    path: str
    array: Any


class ArrayReader:
    """Reader that uses zarr-python. All bytes that it reads count as bytes of samples, as in other formats whose
    library chooses the requests. Threads share the array of a store, whose metadata are read once.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        _require_version()
        dataset = workload.dataset
        self._dtype, self._shape = np.dtype(dataset.sample.array_dtype), dataset.sample.array_shape
        self._folders = folders.of(dataset, paths)
        self._expected = ExpectedArrays(dataset)
        self._has_gaps = dataset.scan is not None and dataset.scan.gaps > 0
        self._stores = KeptStores(self._opened)
        self._posix = StoreReader(workload, paths)
        darshan_fd_gate.is_watched()  # the first call reads /proc/self/maps

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        of_files: list[Tally] = []
        BATCH.set(of_files)
        for place, row in zip(places, buffer.rows, strict=False):
            self._read(self._stores.get(place.file, tally), place, row[: place.size])
        for counted in of_files:
            tally.merge(counted)

    def close(self) -> None:
        self._stores.close()

    def _opened(self, number: int, _: Tally) -> _Opened:
        """Open an array. Raise InvalidRun if its metadata are missing, damaged, or not those of the dataset."""
        import zarr

        folder = self._folders(number)
        path = zarr_metadata.find(folder) or f"{folder}/{METADATA[3]}"
        name = path.rpartition("/")[2]
        files = StoreFiles(folder, self._has_gaps)
        store = counting_store.made(folder, files)
        try:
            array = zarr.open_array(store=store, mode="r", zarr_format=2 if name == METADATA[2] else 3)
        except DlioError:
            raise
        except OSError as fault:
            absent = FileNotFoundError(2, "No such file or directory", path)
            raise unopened(path, fault if fault.errno else absent) from fault
        except Exception as fault:  # metadata can be wrong in many ways, for which zarr-python has many errors
            raise damaged(path, _line(fault)) from fault
        files.limits = ChunkLimits(self._expected.parsed(path, files.contents[name], number, by_library=True))
        return _Opened(path, array)

    def _read(self, store: _Opened, place: Place, row: Rows) -> None:
        try:
            values = store.array[place.within]
        except DlioError:
            raise
        except Exception as fault:  # chunks can be wrong in many ways, for which codecs have many errors
            raise self._fault(store, place, row, fault) from fault
        row.view(self._dtype).reshape(self._shape)[...] = values

    def _fault(self, store: _Opened, place: Place, row: Rows, fault: Exception) -> DlioError:
        """Return the error for a sample that zarr-python cannot read. zarr-python does not name the chunk, so the
        sample is read again in mode `posix`, which does.
        """
        try:
            self._posix.read_alone(place, row)
        except InvalidRun as reason:
            return reason
        return damaged(store.path, f"sample {place.sample}: {_line(fault)}")


def _line(fault: Exception) -> str:
    return f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}"


def _require_version() -> None:
    import zarr

    if int(zarr.__version__.partition(".")[0]) < _OLDEST:
        raise ConfigError(
            f"the installed zarr-python ({zarr.__version__}) is too old to count its requests: pip install 'zarr>=3', "
            "or set reader.mode=posix"
        )
