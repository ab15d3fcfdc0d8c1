"""Index of an existing dataset: its files, and the location of each sample in them. The index is a folder of NumPy
arrays, which ranks map into memory.
"""

import functools
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.dataset.existing_files import Listing, Numbers
from dlio_hpc.files import rundir, safe_folders

# Version of the files of an index. It is part of the name of every index.
VERSION = 2
# The obstacle in an index of an earlier version of dlio-hpc, which stored only whether there is one.
_UNKNOWN_OBSTACLE = "they are compressed or have filters, or their chunks differ or were never written"
_NAMES, _NAME_ENDS, _FILES, _ENDS = "names.npy", "name-ends.npy", "files.npy", "sample-ends.npy"
# Array of one value, instead of _ENDS if all samples have the same size.
_SIZE = "sample-size.npy"
_ARRAY, _FACTS = "array.json", "facts.json"
# Arrays of the members of samples, in indexes of tar files only.
_MEMBERS, _MEMBER_STARTS = "members.npy", "member-starts.npy"
# CRC32C of each file of the index, by name.
_SEALS = "seals.json"
# Rows of the array _FILES, which has a column for each file and one more.
_STARTS, _BEGINS, _SIZES, _CHANGES = range(4)
_PAGE = 512  # values of eight bytes
_PIECE = 4 << 20


class Array(NamedTuple):
    """Form of the arrays in npz or HDF5 files. shape, dtype: shape and type of a sample. chunk: shape of a chunk; None
    if the array is not chunked. compression: one of the values of the key dataset.compression. obstacle: reason why the
    samples can be read only through the library of the format; empty if they can also be read at their offsets.
    """

    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...] | None = None
    compression: str = "none"
    obstacle: str = ""

    def in_fingerprint(self) -> str:
        """Return the text that stands for the array in a fingerprint. The fingerprints of all existing datasets depend
        on this text, so it does not follow the fields of the class.
        """
        return (
            f"Array(shape={self.shape!r}, dtype={self.dtype!r}, chunk={self.chunk!r}, "
            f"compression={self.compression!r}, needs_library={bool(self.obstacle)})"
        )


# Bytes of each column of Parquet files, by the name of the column.
Columns = tuple[tuple[str, int], ...]


class FileFacts(NamedTuple):
    """Facts about all files of a format without arrays. compression: a value of the key dataset.compression. columns:
    bytes of each column in all Parquet files.
    """

    compression: str = "none"
    columns: Columns = ()


NO_FACTS = FileFacts()


class MemberTable(NamedTuple):
    """Members of all samples of tar files. starts (samples + 1): number of the first member of each sample. offsets,
    sizes (members): offset of the data of each member in its file, and their bytes.
    """

    starts: Numbers
    offsets: Numbers
    sizes: Numbers


class SampleIndex(NamedTuple):
    """Files and samples of an existing dataset.

    Lengths of arrays are in parentheses. folder: folder of the index. starts (files + 1): number of the first sample of
    each file; the last element is the number of all samples. begins (files): offset of the first sample in each file.
    sizes (files): size of each file in bytes. changes (files): time of the last change of each file, in nanoseconds.
    size: size of a sample in bytes if all samples have the same size; otherwise 0. ends (samples + 1): total size of
    the samples before each sample; the last element is the total size of all samples. It is None if all samples have
    the same size. names: bytes of the names of all files, one name after the other. name_ends (files): end of each name
    in `names`. array: form of the arrays in the files; None for formats without arrays. facts: facts about files
    without arrays. members: members of the samples of tar files; None for other formats.
    """

    folder: str
    starts: Numbers
    begins: Numbers
    sizes: Numbers
    changes: Numbers
    size: int
    ends: Numbers | None
    names: npt.NDArray[np.uint8]
    name_ends: Numbers
    array: Array | None = None
    facts: FileFacts = NO_FACTS
    members: MemberTable | None = None

    @property
    def compression(self) -> str:
        """Compression of the files, a value of the key dataset.compression."""
        return self.facts.compression if self.array is None else self.array.compression

    def __reduce__(self) -> tuple[Any, ...]:
        """Make another process open the index, instead of copying it to that process."""
        return opened, (self.folder,)

    @property
    def files(self) -> int:
        return len(self.sizes)

    @property
    def samples(self) -> int:
        return int(self.starts[-1])

    @property
    def total(self) -> int:
        """Total size of all samples in bytes."""
        return self.samples * self.size if self.ends is None else int(self.ends[-1])

    @property
    def largest(self) -> int:
        """Size of the largest sample in bytes."""
        return self.size if self.ends is None else int(np.diff(self.ends).max())

    def name(self, number: int) -> str:
        """Return the name of file `number`, relative to the data directory."""
        begin = int(self.name_ends[number - 1]) if number else 0
        return os.fsdecode(self.names[begin : int(self.name_ends[number])].tobytes())

    def file_numbers(self, samples: npt.NDArray[Any]) -> Numbers:
        """Return, for each of `samples`, the number of the file that holds it."""
        return np.searchsorted(self.starts, samples.astype(np.int64), "right") - 1

    def count(self, number: int) -> int:
        """Return the number of samples in file `number`."""
        return int(self.starts[number + 1] - self.starts[number])


