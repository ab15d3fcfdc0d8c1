"""A Darshan log, read with zlib and NumPy alone.

Format 3.41, of Darshan 3.4 and 3.5 (darshan-log-format.h): a header of 1328 bytes, then the job, the names and each
module's records, each a row of zlib streams, one a rank. DXT of both versions: with and without thread numbers. Others
are left to pydarshan.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.darshan import counters, pydarshan_reader
from dlio_hpc.darshan.log import COUNTING, TRACING, Fault, Heat, Job, Log, Module, Name, Trace
from dlio_hpc.errors import ConfigError, InvalidRun

VERSION = "3.41"
_MAGIC = 6567223
_SLOTS = 64
_HEADER = struct.Struct(f"<8sqB7xQ2Q{2 * _SLOTS}Q{_SLOTS}I")
_JOB = struct.Struct("<7q1024s")
_HEAT = struct.Struct("<Qqdq2Q")  # two pointers, which mean nothing in a file
# How a log is compressed; not at all, where a process still writes it.
_LIVE = 2
_CHUNK = 1 << 16
# Beyond that a region of names or counters, and a file's trace, make no sense: millions of files, years of requests.
_MOST_BYTES, _MOST_SEGMENTS = 1 << 31, 1 << 36


class _Broken(Exception):
    """A region ends too soon, or its checksum is wrong."""

    def __init__(self, name: Name, text: str) -> None:
        super().__init__(text)
        self.fault = Fault(name, text)


class _Header(NamedTuple):
    names: tuple[int, int]
    modules: dict[str, Module]


def load(path: Path, trace: bool = True) -> Log:
    """The log at `path`; without `trace` its DXT is left unread. ConfigError when there is no file, InvalidRun when it
    is no Darshan log or has lost its beginning.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"cannot read {path}: it is no regular file")
    try:
        with path.open("rb") as file:
            version = _version(file, path)
            if version == VERSION:
                return _load(file, path, trace)
    except MemoryError as fault:
        raise InvalidRun(f"{path} holds more than fits into this node's memory") from fault
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from fault
    return pydarshan_reader.load(path)


def _version(file: IO[bytes], path: Path) -> str:
    """Such as 3.41; empty for the other byte order. InvalidRun when this is no log."""
    head = file.read(16)
    text, magic = head[:8].rstrip(b"\0"), head[8:16]
    if magic == _MAGIC.to_bytes(8, "little"):
        return text.decode("ascii", "replace")
    if magic == _MAGIC.to_bytes(8, "big"):
        return ""
    raise InvalidRun(f"{path} is no Darshan log, or its first bytes are damaged")


def _load(file: IO[bytes], path: Path, trace: bool) -> Log:
    size = os.fstat(file.fileno()).st_size
    header = _header(file, path)
    faults = _region_faults(header, size)
    job = _job(_whole(file, _HEADER.size, header.names[0] - _HEADER.size), path, faults)
    names = _names(_whole(file, *header.names), faults)
    log = Log(path, VERSION, job, header.modules, names, {}, {}, faults, {})
    if any(fault.name == "garbled" for fault in faults):
        return log  # nobody knows what lies where
    for name, module in header.modules.items():
        if module.partial:
            faults.append(Fault("partial", f"{name} ran out of memory and dropped records"))
        if name in COUNTING:
            _count(file, header, name, log)
        elif name in TRACING and trace:
            _trace(file, header, name, log)
        elif name == "HEATMAP" and module.version == 1:
            _warm(file, module, log)
    return log


def _header(file: IO[bytes], path: Path) -> _Header:
    file.seek(0)
    raw = file.read(_HEADER.size)
    if len(raw) < _HEADER.size:
        raise InvalidRun(f"{path} is cut short: {len(raw)} bytes, the header alone has {_HEADER.size}")
    _, _, compression, partial, *rest = _HEADER.unpack(raw)
    if compression == _LIVE:
        raise InvalidRun(
            f"{path} is no log but the live record of a process that was killed, without traces; darshan-merge makes a "
            "log of those of all ranks"
        )
    if compression:
        raise InvalidRun(f"{path} is compressed in a way ({compression}) that cannot be read here")
    maps, versions = rest[2 : 2 + 2 * _SLOTS], rest[2 + 2 * _SLOTS :]
    modules = {
        counters.MODULES[slot] if slot < len(counters.MODULES) else f"module {slot}": Module(
            versions[slot], maps[2 * slot], maps[2 * slot + 1], bool(partial >> slot & 1)
        )
        for slot in range(_SLOTS)
        if maps[2 * slot + 1] or partial >> slot & 1
    }
    return _Header((rest[0], rest[1]), modules)


