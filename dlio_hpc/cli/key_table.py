"""The table of keys of the YAML files that people write, and of the fields of JSON documents: type, unit, default,
example and meaning, made from structs and the docstrings of their fields. text() prints it for a terminal;
docs/reference_pages.py writes it as Markdown. Text has the markup of Markdown: `...` for names and values.
"""

import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dlio_hpc.base import key_texts, serialization, units
from dlio_hpc.base.key_texts import KeyText
from dlio_hpc.cli import json_schema
from dlio_hpc.config.workload import SHORT_FORMS
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.results.run_result import Summary

# Names and units of types. The unit is that of a number to which a file gives none.
_TYPES: dict[Any, tuple[str, str]] = {
    units.Size: ("size", "bytes"),
    units.LargeSize: ("size", "bytes"),
    units.Seconds: ("duration", "seconds"),
    units.Latency: ("duration", "seconds"),
    units.Share: ("share", "fraction"),
    units.LeastShare: ("share", "fraction"),
    units.Walltime: ("walltime", "minutes"),
    int: ("integer", ""),
    bool: ("true, false", ""),
    float: ("number", ""),
    str: ("text", ""),
    Any: ("any", ""),
    MetricName: ("metric", ""),
}
# Units of numbers, by the end of their key.
_UNITS_BY_KEY = {
    "_MBps": "MB/s", "samples_per_s": "samples/s", "node_hours": "node-hours", "random_bits": "bits",
    "expected_rates.read": "bytes/s", "expected_rates.write": "bytes/s",
}  # fmt: skip
# A scan writes these keys to plans. A file cannot set them.
_WRITTEN_BY_DLIO_HPC = {"dataset.existing.scan", "inference.trace.scan"}
# Defaults that are no values.
_OF_ITS_KEYS, _EMPTY = "the defaults of its keys", "empty"
_IN_WORDS = (_OF_ITS_KEYS, _EMPTY)
_WIDTH = 79
_LEAD = (
    "A number without a unit has the stated unit. The file may give another unit, such as 256 KiB, 20 ms or 90%. In "
    "the name of a section, [] stands for each entry of a list, and NAME for each name of a mapping."
)


class KeyFacts(NamedTuple):
    """A key of a file. path: the key in dotted form, such as dataset.files. kind: type of the key in words. unit: unit
    of its values; empty if there is none. default: default value as YAML, or "required" with its condition. example:
    example as YAML; empty if the default is a sufficient example.
    """

    path: str
    kind: str
    unit: str
    default: str
    example: str
    meaning: str
    type: Any

    @property
    def name(self) -> str:
        """The name of the key within its section."""
        return self.path.rpartition(".")[2]

    @property
    def is_required(self) -> bool:
        return self.default.startswith("required")


class KeySection(NamedTuple):
    """The keys of a mapping. path: key that has the mapping as its value, such as dataset.auxiliary_files[]; empty at
    the top of a file. text: docstring of the mapping's struct.
    """

    path: str
    text: str
    keys: tuple[KeyFacts, ...]


def of(name: str) -> list[KeySection]:
    """Return the sections of a kind of file. name: a key of json_schema.KINDS."""
    first, *others = sections(json_schema.KINDS[name])
    if name == "suite":
        keys = [key._replace(default="required") if key.path == "verdict" else key for key in first.keys]
        first = first._replace(keys=tuple(keys))
    return [first, *others]


def sections(struct: Any, path: str = "") -> list[KeySection]:
    """Return the section of a struct, and the sections of all structs nested in it. Raise ValueError for a field
    without a docstring.
    """
    keys = tuple(_keys(struct, f"{path}." if path else ""))
    listed = [KeySection(path, " ".join((struct.__doc__ or "").split()), keys)]
    below = dict.fromkeys((inner, f"{key.path}{suffix}") for key in keys for inner, suffix in structs_in(key.type))
    return listed + [section for inner, place in below for section in sections(inner, place)]


def text(name: str) -> str:
    """Return all keys of a kind of file for a terminal of 80 columns. name: a key of json_schema.KINDS."""
    title = "Keys of a criteria file" if name == "criteria" else f"Keys of a {name} file"
    parts = [textwrap.fill(f"{title}. {_LEAD}", _WIDTH)]
    for section in of(name):
        parts.append(f"{section.path or 'Top of the file'}\n{_indented(section.text, '  ')}")
        parts += [_text_of(key) for key in section.keys]
    return "\n\n".join(parts)


def facts(key: KeyFacts) -> list[str]:
    """Return the facts about a key besides its type and its meaning, such as "unit: bytes"."""
    default = key.default if key.default in _IN_WORDS else f"`{key.default}`"
    stated = [
        f"unit: {key.unit}" if key.unit else "",
        key.default if key.is_required else f"default: {default}",
        f"example: `{key.example}`" if key.example else "",
    ]
    return [fact for fact in stated if fact]


