"""MkDocs hooks: tables of keys in the reference pages, from structs and the docstrings of their fields.

A page names a struct of a file that people write by `<!-- keys: MODULE.STRUCT -->`, and one of a file that dlio-hpc
writes by `<!-- fields: MODULE.STRUCT -->`. The documents of all verbs are at `<!-- json documents -->`.
"""

import ast
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import dlio_hpc
from dlio_hpc.base import key_texts, serialization, units
from dlio_hpc.base.key_texts import KeyText
from dlio_hpc.cli import json_documents
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import Workload
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.results.probe_result import StorageProbe
from dlio_hpc.results.run_result import Result, Summary
from dlio_hpc.verdict.criteria_file import Criteria

_MARK = re.compile(r"<!-- (keys|fields): (\S+)\.(\w+) -->")
_UNITS = {
    units.Size: "size", units.Seconds: "duration", units.Share: "share", units.Walltime: "walltime", int: "integer",
    bool: "true, false", float: "number", str: "text", typing.Any: "any", MetricName: "metric",
}  # fmt: skip
# Structs of JSON documents that have a page of their own.
_PAGES: dict[Any, str] = {
    Result: "result.md", StorageProbe: "result.md#probejson", Workload: "workload.md", Site: "site.md",
    Criteria: "criteria.md",
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
    if "<!-- json documents -->" in markdown:
        markdown = markdown.replace("<!-- json documents -->", json_documents_tables())
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


def json_documents_tables() -> str:
    """The verbs with their JSON documents, and the fields of each document and of the structs in it. A struct that has
    a page of its own is a link to this page.
    """
    rows = ["| verb | document |", "|---|---|"]
    structs: dict[Any, None] = {}
    for verb, names in json_documents.DOCUMENTS.items():
        kinds = [json_documents.struct(name) for name in names]
        structs |= dict.fromkeys(kind for kind in kinds if kind not in _PAGES)
        rows.append(f"| `{verb}` | {' or '.join(map(_link, kinds))} |")
    rows += [f"| `{verb}` | no `--json`: {reason} |" for verb, reason in json_documents.WITHOUT.items()]
    structs[json_documents.struct(json_documents.FAILURE)] = None
    return "\n\n".join(["\n".join(rows), *(_fields(struct) for struct in _with_inner(structs))])


def _with_inner(structs: dict[Any, None]) -> list[Any]:
    """The structs, and all structs in them that have no page of their own, each after the first one that has it."""
    listed: list[Any] = []
    waiting = list(structs)
    while waiting:
        struct = waiting.pop(0)
        if struct in listed or struct in _PAGES:
            continue
        listed.append(struct)
        inner = [kind for field in msgspec.structs.fields(struct) for kind, _ in _structs(field.type)]
        waiting = [*inner, *waiting]
    return listed


def _fields(struct: Any) -> str:
    """The heading, the docstring and the fields of a struct of a JSON document."""
    texts = key_texts.of_fields(struct)
    rows = [_HEADERS["fields"]]
    for field in msgspec.structs.fields(struct):
        text = texts[field.name].meaning if field.name in texts else ""
        if not text and field.name in METRICS:
            text = f"{METRICS[field.name].formula.rstrip('.')}."
        cells = [f"`{field.encode_name}`", describe(field.type, _link), text]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return f"### {struct.__name__}\n\n{key_texts.lead(struct)}\n\n" + "\n".join(rows)


def _link(struct: Any) -> str:
    return f"[{struct.__name__}]({_PAGES.get(struct, f'#{struct.__name__.lower()}')})"


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
    text = msgspec.json.encode(serialization.plain(value)).decode()
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


def describe(kind: Any, named: Callable[[Any], str] = lambda struct: "mapping") -> str:
    """A type in the words of the reference. named: words for a struct."""

    def of(inner: Any) -> str:
        return describe(inner, named)

    describers = {
        typing.Annotated: lambda inner: _bounded(of(inner[0]), inner[1:]),
        typing.Literal: lambda values: ", ".join(f"`{value}`" for value in values),
        typing.Union: lambda inner: _alternatives(inner, of),
        types.UnionType: lambda inner: _alternatives(inner, of),
        list: lambda inner: f"list of {of(inner[0])}",
        tuple: lambda inner: f"list of {of(inner[0])}" if inner else "empty list",
        dict: lambda inner: f"mapping of {of(inner[0])} to {of(inner[1])}",
    }
    origin = typing.get_origin(kind)
    if origin is not None and kind not in _UNITS:
        return describers[origin](typing.get_args(kind))
    if kind is type(None):
        return "`null`"
    return _UNITS.get(kind) or named(kind)


def _alternatives(inner: tuple[Any, ...], of: Callable[[Any], str]) -> str:
    parts = " or ".join(of(part) for part in inner if part is not msgspec.UnsetType)
    return f"{parts}; may be absent" if msgspec.UnsetType in inner else parts


def _bounded(text: str, metas: tuple[Any, ...]) -> str:
    """An integer, number or text with its bounds."""
    bounds = [meta for meta in metas if isinstance(meta, msgspec.Meta)]
    words = [
        f"{sign} {getattr(meta, name):g}"
        for meta in bounds
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
        if getattr(meta, name) is not None and abs(getattr(meta, name)) < 2**53
    ]
    return " ".join([text, " and ".join(words)]).strip()
