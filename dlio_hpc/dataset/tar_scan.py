"""Scan of an existing tar file (webdataset shard) for its samples. As in webdataset, a sample is the files of an
archive that follow each other and have the same name up to the first dot of the last part of their path. Folders, files
whose names have no such dot, and files below a name such as __meta__ belong to no sample.

Headers are those of POSIX.1-2001 (ustar, pax) and of GNU tar (long names, sizes in base 256); see the sections "Tar
Internals" of the manual of GNU tar, and "ustar Interchange Format" of pax in POSIX.
"""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.safe_text import single_line
from dlio_hpc.config.dataset_keys import TAR_BLOCK
from dlio_hpc.dataset.existing_files import Numbers
from dlio_hpc.dataset.sample_index import FileSamples, MemberTable, ScannedFile

# First bytes of compressed files (RFC 1952, the formats of bzip2 and xz, RFC 8878), and the commands that unpack them.
_COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
}
# Types of entries: files, folders, and headers that describe the next entry.
_FILES, _FOLDER, _PAX, _PAX_OF_ALL, _LONG_NAME, _LONG_LINK = (b"0", b"\0", b"7"), b"5", (b"x", b"X"), b"g", b"L", b"K"
# Types of entries that have no data of their own, or data that are not stored as they are.
_REFUSED = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a FIFO",
    b"S": "a sparse file",
}  # fmt: skip
# Beginning of the paths of files that webdataset leaves out (skip_meta in tariterators.py).
_META = re.compile("__[^/]*__(/|$)")
_LEAVE_OUT = "choose a pattern that leaves it out, or write the shard again with plain files"
# Bytes that are read in one request while headers are near each other, and the largest header of the next entry.
_NEAR, _LARGEST_HEADER = 64 << 10, 1 << 20


