"""Detection of the format of a dataset and of the library that read the dataset. Both follow from the names of files
and from requests that only this library makes.
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis.characterize.evidence import DerivedValue
from dlio_hpc.analysis.log import content_sniff, extents, file_roles
from dlio_hpc.analysis.log.file_stats import FileStats
from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.config.workload import TENSORFLOW_BUFFER

_ENDINGS = {
    ".h#": "hdf5", ".hdf#": "hdf5", ".he#": "hdf5", ".nc": "hdf5", ".nc#": "hdf5", ".npz": "npz", ".csv": "csv",
    ".tsv": "csv", ".tfrec": "tfrecord",
}  # fmt: skip
_IMAGES = (".jpg", ".jpeg", ".png")
_PLAIN = (*_IMAGES, ".npy", ".bin", ".raw", ".dat")
# Sizes in bytes of the end record of a ZIP archive, which zipfile reads first, and of the signature at the beginning of
# an HDF5 file.
_ZIP_END, _SIGNATURE = 22, 8
# Size in bytes of the requests of pandas.read_csv.
PANDAS_BUFFER = 256 << 10
# Name of one file of a set, as TensorFlow's and Beam's writers of TFRecord files number them: train-00003-of-00016.
_SHARD = re.compile(r"-\d{4,}-of-\d{4,}$")


class LogFormat(NamedTuple):
    """Format of a dataset and how the dataset was read. name: value of `dataset.format`. mode: value of `reader.mode`.
    streams: whether files are read from front to back through a buffer, so that requests do not show samples. is_image:
    whether each file is one sample, whatever its requests are. index_reads: number of requests that read a node of an
    HDF5 index of chunks. head: size in bytes of the first request to a file whose rest is read in a second request;
    None if files are read in another way. sample_bytes: size of a sample that the content of a file shows; None if no
    content was read, or shows none.
    """

    name: DerivedValue
    mode: DerivedValue
    streams: bool
    is_image: bool
    index_reads: int = 0
    head: int | None = None
    sample_bytes: DerivedValue | None = None

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
    by a request at the end of the file. streamed: share of files of which several requests of 256 KiB were read, and
    then a request that returned no bytes, as TensorFlow reads a TFRecord file. headed: share of files that were read in
    two requests, the first of `head` bytes, followed by a request at the end of the file.
    """

    zip_ends: float
    signatures: float
    from_front: float
    whole: float
    streamed: float
    headed: float
    head: int


def detect(data: Sequence[FileStats], requests: Requests | None, reads_content: bool = False) -> LogFormat:
    """Return the format of a dataset and how the dataset was read. requests: all requests of the trace; None without a
    trace. reads_content: True to read the beginning of a few files, if this machine has them.
    """
    content = content_sniff.look({file.path: file.size for file in data}) if reads_content else None
    ending, count = Counter(file_roles.kind(file.path) for file in data).most_common(1)[0]
    marks = None if requests is None else _marks(data, requests)
    shown = next(os.path.splitext(file.path)[1] for file in data if file_roles.kind(file.path) == ending)
    by_content = None if content is None else DerivedValue(content.name, "high", content.evidence)
    name = (
        by_content
        or _named(ending, shown, count, len(data))
        or _sharded(data, marks)
        or _by_marks(ending, marks, len(data))
    )
    is_hdf5 = name.value == "hdf5" and requests is not None
    return LogFormat(
        name,
        _mode(name.value, marks, requests, data, ending in _IMAGES),
        name.value in ("tfrecord", "csv"),
        content is None and ending in _IMAGES,
        _index_reads(data, requests) if is_hdf5 and requests is not None else 0,
        marks.head if marks is not None and name.value == "raw" and marks.headed > 0.5 else None,
        DerivedValue(content.sample_bytes, "medium", content.sizes) if content and content.sample_bytes else None,
    )


def _index_reads(data: Sequence[FileStats], requests: Requests) -> int:
    mine = requests.on({file.path for file in data}) & ~requests.write
    return int(np.count_nonzero(extents.is_index_read(requests.length[mine])))