def _region_faults(header: _Header, size: int) -> list[Fault]:
    """Regions lie one behind the other, and the last ends with the file."""
    regions = [header.names, *((module.offset, module.length) for module in header.modules.values() if module.length)]
    regions.sort()
    end = max(offset + length for offset, length in regions)
    if end > size:
        return [Fault("truncated", f"{size} bytes, its header speaks of {end}")]
    lie_well = all(first + length == second for (first, length), (second, _) in pairwise(regions))
    if not lie_well or end != size or header.names[0] <= _HEADER.size:
        return [Fault("garbled", "the header's table of contents does not fit the file")]
    return []


def _pieces(file: IO[bytes], offset: int, length: int) -> Iterator[tuple[bytes, bool]]:
    """A region's content, piece by piece, and whether a stream ends there whose checksum is right; _Broken where it
    ends too soon or the checksum is wrong.
    """
    if offset > os.fstat(file.fileno()).st_size:
        raise _Broken("truncated", "it begins beyond the file's end")
    file.seek(offset)
    stream, fresh = zlib.decompressobj(), True
    while length:
        data = file.read(min(_CHUNK, length))
        if not data:
            raise _Broken("truncated", "the file ends in the middle of it")
        length -= len(data)
        while data:
            try:
                piece = stream.decompress(data)
            except zlib.error as fault:
                raise _Broken("garbled", str(fault)) from fault
            yield piece, stream.eof
            fresh, data = stream.eof, stream.unused_data
            if stream.eof:
                stream = zlib.decompressobj()
    if not fresh:
        raise _Broken("truncated", "its last stream has no end")


def _whole(file: IO[bytes], offset: int, length: int) -> "_Content":
    content, sound = bytearray(), 0
    try:
        for piece, is_end in _pieces(file, offset, max(length, 0)):
            content += piece
            sound = len(content) if is_end else sound
            if len(content) > _MOST_BYTES:
                raise _Broken("garbled", f"it holds more than {_MOST_BYTES} bytes")
    except _Broken as broken:
        return _Content(content[:sound], broken.fault)
    return _Content(content, None)


class _Content(NamedTuple):
    """Of a region, as far as its checksums hold."""

    data: bytearray
    fault: Fault | None


def _job(content: _Content, path: Path, faults: list[Fault]) -> Job:
    if content.fault or len(content.data) < _JOB.size:
        raise InvalidRun(f"{path}: what it says of the job cannot be read ({content.fault or 'too short'})")
    uid, start, start_ns, end, end_ns, ranks, number, metadata = _JOB.unpack_from(content.data)
    text = bytes(content.data[_JOB.size :]).split(b"\0", 1)[0].decode("utf-8", "replace")
    program, _, mounts = text.partition("\n")
    pairs = dict(
        line.partition("=")[::2] for line in metadata.split(b"\0", 1)[0].decode("utf-8", "replace").splitlines()
    )
    if end <= 0:
        faults.append(Fault("no end", "the job never ended for Darshan: killed, or without MPI_Finalize"))
    elif end + end_ns / 1e9 < start + start_ns / 1e9:
        faults.append(Fault("no end", "it ended before it started"))
    return Job(
        uid,
        number,
        ranks,
        start + start_ns / 1e9,
        end + end_ns / 1e9 if end > 0 else 0.0,
        program.strip(),
        pairs.get("lib_ver", ""),
        pairs,
        {mount: kind for kind, _, mount in (line.partition("\t") for line in mounts.splitlines())},
    )


def _names(content: _Content, faults: list[Fault]) -> dict[int, str]:
    """Record number -> path."""
    names: dict[int, str] = {}
    data, at = bytes(content.data), 0
    while (end := data.find(b"\0", at + 8)) >= 0:
        names[int.from_bytes(data[at : at + 8], "little")] = data[at + 8 : end].decode("utf-8", "surrogateescape")
        at = end + 1
    if content.fault:
        faults.append(Fault(content.fault.name, f"names of files: {content.fault.text}"))
    elif at != len(data):
        faults.append(Fault("garbled", "the last name of a file has no end"))
    return names