class _Entry(NamedTuple):
    """Entry of an archive. begin: offset of its header. kind: its type. name: its path. size: bytes of its data."""

    begin: int
    kind: bytes
    name: str
    size: int

    @property
    def data(self) -> int:
        """Offset of the data."""
        return self.begin + TAR_BLOCK

    @property
    def end(self) -> int:
        """Offset of the next header."""
        has_data = self.kind != _FOLDER
        return self.data + has_data * -(-self.size // TAR_BLOCK) * TAR_BLOCK


def scan(path: str, descriptor: int, size: int) -> ScannedFile:
    """Return the samples of the tar file that is open as `descriptor`. size: size of the file in bytes. Raise
    ConfigError if it is no tar file, is corrupted, or has entries that cannot be samples.
    """
    offsets: list[int] = []
    sizes: list[int] = []
    firsts: list[int] = []
    key, extensions = None, set[str]()
    for entry in _entries(_Archive(path, descriptor, size)):
        folder, slash, name = entry.name.rpartition("/")
        base, dot, extension = name.partition(".")
        if entry.kind == _FOLDER or not base or not dot or _META.match(entry.name):
            continue
        if key != folder + slash + base:
            key, extensions = folder + slash + base, set()
            firsts.append(len(sizes))
        extension = extension.lower()  # as in webdataset
        if extension in extensions:
            raise ConfigError(
                f"{path}: the sample {single_line(key)} has two files with the extension .{single_line(extension)}; "
                f"the second is at byte {entry.begin}; {_LEAVE_OUT}"
            )
        extensions.add(extension)
        offsets.append(entry.data)
        sizes.append(entry.size)
    return ScannedFile(_samples(path, *(np.array(values, np.int64) for values in (firsts, offsets, sizes))))


def _samples(path: str, firsts: Numbers, offsets: Numbers, sizes: Numbers) -> FileSamples:
    """Return the samples of a file. firsts: number of the first member of each sample. offsets, sizes: offset of the
    data of each member, and their bytes.
    """
    starts = np.append(firsts, len(sizes))
    totals = np.diff(np.append(0, np.cumsum(sizes))[starts])
    if not totals.all():
        begin = offsets[firsts[totals.argmin()]] - TAR_BLOCK
        raise ConfigError(f"{path}: the sample at byte {begin} has no bytes; such shards cannot be read")
    return FileSamples(int(offsets[0]) - TAR_BLOCK if len(offsets) else 0, totals, MemberTable(starts, offsets, sizes))


class _Archive:
    """A tar file that is read header by header. path: for messages."""

    def __init__(self, path: str, descriptor: int, size: int) -> None:
        self.path, self.size = path, size
        self._descriptor = descriptor
        self._begin, self._block = 0, b""

    def header(self, offset: int) -> bytes:
        """Return the bytes of the header at `offset`; empty for the block of zeros that ends the archive."""
        if not self._begin <= offset <= self._begin + len(self._block) - TAR_BLOCK:
            is_near = offset - self._begin < _NEAR
            self._begin = offset
            self._block = os.pread(self._descriptor, _NEAR if is_near else TAR_BLOCK, offset)
        header = self._block[offset - self._begin :][:TAR_BLOCK]
        if not offset and header.startswith(tuple(_COMPRESSED)):
            raise _compressed(self.path, header)
        if len(header) < TAR_BLOCK:
            raise ConfigError(
                f"{self.path} is truncated: it has {self.size} bytes, but no end of the archive (a block of zeros) at "
                f"byte {offset}; choose a pattern that leaves it out, or copy it again"
            )
        return header if any(header) else b""

    def data(self, entry: _Entry) -> bytes:
        """Return the data of an entry that describes the next one."""
        if entry.size > _LARGEST_HEADER:
            raise self.corrupted(entry.begin, f"states {entry.size} bytes for the name or properties of the next entry")
        _check_end(self, entry)
        return os.pread(self._descriptor, entry.size, entry.data)

    def corrupted(self, offset: int, fact: str) -> ConfigError:
        """Return the error for a header that cannot be true."""
        return ConfigError(f"{self.path} is corrupted: the header at byte {offset} {fact}; {_LEAVE_OUT}")

    def refused(self, entry: _Entry, fact: str) -> ConfigError:
        """Return the error for an entry that cannot belong to a sample."""
        return ConfigError(f"{self.path}: {single_line(entry.name)!r} at byte {entry.begin} {fact}; {_LEAVE_OUT}")


def _entries(archive: _Archive) -> Iterator[_Entry]:
    """Yield the files and folders of an archive. Headers that describe the next entry are applied to it."""
    offset, name, size = 0, None, None
    while header := archive.header(offset):
        entry = _parsed(archive, offset, header)
        offset = entry.end
        if entry.kind == _LONG_NAME:
            name = _text(archive.data(entry).partition(b"\0")[0])
        elif entry.kind in _PAX or entry.kind == _PAX_OF_ALL:
            new_name, new_size = _properties(archive, entry)
            name, size = new_name or name, new_size if size is None else size
        elif entry.kind == _LONG_LINK:
            _check_end(archive, entry)
        else:
            whole = entry._replace(name=name or entry.name, size=entry.size if size is None else size)
            offset, name, size = whole.end, None, None
            _check_end(archive, whole)
            _check(archive, whole)
            yield whole


def _parsed(archive: _Archive, offset: int, header: bytes) -> _Entry:
    """Return the entry that a header describes. Raise ConfigError if the checksum of the header is wrong."""
    stated = _number(header[148:156])
    if stated != sum(header) - sum(header[148:156]) + 8 * ord(" "):
        if offset:
            raise archive.corrupted(offset, "has a wrong checksum")
        raise ConfigError(
            f"{archive.path} is not a tar file: the checksum of its first header is wrong; set dataset.format to the "
            "format of the files, or choose another pattern"
        )
    size = _number(header[124:136])
    if size is None:
        raise archive.corrupted(offset, "has no valid size")
    name, prefix = header[:100].partition(b"\0")[0], b""
    if header[257:263] == b"ustar\0":  # GNU tar has other fields in place of the prefix
        prefix = header[345:500].partition(b"\0")[0]
    kind = header[156:157]
    if kind == b"\0" and name.endswith(b"/"):  # as before POSIX
        kind = _FOLDER
    return _Entry(offset, kind, _text(prefix + b"/" * bool(prefix) + name), size)


def _number(field: bytes) -> int | None:
    """Return the number in a field of a header: octal digits, or in base 256; None if it has none or is negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = re.fullmatch(rb" *([0-7]*)[ \0]*", field)
    return int(digits[1] or b"0", 8) if digits else None


def _text(name: bytes) -> str:
    return os.fsdecode(name)


def _compressed(path: str, header: bytes) -> ConfigError:
    name, command = next(names for magic, names in _COMPRESSED.items() if header.startswith(magic))
    return ConfigError(
        f"{path} is compressed with {name}; only tar files without compression can be read member by member; unpack it "
        f"with {command}"
    )


def _properties(archive: _Archive, entry: _Entry) -> tuple[str | None, int | None]:
    """Return the name and the size that an extended header of pax gives the next entry; None for what it leaves out."""
    data, at, properties = archive.data(entry), 0, dict[bytes, bytes]()
    while at < len(data) and data[at]:
        record = re.compile(rb"([0-9]{1,7}) ([^=\n]+)=").match(data, at)
        end = at + int(record[1]) if record else 0
        if record is None or not record.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise archive.corrupted(entry.begin, f"has an invalid record at byte {at} of its data")
        properties[record[2]] = data[record.end() : end - 1]
        at = end
    if any(key.startswith(b"GNU.sparse.") for key in properties):
        raise archive.refused(entry, "describes a sparse file")
    name, size = properties.get(b"path"), properties.get(b"size")
    if entry.kind == _PAX_OF_ALL and (name or size):
        raise archive.refused(entry, "gives all entries of the archive one name or size")
    if size is not None and not re.fullmatch(rb"[0-9]{1,19}", size):
        raise archive.corrupted(entry.begin, "has no valid size")
    return None if name is None else _text(name), None if size is None else int(size)


def _check_end(archive: _Archive, entry: _Entry) -> None:
    end = entry.data + entry.size
    if entry.kind != _FOLDER and end > archive.size:
        raise ConfigError(
            f"{archive.path} is truncated: {single_line(entry.name)!r}, whose header is at byte {entry.begin}, ends at "
            f"byte {end}, but the file has {archive.size} bytes; choose a pattern that leaves it out, or copy it again"
        )


def _check(archive: _Archive, entry: _Entry) -> None:
    """Raise ConfigError if an entry is neither a file nor a folder, or its path leads out of the archive."""
    if entry.kind not in (*_FILES, _FOLDER):
        raise archive.refused(entry, f"is {_REFUSED.get(entry.kind, f'an entry of the type {entry.kind!r}')}, no file")
    if entry.name.startswith("/"):
        raise archive.refused(entry, "has an absolute path")
    if ".." in entry.name.split("/"):
        raise archive.refused(entry, "has a path that leads out of its folder (..)")
