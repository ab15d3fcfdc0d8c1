"""Which format a dataset has, and by which library it was read: by names, and by requests that only one makes."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis.characterize.evidence import Estimate
from dlio_hpc.analysis.log import extents, file_roles
from dlio_hpc.analysis.log.file_stats import Seen
from dlio_hpc.analysis.log.requests import Requests

_ENDINGS = {
    ".h#": "hdf5", ".hdf#": "hdf5", ".he#": "hdf5", ".nc": "hdf5", ".nc#": "hdf5", ".npz": "npz", ".csv": "csv",
    ".tsv": "csv", ".tfrec": "tfrecord",
}  # fmt: skip
_IMAGES = (".jpg", ".jpeg", ".png")
_PLAIN = (*_IMAGES, ".npy", ".bin", ".raw", ".dat")
# What ends an archive, and is read first of it (zipfile); HDF5's signature at the front.
_ZIP_END, _SIGNATURE = 22, 8
_PANDAS = 256 << 10


class Format(NamedTuple):
    """streams: it is read front to back through a buffer, so that requests do not show samples. is_image: a file is one
    sample, whatever its requests.
    """

    name: Estimate
    mode: Estimate
    streams: bool
    is_image: bool

    @property
    def is_numpy(self) -> bool:
        """Is it numpy.load that reads, through the buffer of a Python file?"""
        return (self.name.value, self.mode.value) == ("npz", "framework")

    @property
    def loads_files(self) -> bool:
        """Does the library load a file whole, in pieces of its own?"""
        return self.is_image or (self.name.value in ("npz", "raw") and self.mode.value == "framework")


class _Marks(NamedTuple):
    """Shares of files that were read as one library reads them."""

    zip_ends: float
    signatures: float
    from_front: float
    whole: float


def tell(data: Sequence[Seen], requests: Requests | None) -> Format:
    ending, count = Counter(file_roles.kind(file.path) for file in data).most_common(1)[0]
    marks = None if requests is None else _marks(data, requests)
    shown = next(os.path.splitext(file.path)[1] for file in data if file_roles.kind(file.path) == ending)
    name = _named(ending, shown, count, len(data)) or _by_marks(ending, marks, len(data))
    return Format(name, _mode(name.value, marks, requests, data), name.value in ("tfrecord", "csv"), ending in _IMAGES)


def _named(ending: str, shown: str, count: int, total: int) -> Estimate | None:
    known = "tfrecord" if ending.startswith(".tfrecord") else _ENDINGS.get(ending)
    if known is None:
        return None
    return Estimate(known, "high", f"{count:,} of {total:,} file(s) end in {shown}")


def _by_marks(ending: str, marks: _Marks | None, files: int) -> Estimate:
    """By requests; else what can be read like plain bytes."""
    if marks is not None and marks.zip_ends > 0.5:
        return Estimate(
            "npz",
            "medium",
            f"the {_ZIP_END} bytes that end an archive were read first, of {marks.zip_ends:.0%} of files",
        )
    if marks is not None and marks.signatures > 0.5:
        return Estimate(
            "hdf5", "medium", f"{_SIGNATURE} bytes at the front were read first, of {marks.signatures:.0%} of files"
        )
    if ending in _PLAIN:
        return Estimate("raw", "high", f"{files:,} {ending} file(s): their bytes are one sample or more, end to end")
    words = f"no format is known that ends in {ending!r}"
    if marks is None:
        return Estimate("raw", "low", words)
    return Estimate("raw", "medium", f"{words}, and requests are no library's")


def _mode(name: str, marks: _Marks | None, requests: Requests | None, data: Sequence[Seen]) -> Estimate:
    if name == "raw":
        return _of_raw(marks)
    if marks is None:
        usual = "framework" if name in ("tfrecord", "csv") else "posix"
        return Estimate(usual, "unknown", "only a trace (DXT) would tell")
    if name == "npz":
        share, what = marks.zip_ends, "directories were read first, as numpy.load does"
    elif name == "hdf5":
        share, what = marks.signatures, "signatures were read first, as HDF5's library does"
    else:
        share, what = marks.from_front, "reading began at the front, through a buffer"
    if name == "csv" and requests is not None and (size := _usual(requests, data)) != _PANDAS:
        return Estimate("posix", "high", f"requests of {size:,} B, where pandas makes such of {_PANDAS:,} B")
    if share > 0.5:
        return Estimate("framework", "high", f"{what}, in {share:.0%} of files")
    return Estimate("posix", "medium", f"{what}, in {share:.0%} of files only")


def _of_raw(marks: _Marks | None) -> Estimate:
    if marks is None:
        return Estimate("posix", "unknown", "only a trace (DXT) would tell")
    how = "in one request, and one more that found the end, as read() does"
    words = f"{marks.whole:.0%} of files were read {how}" if marks.whole else f"no file was read {how}"
    return Estimate("framework" if marks.whole > 0.5 else "posix", "high" if marks.whole > 0.9 else "medium", words)


def _usual(requests: Requests, data: Sequence[Seen]) -> int:
    return extents.usual(requests.length[requests.on({file.path for file in data}) & ~requests.write])


def _marks(data: Sequence[Seen], requests: Requests) -> _Marks:
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
