"""JSON Schema (draft 2020-12) of the YAML files that people write (workload, site, study, suite and criteria), and of
JSON documents that commands print.

msgspec.json.schema() does not support sizes and durations as text, short forms, and the docstrings of keys.
"""

import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from dlio_hpc.base import key_texts, units
from dlio_hpc.config.dataset_keys import COLUMN_BYTES, Dataset
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import SHORT_FORMS, Workload
from dlio_hpc.plan.study_file import StudyFile
from dlio_hpc.verdict.criteria_file import Criteria

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS: dict[str, type[msgspec.Struct]] = {
    "workload": Workload, "site": Site, "study": StudyFile, "suite": StudyFile, "criteria": Criteria,
}  # fmt: skip
Schema = dict[str, Any]

_NUMBER_AND_UNIT = r"^\s*\d+(\.\d+)?([eE][-+]?\d+)?\s*(%s)\s*$"
_TIMES = "us|ms|s|m|min|h|d"
_SIZE_TEXT: Schema = {"type": "string", "pattern": _NUMBER_AND_UNIT % "|[bB]|[kKmMgGtTpP]([iI]?[bB])?"}
_SHARE: Schema = {
    "anyOf": [
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*%?\s*$"},
    ]
}
_PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    Any: {},
    units.Size: {"anyOf": [{"type": "number", "minimum": 0}, _SIZE_TEXT]},
    units.LargeSize: {"anyOf": [{"type": "number", "minimum": units.LEAST_LARGE}, {"const": 0}, _SIZE_TEXT]},
    units.Latency: {
        "anyOf": [
            {"type": "number", "minimum": 0, "exclusiveMaximum": units.MOST_LATENCY_S},
            {"type": "string", "pattern": _NUMBER_AND_UNIT % f"|{_TIMES}"},
        ]
    },
    units.Seconds: {
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": _NUMBER_AND_UNIT % f"|{_TIMES}"}]
    },
    units.Walltime: {
        "anyOf": [
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "string", "pattern": _NUMBER_AND_UNIT % f"|{_TIMES}"},
            {"type": "string", "pattern": r"^\s*\d+(:[0-5]?\d){1,2}\s*$"},
        ]
    },
    units.Share: _SHARE,
    units.LeastShare: _SHARE,
}
# The same in documents that dlio-hpc writes: plain numbers and text.
_WRITTEN: dict[Any, Schema] = {
    **_PLAIN,
    units.Size: {"type": "integer"},
    units.LargeSize: {"type": ["integer", "string"]},
    units.Latency: {"type": "number"},
    units.Seconds: {"type": "number"},
    units.Walltime: {"type": "string"},
    units.Share: {"type": "number"},
    units.LeastShare: {"type": "number"},
}
# Keys of which one alternative suffices, instead of the fields without a default. A scan of existing files sets the
# layout of a dataset. A workload without a dataset writes checkpoints, makes operations on files, or keeps KV caches.
ALTERNATIVES: dict[type, tuple[list[str], list[list[str]]]] = {
    Workload: (["name"], [["dataset"], ["checkpoint"], ["metadata"], ["inference"]]),
    Dataset: (
        ["format"],
        [["files", "samples_per_file", "sample"], ["files", "samples_per_file", "columns"], ["existing"]],
    ),
}


class _Made(NamedTuple):
    """State of the construction of a schema. definitions: schemas of structs by name; the construction adds schemas
    here. is_file: True for files that people write, False for documents that dlio-hpc writes. is_closed: whether
    unknown fields are faults.
    """

    definitions: dict[str, Schema]
    is_file: bool
    is_closed: bool


def of(name: str) -> Schema:
    """Return the JSON Schema of a kind of file. name: a key of KINDS."""
    made = _Made({}, is_file=True, is_closed=True)
    schema = _struct(KINDS[name], "", made)
    if name == "suite":
        schema = {**schema, "required": [*schema["required"], "verdict"]}
    about = {"$schema": DIALECT, "title": f"dlio-hpc {name}"}
    return {**about, **schema, "$defs": dict(sorted(made.definitions.items()))}


def of_documents(title: str, kinds: Sequence[type[msgspec.Struct]], is_closed: bool = False) -> Schema:
    """Return the JSON Schema of a JSON document that is one of several kinds. is_closed: False to allow unknown fields,
    which documents of later versions of dlio-hpc may have.
    """
    made = _Made({}, is_file=False, is_closed=is_closed)
    one = _union([_schema(kind, "", made) for kind in kinds])
    return {"$schema": DIALECT, "title": title, **one, "$defs": dict(sorted(made.definitions.items()))}