def _sharded(data: Sequence[FileStats], marks: _Marks | None) -> DerivedValue | None:
    """Return TFRecord as the format if the files are numbered as the shards of a set, and not read in another way than
    TensorFlow reads. Return None otherwise.
    """
    count = sum(_SHARD.search(file.path) is not None for file in data)
    if count < 0.9 * len(data):
        return None
    evidence = f"{count:,} of {len(data):,} file(s) are named like shards of TFRecord files (-00000-of-{len(data):05})"
    if marks is None:
        return DerivedValue("tfrecord", "medium", evidence)
    if marks.from_front < 0.5 or marks.zip_ends > 0.5 or marks.signatures > 0.5:
        return None
    return DerivedValue("tfrecord", "high" if marks.streamed > 0.5 else "medium", evidence)


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
    if marks is not None and marks.streamed > 0.9 and ending not in _PLAIN:
        evidence = (
            f"{marks.streamed:.0%} of files were read in requests of {TENSORFLOW_BUFFER:,} B and a request at the end"
        )
        return DerivedValue("tfrecord", "medium", f"{evidence}, as TensorFlow reads TFRecord files")
    if ending in _PLAIN:
        return DerivedValue("raw", "high", f"{files:,} {ending} file(s): plain bytes of one or more samples")
    evidence = f"no known format has the extension {ending!r}"
    if marks is None:
        return DerivedValue("raw", "low", evidence)
    return DerivedValue("raw", "medium", f"{evidence}, and requests match no library")


def _mode(
    name: str, marks: _Marks | None, requests: Requests | None, data: Sequence[FileStats], is_image: bool
) -> DerivedValue:
    if name == "raw":
        mode = _of_raw(marks)
        if is_image and mode.value == "posix" and marks is not None:
            return DerivedValue("framework", "medium", "libraries that decode images read whole files")
        return mode
    if marks is None:
        return DerivedValue(
            "framework", "low", f"{name} files are usually read by the library of the format; no trace shows it (DXT)"
        )
    if name == "npz":
        share, evidence = marks.zip_ends, "the archive's directory was read first, as by numpy.load"
    elif name == "hdf5":
        share, evidence = marks.signatures, "the signature was read first, as by HDF5's library"
    else:
        share, evidence = marks.from_front, "the first read was at the front, through a buffer"
    if name == "csv" and requests is not None and (size := _usual(requests, data)) != PANDAS_BUFFER:
        return DerivedValue("posix", "high", f"requests have {size:,} B; pandas requests have {PANDAS_BUFFER:,} B")
    if share > 0.5:
        return DerivedValue("framework", "high", f"{evidence}, in {share:.0%} of files")
    return DerivedValue("posix", "medium", f"{evidence}, in {share:.0%} of files only")


def _of_raw(marks: _Marks | None) -> DerivedValue:
    if marks is None:
        return DerivedValue("posix", "unknown", "not recorded without a trace (DXT)")
    how = "in one request, followed by a request at the end of the file, as by Python's read()"
    if marks.headed > 0.5:
        how = f"in a request of {marks.head:,} B and one for the rest, as by a library that looks at the head of a file"
        return DerivedValue(
            "framework", "high" if marks.headed > 0.9 else "medium", f"{marks.headed:.0%} were read {how}"
        )
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
    is_block = (offset % TENSORFLOW_BUFFER == 0) & (length <= TENSORFLOW_BUFFER)
    rest = (offset > 0) & is_block & (offset + length == sizes[file])
    streamed = ended & rest & np.isin(file, np.unique(file[(offset == 0) & (length == TENSORFLOW_BUFFER)]))
    head = extents.usual(length[(offset == 0) & (length < sizes[file])])
    begun = np.isin(file, np.unique(file[(offset == 0) & (length == head)]))
    headed = ended & begun & (offset == head) & (offset + length == sizes[file]) & (head > 0)
    shares = [len(np.unique(file[marked])) / all_files for marked in (at_end, signed, front, whole, streamed, headed)]
    return _Marks(shares[0], shares[1], shares[2], shares[3], shares[4], shares[5], head)
