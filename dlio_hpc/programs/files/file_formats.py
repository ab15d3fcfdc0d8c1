"""Detection of the format of a dataset and of the library that read the dataset. Both follow from the names of files
and from requests that only this library makes. Each format and mode is a candidate. Its requests are predicted, and the
candidate that agrees best with the log is chosen.
"""

import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.base.units import counted
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue
from dlio_hpc.programs.files import content_sniff, extents, file_roles, library_marks, named_formats
from dlio_hpc.programs.files.file_stats import FileStats
from dlio_hpc.programs.files.library_marks import Layout, LayoutFit, LibraryMarks
from dlio_hpc.programs.files.named_formats import NamedFormat

_ENDINGS = {
    ".h#": "hdf5", ".hdf#": "hdf5", ".he#": "hdf5", ".nc": "hdf5", ".nc#": "hdf5", ".npz": "npz", ".csv": "csv",
    ".tsv": "csv", ".tfrec": "tfrecord", ".parquet": "parquet",
}  # fmt: skip
_IMAGES = (".jpg", ".jpeg", ".png")
_BY_PYARROW = "Parquet files are read by a library, here by pyarrow"
_PLAIN = (*_IMAGES, ".npy", ".bin", ".raw", ".dat")
# Margins of the agreement of the best layout over another from which it is certain, or likely.
_CLEAR, _LIKELY = 0.1, 0.03
# Name of one file of a set, as TensorFlow's and Beam's writers of TFRecord files number them: train-00003-of-00016.
_SHARD = re.compile(r"-\d{4,}-of-\d{4,}$")


class LogFormat(NamedTuple):
    """Format of a dataset and how the dataset was read. name: value of `dataset.format`. mode: value of `reader.mode`.
    streams: whether files are read from front to back through a buffer, so that requests do not show samples. is_image:
    whether each file is one sample, whatever its requests are. index_reads: number of requests that read a node of an
    HDF5 index of chunks. head: some libraries read a file in two requests, a short one and one for the rest; size in
    bytes of the first request, or None if files are read in another way. sample_bytes: size of a sample according to
    the content of a file; None if it is unknown. form: special format of raw files, such as that of images; None if
    there is none.
    """

    name: DerivedValue
    mode: DerivedValue
    streams: bool
    is_image: bool
    index_reads: int = 0
    head: int | None = None
    sample_bytes: DerivedValue | None = None
    form: NamedFormat | None = None

    @property
    def is_numpy(self) -> bool:
        """Whether numpy.load read the files, through the buffer of a Python file."""
        return (self.name.value, self.mode.value) == ("npz", "framework")

    @property
    def loads_files(self) -> bool:
        """Whether a library loads whole files, in requests of a size that the library chooses."""
        return self.is_image or (self.name.value in ("npz", "raw") and self.mode.value == "framework")


def detect(
    data: Sequence[FileStats], requests: Requests | None, reads_content: bool = False, others: Collection[str] = ()
) -> LogFormat:
    """Return the format of a dataset and how the dataset was read. requests: all requests of the trace; None without a
    trace. reads_content: True to read the beginning of a few files, if this machine has them.
    others: paths of the other files that the program read.
    """
    content = content_sniff.look({file.path: file.size for file in data}) if reads_content else None
    ending, count = Counter(file_roles.kind(file.path) for file in data).most_common(1)[0]
    shown = next(os.path.splitext(file.path)[1] for file in data if file_roles.kind(file.path) == ending)
    is_known = content is not None and content.form is None
    by_content = DerivedValue(content.name, "high", content.evidence) if content and is_known else None
    by_name = by_content or _named(ending, shown, count, len(data))
    fits = None if requests is None else _fits(data, requests, by_name, ending)
    name = by_name or (_without_trace(data, ending) if fits is None else _by_marks(fits, data, ending))
    is_hdf5 = name.value == "hdf5" and requests is not None
    marks = None if fits is None else fits.logged
    return LogFormat(
        name,
        _mode_without_trace(name.value) if fits is None else _mode(fits, name.value, ending in _IMAGES),
        name.value in ("tfrecord", "csv"),
        not is_known and ending in _IMAGES,
        _index_reads(data, requests) if is_hdf5 and requests is not None else 0,
        marks.head if marks is not None and name.value == "raw" and marks.headed > 0.5 else None,
        DerivedValue(content.sample_bytes, "medium", content.sizes) if content and content.sample_bytes else None,
        content.form if content is not None else named_formats.of_names([file.path for file in data], others),
    )


class _Fits(NamedTuple):
    """Marks in a log, and the layouts that may have caused them, best first."""

    logged: LibraryMarks
    ranked: list[LayoutFit]

    def margin(self, name: str, mode: str | None = None) -> tuple[LayoutFit, LayoutFit | None, float]:
        """Return the best layout of a format, the best of other formats, and the difference of their agreements. With
        `mode`, return the layout of this mode, and the layout of the same format in the other mode.
        """
        mine = [fit for fit in self.ranked if fit.format == name and mode in (None, fit.mode)]
        others = [fit for fit in self.ranked if (fit.format != name if mode is None else fit.mode != mode)]
        others = others if mode is None else [fit for fit in others if fit.format == name]
        best, other = mine[0], others[0] if others else None
        return best, other, 1.0 if other is None else best.agreement - other.agreement