def _written(struct: Any, made: _Made) -> Schema:
    """Return the schema of a struct in a document that dlio-hpc writes: all fields are present, except for fields that
    may be unset.
    """
    texts = key_texts.of_fields(struct)
    fields = msgspec.structs.fields(struct)
    properties = {
        field.encode_name: {
            **({"description": texts[field.name].meaning} if field.name in texts else {}),
            **_schema(field.type, "", made),
        }
        for field in fields
    }
    is_sparse = struct.__struct_config__.omit_defaults
    required = [
        field.encode_name
        for field in fields
        if field.required or not (is_sparse or msgspec.UnsetType in typing.get_args(field.type))
    ]
    closed = {"additionalProperties": False} if made.is_closed else {}
    return {
        "type": "object",
        "description": key_texts.lead(struct),
        "properties": properties,
        "required": required,
        **closed,
    }


def _struct(struct: Any, path: str, made: _Made) -> Schema:
    """Return the schema of a mapping. path: its key with a dot, such as dataset., or ""."""
    if not made.is_file:
        return _written(struct, made)
    texts = key_texts.of(struct)
    properties = {}
    for field in msgspec.structs.fields(struct):
        key = f"{path}{field.encode_name}"
        if key == "dataset.scan":
            continue  # dlio-hpc writes it to plans; it cannot be set
        schema = _short(key, _schema(field.type, f"{key}.", made))
        text = texts.get(field.name)
        described = {} if text is None else {"description": f"{text.meaning} {_example(text.example)}".strip()}
        properties[field.encode_name] = {**described, **schema}
    required = [field.encode_name for field in msgspec.structs.fields(struct) if field.required]
    choices: Schema = {}
    if struct in ALTERNATIVES:
        required, alternatives = ALTERNATIVES[struct]
        choices = {"anyOf": [{"required": keys} for keys in alternatives]}
    schema = {"type": "object", "properties": properties, "additionalProperties": False, **choices}
    return {**schema, "required": required} if required else schema


def _example(example: str) -> str:
    return f"Example: {example}" if example else ""


def _short(key: str, schema: Schema) -> Schema:
    """Add the plain value that a key accepts instead of a mapping."""
    if key == "dataset.columns":
        types_alone = {"type": "array", "items": {"anyOf": [{"enum": [*COLUMN_BYTES]}, {"$ref": "#/$defs/Column"}]}}
        return {"anyOf": [*schema["anyOf"], types_alone]}
    if key not in SHORT_FORMS:
        return schema
    plain = [_PLAIN[SHORT_FORMS[key]]]
    if key == "dataset.chunk":
        plain.append({"type": "array", "items": {"type": "integer", "minimum": 1}})
    return {"anyOf": [schema, *plain]}


def _schema(kind: Any, path: str, made: _Made) -> Schema:
    """Return the schema of a type. path: key of the value with a dot."""
    plain = _PLAIN if made.is_file else _WRITTEN
    if kind in plain:
        return plain[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind.__name__ not in made.definitions:
            made.definitions[kind.__name__] = {}
            made.definitions[kind.__name__] = _struct(kind, path, made)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    inner = typing.get_args(kind)

    def of_inner(index: int) -> Schema:
        return _schema(inner[index], path, made)

    # YAML reads the word null as no value.
    nulls = [None] if made.is_file and "null" in inner else []
    makers: dict[Any, Callable[[], Schema]] = {
        typing.Annotated: lambda: _bounded(of_inner(0), inner[1:]),
        typing.Literal: lambda: {"enum": [*inner, *nulls]},
        typing.Union: lambda: _union([_schema(part, path, made) for part in inner if part is not msgspec.UnsetType]),
        list: lambda: {"type": "array", "items": of_inner(0)},
        tuple: lambda: _tuple(inner, path, made),
        dict: lambda: {"type": "object", "additionalProperties": of_inner(1)},
    }
    makers[types.UnionType] = makers[typing.Union]
    return makers[typing.get_origin(kind)]()


def _union(schemas: list[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _tuple(inner: tuple[Any, ...], path: str, made: _Made) -> Schema:
    if not inner:
        return {"type": "array", "maxItems": 0}
    if inner[-1] is Ellipsis:
        return {"type": "array", "items": _schema(inner[0], path, made)}
    items = [_schema(part, path, made) for part in inner]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _bounded(schema: Schema, metas: tuple[Any, ...]) -> Schema:
    """Add the limits of a number, a text or a list."""
    unit = "Items" if schema.get("type") == "array" else "Length"
    names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum",
             "min_length": f"min{unit}", "max_length": f"max{unit}", "pattern": "pattern"}  # fmt: skip
    values = {word: getattr(meta, name) for meta in metas for name, word in names.items()}
    return {**schema, **{word: value for word, value in values.items() if value is not None}}
