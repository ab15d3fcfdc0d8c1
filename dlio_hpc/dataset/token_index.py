"""Index of a file of tokens, in the layout of Megatron-LM's IndexedDataset: a header of 34 bytes; the number of tokens
of each sequence (int32); the offset of each sequence in the file of tokens, in bytes (int64); and the numbers of the
sequences at which documents begin, with the number of all sequences at the end (int64). Numbers are little-endian.
"""

import struct
from collections.abc import Iterator
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
# Sequences that are encoded or checked at a time.
_AT_ONCE = 1 << 20


class MalformedIndex(ValueError):
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


def encoded(lengths: Numbers, dtype: str) -> Iterator[bytes]:
    """Yield the index of sequences that follow each other, each of which is a document, in pieces. lengths: their
    tokens. dtype: a type of tokens that has a code.
    """
    item, sequences = np.dtype(dtype).itemsize, len(lengths)
    parts = [slice(first, first + _AT_ONCE) for first in range(0, sequences, _AT_ONCE)]
    yield _HEADER.pack(MAGIC, _VERSION, code(dtype), sequences, sequences + 1)
    for part in parts:
        yield lengths[part].astype("<i4").tobytes()
    begin = 0
    for part in parts:
        ends = np.cumsum(lengths[part] * item) + begin
        yield (ends - lengths[part] * item).astype("<i8").tobytes()
        begin = int(ends[-1])
    for first in range(0, sequences + 1, _AT_ONCE):
        yield np.arange(first, min(first + _AT_ONCE, sequences + 1), dtype="<i8").tobytes()


def header(begin: bytes, total: int) -> Header:
    """Return the header of an index. begin: its first bytes. total: size of the file in bytes. Raise MalformedIndex if
    the file is no index, or if it does not have the size that its counts need.
    """
    if not begin.startswith(MAGIC):
        raise MalformedIndex(
            f"begins with {begin[:9].hex() or 'no bytes'}, but an index of tokens with {MAGIC.hex()} (MMIDIDX)"
        )
    if len(begin) < HEADER:
        raise MalformedIndex(f"is truncated: it has {total} bytes, but a header has {HEADER}")
    _, version, number, sequences, beginnings = _HEADER.unpack(begin[:HEADER])
    if version != _VERSION:
        raise MalformedIndex(f"has the version {version} at byte 9, but only version {_VERSION} is known")
    if number not in _TYPES:
        raise MalformedIndex(f"has the type {number} of tokens at byte 17; types are 1 to {max(_TYPES)}")
    made = Header(_TYPES[number], sequences, beginnings)
    if total == made.size + sequences and sequences:
        raise MalformedIndex(
            f"has a mode for each sequence at byte {made.size}, as multimodal datasets have; only plain ones are read"
        )
    if total != made.size:
        state = "is truncated" if total < made.size else "has bytes after its end"
        raise MalformedIndex(
            f"{state}: it states {sequences} sequences at byte 18 and {beginnings} beginnings of documents at byte 26, "
            f"which take {made.size} bytes, but the file has {total}"
        )
    return made


def decoded(known: Header, data: "npt.NDArray[np.uint8] | memoryview[Any]") -> TokenIndex:
    """Return the sequences of an index. data: all its bytes, which the result refers to. Raise MalformedIndex if
    sequences have negative lengths, overlap, or do not follow each other.
    """
    lengths: Lengths = np.frombuffer(data, "<i4", known.sequences, HEADER)
    pointers: Numbers = np.frombuffer(data, "<i8", known.sequences, known.pointers)
    for first in range(0, known.sequences, _AT_ONCE):
        _check(known, lengths, pointers, slice(first, first + _AT_ONCE))
    return TokenIndex(known.dtype, lengths, pointers)


def _check(known: Header, lengths: Lengths, pointers: Numbers, part: slice) -> None:
    """Raise MalformedIndex if sequences have negative lengths, or do not begin where the sequence before them ends."""
    if (least := int(lengths[part].min())) < 0:
        at = part.start + int(lengths[part].argmin())
        raise MalformedIndex(f"states {least} tokens for sequence {at} at byte {HEADER + at * _LENGTH}")
    begin = 0
    if part.start:
        begin = int(pointers[part.start - 1]) + int(lengths[part.start - 1]) * known.item
    ends = np.cumsum(lengths[part].astype(np.int64) * known.item) + begin
    begins = np.concatenate([[begin], ends[:-1]])
    odd = np.flatnonzero(begins != pointers[part])
    if not len(odd):
        return
    at = part.start + int(odd[0])
    place, expected = known.pointers + at * _POINTER, int(begins[odd[0]])
    before = f"sequence {at - 1} ends at byte {expected}" if at else "the first sequence begins at byte 0"
    raise MalformedIndex(
        f"states byte {pointers[at]} for sequence {at} at byte {place}, but {before}: sequences must follow each other"
    )
