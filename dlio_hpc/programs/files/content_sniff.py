"""Detection of the format of files by their content, on a machine that has the files."""

import os
import stat
import struct
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from dlio_hpc.programs.files import named_formats
from dlio_hpc.programs.files.named_formats import NamedFormat

# Limits of a look: number of files, bytes of the beginning of a file, records of a TFRecord file.
_FILES, _HEAD, _RECORDS = 4, 64 << 10, 64
_HDF5 = b"\x89HDF\r\n\x1a\n"
_PARQUET = b"PAR1"
_ZIP_LOCAL = struct.Struct("<4s5H3I2H")
# Bytes before a TFRecord's data (length and its checksum), and bytes around the data.
_RECORD_HEAD, _RECORD_FRAME = 12, 16
_LINES = 8


class FileContent(NamedTuple):
    """Format of a file by its content. name: value of `dataset.format`. evidence: what the file shows. sample_bytes:
    median length of its first records; None if the format does not show records. sizes: evidence of sample_bytes. form:
    special format of raw files, such as that of images; None if there is none.
    """

    name: str
    evidence: str
    sample_bytes: int | None = None
    sizes: str = ""
    form: NamedFormat | None = None


def look(files: Mapping[str, int]) -> FileContent | None:
    """Return the format of the first file whose content shows a known format. files: paths, and the number of bytes
    from the beginning of each file that the program accessed. A smaller file with the same path is a different file and
    is skipped. Only the first few files are tried. Return None if none of these files exists, is readable and has a
    known format.
    """
    tried = (_look(path, least) for path, least in islice(files.items(), _FILES))
    return next((content for content in tried if content is not None), None)


def _look(path: str, least: int) -> FileContent | None:
    """Return the format of a file; None if it is unknown. A file that is not a regular file is not opened: opening a
    device may have effects. O_NONBLOCK guards against a FIFO that replaces the file between the check and the open.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < least:
            return None
        return _of_head(path, descriptor, os.pread(descriptor, _HEAD, 0), status.st_size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _of_head(path: str, descriptor: int, head: bytes, size: int) -> FileContent | None:
    if (content := _by_signature(path, head)) is not None:
        return content
    if lengths := _records(descriptor, head, size):
        middle = sorted(lengths)[len(lengths) // 2]
        records = f"the length of the first record of {path}"
        records = f"the lengths of the first {len(lengths)} records of {path}" if len(lengths) > 1 else records
        evidence = f"the file {path} begins with the head of a TFRecord, and the checksum of this head is right"
        return FileContent("tfrecord", evidence, middle or None, records)
    if values := _columns(head, size):
        return FileContent("csv", f"the file {path} begins with lines of text of {values:,} values each")
    return None


def _by_signature(path: str, head: bytes) -> FileContent | None:
    """Return the format of a file whose first bytes are those of a format; None for other files."""
    for name, title, signature in (("hdf5", "HDF5", _HDF5), ("parquet", "Parquet", _PARQUET)):
        if head.startswith(signature):
            return FileContent(name, f"the file {path} begins with the signature of {title}")
    if (member := _first_member(head)).endswith(".npy"):
        return FileContent("npz", f"the file {path} begins with a ZIP archive's member {member}")
    form = named_formats.of_head(path, head)
    return None if form is None else FileContent("raw", form.evidence, form=form)


def _first_member(head: bytes) -> str:
    """Return the name of the first member of a ZIP archive; "" if the file is not one. The header of the member is
    read, not the directory of the archive, because the directory is at the end of the file.
    """
    if not head.startswith(b"PK\x03\x04") or len(head) < _ZIP_LOCAL.size:
        return ""
    length = _ZIP_LOCAL.unpack_from(head)[9]
    name = head[_ZIP_LOCAL.size : _ZIP_LOCAL.size + length]
    return name.decode("utf-8", "replace") if len(name) == length else ""


def _records(descriptor: int, head: bytes, size: int) -> list[int]:
    """Return the lengths of the first records of a TFRecord file, from one head to the next. Return an empty list if
    the file does not begin with a record. A truncated record at the end of the file is left out.
    """
    lengths: list[int] = []
    at = 0
    while len(lengths) < _RECORDS and at + _RECORD_FRAME <= size:
        begin = head[at : at + _RECORD_HEAD]
        if len(begin) < _RECORD_HEAD:
            begin = os.pread(descriptor, _RECORD_HEAD, at)
        if len(begin) < _RECORD_HEAD:
            break
        length, checksum = struct.unpack("<QI", begin)
        if masked_crc(begin[:8]) != checksum or length > size - at - _RECORD_FRAME:
            break
        lengths.append(length)
        at += length + _RECORD_FRAME
    return lengths


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of a few bytes, as TFRecord stores it. The package google_crc32c is not needed."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _columns(head: bytes, size: int) -> int:
    """Return the number of values in each of the first lines of a CSV file; 0 if the file is not one. The last line is
    used only if it is complete. Two lines are required, because one line of text may contain commas.
    """
    whole = head if len(head) >= size else head[: head.rfind(b"\n") + 1]
    try:
        text = whole.decode("utf-8-sig")
    except UnicodeDecodeError:
        return 0
    if not all(character.isprintable() or character in "\t\r\n" for character in text):
        return 0
    lines = [line for line in text.splitlines() if line][:_LINES]
    if any(line.lstrip()[:1] in ("{", "[", "<") for line in lines):  # JSON or XML
        return 0
    counts = {line.count(",") for line in lines}
    return counts.pop() + 1 if len(lines) > 1 and len(counts) == 1 and counts != {0} else 0