class FileSamples(NamedTuple):
    """Samples of a file. begin: offset of the first sample in the file. sizes: size of each sample in bytes. members:
    members of the samples of a tar file; None for other formats.
    """

    begin: int
    sizes: Numbers
    members: MemberTable | None = None


class ScannedFile(NamedTuple):
    """Result of the scan of a file. array: form of its array; None for formats without arrays. compression: compression
    of a file without arrays, a value of the key dataset.compression; empty if the file is empty. columns: bytes of each
    column of a Parquet file, by the name of the column; empty if the file has no row groups.
    """

    samples: FileSamples
    array: Array | None = None
    compression: str = "none"
    columns: Columns = ()


# Indices that were made by this process and are not written yet, by their folders.
_unwritten: dict[str, SampleIndex] = {}


def of(dataset: Dataset) -> SampleIndex | None:
    """Return the index of an existing dataset, or None if the dataset is generated or not scanned yet."""
    return None if dataset.scan is None else opened(dataset.scan.index)


def file_numbers(dataset: Dataset, samples: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    """Return, for each of `samples`, the number of the file that holds it."""
    if dataset.counts_vary:
        index = of(dataset)
        assert index is not None
        return index.file_numbers(samples)
    return samples // np.uint64(dataset.samples_per_file)


def made(
    folder: str, listing: Listing, samples: list[FileSamples], array: Array | None, facts: FileFacts = NO_FACTS
) -> SampleIndex:
    """Return the index of scanned files. The index is kept in memory until write() writes it. array: form of the arrays
    in the files. facts: facts about files without arrays.
    """
    names = [os.fsencode(name) for name in listing.names]
    counts = np.array([len(of_file.sizes) for of_file in samples], np.int64)
    sizes = np.concatenate([of_file.sizes for of_file in samples])
    is_uniform = len(sizes) > 0 and bool((sizes == sizes[0]).all())
    index = SampleIndex(
        folder,
        _sums(counts),
        np.array([of_file.begin for of_file in samples], np.int64),
        listing.sizes,
        listing.changes,
        int(sizes[0]) if is_uniform else 0,
        None if is_uniform else _sums(sizes),
        np.frombuffer(b"".join(names), np.uint8),
        np.cumsum([len(name) for name in names]),
        array,
        facts,
        _joined([of_file.members for of_file in samples if of_file.members is not None]),
    )
    _unwritten[folder] = index
    opened.cache_clear()
    return index


def _joined(of_files: list[MemberTable]) -> MemberTable | None:
    """Return the members of the samples of all files; None if there are no files with members."""
    if not of_files:
        return None
    counts = np.concatenate([np.diff(members.starts) for members in of_files])
    offsets, sizes = (np.concatenate([members[row] for members in of_files]) for row in (1, 2))
    return MemberTable(_sums(counts), offsets, sizes)


def _sums(values: Numbers) -> Numbers:
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=sums[1:])
    return sums


def fingerprint(index: SampleIndex, kind: str) -> str:
    """Return the fingerprint of an existing dataset, twelve hexadecimal digits. It depends on the names and sizes of
    the files and on the locations of the samples, but not on the folder or the times of changes. A copy of the files
    therefore has the same fingerprint. kind: format of the files.
    """
    form = None if index.array is None else index.array.in_fingerprint()
    digest = hashlib.sha256(f"{VERSION} {kind} {index.files} {index.samples} {form}".encode())
    size = np.array([index.size])
    parts = (index.names, index.name_ends, index.starts, index.begins, index.sizes, size, index.ends)
    for part in (*parts, *(index.members or ())):
        digest.update(b"" if part is None else part.tobytes())
    return digest.hexdigest()[:12]


