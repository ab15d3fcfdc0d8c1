"""Encoding of Parquet's metadata: the compact protocol of Thrift, as far as Parquet needs it."""

from collections.abc import Iterable
from typing import NamedTuple

# Types of fields in the compact protocol.
_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
# Number of items from which the length of a list has bytes of its own.
_LONG_LIST = 15


class Field(NamedTuple):
    """An encoded field of a struct. number: number of the field in the definition of the struct. kind: type of the
    field.
    """

    number: int
    kind: int
    data: bytes


def varint(number: int) -> bytes:
    """Encode a number that is not negative in groups of seven bits, the lowest group first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def i32(number: int, value: int) -> Field:
    return Field(number, _I32, varint(value << 1))


def i64(number: int, value: int) -> Field:
    return Field(number, _I64, varint(value << 1))


def text(number: int, value: str) -> Field:
    return Field(number, _BINARY, _text(value))


def inner(number: int, *fields: Field) -> Field:
    """Return a field that is a struct with these fields."""
    return Field(number, _STRUCT, struct(*fields))


def numbers(number: int, values: Iterable[int]) -> Field:
    """Return a field that is a list of 32-bit numbers."""
    return _listed(number, _I32, [varint(value << 1) for value in values])


def texts(number: int, values: Iterable[str]) -> Field:
    return _listed(number, _BINARY, [_text(value) for value in values])


def structs(number: int, values: list[bytes]) -> Field:
    """Return a field that is a list of encoded structs."""
    return _listed(number, _STRUCT, values)


def struct(*fields: Field) -> bytes:
    """Return an encoded struct. fields: in the order of their numbers."""
    encoded, last = bytearray(), 0
    for number, kind, data in fields:
        encoded.append((number - last) << 4 | kind)
        encoded += data
        last = number
    encoded.append(0)
    return bytes(encoded)


def _text(value: str) -> bytes:
    data = value.encode()
    return varint(len(data)) + data


def _listed(number: int, kind: int, items: list[bytes]) -> Field:
    count = len(items)
    head = bytes([count << 4 | kind]) if count < _LONG_LIST else bytes([0xF0 | kind]) + varint(count)
    return Field(number, _LIST, head + b"".join(items))
