"""Index of a file of tokens, in the layout of Megatron-LM's IndexedDataset: a header of 34 bytes; the number of tokens
of each sequence (int32); the offset of each sequence in the file of tokens, in bytes (int64); and the numbers of the
sequences at which documents begin, with the number of all sequences at the end (int64). Numbers are little-endian.
"""

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Lengths = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]

MAGIC, _VERSION = b"MMIDIDX\x00\x00", 1
# Magic, version, code of the type of a token, number of sequences, number of beginnings of documents.
_HEADER = struct.Struct("<9sQBQQ")
HEADER = _HEADER.size
# NumPy's types of tokens by their codes in the header.
_TYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32", 8: "uint16"}
_LENGTH, _POINTER = 4, 8


class Malformed(ValueError):
    """An index that does not have the layout, or that contradicts itself. The text follows the name of the file."""


class Header(NamedTuple):
    """Header of an index. dtype: NumPy's name of the type of a token. sequences: number of sequences. beginnings:
    number of stored beginnings of documents, which is one more than the number of documents.
    """

    dtype: str
    sequences: int
    beginnings: int

    @property
    def item(self) -> int:
        """Bytes of a token."""
        return int(np.dtype(self.dtype).itemsize)

    @property
    def pointers(self) -> int:
        """Offset of the offsets of sequences in the index."""
        return HEADER + self.sequences * _LENGTH

    @property
    def size(self) -> int:
        """Bytes of the whole index."""
        return self.pointers + (self.sequences + self.beginnings) * _POINTER


class TokenIndex(NamedTuple):
    """Sequences of a file of tokens. dtype: NumPy's name of the type of a token. lengths: number of tokens of each
    sequence. pointers: offset of each sequence in the file of tokens, in bytes.
    """

    dtype: str
    lengths: Lengths
    pointers: Numbers

    @property
    def item(self) -> int:
        """Bytes of a token."""
        return int(np.dtype(self.dtype).itemsize)

    @property
    def end(self) -> int:
        """Offset at which the last sequence ends."""
        return int(self.pointers[-1]) + int(self.lengths[-1]) * self.item if len(self.lengths) else 0


def code(dtype: str) -> int | None:
    """Return the code of a type of tokens; None if there is no such type. The contents of generated tokens of two bytes
    have no sign, so int16 has the code of uint16, which Megatron-LM writes for small vocabularies.
    """
    wanted = "uint16" if dtype == "int16" else dtype
    return next((number for number, name in _TYPES.items() if name == wanted), None)


def size(sequences: int) -> int:
    """Return the bytes of an index in which each sequence is a document."""
    return HEADER + sequences * (_LENGTH + 2 * _POINTER) + _POINTER


def encoded(lengths: Numbers, dtype: str) -> bytes:
    """Return the index of sequences that follow each other, each of which is a document. lengths: their tokens. dtype:
    a type of tokens that has a code.
    """
    item, sequences = np.dtype(dtype).itemsize, len(lengths)
    header = _HEADER.pack(MAGIC, _VERSION, code(dtype), sequences, sequences + 1)
    pointers = (np.cumsum(lengths) - lengths) * item
    arrays = (lengths.astype("<i4"), pointers.astype("<i8"), np.arange(sequences + 1, dtype="<i8"))
    return header + b"".join(array.tobytes() for array in arrays)


def header(begin: bytes, total: int) -> Header:
    """Return the header of an index. begin: its first bytes. total: size of the file in bytes. Raise Malformed if the
    file is no index, or if it does not have the size that its counts need.
    """
    if not begin.startswith(MAGIC):
        raise Malformed(
            f"begins with {begin[:9].hex() or 'no bytes'}, but an index of tokens with {MAGIC.hex()} (MMIDIDX)"
        )
    if len(begin) < HEADER:
        raise Malformed(f"is truncated: it has {total} bytes, but a header has {HEADER}")
    _, version, number, sequences, beginnings = _HEADER.unpack(begin[:HEADER])
    if version != _VERSION:
        raise Malformed(f"has the version {version} at byte 9, but only version {_VERSION} is known")
    if number not in _TYPES:
        raise Malformed(f"has the type {number} of tokens at byte 17; types are 1 to {max(_TYPES)}")
    made = Header(_TYPES[number], sequences, beginnings)
    if total == made.size + sequences and sequences:
        raise Malformed(
            f"has a mode for each sequence at byte {made.size}, as multimodal datasets have; only plain ones are read"
        )
    if total != made.size:
        state = "is truncated" if total < made.size else "has bytes after its end"
        raise Malformed(
            f"{state}: it states {sequences} sequences at byte 18 and {beginnings} beginnings of documents at byte 26, "
            f"which take {made.size} bytes, but the file has {total}"
        )
    return made


def decoded(known: Header, data: "npt.NDArray[np.uint8] | memoryview[Any]") -> TokenIndex:
    """Return the sequences of an index. data: all its bytes, which the result refers to. Raise Malformed if sequences
    have negative lengths, overlap, or do not follow each other.
    """
    lengths: Lengths = np.frombuffer(data, "<i4", known.sequences, HEADER)
    pointers: Numbers = np.frombuffer(data, "<i8", known.sequences, known.pointers)
    if not len(lengths):
        return TokenIndex(known.dtype, lengths, pointers)
    if (at := int(lengths.argmin())) >= 0 > lengths[at]:
        raise Malformed(f"states {lengths[at]} tokens for sequence {at} at byte {HEADER + at * _LENGTH}")
    if pointers[0]:
        raise Malformed(
            f"states byte {pointers[0]} for the first sequence at byte {known.pointers}, but files begin at 0"
        )
    gaps = np.diff(pointers) - lengths[:-1].astype(np.int64) * known.item
    if gaps.any():
        at = int(np.flatnonzero(gaps)[0]) + 1
        raise Malformed(
            f"states byte {pointers[at]} for sequence {at} at byte {known.pointers + at * _POINTER}, but sequence "
            f"{at - 1} ends at byte {int(pointers[at - 1]) + int(lengths[at - 1]) * known.item}: sequences must follow "
            "each other"
        )
    return TokenIndex(known.dtype, lengths, pointers)
