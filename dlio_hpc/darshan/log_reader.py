"""Reader of Darshan logs that needs only zlib and NumPy.

This module reads format 3.41, which Darshan 3.4 and 3.5 write (darshan-log-format.h): a header of 1328 bytes, followed
by regions for the job, the names and the records of each module. A region is a sequence of zlib streams, one per rank.
The two versions of DXT records, with and without thread numbers, are supported. For other formats, this module calls
pydarshan.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.darshan import counters, log_files, log_limits, pydarshan_reader
from dlio_hpc.darshan.log import ABOVE, COUNTING, TRACING, Heat, Log, LogFault, LogJob, Module, Name, Trace
from dlio_hpc.files import path_kinds

_Read = TypeVar("_Read")

VERSION = "3.41"
_MAGIC = 6567223
# What other files begin with that users take for logs, and what to do with them.
_PARSED = "the output of darshan-parser; give the log itself (.darshan)"
_OTHER_STARTS = {
    b"\x1f\x8b": "compressed with gzip; decompress it: gunzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; decompress it: zstd -d",
    b"BZh": "compressed with bzip2; decompress it: bunzip2",
    b"# darshan log": _PARSED, b"darshan log": _PARSED, b"#<module>": _PARSED,
}  # fmt: skip
_SLOTS = 64
_HEADER = struct.Struct(f"<8sqB7xQ2Q{2 * _SLOTS}Q{_SLOTS}I")
_JOB = struct.Struct("<7q1024s")
_HEAT = struct.Struct("<Qqdq2Q")  # the last two fields are pointers, which have no meaning in a file
# Compression type "none": the file is an in-memory record of a process that Darshan mapped to a file, and not yet a
# log.
_LIVE = 2
_CHUNK = 1 << 16
# Largest plausible size of a region of names or counters (millions of files), and largest plausible number of requests
# in the trace of a file (years of requests).
_MOST_BYTES, _MOST_SEGMENTS = 1 << 31, 1 << 36


class _Broken(Exception):
    """Error for a region that ends too soon, has a wrong checksum or has implausible contents."""

    def __init__(self, name: Name, text: str) -> None:
        super().__init__(text)
        self.fault = LogFault(name, text)


class _Header(NamedTuple):
    names: tuple[int, int]
    modules: dict[str, Module]


def load(path: Path, trace: bool = True) -> Log:
    """Read the log at `path`. trace: whether the extended trace (DXT) is read. Raise ConfigError if the file cannot be
    read. Raise InvalidRun if the file is not a Darshan log, if the header or the job record is lost, or if the log does
    not fit into memory.
    """
    made = _opened(path, lambda file: _load(file, path, trace))
    return pydarshan_reader.load(path) if made is None else made


def load_job(path: Path) -> LogJob | None:
    """Read only the job record of the log at `path`, which is fast. Return None if the log has a format that load()
    leaves to pydarshan. Raise the same errors as load().
    """

    def read(file: IO[bytes]) -> LogJob:
        names = _header(file, path).names
        return _job(_whole(file, _HEADER.size, names[0] - _HEADER.size), path, [])

    return _opened(path, read)


def _opened(path: Path, read: Callable[[IO[bytes]], _Read]) -> _Read | None:
    """Open a log, and return what `read` returns for the file. Return None if the log has another format than
    VERSION.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(f"cannot read {path}: it is not a regular file")
    try:
        with path.open("rb") as file:
            return read(file) if _version(file, path) == VERSION else None
    except MemoryError as fault:
        raise InvalidRun(f"{path} needs more memory than this node has") from fault
    except OSError as fault:
        if not path.exists():
            path_kinds.refuse_other(Path("dlio-runs", path), "a Darshan log")
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from fault


def _version(file: IO[bytes], path: Path) -> str:
    """Return the format version, such as 3.41. Return "" if the log is big-endian, which log_reader does not support.
    Raise InvalidRun if the file is not a log.
    """
    head = file.read(16)
    text, magic = head[:8].rstrip(b"\0"), head[8:16]
    if magic == _MAGIC.to_bytes(8, "little"):
        return text.decode("ascii", "replace")
    if magic == _MAGIC.to_bytes(8, "big"):
        return ""
    if path.suffix != log_files.SUFFIX:
        path_kinds.refuse_other(path, "a Darshan log or, for dlio-hpc characterize, a recording")
    if not head:
        raise InvalidRun(
            f"{path} is empty (0 bytes), so it is not a Darshan log; Darshan writes the log of a program that ends in "
            "the usual way (MPI_Finalize, exit)"
        )
    other = next((what for start, what in _OTHER_STARTS.items() if head.startswith(start)), None)
    if other is not None:
        raise InvalidRun(f"{path} is {other}")
    raise InvalidRun(f"{path} is not a Darshan log, or its first bytes are corrupted")


