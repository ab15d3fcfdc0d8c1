"""Read the members of a job's archive. Only what dlio-hpc writes is accepted: zstd, ustar headers and regular files.

Any user may put an archive into a shared folder. All limits are therefore checked before memory or time is spent.
InvalidRun is raised if a limit is exceeded.
"""

import hashlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import zstandard

from dlio_hpc.base import units
from dlio_hpc.base.errors import InvalidRun

BLOCK = 512
CHUNK = 1 << 20
# Maximum window of the decompressor. Archives have a window of 2 MiB; decoders should support 8 MiB (RFC 8878,
# 3.1.1.1.2).
_WINDOW = 8 << 20
# RATIO: maximum compression ratio. ALLOWANCE: number of bytes that an archive may decompress to in excess of this
# ratio; decompressing them takes a fraction of a second. A job's files have ratios of 5 to 60; zstd reaches 30,000 with
# zeros. archive._fill_up() pads archives that compress better.
RATIO, ALLOWANCE = 256, 64 << 20
# Maximum excess of the bytes read over the bytes decompressed. A block has at most 128 KiB; only empty frames and holes
# of a sparse file cause a larger excess.
_AHEAD = 4 << 20
# An extended header has a path (PATH_MAX: 4096 bytes) and a size.
_LONGEST_HEADER = 16 << 10
# Maximum number of members of an archive: eight files for each of 32,768 runs.
MOST_MEMBERS = 1 << 18
# Maximum number of zeros after the last member: tar pads records, which have at most 1 MiB with common settings.
_LONGEST_END = CHUNK + 2 * BLOCK


class TarMember(NamedTuple):
    """A regular file in an archive. size: number of bytes of the file."""

    name: str
    size: int


class Packed:
    """Compressed bytes of an archive, as a file that the decompressor reads. The bytes that pass through this object
    are hashed, except for the seal, which the object keeps. seal_bytes: length of the seal.
    """

    def __init__(self, file: IO[bytes], size: int, seal_bytes: int) -> None:
        self._file = file
        self._hashed_left = max(0, size - seal_bytes)
        self._hash = hashlib.sha256()
        self._seal_bytes = seal_bytes
        self._taken = 0
        self.size = size
        self.seal = b""
        self.decompressed = 0

    def read(self, size: int = -1) -> bytes:
        """Read compressed bytes for the decompressor. Raise InvalidRun if the number of compressed bytes read so far is
        far larger than the number of decompressed bytes so far.
        """
        data = self._file.read(size)
        self._taken += len(data)
        if self._taken > self.decompressed + _AHEAD:
            raise InvalidRun("it is longer than its content: it has holes or empty frames")
        hashed = data[: self._hashed_left]
        self._hash.update(hashed)
        self._hashed_left -= len(hashed)
        self.seal = (self.seal + data[len(hashed) :])[: self._seal_bytes + 1]
        return data

    def digest(self) -> bytes:
        """Return the SHA-256 of all bytes before the seal."""
        return self._hash.digest()


class Members:
    """Iterator over the members of an archive, in order. pieces() yields the bytes of the current member. Bytes that
    are not read are skipped when the next member is requested.
    """

    def __init__(self, packed: Packed) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._packed = packed
        self._stream = decompressor.stream_reader(packed, read_across_frames=True)  # type: ignore[arg-type]
        self._left = self._padding = 0

    def __iter__(self) -> Iterator[TarMember]:
        for _ in range(MOST_MEMBERS + 1):
            member = self._next()
            if member is None:
                self._check_end()
                return
            yield member
            for _ in self.pieces():
                pass
            self._exactly(self._padding)
        raise InvalidRun(f"it has more than {MOST_MEMBERS} members")

    def pieces(self) -> Iterator[bytes]:
        """Yield the remaining bytes of the current member."""
        while self._left:
            piece = self._some(min(self._left, CHUNK))
            self._left -= len(piece)
            yield piece

    def _next(self) -> TarMember | None:
        header = self._exactly(BLOCK)
        if not any(header):
            return None
        _check(header)
        extended: dict[str, str] = {}
        if header[156:157] == b"x":
            size = _number(header, 124, 12)
            if size > _LONGEST_HEADER:
                raise InvalidRun(f"it has an extended header of {units.format_size(size)}")
            extended = _extended(self._exactly(size))
            self._exactly(-size % BLOCK)
            header = self._exactly(BLOCK)
            _check(header)
        prefix, name = _text(header[345:500]), _text(header[:100])
        name = extended.get("path", f"{prefix}/{name}" if prefix else name)
        if header[156:157] not in {b"0", b"\0"} or name.endswith("/"):
            raise InvalidRun(f"member {name!r} is not a regular file")
        size = int(extended["size"]) if "size" in extended else _number(header, 124, 12)
        self._left, self._padding = size, -size % BLOCK
        return TarMember(name, size)

    def _check_end(self) -> None:
        """Read up to the end of the archive. Raise InvalidRun if anything but zeros follows the last member, or if
        there are too many of these zeros.
        """
        length = 0
        while piece := self._read(CHUNK):
            length += len(piece)
            if any(piece) or length > _LONGEST_END:
                raise InvalidRun("it has bytes after its last member")

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            parts.append(self._some(size))
            size -= len(parts[-1])
        return b"".join(parts)

    def _some(self, size: int) -> bytes:
        data = self._read(size)
        if not data:
            raise InvalidRun("it cannot be read to its end: it is truncated")
        return data

    def _read(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except zstandard.ZstdError as fault:
            raise InvalidRun(f"it cannot be read to its end: {fault}") from fault
        self._packed.decompressed += len(data)
        if self._packed.decompressed > most_bytes(self._packed.size):
            raise InvalidRun(
                f"it decompresses to more than {units.format_size(most_bytes(self._packed.size))}, the limit for an "
                "archive of its size"
            )
        return data


def most_bytes(size: int) -> int:
    """Return the maximum number of bytes that an archive of `size` bytes may decompress to."""
    return ALLOWANCE + RATIO * size


def _check(header: bytes) -> None:
    unsigned = sum(header[:148]) + 8 * 32 + sum(header[156:])
    if header[257:262] != b"ustar" or _number(header, 148, 8) != unsigned:
        raise InvalidRun("it cannot be read to its end: a member's header is corrupted")


def _number(header: bytes, offset: int, length: int) -> int:
    text = header[offset : offset + length].strip(b"\0 ")
    if not text or text.translate(None, b"01234567"):
        raise InvalidRun("it cannot be read to its end: a member's header has an invalid number")
    return int(text, 8)


def _extended(content: bytes) -> dict[str, str]:
    """Return the records of an extended header (POSIX pax), whose lines are LENGTH KEY=VALUE. dlio-hpc writes only the
    keys path and size. Raise InvalidRun for any other key.
    """
    records: dict[str, str] = {}
    while content:
        digits, _, _ = content.partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < 6 else 0
        key, equals, value = content[len(digits) + 1 : length - 1].partition(b"=")
        if not equals or length > len(content) or content[length - 1 : length] != b"\n":
            raise InvalidRun("it cannot be read to its end: an extended header is corrupted")
        records[key.decode("utf-8", "backslashreplace")] = value.decode("utf-8", "backslashreplace")
        content = content[length:]
    if unknown := records.keys() - {"path", "size"}:
        raise InvalidRun(f"it has an extended header with {', '.join(sorted(unknown))}, which dlio-hpc does not write")
    if not records.get("size", "0").isdecimal() or len(records.get("size", "")) > 20:
        raise InvalidRun("it cannot be read to its end: an extended header has an invalid number")
    return records


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "backslashreplace")