def _fits(data: Sequence[FileStats], requests: Requests, by_name: DerivedValue | None, ending: str) -> _Fits:
    """Compare the library requests in a log (LibraryMarks) with those predicted for each layout. by_name: format that
    the names of the files show; None if the format is derived from requests.
    """
    size = {file.path: file.size for file in data}
    sizes = np.array([size.get(path, -1) for path in requests.paths], np.int64)
    mine = np.flatnonzero(~requests.write & (sizes[requests.file] >= 0)) if len(sizes) else np.empty(0, np.int64)
    file, offset, length = requests.file[mine].astype(np.int64), requests.offset[mine], requests.length[mine]
    reach = np.zeros(len(sizes), np.int64)
    np.maximum.at(reach, file, offset + length)
    logged = library_marks.of(file, offset, length, sizes)
    usual = int(np.median([file.size for file in data]))
    most = int(np.median(reach[np.unique(file)])) if len(file) else usual
    layouts = _layouts(data, by_name, ending)
    return _Fits(logged, library_marks.ranked(layouts, logged, usual, most, extents.usual(length)))


def _layouts(data: Sequence[FileStats], by_name: DerivedValue | None, ending: str) -> list[Layout]:
    """Return the formats and modes that the files may have. If two agree equally with the log, the first is chosen."""
    if by_name is not None:
        names = [by_name.value]
    elif _is_sharded(data):
        names = ["tfrecord", "npz", "hdf5", "raw"]
    else:
        names = ["raw", "npz", "hdf5"] + ([] if ending in _PLAIN else ["tfrecord"])
    modes = ("framework", "posix")
    layouts = [(name, mode) for mode in modes for name in names]
    return [("raw", "posix"), *layouts] if names[0] == "raw" else layouts


def _is_sharded(data: Sequence[FileStats]) -> bool:
    """Return whether files are numbered like the shards of a set of TFRecord files."""
    return sum(_SHARD.search(file.path) is not None for file in data) >= 0.9 * len(data)


def _index_reads(data: Sequence[FileStats], requests: Requests) -> int:
    mine = requests.on({file.path for file in data}) & ~requests.write
    return int(np.count_nonzero(extents.is_index_read(requests.length[mine])))


def _named(ending: str, shown: str, count: int, total: int) -> DerivedValue | None:
    known = "tfrecord" if ending.startswith(".tfrecord") else _ENDINGS.get(ending)
    if known is None:
        return None
    return DerivedValue(known, "high", f"{count:,} of {counted(total, 'file')} end in {shown}")


def _without_trace(data: Sequence[FileStats], ending: str) -> DerivedValue:
    """Return the format that the names of files suggest. It is used if there is no trace and no known ending."""
    if _is_sharded(data):
        return DerivedValue("tfrecord", "medium", _sharded(data))
    if ending in _PLAIN:
        return DerivedValue("raw", "high", _plain(data, ending))
    return DerivedValue("raw", "low", f"no known format has the extension {ending!r}")


def _sharded(data: Sequence[FileStats]) -> str:
    return f"{counted(len(data), 'file')} are named like shards of TFRecord files (-00000-of-{len(data):05})"


def _plain(data: Sequence[FileStats], ending: str) -> str:
    return f"{counted(len(data), f'{ending} file')}: plain bytes of one or more samples"


def _by_marks(fits: _Fits, data: Sequence[FileStats], ending: str) -> DerivedValue:
    """Return the format whose predicted library requests (LibraryMarks) agree best with the log."""
    best, other, margin = fits.margin(fits.ranked[0].format)
    compared = _compared(fits.logged, best, other)
    if best.format == "tfrecord" and _is_sharded(data):
        level: Confidence = "high" if margin >= _CLEAR else "medium"
        return DerivedValue("tfrecord", level, f"{_sharded(data)}; {compared}")
    if best.format == "raw" and ending in _PLAIN:
        return DerivedValue("raw", "high", _plain(data, ending))
    if best.format == "raw":
        compared = f"no known format has the extension {ending!r}; {compared}"
    return DerivedValue(best.format, "medium", compared)


def _compared(logged: LibraryMarks, best: LayoutFit, other: LayoutFit | None) -> str:
    """Return the evidence for a layout: the mark that favours it most over the other layout, and the agreement of both
    layouts in all marks.
    """
    agrees = f"predicted requests of {best.format} ({best.mode}) agree with the log to {best.agreement:.2f}"
    if other is None:
        return agrees
    agrees += f", of {other.format} ({other.mode}) to {other.agreement:.2f}"

    def gain(name: str) -> float:
        log, mine, its = (float(getattr(marks, name)) for marks in (logged, best.predicted, other.predicted))
        return abs(its - log) - abs(mine - log)

    clearest = max(library_marks.PHRASES, key=gain)
    if gain(clearest) <= 0:
        return agrees
    share = float(getattr(logged, clearest))
    return f"{library_marks.PHRASES[clearest]}: {share:.0%}; {agrees}"


def _mode(fits: _Fits, name: str, is_image: bool) -> DerivedValue:
    """Return `reader.mode`: the mode whose predicted marks agree better with the log."""
    first = next(fit for fit in fits.ranked if fit.format == name)
    best, other, margin = fits.margin(name, first.mode)
    evidence = _compared(fits.logged, best, other)
    if name == "parquet":
        return DerivedValue("framework", "medium", _BY_PYARROW)
    if is_image and best.mode == "posix":
        return DerivedValue("framework", "medium", "libraries that decode images read whole files")
    if best.mode == "posix" and name != "csv":  # a library of which no marks are known may have read the files
        return DerivedValue("posix", "medium", evidence)
    level: Confidence = "high" if margin >= _CLEAR else "medium" if margin >= _LIKELY else "low"
    return DerivedValue(best.mode, level, evidence)


def _mode_without_trace(name: str) -> DerivedValue:
    if name == "raw":
        return DerivedValue("posix", "unknown", "not recorded without a trace (DXT)")
    if name == "parquet":
        return DerivedValue("framework", "medium", _BY_PYARROW)
    evidence = f"{name} files are usually read by the library of the format; no trace shows it (DXT)"
    return DerivedValue("framework", "low", evidence)
