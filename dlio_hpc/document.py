"""Conversion of YAML and JSON documents to frozen structs. Errors name the file, the key and the invalid value."""

import functools
import re
import reprlib
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dlio_hpc import units
from dlio_hpc.errors import ConfigError, DlioError, InvalidRun, name_hint, nearest_name

T = TypeVar("T")

# Length in characters up to which the nesting of a text cannot exhaust the parser's stack, and maximum number of levels
# of nesting in longer texts.
_PLAIN, _DEEPEST = 8000, 100
# Maximum number of keys that a message suggests.
_MOST_MEANT = 3
_UNIONS = (typing.Union, types.UnionType)
# Maximum characters of an override that a message repeats.
_SHOWN = 100

_PARSERS: dict[type, Any] = {
    units.Size: units.size, units.Seconds: units.seconds, units.Share: units.share, units.Walltime: units.walltime,
}  # fmt: skip
_FAULT = r"(?s)(?P<text>.*?)(?: - at `(?:key` in `)?\$(?P<path>.*)`)?"


def read_yaml(path: Path) -> Any:
    """Read a YAML file as plain data. Raise ConfigError if it cannot be read or is not YAML."""
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a text file. Raise ConfigError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise ConfigError(f"cannot read {path}: {fault}") from fault


def read_named(path: Path, kind: type[T], key: str, member: type[Any]) -> T:
    """Read the YAML file at `path` as the struct `kind`. The values of the mapping `key` in the file are first
    converted one by one to `member`, so that errors name the invalid one.
    """
    data = read_yaml(path)
    given = data.get(key) if isinstance(data, dict) else None
    for name, value in given.items() if isinstance(given, dict) else ():
        convert(value, member, f"{path}: {key}.{name}")
    return convert(data, kind, str(path))


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text to plain data, with the numbers and booleans of YAML 1.2. Raise ConfigError if the text is not
    valid or has duplicate keys.
    """
    import yaml

    try:
        if len(text) > _PLAIN:
            _check_depth(text, source)
        return yaml.load(text, Loader=_loader())
    except yaml.YAMLError as fault:
        where = getattr(fault, "problem_mark", None)
        line = f" line {where.line + 1}" if where else ""
        raise ConfigError(f"{source}:{line} not valid YAML: {getattr(fault, 'problem', None) or fault}") from fault
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as fault:  # unusual tags or keys, or depth
        raise ConfigError(f"{source}: not plain YAML: {reprlib.repr(str(fault))}") from fault


def _check_depth(text: str, source: str) -> None:
    """Raise ConfigError if the YAML text is nested too deeply. The C parser would overflow its stack, which cannot be
    caught.
    """
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ConfigError(f"{source}: lists or mappings are nested more than {_DEEPEST} levels deep")


def override(data: Any, text: str) -> None:
    """Apply the override `key.path=value` to the mapping `data`, which is modified. The value is read as YAML. Raise
    ConfigError if that fails.
    """
    key, equals, value = text.partition("=")
    source = f"-S {text}" if len(text) <= _SHOWN else f"-S {text[:_SHOWN]}..."
    if not equals or not key.strip(".") or not value.strip():
        raise ConfigError(f"{source}: write key=value, such as dataset.files=8")
    put(data, key.strip(), parse_yaml(value, source), source)


def put(data: Any, key: str, value: Any, source: str) -> None:
    """Set the value of `key`, which may be a path such as `reader.shuffle.files`, in the mapping `data`. `data` is
    modified, and missing parents are created. Raise ConfigError if a parent is not a mapping. source: origin of the
    value, for the message.
    """
    *parents, last = key.split(".")
    for parent in parents:
        if not isinstance(data, dict):
            break
        child = data.get(parent)
        if child is None:
            child = data[parent] = {}
        data = child
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: {'.'.join(parents)} has a value and no keys below it")
    data[last] = value


def convert(data: object, kind: type[T], source: str) -> T:
    """Convert plain data to `kind`. If the data are not valid, raise ConfigError, which names `source` and the invalid
    key.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as fault:
        raise ConfigError(f"{source}: {_explain(str(fault), data, kind)}") from fault


def plain(value: object) -> Any:
    """Convert a struct to plain data, as in YAML files."""
    return msgspec.to_builtins(value, enc_hook=_encode_hook)


def decode(content: bytes, kind: type[T], source: str, error: type[DlioError] = ConfigError) -> T:
    """Decode a JSON document as `kind`. If the document is not valid, raise an exception of the class `error`, which
    names `source` and the invalid key.
    """
    try:
        return msgspec.json.decode(content, type=kind, dec_hook=_decode_hook)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise error(f"{source}: {fault}") from fault


def check_moments(records: Iterable[object], names: Sequence[str], source: str) -> None:
    """Raise InvalidRun if one of the fields `names` of a record does not hold a valid time. source: name of the file,
    for the message.
    """
    for record in records:
        for name in names:
            try:
                units.timestamp(getattr(record, name))
            except (ValueError, OverflowError) as fault:
                value = reprlib.repr(getattr(record, name))
                raise InvalidRun(f"{source}: {name}: {value} is not a time such as 2026-11-21T14:25:01Z") from fault