@functools.lru_cache(16)
def opened(folder: str) -> SampleIndex:
    """Open an index. All its pages are read now, so that they are not read during the measurement. Raise ConfigError if
    the index does not exist or is corrupted, and InfrastructureError if it cannot be read.
    """
    if folder in _unwritten:
        return _unwritten[folder]
    try:
        _check_seals(Path(folder))
        array = _array(Path(folder, _ARRAY).read_bytes())
        names, name_ends, files = (_mapped(folder, name) for name in (_NAMES, _NAME_ENDS, _FILES))
        is_uniform = os.path.exists(os.path.join(folder, _SIZE))
        size = int(_mapped(folder, _SIZE)[0]) if is_uniform else 0
        ends = None if is_uniform else _mapped(folder, _ENDS)
        facts = _facts(Path(folder, _FACTS))
        has_members = os.path.exists(os.path.join(folder, _MEMBERS))
        members = MemberTable(_mapped(folder, _MEMBER_STARTS), *_mapped(folder, _MEMBERS)) if has_members else None
    except FileNotFoundError as fault:
        raise ConfigError(f"the index of the dataset, {folder}, is missing; submit the workload again") from fault
    except OSError as fault:
        raise InfrastructureError(f"cannot read {of_system(fault, folder)}") from fault
    except (ValueError, EOFError, msgspec.DecodeError) as fault:
        raise ConfigError(
            f"the index {folder} is corrupted: {fault}; remove it and submit the workload again"
        ) from fault
    begins, sizes, changes = (files[row][:-1] for row in (_BEGINS, _SIZES, _CHANGES))
    return SampleIndex(
        folder, files[_STARTS], begins, sizes, changes, size, ends, names, name_ends, array, facts, members
    )


def _facts(path: Path) -> FileFacts:
    """Return the facts about files without arrays. Most indexes have no such file."""
    return msgspec.json.decode(path.read_bytes(), type=FileFacts) if path.exists() else NO_FACTS


def _array(content: bytes) -> Array | None:
    """Return the form of the arrays from the file array.json."""
    with suppress(msgspec.ValidationError):
        return msgspec.json.decode(content, type=Array | None)
    *form, has_obstacle = msgspec.json.decode(content)
    return msgspec.convert((*form, _UNKNOWN_OBSTACLE if has_obstacle else ""), Array)


def _check_seals(folder: Path) -> None:
    """Raise ValueError if the checksum of a file of an index is not the stored checksum."""
    seals = msgspec.json.decode((folder / _SEALS).read_bytes(), type=dict[str, int])
    if {_ARRAY, _NAMES, _NAME_ENDS, _FILES} - seals.keys() or not {_SIZE, _ENDS} & seals.keys():
        raise ValueError(f"{_SEALS} lacks a file")
    for name, seal in seals.items():
        if _seal(folder / name) != seal:
            raise ValueError(f"{name} has a wrong checksum")


def _seal(path: Path) -> int:
    """Return the CRC32C of a file."""
    import google_crc32c

    checksum = google_crc32c.Checksum()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            checksum.update(piece)
    return int.from_bytes(checksum.digest(), "big")


def _mapped(folder: str, name: str) -> Any:
    array = np.asarray(np.load(os.path.join(folder, name), mmap_mode="r", allow_pickle=False))
    array.reshape(-1)[::_PAGE].sum()
    return array


def exists(folder: str) -> bool:
    """Return whether an index exists, on storage or in the memory of this process."""
    return folder in _unwritten or os.path.isdir(folder)


def write(folder: str) -> None:
    """Write the index that this process made for `folder`. Do nothing if the index is already written. Raise
    InfrastructureError if the index cannot be written.
    """
    index = _unwritten.get(folder)
    if index is None or os.path.isdir(folder):
        return
    files = np.zeros((4, index.files + 1), np.int64)
    files[_STARTS] = index.starts
    for row, values in ((_BEGINS, index.begins), (_SIZES, index.sizes), (_CHANGES, index.changes)):
        files[row, :-1] = values
    target = Path(folder)
    hidden = target.with_name(rundir.temporary_name(target.name))
    try:
        hidden.mkdir(parents=True)
        rundir.write(hidden / _ARRAY, msgspec.json.encode(index.array))
        if index.facts != NO_FACTS:
            rundir.write(hidden / _FACTS, msgspec.json.encode(index.facts))
        np.save(hidden / _NAMES, index.names)
        np.save(hidden / _NAME_ENDS, index.name_ends)
        np.save(hidden / _FILES, files)
        if index.ends is None:
            np.save(hidden / _SIZE, np.array([index.size]))
        else:
            np.save(hidden / _ENDS, index.ends)
        if index.members is not None:
            np.save(hidden / _MEMBER_STARTS, index.members.starts)
            np.save(hidden / _MEMBERS, np.stack(index.members[1:]))
        seals = {path.name: _seal(path) for path in hidden.iterdir()}
        rundir.write(hidden / _SEALS, msgspec.json.encode(seals))
        _renamed(hidden, target)
    except OSError as fault:
        safe_folders.discard(hidden)
        raise InfrastructureError(
            f"cannot write the index of the dataset: {of_system(fault, folder)}; choose another --runs"
        ) from fault


def _renamed(hidden: Path, target: Path) -> None:
    """Rename a new index to its final name. If another process has written the same index meanwhile, keep that one."""
    try:
        hidden.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        safe_folders.discard(hidden)
