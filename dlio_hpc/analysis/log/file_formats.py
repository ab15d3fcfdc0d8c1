"""Detection of the format of a dataset and of the library that read the dataset. Both follow from the names of files
and from requests that only this library makes.
"""

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis.characterize.evidence import DerivedValue
from dlio_hpc.analysis.log import extents, file_roles
from dlio_hpc.analysis.log.file_stats import FileStats
from dlio_hpc.analysis.log.requests import Requests

_ENDINGS = {
    ".h#": "hdf5", ".hdf#": "hdf5", ".he#": "hdf5", ".nc": "hdf5", ".nc#": "hdf5", ".npz": "npz", ".csv": "csv",
    ".tsv": "csv", ".tfrec": "tfrecord",
}  # fmt: skip
_IMAGES = (".jpg", ".jpeg", ".png")
_PLAIN = (*_IMAGES, ".npy", ".bin", ".raw", ".dat")
# Sizes in bytes of the end record of a ZIP archive, which zipfile reads first, and of the signature at the beginning of
# an HDF5 file.
_ZIP_END, _SIGNATURE = 22, 8
_PANDAS = 256 << 10


class LogFormat(NamedTuple):
    """Format of a dataset and how the dataset was read. name: value of `dataset.format`. mode: value of `reader.mode`.
    streams: whether files are read from front to back through a buffer, so that requests do not show samples. is_image:
    whether each file is one sample, whatever its requests are.
    """

    name: DerivedValue
    mode: DerivedValue
    streams: bool
    is_image: bool

    @property
    def is_numpy(self) -> bool:
        """Whether numpy.load read the files, through the buffer of a Python file."""
        return (self.name.value, self.mode.value) == ("npz", "framework")

    @property
    def loads_files(self) -> bool:
        """Whether a library loads whole files, in requests of a size that the library chooses."""
        return self.is_image or (self.name.value in ("npz", "raw") and self.mode.value == "framework")


class _Marks(NamedTuple):
    """Shares of the files that have requests which are characteristic of a library. zip_ends: share of files whose ZIP
    end record was read. signatures: share of files whose HDF5 signature was read. from_front: share of files with a
    read at the beginning that is larger than a signature. whole: share of files that were read in one request, followed
    by a request at the end of the file.
    """

    zip_ends: float
    signatures: float
    from_front: float
    whole: float


def detect(data: Sequence[FileStats], requests: Requests | None) -> LogFormat:
    """Return the format of a dataset and how the dataset was read. requests: all requests of the trace; None without a
    trace.
    """
    ending, count = Counter(file_roles.kind(file.path) for file in data).most_common(1)[0]
    marks = None if requests is None else _marks(data, requests)
    shown = next(os.path.splitext(file.path)[1] for file in data if file_roles.kind(file.path) == ending)
    name = _named(ending, shown, count, len(data)) or _by_marks(ending, marks, len(data))
    return LogFormat(
        name, _mode(name.value, marks, requests, data), name.value in ("tfrecord", "csv"), ending in _IMAGES
    )


def _named(ending: str, shown: str, count: int, total: int) -> DerivedValue | None:
    known = "tfrecord" if ending.startswith(".tfrecord") else _ENDINGS.get(ending)
    if known is None:
        return None
    return DerivedValue(known, "high", f"{count:,} of {total:,} file(s) end in {shown}")


def _by_marks(ending: str, marks: _Marks | None, files: int) -> DerivedValue:
    """Return the format that the requests show. Return "raw" if the requests match no known library or there is no
    trace. ending: kind of most files (file_roles.kind).
    """
    if marks is not None and marks.zip_ends > 0.5:
        return DerivedValue(
            "npz",
            "medium",
            f"the {_ZIP_END} bytes at the end of a ZIP archive were read first in {marks.zip_ends:.0%} of files",
        )
    if marks is not None and marks.signatures > 0.5:
        return DerivedValue(
            "hdf5", "medium", f"{_SIGNATURE} bytes at the front were read first in {marks.signatures:.0%} of files"
        )
    if ending in _PLAIN:
        return DerivedValue("raw", "high", f"{files:,} {ending} file(s): plain bytes of one or more samples")
    evidence = f"no known format has the extension {ending!r}"
    if marks is None:
        return DerivedValue("raw", "low", evidence)
    return DerivedValue("raw", "medium", f"{evidence}, and requests match no library")


def _mode(name: str, marks: _Marks | None, requests: Requests | None, data: Sequence[FileStats]) -> DerivedValue:
    if name == "raw":
        return _of_raw(marks)
    if marks is None:
        usual = "framework" if name in ("tfrecord", "csv") else "posix"
        return DerivedValue(usual, "unknown", "not recorded without a trace (DXT)")
    if name == "npz":
        share, evidence = marks.zip_ends, "the archive's directory was read first, as by numpy.load"
    elif name == "hdf5":
        share, evidence = marks.signatures, "the signature was read first, as by HDF5's library"
    else:
        share, evidence = marks.from_front, "the first read was at the front, through a buffer"
    if name == "csv" and requests is not None and (size := _usual(requests, data)) != _PANDAS:
        return DerivedValue("posix", "high", f"requests have {size:,} B; pandas requests have {_PANDAS:,} B")
    if share > 0.5:
        return DerivedValue("framework", "high", f"{evidence}, in {share:.0%} of files")
    return DerivedValue("posix", "medium", f"{evidence}, in {share:.0%} of files only")


def _of_raw(marks: _Marks | None) -> DerivedValue:
    if marks is None:
        return DerivedValue("posix", "unknown", "not recorded without a trace (DXT)")
    how = "in one request, followed by a request at the end of the file, as by Python's read()"
    evidence = f"{marks.whole:.0%} of files were read {how}" if marks.whole else f"no file was read {how}"
    return DerivedValue(
        "framework" if marks.whole > 0.5 else "posix", "high" if marks.whole > 0.9 else "medium", evidence
    )


def _usual(requests: Requests, data: Sequence[FileStats]) -> int:
    return extents.usual(requests.length[requests.on({file.path for file in data}) & ~requests.write])


def _marks(data: Sequence[FileStats], requests: Requests) -> _Marks:
    size = {file.path: file.size for file in data}
    sizes = np.array([size.get(path, -1) for path in requests.paths], np.int64)
    mine = np.flatnonzero(~requests.write & (sizes[requests.file] >= 0)) if len(sizes) else np.empty(0, np.int64)
    file, offset, length = requests.file[mine], requests.offset[mine], requests.length[mine]
    at_end = (offset + length >= sizes[file]) & (length == _ZIP_END)
    signed = (offset == 0) & (length == _SIGNATURE)
    front = (offset == 0) & (length > _SIGNATURE)
    all_files = max(len(np.unique(file)), 1)
    ended = np.isin(file, np.unique(file[(length == 0) & (offset >= sizes[file])]))
    whole = ended & (offset == 0) & (length == sizes[file])
    return _Marks(*(len(np.unique(file[marked])) / all_files for marked in (at_end, signed, front, whole)))