def _known(kind: "np.dtype[np.void] | None", name: str, module: Module, log: Log) -> "np.dtype[np.void] | None":
    """`kind`, and a fault of the log where there is none."""
    if kind is None:
        log.faults.append(Fault("unknown version", f"{name} has records of version {module.version}"))
    return kind


def _count(file: IO[bytes], header: _Header, name: str, log: Log) -> None:
    module = header.modules[name]
    kind = _known(counters.record_type(name, module.version), name, module, log)
    if kind is None:
        return
    content = _whole(file, module.offset, module.length)
    whole = len(content.data) // kind.itemsize
    log.counted[name] = np.frombuffer(content.data, kind, whole)
    if content.fault:
        log.faults.append(Fault(content.fault.name, f"{name}: {content.fault.text}"))
    elif len(content.data) % kind.itemsize:
        log.faults.append(Fault("garbled", f"{name}: {len(content.data)} bytes are no whole records"))


def _trace(file: IO[bytes], header: _Header, name: str, log: Log) -> None:
    module = header.modules[name]
    kind = _known(counters.segment_type(name, module.version), name, module, log)
    if kind is None:
        return
    reading = _Segments(kind.itemsize)
    try:
        for piece, is_end in _pieces(file, module.offset, module.length):
            reading.take(piece, is_end)
        reading.end()
    except _Broken as broken:
        log.faults.append(Fault(broken.fault.name, f"{name}: {broken.fault.text}"))
    log.traced[name] = reading.trace(kind)


def _warm(file: IO[bytes], module: Module, log: Log) -> None:
    """Of no more use than what is left of it: nothing is judged by it."""
    data, at = _whole(file, module.offset, module.length).data, 0
    rows: dict[str, list[tuple[int, float, list[npt.NDArray[np.int64]]]]] = {}
    while len(data) - at >= _HEAT.size:
        number, rank, width_s, bins, *_ = _HEAT.unpack_from(data, at)
        at += _HEAT.size
        if not 0 <= bins <= (len(data) - at) // 16:
            break
        both = [np.frombuffer(data, np.int64, bins, at + part * 8 * bins) for part in range(2)]
        at += 16 * bins
        rows.setdefault(log.names.get(number, "").removeprefix("heatmap:"), []).append((rank, width_s, both))
    for name, found in rows.items():
        bins = min(len(both[0]) for _, _, both in found)  # rounding may have given one rank a bin more
        written, read = (np.stack([both[part][:bins] for _, _, both in found]) for part in range(2))
        log.heat[name] = Heat(found[0][1], np.array([rank for rank, _, _ in found]), read, written)


class _Segments:
    """Takes DXT's bytes as they come; the segments are copied once, to where they stay."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._heads, self._body, self._rest = bytearray(), bytearray(), bytearray()
        self._missing = 0
        self._sound = 0, 0

    def take(self, piece: bytes, is_end: bool) -> None:
        """`is_end`: with it a stream ends whose checksum is right."""
        self._rest += piece
        at, head = 0, counters.TRACED.itemsize
        while True:
            part = min(self._missing, len(self._rest) - at)
            if part:
                self._body += memoryview(self._rest)[at : at + part]
                self._missing -= part
                at += part
            if self._missing or len(self._rest) - at < head:
                break
            writes, reads = struct.unpack_from("<qq", self._rest, at + head - 16)
            if not 0 <= writes + reads < _MOST_SEGMENTS or min(writes, reads) < 0:
                raise _Broken("garbled", f"a file has {reads} reads and {writes} writes")
            self._heads += memoryview(self._rest)[at : at + head]
            self._missing = (writes + reads) * self._size
            at += head
        del self._rest[:at]
        if is_end:
            self._sound = len(self._heads), len(self._body)

    def end(self) -> None:
        if self._missing or self._rest:
            raise _Broken("garbled", "its records do not end where it ends")

    def trace(self, kind: "np.dtype[np.void]") -> Trace:
        """All that came with a right checksum, in whole files."""
        heads, body = self._sound
        files = np.frombuffer(self._heads, counters.TRACED, heads // counters.TRACED.itemsize)
        whole = np.cumsum(files["writes"] + files["reads"]) * self._size <= body
        files = files[: int(whole.sum())]
        return Trace(files, np.frombuffer(self._body, kind, int((files["writes"] + files["reads"]).sum())))
