"""JSON Schema (draft 2020-12) of the YAML files that people write: workload, site, study, suite and criteria.

msgspec.json.schema() does not know sizes and durations as text, short forms, and the docstrings of keys.
"""

import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from dlio_hpc import key_texts, units
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
_PLAIN: dict[Any, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    type(None): {"type": "null"},
    Any: {},
    units.Size: {
        "anyOf": [
            {"type": "number", "minimum": 0},
            {"type": "string", "pattern": _NUMBER_AND_UNIT % "|[bB]|[kKmMgGtTpP]([iI]?[bB])?"},
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
    units.Share: {
        "anyOf": [
            {"type": "number", "minimum": 0, "maximum": 1},
            {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*%?\s*$"},
        ]
    },
}
# Keys of which one alternative suffices, instead of the fields without a default. A scan of existing files sets the
# layout of a dataset, and a workload without a dataset writes checkpoints.
_ALTERNATIVES: dict[type, tuple[list[str], list[list[str]]]] = {
    Workload: (["name"], [["dataset"], ["checkpoint"]]),
    Dataset: (
        ["format"],
        [["files", "samples_per_file", "sample"], ["files", "samples_per_file", "columns"], ["existing"]],
    ),
}


def of(name: str) -> Schema:
    """Return the JSON Schema of a kind of file. name: a key of KINDS."""
    definitions: dict[str, Schema] = {}
    schema = _struct(KINDS[name], "", definitions)
    if name == "suite":
        schema = {**schema, "required": [*schema["required"], "verdict"]}
    about = {"$schema": DIALECT, "title": f"dlio-hpc {name}"}
    return {**about, **schema, "$defs": dict(sorted(definitions.items()))}


def _struct(struct: Any, path: str, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a mapping. path: its key with a dot, such as dataset., or ""."""
    texts = key_texts.of(struct)
    properties = {}
    for field in msgspec.structs.fields(struct):
        key = f"{path}{field.encode_name}"
        if key == "dataset.scan":
            continue  # dlio-hpc writes it to plans; it cannot be set
        schema = _short(key, _schema(field.type, f"{key}.", definitions))
        text = texts.get(field.name)
        described = {} if text is None else {"description": f"{text.meaning} {_example(text.example)}".strip()}
        properties[field.encode_name] = {**described, **schema}
    required = [field.encode_name for field in msgspec.structs.fields(struct) if field.required]
    choices: Schema = {}
    if struct in _ALTERNATIVES:
        required, alternatives = _ALTERNATIVES[struct]
        choices = {"anyOf": [{"required": keys} for keys in alternatives]}
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False, **choices}
    return {**made, "required": required} if required else made


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


def _schema(kind: Any, path: str, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a type. path: key of the value with a dot. definitions: schemas of structs by name, to which
    those of the type are added.
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}
            definitions[kind.__name__] = _struct(kind, path, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    inner = typing.get_args(kind)

    def of_inner(index: int) -> Schema:
        return _schema(inner[index], path, definitions)

    makers: dict[Any, Callable[[], Schema]] = {
        typing.Annotated: lambda: _bounded(of_inner(0), inner[1:]),
        typing.Literal: lambda: {"enum": [*inner, *([None] if "null" in inner else [])]},
        typing.Union: lambda: {"anyOf": [_schema(part, path, definitions) for part in inner]},
        list: lambda: {"type": "array", "items": of_inner(0)},
        tuple: lambda: _tuple(inner, path, definitions),
        dict: lambda: {"type": "object", "additionalProperties": of_inner(1)},
    }
    makers[types.UnionType] = makers[typing.Union]
    return makers[typing.get_origin(kind)]()


def _tuple(inner: tuple[Any, ...], path: str, definitions: dict[str, Schema]) -> Schema:
    if inner[-1] is Ellipsis:
        return {"type": "array", "items": _schema(inner[0], path, definitions)}
    items = [_schema(part, path, definitions) for part in inner]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _bounded(schema: Schema, metas: tuple[Any, ...]) -> Schema:
    """Add the limits of a number, a text or a list."""
    unit = "Items" if schema.get("type") == "array" else "Length"
    names = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum",
             "min_length": f"min{unit}", "max_length": f"max{unit}", "pattern": "pattern"}  # fmt: skip
    values = {word: getattr(meta, name) for meta in metas for name, word in names.items()}
    return {**schema, **{word: value for word, value in values.items() if value is not None}}