def _load(file: IO[bytes], path: Path, trace: bool) -> Log:
    size = os.fstat(file.fileno()).st_size
    header = _header(file, path)
    faults = _region_faults(header, size)
    job = _job(_whole(file, _HEADER.size, header.names[0] - _HEADER.size), path, faults)
    names = _names(_whole(file, *header.names), faults)
    log = Log(path, VERSION, job, header.modules, names, {}, {}, faults, {})
    if any(fault.name == "garbled" for fault in faults):
        return log  # the locations of the regions are unknown
    for name, module in header.modules.items():
        if module.partial:
            faults.append(log_limits.dropped(name))
        if name in COUNTING or (name in ABOVE and counters.record_type(name, module.version) is not None):
            _count(file, header, name, log)
        elif name in TRACING and trace:
            _trace(file, header, name, log)
        elif name == "HEATMAP" and module.version == 1:
            _heat(file, module, log)
    return log


def _header(file: IO[bytes], path: Path) -> _Header:
    file.seek(0)
    raw = file.read(_HEADER.size)
    if len(raw) < _HEADER.size:
        raise InvalidRun(f"{path} is truncated: it has {len(raw)} bytes, but the header alone needs {_HEADER.size}")
    _, _, compression, partial, *rest = _HEADER.unpack(raw)
    if compression == _LIVE:
        raise InvalidRun(
            f"{path} is not a log but the live record that a killed process left; it has no traces. darshan-merge "
            "combines the live records of all ranks into a log"
        )
    if compression:
        raise InvalidRun(f"{path} has an unsupported compression ({compression})")
    maps, versions = rest[2 : 2 + 2 * _SLOTS], rest[2 + 2 * _SLOTS :]
    modules = {
        counters.MODULES[slot] if slot < len(counters.MODULES) else f"module {slot}": Module(
            versions[slot], maps[2 * slot], maps[2 * slot + 1], bool(partial >> slot & 1)
        )
        for slot in range(_SLOTS)
        if maps[2 * slot + 1] or partial >> slot & 1
    }
    return _Header((rest[0], rest[1]), modules)


def _region_faults(header: _Header, size: int) -> list[LogFault]:
    """Return a list with a fault if the regions in the header are not contiguous or do not end where the file ends.
    Return an empty list otherwise.
    """
    regions = [header.names, *((module.offset, module.length) for module in header.modules.values() if module.length)]
    regions.sort()
    end = max(offset + length for offset, length in regions)
    if end > size:
        return [LogFault("truncated", f"the log has {size} bytes, but its header requires {end}")]
    contiguous = all(first + length == second for (first, length), (second, _) in pairwise(regions))
    if not contiguous or end != size or header.names[0] <= _HEADER.size:
        return [LogFault("garbled", "the header's table of regions does not match the file")]
    return []


