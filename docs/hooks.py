"""MkDocs hooks: tables of keys in the reference pages, from structs and the docstrings of their fields.

A page names a struct of a file that people write by `<!-- keys: MODULE.STRUCT -->`, and one of a file that dlio-hpc
writes by `<!-- fields: MODULE.STRUCT -->`.
"""

import ast
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import dlio_hpc
from dlio_hpc import document, key_texts, units
from dlio_hpc.key_texts import KeyText
from dlio_hpc.results.metrics import METRICS
from dlio_hpc.results.run_result import Summary

_MARK = re.compile(r"<!-- (keys|fields): (\S+)\.(\w+) -->")
_UNITS = {
    units.Size: "size", units.Seconds: "duration", units.Share: "share", units.Walltime: "walltime", int: "integer",
    bool: "true, false", float: "number", str: "text", typing.Any: "any",
}  # fmt: skip
_HEADERS = {
    "keys": "| key | type | default | meaning | example |\n|---|---|---|---|---|",
    "fields": "| field | type | meaning |\n|---|---|---|",
}


class Key(NamedTuple):
    """A key of a YAML file. path: such as dataset.files. example: YAML text; empty where the default says enough."""

    path: str
    type: Any
    default: str
    meaning: str
    example: str


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace each mark by the tables of its struct."""
    if "<!-- metrics -->" in markdown:
        markdown = markdown.replace("<!-- metrics -->", metrics_table())
    if "<!-- api -->" in markdown:
        markdown = markdown.replace("<!-- api -->", api())
    return _MARK.sub(
        lambda match: _tables(getattr(importlib.import_module(match[2]), match[3]), "", _HEADERS[match[1]]), markdown
    )


def metrics_table() -> str:
    """The metrics: name, unit, better direction, formula, source, runs that lack it."""
    rows = ["| metric | unit | better | formula | source | absent or 0 |", "|---|---|---|---|---|---|"]
    for name, metric in METRICS.items():
        better = "higher" if metric.is_higher_better else "lower"
        rows.append(f"| `{name}` | {metric.unit} | {better} | {metric.formula} | {metric.source} | {metric.absent} |")
    return "\n".join(rows)


def api() -> str:
    """The functions of the Python API: signature and docstring of each."""
    sections = []
    for name in dlio_hpc.__all__:
        function = getattr(dlio_hpc, name)
        if inspect.isfunction(function):
            source = textwrap.dedent(inspect.getsource(function))
            (definition,) = ast.parse(source).body
            assert isinstance(definition, ast.FunctionDef)
            arguments, result = ast.unparse(definition.args), ast.unparse(definition.returns or ast.Constant(None))
            signature = f"{name}({arguments}) -> {result}".replace("'", "").replace('"', "")
            text = " ".join((inspect.getdoc(function) or "").split())
            sections.append(f"### {name}\n\n```python\n{signature}\n```\n\n{text}")
    return "\n\n".join(sections)


def keys(struct: Any, prefix: str = "") -> Iterator[Key]:
    """The keys of a struct; ValueError for a field without a docstring."""
    texts = key_texts.of(struct)
    for field in msgspec.structs.fields(struct):
        if struct is Summary and field.name in METRICS:
            texts[field.name] = KeyText(f"{METRICS[field.name].formula.rstrip('.')}.", "")
        if field.name not in texts:
            raise ValueError(f"{struct.__name__}.{field.name} has no docstring")
        text = texts[field.name]
        yield Key(prefix + field.encode_name, field.type, _default(field), text.meaning, text.example)


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return "see below"
    if isinstance(value, Path):
        return str(value)
    text = msgspec.json.encode(document.plain(value)).decode()
    return text.strip('"') or "empty"


def _tables(struct: Any, prefix: str, header: str) -> str:
    """A table of the struct's keys, and one for each struct below it."""
    rows, below = [header], []
    for key in keys(struct, prefix):
        cells = [f"`{key.path}`", describe(key.type), key.meaning]
        if header == _HEADERS["keys"]:
            cells[2:2] = [f"`{key.default}`"]
            cells.append(f"`{key.example}`" if key.example else "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        below += [(inner, f"{key.path}{suffix}.") for inner, suffix in _structs(key.type)]
    parts = ["\n".join(rows)]
    for inner, path in dict.fromkeys(below):
        parts.append(f"### {path.rstrip('.')}\n\n{inner.__doc__}\n\n{_tables(inner, path, header)}")
    return "\n\n".join(parts)


def _structs(kind: Any, suffix: str = "") -> Iterator[tuple[Any, str]]:
    """Structs in a type. suffix: [] in lists, .NAME in mappings."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind, suffix
    origin = typing.get_origin(kind)
    more = "[]" if origin in (tuple, list) else ".NAME" if origin is dict else ""
    for inner in typing.get_args(kind) if origin is not typing.Literal else ():
        yield from _structs(inner, suffix + more)


def describe(kind: Any) -> str:
    """A type in the words of the reference."""
    describers = {
        typing.Annotated: _bounded,
        typing.Literal: lambda values: ", ".join(f"`{value}`" for value in values),
        typing.Union: _alternatives,
        types.UnionType: _alternatives,
        list: lambda inner: f"list of {describe(inner[0])}",
        tuple: lambda inner: f"list of {describe(inner[0])}",
        dict: lambda inner: f"mapping of {describe(inner[0])} to {describe(inner[1])}",
    }
    origin = typing.get_origin(kind)
    if origin is not None:
        return describers[origin](typing.get_args(kind))
    return _UNITS.get(kind) or "mapping"


def _alternatives(inner: tuple[Any, ...]) -> str:
    return " or ".join("`null`" if part is type(None) else describe(part) for part in inner)


def _bounded(inner: tuple[Any, ...]) -> str:
    """An integer, number or text with its bounds."""
    bounds = [meta for meta in inner[1:] if isinstance(meta, msgspec.Meta)]
    words = [
        f"{sign} {getattr(meta, name):g}"
        for meta in bounds
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if getattr(meta, name) is not None and abs(getattr(meta, name)) < 2**53
    ]
    return " ".join([describe(inner[0]), " and ".join(words)]).strip()