def encode(value: object) -> bytes:
    """Return a struct as indented JSON with a final newline. The same value always gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_encode_hook), indent=2) + b"\n"


def _decode_hook(kind: type, value: object) -> Any:
    return _PARSERS[kind](value)


def _encode_hook(value: object) -> object:
    if isinstance(value, units.Walltime):
        return units.format_walltime(value)  # a number without a unit would be read as minutes
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError(f"no JSON form of {type(value).__name__}")


@functools.cache
def _loader() -> Any:
    """Return PyYAML's safe loader, changed to the core schema of YAML 1.2 and to reject duplicate keys. With it,
    1:30:00 stays text, 1e-3 is a number, and "on" is text.
    """
    import yaml

    class YamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: typing.ClassVar[dict[str, Any]] = {}

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys: set[str] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(None, None, "a key must be a scalar", key.start_mark)
                if key.value in keys:
                    raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value!r}", key.start_mark)
                keys.add(key.value)
            return super().construct_mapping(node, deep)

    for tag, pattern, first in (
        ("null", r"null|~|", "n~"),
        ("bool", r"true|false", "tf"),
        ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
        ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ):
        YamlLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})\\Z"), [*first, ""])
    return YamlLoader


def _explain(message: str, data: object, kind: Any) -> str:
    match = re.fullmatch(_FAULT, message)
    assert match is not None
    text, names = match["text"], re.findall(r"\.(\w+)|\[(\d+)\]", match["path"] or "")
    path = [name or int(index) for name, index in names]
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
    expected = kind_at(kind, path)
    if unknown := re.search(r"unknown field `(.*)`", text):
        known = [field.encode_name for field in msgspec.structs.fields(expected)]
        text = f"unknown key {unknown[1]!r}; {_meant(unknown[1], known, kind)}known keys: {', '.join(known)}"
    elif missing := re.search(r"missing required field `(.*)`", text):
        text = f"key {missing[1]!r} is missing"
    elif choices := _choices(expected):
        text = f"found {reprlib.repr(_value_at(data, path))}; use one of: {', '.join(choices)}"
    elif text.startswith("Expected "):
        text = text.lower() + (
            f", found {reprlib.repr(_value_at(data, path))}" if path else ": a mapping of keys is needed"
        )
    return f"{where}: {text}" if where else text


def _meant(name: str, known: list[str], kind: Any) -> str:
    """Return a suggestion for the unknown key `name`. If some section has a key of this name, suggest that key.
    Otherwise suggest a similar key of the same section or, if there is none, of any section. Return "" if no key is
    similar. known: keys of the same section.
    """
    everywhere = list(_keys(kind))
    same = [key for key in everywhere if key.rpartition(".")[2] == name]
    if same:
        return f"did you mean {' or '.join(map(repr, same[:_MOST_MEANT]))}? "
    if hint := name_hint(name, known):
        return hint
    leaf = nearest_name(name, [key.rpartition(".")[2] for key in everywhere])
    return "" if leaf is None else _meant(leaf, known, kind)


def _keys(kind: Any, section: str = "") -> Iterator[str]:
    """Yield the keys of a struct and of the structs nested in it, with their sections, such as reader.read_threads."""
    for field in msgspec.structs.fields(kind):
        yield section + field.encode_name
        parts = typing.get_args(field.type) if typing.get_origin(field.type) in _UNIONS else (field.type,)
        for part in parts:
            if hasattr(part, "__struct_fields__"):
                yield from _keys(part, f"{section}{field.encode_name}.")


def kind_at(kind: Any, path: list[Any]) -> Any:
    """Return the type of the key at `path` in the struct `kind`. Return None if a part of the path is not a key of a
    struct.
    """
    for step in path:
        if not isinstance(step, str) or not hasattr(kind, "__struct_fields__"):
            return None
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        kind = fields.get(step)
        structs = [member for member in typing.get_args(kind) if hasattr(member, "__struct_fields__")]
        kind = structs[0] if structs else kind
    return kind


def _choices(kind: Any) -> list[str]:
    """Return the values of a Literal, with null if the key may be null. Return an empty list for other types."""
    optional = type(None) in typing.get_args(kind)
    kinds = [part for part in typing.get_args(kind) if part is not type(None)] if optional else [kind]
    if len(kinds) != 1 or typing.get_origin(kinds[0]) is not typing.Literal:
        return []
    return [*map(str, typing.get_args(kinds[0])), *(["null"] if optional else [])]


def _value_at(data: Any, path: list[Any]) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def refuse(*rules: tuple[bool, str]) -> None:
    """Check rules, each of which is a condition and a message. Raise ValueError with the message of the first rule
    whose condition is true.
    """
    for is_refused, message in rules:
        if is_refused:
            raise ValueError(message)
