"""Conversion of YAML and JSON documents to frozen structs. Errors name the file, the key and the invalid value."""

import copy
import functools
import math
import re
import reprlib
import shlex
import stat
import types
import typing
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, DlioError, InvalidRun, of_system
from dlio_hpc.base.key_faults import KeyFault, Steps, example_key, explain
from dlio_hpc.base.yaml_words import plainly

T = TypeVar("T")

# Length in characters up to which the nesting of a text cannot exhaust the parser's stack, and maximum number of levels
# of nesting in longer texts.
_PLAIN, _DEEPEST = 8000, 100
# Maximum number of values of a YAML text, those that its aliases repeat included.
_MOST_VALUES = 1_000_000
# Maximum size in bytes of a text file, and beginnings of the paths of pipes that the caller of this process has opened.
_MOST_BYTES, _OWN_PIPES = 64 << 20, ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
# Errors of PyYAML for unusual tags, keys or depth.
_UNUSUAL = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
# Largest number written with an exponent, such as 1e5, that is read as a whole number. Larger ones are not exact.
_MOST_EXACT = 2**53
# Maximum characters of an override that a message repeats.
_SHOWN = 100

# What messages say about frequent mistakes, by the parser's description of the problem.
_MISTAKES = {
    "exceeded maximum nesting depth": "lists or mappings are nested too many levels deep",
    "mapping values are not allowed in this context":
        "an unexpected colon; indent the keys of a mapping alike, and quote text that contains ': '",
    "could not find expected ':'": "a key without a colon; write key: value",
    "did not find expected key":
        "this line does not belong to the mapping before it; indent the keys of a mapping alike",
    "did not find expected ',' or ']'": "a list is not closed, or lacks a comma; write [1, 2]",
    "did not find expected ',' or '}'": "a mapping is not closed, or lacks a comma; write {key: value, key: value}",
    "did not find expected '-' indicator": "this line does not belong to the list before it; indent its items alike",
    "did not find expected node content": "a value is missing between two commas or brackets",
    "found unexpected end of stream": "a quotation mark is not closed",
    "found character that cannot start any token": "a value begins with a character that must be in quotes",
    "control characters are not allowed": "the file is not text",
    "but found another document": "the file has two documents (---); split it into two files",
    "did not find expected <document start>": "text after the end of the document; indent the keys of a mapping alike",
}  # fmt: skip
# Options in job files of fio.
_FIO = frozenset({"ioengine", "rw", "readwrite", "bs", "iodepth", "numjobs", "filename"})
_OF_FIO = (
    "a job file of fio (INI), not YAML, and it cannot be imported; write a workload with dataset and reader (dlio-hpc "
    "workloads demo prints one): bs is reader.transfer_size, iodepth is reader.queue_depth, direct is reader.direct, "
    "numjobs is --ppn"
)
# Maximum number of further unknown keys that a message names.
_MOST_UNKNOWN = 10
# A blank that is none for YAML: at the beginning or end of a line, or after a colon; outside of quotes and comments.
_ODD_BLANK = re.compile(
    r"""^(?:[ \t-]*|[^#'"]*:[ \t]*|[^#'"]*(?=.[ \t]*(?:#|$)))(?P<sign>[\u00a0\u2000-\u200b\u202f\u205f\u3000])"""
)
_TAB = "a tab at the beginning; indent with blanks"


class InvalidKey(ConfigError):
    """A value that a struct does not accept. fault: its key, and the message without the name of the file."""

    def __init__(self, source: str, fault: KeyFault) -> None:
        super().__init__(f"{source}: {fault.text}" if source else fault.text)
        self.fault = fault