def _pieces(file: IO[bytes], offset: int, length: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the decompressed content of a region in pieces. Each piece comes with a flag. The flag is True if a zlib
    stream ends after the piece and its checksum is valid. Raise _Broken if the region ends too soon or a checksum is
    wrong.
    """
    if offset > os.fstat(file.fileno()).st_size:
        raise _Broken("truncated", "it begins beyond the end of the file")
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
        raise _Broken("truncated", "its last stream is incomplete")


def _whole(file: IO[bytes], offset: int, length: int) -> "_Content":
    """Return the decompressed content of a region. If the region has a fault, return the content before the fault."""
    content, valid = bytearray(), 0
    try:
        for piece, is_end in _pieces(file, offset, max(length, 0)):
            content += piece
            valid = len(content) if is_end else valid
            if len(content) > _MOST_BYTES:
                raise _Broken("garbled", f"it holds more than {_MOST_BYTES} bytes")
    except _Broken as broken:
        return _Content(content[:valid], broken.fault)
    return _Content(content, None)


class _Content(NamedTuple):
    """Decompressed content of a region. If there is a fault, `data` ends at the last valid checksum."""

    data: bytearray
    fault: LogFault | None


def _job(content: _Content, path: Path, faults: list[LogFault]) -> LogJob:
    if content.fault or len(content.data) < _JOB.size:
        raise InvalidRun(f"{path}: its job record cannot be read ({content.fault or 'too short'})")
    uid, start, start_ns, end, end_ns, ranks, number, metadata = _JOB.unpack_from(content.data)
    text = bytes(content.data[_JOB.size :]).split(b"\0", 1)[0].decode("utf-8", "replace")
    program, _, mounts = text.partition("\n")
    pairs = dict(
        line.partition("=")[::2] for line in metadata.split(b"\0", 1)[0].decode("utf-8", "replace").splitlines()
    )
    if end <= 0:
        faults.append(
            LogFault("no end", "Darshan recorded no end of the job; the job was killed or skipped MPI_Finalize")
        )
    elif end + end_ns / 1e9 < start + start_ns / 1e9:
        faults.append(LogFault("no end", "the job ended before it started"))
    return LogJob(
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


def _names(content: _Content, faults: list[LogFault]) -> dict[int, str]:
    """Return the paths of files by record id. Add a fault to `faults` if names are lost."""
    names: dict[int, str] = {}
    data, at = bytes(content.data), 0
    while (end := data.find(b"\0", at + 8)) >= 0:
        names[int.from_bytes(data[at : at + 8], "little")] = data[at + 8 : end].decode("utf-8", "surrogateescape")
        at = end + 1
    if content.fault:
        faults.append(LogFault(content.fault.name, f"names of files: {content.fault.text}"))
    elif at != len(data):
        faults.append(LogFault("garbled", "the last name of a file is incomplete"))
    return names


def _known(kind: "np.dtype[np.void] | None", name: str, module: Module, log: Log) -> "np.dtype[np.void] | None":
    """Return `kind`, the record type of a module. If `kind` is None, the version of the records is unknown: add a fault
    to the log, and return None.
    """
    if kind is None:
        log.faults.append(LogFault("unknown version", f"{name} has records of version {module.version}"))
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
        log.faults.append(LogFault(content.fault.name, f"{name}: {content.fault.text}"))
    elif len(content.data) % kind.itemsize:
        log.faults.append(
            LogFault("garbled", f"{name}: {len(content.data)} bytes are not a multiple of the record size")
        )


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
        log.faults.append(LogFault(broken.fault.name, f"{name}: {broken.fault.text}"))
    log.traced[name] = reading.trace(kind)


def _heat(file: IO[bytes], module: Module, log: Log) -> None:
    """Read the heat maps into the log, up to the first fault. The fault is not reported, because the check of a log
    does not need heat maps.
    """
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
    for name, maps in rows.items():
        bins = min(len(both[0]) for _, _, both in maps)  # rounding may give a rank one more bin
        written, read = (np.stack([both[part][:bins] for _, _, both in maps]) for part in range(2))
        log.heat[name] = Heat(maps[0][1], np.array([rank for rank, _, _ in maps]), read, written)


class _Segments:
    """Collector of the headers and segments of a DXT region. The content of the region is added in pieces. Each segment
    is copied only once.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._heads, self._body, self._rest = bytearray(), bytearray(), bytearray()
        self._missing = 0
        self._valid = 0, 0

    def take(self, piece: bytes, is_end: bool) -> None:
        """Add a piece. is_end: whether a stream with a valid checksum ends after this piece. Raise _Broken for
        implausible counts.
        """
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
                raise _Broken("garbled", f"a file has impossible counts: {reads} reads and {writes} writes")
            self._heads += memoryview(self._rest)[at : at + head]
            self._missing = (writes + reads) * self._size
            at += head
        del self._rest[:at]
        if is_end:
            self._valid = len(self._heads), len(self._body)

    def end(self) -> None:
        if self._missing or self._rest:
            raise _Broken("garbled", "its last record is incomplete")

    def trace(self, kind: "np.dtype[np.void]") -> Trace:
        """Return the trace up to the last valid checksum. A file whose segments are incomplete is left out."""
        heads, body = self._valid
        files = np.frombuffer(self._heads, counters.TRACED, heads // counters.TRACED.itemsize)
        whole = np.cumsum(files["writes"] + files["reads"]) * self._size <= body
        files = files[: int(whole.sum())]
        return Trace(files, np.frombuffer(self._body, kind, int((files["writes"] + files["reads"]).sum())))