def structs_in(kind: Any, suffix: str = "") -> Iterator[tuple[Any, str]]:
    """Yield the structs in a type, each with its suffix: [] in lists, .NAME in mappings."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind, suffix
    origin = typing.get_origin(kind)
    more = "[]" if origin in (tuple, list) else ".NAME" if origin is dict else ""
    for inner in typing.get_args(kind) if origin is not typing.Literal else ():
        yield from structs_in(inner, suffix + more)


def describe(kind: Any, named: Callable[[Any], str] = lambda struct: "mapping") -> str:
    """Return a type in the words of the reference. named: words that are used for a struct."""

    def of_inner(inner: Any) -> str:
        return describe(inner, named)

    describers: dict[Any, Callable[[Any], str]] = {
        typing.Annotated: lambda inner: _bounded(of_inner(inner[0]), inner[1:]),
        typing.Literal: lambda values: ", ".join(f"`{value}`" if value != "" else "empty text" for value in values),
        typing.Union: lambda inner: _alternatives(inner, of_inner),
        types.UnionType: lambda inner: _alternatives(inner, of_inner),
        list: lambda inner: f"list of {of_inner(inner[0])}",
        tuple: lambda inner: f"list of {of_inner(inner[0])}" if inner else "empty list",
        dict: lambda inner: f"mapping of {of_inner(inner[0])} to {of_inner(inner[1])}",
    }
    origin = typing.get_origin(kind)
    if origin is not None and kind not in _TYPES:
        return describers[origin](typing.get_args(kind))
    if kind is type(None):
        return "`null`"
    return _TYPES[kind][0] if kind in _TYPES else named(kind)


def _keys(struct: Any, prefix: str) -> Iterator[KeyFacts]:
    """Yield the keys of a struct. prefix: key of the struct with a dot, or ""."""
    texts = key_texts.of(struct)
    for field in msgspec.structs.fields(struct):
        if struct is Summary and field.name in METRICS:
            texts[field.name] = KeyText(f"{METRICS[field.name].formula.rstrip('.')}.", "")
        path = prefix + field.encode_name
        if path in _WRITTEN_BY_DLIO_HPC:
            continue
        if field.name not in texts:
            raise ValueError(f"{struct.__name__}.{field.name} has no docstring")
        kind = describe(field.type)
        if path in SHORT_FORMS:
            kind = f"{describe(SHORT_FORMS[path])} or {kind}"
        default = _required(struct, field.name) if field.required else _default(field)
        yield KeyFacts(
            path,
            kind,
            _unit(path, SHORT_FORMS.get(path, field.type)),
            default,
            texts[field.name].example,
            texts[field.name].meaning,
            field.type,
        )


def _required(struct: Any, name: str) -> str:
    """Return "required". If other keys can replace this key, name them."""
    always, alternatives = json_schema.ALTERNATIVES.get(struct, ([name], []))
    if name in always:
        return "required"
    own = {key for keys in alternatives if name in keys for key in keys}
    others = dict.fromkeys(key for keys in alternatives if name not in keys for key in keys if key not in own)
    return f"required without {' or '.join(f'`{key}`' for key in others)}"


def _default(field: Any) -> str:
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return _OF_ITS_KEYS
    if isinstance(value, Path):
        return str(value)
    plain = msgspec.json.encode(serialization.plain(value)).decode()
    return plain.strip('"') or _EMPTY


def _unit(path: str, kind: Any) -> str:
    named = [unit for end, unit in _UNITS_BY_KEY.items() if path.endswith(end)]
    return (named or [unit for plain in _plain_types(kind) if (unit := _TYPES[plain][1])] or [""])[0]


def _plain_types(kind: Any) -> Iterator[Any]:
    """Yield the types in a type that are neither structs nor literals."""
    if kind in _TYPES:
        yield kind
    elif typing.get_origin(kind) is not typing.Literal:
        for inner in typing.get_args(kind):
            yield from _plain_types(inner)


def _alternatives(inner: tuple[Any, ...], of_inner: Callable[[Any], str]) -> str:
    parts = " or ".join(of_inner(part) for part in inner if part is not msgspec.UnsetType)
    return f"{parts}; may be absent" if msgspec.UnsetType in inner else parts


def _bounded(kind: str, metas: tuple[Any, ...]) -> str:
    """Return an integer, number or text with its bounds."""
    bounds = [
        f"{sign} {getattr(meta, name):g}"
        for meta in metas
        if isinstance(meta, msgspec.Meta)
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if getattr(meta, name) is not None and abs(getattr(meta, name)) < 2**53
    ]
    return " ".join([kind, " and ".join(bounds)]).strip()


def _text_of(key: KeyFacts) -> str:
    stated = "; ".join([key.kind, *facts(key)])
    return f"  {key.path}\n{_indented(stated, '      ')}\n{_indented(key.meaning, '      ')}"


def _indented(paragraph: str, indent: str) -> str:
    """Return a paragraph without markup, wrapped to the width of a terminal. Long words, such as paths, stay whole."""
    return textwrap.fill(
        paragraph.replace("`", ""), _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
