"""Kinds of files by their first bytes, for messages about existing files that do not have the expected format."""

from typing import NamedTuple


class Signature(NamedTuple):
    """First bytes of a kind of file. offset: offset of the bytes in the file. kind: the kind, as messages name it.
    formats: formats whose files may begin like this; the first one is suggested. advice: what to do if it is not a
    format.
    """

    offset: int
    magic: bytes
    kind: str
    formats: tuple[str, ...]
    advice: str = ""


# Bytes of a file in which all signatures are.
HEAD = 512
_SIGNATURES = (
    Signature(0, b"\xff\xd8\xff", "a JPEG image", ("jpeg", "png", "raw")),
    Signature(0, b"\x89PNG\r\n\x1a\n", "a PNG image", ("png", "jpeg", "raw")),
    Signature(0, b"\x89HDF\r\n\x1a\n", "an HDF5 file", ("hdf5", "raw")),
    Signature(0, b"\x93NUMPY", "an npy file", ("npy", "raw")),
    Signature(0, b"PK\x03\x04", "a zip file, as npz files are", ("npz", "raw")),
    Signature(0, b"PAR1", "a Parquet file", ("parquet", "raw")),
    Signature(257, b"ustar", "a tar file", ("tar", "raw")),
    Signature(0, b"\x1f\x8b", "compressed with gzip", ("tfrecord", "tar", "raw"), "unpack it (gunzip)"),
)


def format_of(head: bytes) -> str:
    """Return the format that the first bytes of a file suggest; "" if they suggest none. head: first HEAD bytes."""
    return next((one.formats[0] for one in _SIGNATURES if head[one.offset :].startswith(one.magic)), "")


def foreign(head: bytes, wanted: str) -> str:
    """Return a clause that says what a file is and what to do, if its first bytes show that it does not have the format
    `wanted`; otherwise return "". head: first HEAD bytes of the file.
    """
    for one in _SIGNATURES:
        if head[one.offset :].startswith(one.magic):
            advice = one.advice or f"set -S dataset.format={one.formats[0]}"
            is_other = wanted not in one.formats
            return f"is {one.kind}, but the workload reads {wanted}; {advice}, or choose another pattern" * is_other
    return ""
