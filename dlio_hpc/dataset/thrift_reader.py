"""Decoder of the compact protocol of Thrift, as far as the metadata of Parquet need it. Values that nobody asks for are
skipped and take no memory.
"""

from collections.abc import Iterator

# Types of values in the compact protocol. A field of the types TRUE and FALSE has no further bytes.
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
I32, I64 = _I32, _I64
_DOUBLE_BYTES = 8
# Length of a list that is stored in bytes of its own.
_LONG_LIST = 15
# Levels of structs and lists up to which values are skipped. Metadata of Parquet have five.
_DEEPEST = 32
_LONGEST_VARINT = 10


class Malformed(ValueError):
    """Bytes that are not valid. The message has the offset, counted from the first byte of the file."""


class ThriftReader:
    """Reader of encoded bytes. begin: offset of the first byte in its file, for messages."""

    def __init__(self, data: bytes, begin: int) -> None:
        self._data = data
        self._begin = begin
        self._at = 0

    @property
    def offset(self) -> int:
        """Offset in the file of the next byte."""
        return self._begin + self._at

    def malformed(self, what: str) -> Malformed:
        return Malformed(f"{what} at byte {self.offset}")

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field of a struct. The caller reads or skips each value."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self.integer()
            yield number, head & 0xF

    def integer(self) -> int:
        """Return a signed number of any size."""
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def binary(self) -> bytes:
        length = self._varint()
        begin = self._at
        self._advance(length)
        return self._data[begin : self._at]

    def items(self) -> tuple[int, int]:
        """Return the number of items of a list, and their type."""
        head = self._byte()
        count = head >> 4
        if count == _LONG_LIST:
            count = self._varint()
        if count > len(self._data) - self._at:
            raise self.malformed(f"a list of {count} items is longer than the metadata")
        return count, head & 0xF

    def wanted(self, kind: int, *kinds: int) -> None:
        """Raise Malformed if the type of a value is none of `kinds`."""
        if kind not in kinds:
            raise self.malformed(f"a value has the type {kind}, expected {kinds[0]}")

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value of the type `kind`."""
        if depth > _DEEPEST:
            raise self.malformed("the metadata are nested too deeply")
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind in (_I8, _DOUBLE):
            self._advance(1 if kind == _I8 else _DOUBLE_BYTES)
        elif kind == BINARY:
            self._advance(self._varint())
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (LIST, _SET):
            count, inner = self.items()
            self._skip_items(count, (inner,), depth)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            self._skip_items(count, (kinds >> 4, kinds & 0xF), depth)
        elif kind not in (_TRUE, _FALSE):
            raise self.malformed(f"a value has the unknown type {kind}")

    def _skip_items(self, count: int, kinds: tuple[int, ...], depth: int) -> None:
        if count > len(self._data) - self._at:
            raise self.malformed(f"{count} items are longer than the metadata")
        for _ in range(count):
            for kind in kinds:
                if kind in (_TRUE, _FALSE):  # an item has a byte, unlike a field
                    self._advance(1)
                else:
                    self.skip(kind, depth + 1)

    def _byte(self) -> int:
        begin = self._at
        self._advance(1)
        return self._data[begin]

    def _varint(self) -> int:
        number = 0
        for place in range(_LONGEST_VARINT):
            byte = self._byte()
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return number
        raise self.malformed("a number has too many bytes")

    def _advance(self, count: int) -> None:
        if count > len(self._data) - self._at:
            raise self.malformed("the metadata end in the middle of a value")
        self._at += count
