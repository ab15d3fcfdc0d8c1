"""Meaning and example of the keys of a struct, from the docstrings of its fields."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec


class KeyText(NamedTuple):
    """Text about a key. meaning: one or more sentences. example: YAML text; empty if the default value serves as
    example.
    """

    meaning: str
    example: str


def of(struct: Any) -> dict[str, KeyText]:
    """Return the texts of the fields of a struct and of those that it inherits, by field name. Fields without a
    docstring are left out.
    """
    owners = [owner for owner in struct.__mro__ if issubclass(owner, msgspec.Struct) and owner is not msgspec.Struct]
    return {name: _split(text) for owner in reversed(owners) for name, text in _docstrings(owner)}


def of_fields(struct: Any) -> dict[str, KeyText]:
    """Return the texts of the fields of a struct, like of(). If a field has no docstring, its text is taken from the
    docstring of the class, after the name of the field and a colon: "low, high: interval of the ratio".
    """
    return _named(struct) | of(struct)


def lead(struct: Any) -> str:
    """Return the docstring of a struct without the texts of its fields."""
    return _parts(struct)[0].strip()


def _named(struct: Any) -> dict[str, KeyText]:
    """Return the texts of fields in the docstring of a class. None is replaced by null, as in documents."""
    _, *parts = _parts(struct)
    return {
        name: _split(re.sub(r"\bNone\b", "null", text.strip()))
        for names, text in zip(parts[::2], parts[1::2], strict=True)
        for name in re.split(r",? and |, ", names)
    }


def _parts(struct: Any) -> list[str]:
    """Return the docstring of a struct in parts: its beginning, then names of fields and the text after them."""
    one = rf"(?:{'|'.join(sorted(map(re.escape, struct.__struct_fields__), key=len, reverse=True))})"
    marks = rf"(?:^|(?<=[.;] ))({one}(?:(?:, | and |, and ){one})*): "
    return re.split(marks, " ".join((struct.__doc__ or "").split()))


@cache
def _docstrings(owner: Any) -> list[tuple[str, str]]:
    """Return the fields that a class itself defines, each with its docstring on one line. The source of a class is
    parsed only once, because that takes some milliseconds.
    """
    return list(_parsed(owner))


def _parsed(owner: Any) -> Iterator[tuple[str, str]]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield field.target.id, " ".join(str(text.value.value).split())


def _split(text: str) -> KeyText:
    meaning, _, example = text.partition(" Example: ")
    return KeyText(meaning.rstrip(".") + ".", example)