def read_yaml(path: Path) -> Any:
    """Read a YAML file as plain data. Raise ConfigError if it cannot be read or is not YAML."""
    return parse_yaml(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a text file. Raise ConfigError if it cannot be read, is no regular file, or is very large. Pipes of this
    process, such as /dev/stdin and <(...) of a shell, are read, too.
    """
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or str(path).startswith(_OWN_PIPES)):
            raise ConfigError(f"{path} is not a regular file; give a file, or /dev/stdin to read from a pipe")
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"{path} has more than {units.format_size(_MOST_BYTES)}, too much for a YAML file")
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as fault:
        odd = f"byte {fault.start} is {fault.object[fault.start]:#04x}"
        raise ConfigError(f"cannot read {path}: it is not a text file in UTF-8 ({odd})") from fault
    except OSError as fault:
        raise ConfigError(f"cannot read {of_system(fault, path)}") from fault


def convert_changed(
    data: Any, kind: type[T], source: str, overrides: Sequence[str] = (), section: str = "",
    origins: Mapping[str, str] = types.MappingProxyType({}),
) -> T:  # fmt: skip
    """Convert the data of the file `source`, to which overrides in the form `key=value` have been applied, to the
    struct `kind`. If the data are not valid, raise ConfigError, which names the overrides that cause the fault, or the
    line of the file. section: prefix of the keys of the overrides on the command line, such as "site.". origins: places
    of values that are neither from the file nor from an override, by key; a place may be empty.
    """
    try:
        return convert(data, kind, source)
    except InvalidKey as fault:
        place = place_of(source, fault.fault.steps, overrides, section, origins)
        several = "" if fault.fault.takes_list else _several(fault.fault.steps, overrides)
        several += _below_section(fault.fault.steps, data, kind, overrides, section)
        known = fault.fault._replace(reason=fault.fault.reason + several)
        raise InvalidKey(place, known) from fault


def _below_section(steps: Steps, data: Any, kind: Any, overrides: Sequence[str], section: str) -> str:
    """Return advice if an override gives a section one value in place of a mapping: an override of one of its keys."""
    key = ".".join(map(str, steps))
    value = value_at(data, key)
    if value is None or isinstance(value, dict) or key not in [text.partition("=")[0].strip() for text in overrides]:
        return ""
    below = example_key(kind, steps, value, _decode_hook)
    return f"; to set one of its keys: {shlex.join(['-S', f'{section}{key}.{below}'])}" if below else ""


def _several(steps: Steps, overrides: Sequence[str]) -> str:
    """Return advice if an override gives several values for the key at `steps`."""
    key = ".".join(map(str, steps))
    for text in overrides:
        name, _, values = text.partition("=")
        if name.strip() == key and (match := re.fullmatch(r"\s*\[?(\w[\w. ]*(?:,\s*\w[\w. ]*)+)\]?\s*", values)):
            return f"; to measure several values: -P {key}={match[1]}"
        if name.strip() == key and (match := re.fullmatch(r"([^,]+),\s*([a-z_]+\.[\w.]+=.*)", values)):
            return (
                f"; each setting needs its own option: -S {key}={match[1].strip()} -S {match[2]}; in the environment "
                f"variable DLIO_HPC_SET, it needs its own line: DLIO_HPC_SET=$'{key}={match[1].strip()}\\n{match[2]}'"
            )
    return ""


def place_of(
    source: str, steps: Steps, overrides: Sequence[str], section: str = "",
    origins: Mapping[str, str] = types.MappingProxyType({}),
) -> str:  # fmt: skip
    """Return the place that sets the value at `steps`: one of `origins`, or an override. If there is none, return the
    file with the line of the key, and the overrides of keys that are nested in this key. For the arguments, see
    convert_changed().
    """
    key = ".".join(map(str, steps))
    others = [place for name, place in origins.items() if f"{key}.".startswith(f"{name}.")]
    if others:
        return others[-1]
    given = {text.partition("=")[0].strip(): of_override(section + text) for text in overrides}
    above = [option for name, option in given.items() if f"{key}.".startswith(f"{name}.")]
    if above:
        return above[-1]
    below = [option for name, option in given.items() if not key or name.startswith(f"{key}.")]
    return " ".join([f"{in_file(Path(source), steps)} with", *below] if below else [in_file(Path(source), steps)])


def in_file(path: Path, steps: Steps) -> str:
    """Return the name of a YAML file with the line of a key, or the name alone if the file does not have the key."""
    import yaml

    with suppress(OSError, UnicodeDecodeError, yaml.YAMLError, *_UNUSUAL):
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=_loader())
        line = None
        for step in steps:
            key, node = _below(node, step)
            if key is None:
                break
            line = key.start_mark.line + 1
        if line is not None:
            return f"{path}, line {line}"
    return str(path)


def _below(node: Any, step: str | int) -> tuple[Any, Any]:
    """Return the YAML nodes of a key and of its value in a mapping. For an item of a list, both are the node of the
    item. Return None twice if there is no such key.
    """
    import yaml

    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == str(step)), (None, None))
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None, None


def parse_yaml(text: str, source: str) -> Any:
    """Parse YAML text to plain data, with the numbers and booleans of YAML 1.2. Raise ConfigError if the text is not
    valid or has duplicate keys.
    """
    import yaml

    if not text.isascii():
        _refuse_odd_blanks(text, source)
    try:
        if len(text) > _PLAIN or "*" in text:
            _check_size(text, source)
        data = yaml.load(text, Loader=_loader())
        if isinstance(data, str) and _is_of_fio(text):
            raise ConfigError(f"{source}: {_OF_FIO}")
        return data
    except yaml.YAMLError as fault:
        if _is_of_fio(text):
            raise ConfigError(f"{source}: {_OF_FIO}") from fault
        mark = _mark(fault)
        line = f", line {mark.line + 1}" if mark is not None and "\n" in text else ""
        raise ConfigError(f"{source}{line}: {_mistake(fault, text)}") from fault
    except _UNUSUAL as fault:
        raise ConfigError(f"{source}: not plain YAML: {reprlib.repr(str(fault))}") from fault


def _is_of_fio(text: str) -> bool:
    """Return whether a text is a job file of fio: a section in brackets, and options with equal signs."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.strip()[0] not in "#;"]
    has_section = bool(lines) and re.fullmatch(r"\[[\w. -]+\]", lines[0]) is not None
    return has_section and any(line.partition("=")[0].strip() in _FIO for line in lines if "=" in line)


def _refuse_odd_blanks(text: str, source: str) -> None:
    """Raise ConfigError if a line has another sign in place of a blank where blanks have a meaning, as in text from a
    document. YAML would take this sign for a part of a key or a value.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if (match := _ODD_BLANK.search(line)) is not None:
            place = f"{source}, line {number}" if "\n" in text else source
            sign = match["sign"]
            raise ConfigError(
                f"{place}: {unicodedata.name(sign).lower()} (U+{ord(sign):04X}) in place of a blank; type a blank"
            )


def _mark(fault: Exception) -> Any:
    """Return the place of a problem that the YAML parser has found; None if it is not known. The parser notices after a
    key that the key has no colon.
    """
    is_of_key = getattr(fault, "context", None) == "while scanning a simple key"
    return getattr(fault, "context_mark" if is_of_key else "problem_mark", None)


def _mistake(fault: Exception, text: str) -> str:
    """Return a description of a problem that the YAML parser has found in a text."""
    problem = str(getattr(fault, "problem", None) or fault)
    mark = _mark(fault)
    if isinstance(fault, _key_error()):
        return problem
    lines = text.split("\n")
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    if line.lstrip(" ").startswith("\t"):
        problem = _TAB
    elif glued := re.fullmatch(r"[ -]*(\w+):(\S.*)", line):
        problem = f"write a blank after the colon: {glued[1]}: {glued[2]}"
    return f"not valid YAML: {_MISTAKES.get(problem, problem)}"


def _check_size(text: str, source: str) -> None:
    """Raise ConfigError if the YAML text is nested too deeply, or if its aliases repeat too many values. The C parser
    would overflow its stack, which cannot be caught. Nested aliases can expand a few hundred bytes to millions of
    values.
    """
    import yaml

    anchored: dict[str, int] = {}
    open_values: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        anchor, count = getattr(event, "anchor", None), 1
        if isinstance(event, yaml.CollectionStartEvent):
            open_values.append((anchor, 1))
            if len(open_values) > _DEEPEST + 1:
                raise ConfigError(f"{source}: lists or mappings are nested more than {_DEEPEST} levels deep")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, count = open_values.pop()
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == name for name, _ in open_values):
                raise ConfigError(f"{source}: the value {anchor} contains itself through an alias")
            anchor, count = None, anchored.get(anchor or "", 1)
        elif not isinstance(event, yaml.ScalarEvent):
            continue
        if anchor is not None:
            anchored[anchor] = count
        name, total = open_values[-1]
        open_values[-1] = name, total + count
        if total + count > _MOST_VALUES:
            raise ConfigError(f"{source}: more than {_MOST_VALUES:,} values, those that aliases repeat included")


def override(data: Any, text: str) -> str:
    """Apply the override `key.path=value` to the mapping `data`, which is modified. The value is read as YAML. Return
    the key. Raise ConfigError if that fails.
    """
    key, equals, value = text.partition("=")
    source = of_override(text)
    if not equals or not key.strip(".") or not value.strip():
        raise ConfigError(f"{source}: write key=value, such as dataset.files=8")
    # A pattern such as *.npz, which YAML takes for an alias.
    is_pattern = value.strip().startswith("*") and "\n" not in value
    put(data, key.strip(), value.strip() if is_pattern else parse_yaml(value, source), source)
    return key.strip()


def value_at(data: Any, key: str) -> Any:
    """Return the value of `key`, which may be a path such as `reader.shuffle.files`; None if there is no such value."""
    for step in key.split("."):
        data = data.get(step) if isinstance(data, dict) else None
    return data


def single_key(origin: str, key: str, value: object) -> str:
    """Return how a user sets a single key, for messages: by the option -S if that is the origin, or in a YAML file."""
    text = plainly(value) if not isinstance(value, str) else value
    return shlex.join(["-S", f"{key}={text}"]) if origin == "-S" else f"{key}: {text}"


def of_override(text: str) -> str:
    """Return the option that gives an override, for messages."""
    return f"-S {text}" if len(text) <= _SHOWN else f"-S {text[:_SHOWN]}..."


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
    """Convert plain data to `kind`. If the data are not valid, raise InvalidKey, which names `source` and the invalid
    key.
    """
    try:
        return msgspec.convert(data, kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as fault:
        known = explain(str(fault), data, kind, _decode_hook)
        raise InvalidKey(source, known._replace(reason=known.reason + _more_unknown(known, data, kind))) from fault


def _more_unknown(first: KeyFault, data: object, kind: Any) -> str:
    """Return a clause that names the unknown keys of the data after the first fault, which is one of them. Return an
    empty text if there are no others, or if the first fault is of another kind.
    """
    data, fault, more = copy.deepcopy(data), first, list[str]()
    while fault.unknown and len(more) < _MOST_UNKNOWN and _remove(data, fault.steps):
        try:
            msgspec.convert(data, kind, dec_hook=_decode_hook)
            break
        except msgspec.ValidationError as other:
            fault = explain(str(other), data, kind, _decode_hook)
            more += [fault.unknown] if fault.unknown else []
    return f"; also unknown: {', '.join(more)}" if more else ""


def _remove(data: Any, steps: Steps) -> bool:
    """Remove the key at `steps` from the data. Return whether there was one. data: plain data, as of YAML."""
    for step in steps[:-1]:
        data = data[step]
    return isinstance(data, dict) and data.pop(steps[-1], data) is not data


def plain(value: object) -> Any:
    """Convert a struct to plain data, as in YAML files."""
    return msgspec.to_builtins(value, enc_hook=_encode_hook)


def decode(content: bytes, kind: type[T], source: str, error: type[DlioError] = ConfigError) -> T:
    """Decode a JSON document as `kind`. If the document is not valid, raise an exception of the class `error`, which
    names `source` and the invalid key.
    """
    try:
        return msgspec.json.decode(content, type=kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as fault:
        raise error(f"{source}: {_explained(fault, content, kind)}") from fault
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise error(f"{source}: {fault}") from fault


def _explained(fault: msgspec.ValidationError, content: bytes, kind: Any) -> str:
    try:
        return explain(str(fault), msgspec.json.decode(content), kind, _decode_hook).text
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as malformed:  # behind the invalid value
        return str(malformed)


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
    return units.PARSERS[kind](value)


def _encode_hook(value: object) -> object:
    if isinstance(value, units.Walltime):
        return units.format_walltime(value)  # a number without a unit would be read as minutes
    if isinstance(value, units.LargeSize) and 0 < value < units.LEAST_LARGE:
        return f"{int(value)} B"  # a smaller number without a unit is refused
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError(f"no JSON form of {type(value).__name__}")


@functools.cache
def _key_error() -> type[Exception]:
    """Return the class of errors about a key that is valid in YAML, but not in dlio-hpc."""
    import yaml

    class KeyProblem(yaml.constructor.ConstructorError):
        pass

    return KeyProblem


def _twice(key: str, first: int, second: int, is_section: bool) -> str:
    """Return the message for a key that a mapping has in two lines. is_section: whether its value is a mapping."""
    remedy = "merge the two sections" if is_section else "remove one of the two"
    where = f" (also on line {first})" if first != second else ""
    return f"key {key!r} is given twice{where}; {remedy}"


@functools.cache
def _loader() -> Any:
    """Return PyYAML's safe loader, changed to the core schema of YAML 1.2 and to reject duplicate keys. With it,
    1:30:00 stays text, 1e-3 is a number, 1e5 is a whole number, and "on" is text.
    """
    import yaml

    class YamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: typing.ClassVar[dict[str, Any]] = {}

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            lines: dict[str, int] = {}
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise _key_error()(None, None, "a key must not be a list or a mapping", key.start_mark)
                line = key.start_mark.line + 1
                if key.value in lines:
                    is_section = isinstance(value, yaml.MappingNode)
                    raise _key_error()(
                        None, None, _twice(key.value, lines[key.value], line, is_section), key.start_mark
                    )
                lines[key.value] = line
            return super().construct_mapping(node, deep)

        def construct_number(self, node: Any) -> float:
            value = float(node.value)
            if "e" in node.value.lower() and value.is_integer() and abs(value) <= _MOST_EXACT:
                return int(value)
            if math.isinf(value):
                raise _key_error()(None, None, f"{node.value} is too large for a number", node.start_mark)
            return value

    YamlLoader.add_constructor("tag:yaml.org,2002:float", YamlLoader.construct_number)
    for tag, pattern, first in (
        ("null", r"null|~|", "n~"),
        ("bool", r"true|false", "tf"),
        ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
        ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ):
        YamlLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern})\\Z"), [*first, ""])
    return YamlLoader


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


def refuse(*rules: tuple[bool, str]) -> None:
    """Check rules. A rule is a condition and a message. Raise ValueError with the message of the first rule whose
    condition is true.
    """
    for is_refused, message in rules:
        if is_refused:
            raise ValueError(message)
