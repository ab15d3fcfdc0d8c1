"""Messages about keys and values that a struct does not accept: the key, the invalid value, and valid values."""

import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from dlio_hpc.base import key_texts, units
from dlio_hpc.base.errors import name_hint, nearest_name
from dlio_hpc.base.yaml_words import plainly, shown

Steps = tuple[str | int, ...]

# Maximum number of keys that a message suggests. Similarities from which a key of another section, and a choice, are
# suggested.
_MOST_MEANT, _SIMILAR, _SIMILAR_CHOICE = 3, 0.85, 0.75
# Maximum number of keys of a mapping that a message lists as an example, and of known keys beside an unknown one.
_MOST_LISTED, _MOST_KNOWN = 4, 8
# Names of the kinds of files in `dlio-hpc schema`, by the names of their structs.
_SCHEMAS = {"Workload": "workload", "Site": "site", "StudyFile": "study", "Criteria": "criteria"}
# Largest integer that Positive and Natural allow. A message names it only if it was exceeded.
_LARGEST = 2**53
_UNIONS = (typing.Union, types.UnionType)
_FAULT = r"(?s)(?P<text>.*?)(?: - at `(?P<of_key>key` in `)?\$(?P<path>.*)`)?"
_SCALARS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text", **units.SUCH}


# Keys as other tools call them: dlio_benchmark, PyTorch, fio.
_ELSEWHERE = {
    "iodepth": "queue_depth", "num_workers": "read_threads", "workers": "read_threads", "threads": "read_threads",
    "prefetch_factor": "prefetch", "prefetch_size": "prefetch", "num_epochs": "epochs", "bs": "batch_size",
    "steps_between_checkpoints": "every_steps", "checkpoint_after_epoch": "every_steps",
    "num_checkpoints_write": "writes", "num_checkpoints_read": "reads", "epochs_between_evals": "every_epochs",
    "num_files_train": "files", "num_samples_per_file": "samples_per_file", "pattern": "glob", "path": "glob",
    "computation_time": "time", "partition": "queue", "time": "walltime", "project": "account",
}  # fmt: skip
# Keys of YAML files of one kind, which users write at the top of a file of another kind.
_OF_FILES = {
    "verdict": "a suite (--suite)", **dict.fromkeys(("parts", "repeat", "warmup"), "a study (--study)"),
    **dict.fromkeys(("scheduler", "launcher", "queue", "walltime", "account", "setup", "environment", "container"),
                    "a site profile (--site)"),
    "data": "a site profile; --data DIR gives the folder of datasets, too",
}  # fmt: skip
# Keys that are made up, a key that is known where they are written, and what to write there.
_LIMIT = "a limit has the name of its metric, such as min_samples_per_s: 100 or max_read_p99: 50ms; "
_ADVICE = (
    (("bytes", "size", "checkpoint_size"), "model_bytes", "did you mean 'model_bytes'? "),
    (("size", "total_size", "bytes"), "samples_per_file",
     "the size is files x samples_per_file x sample.bytes; dlio-submit --dataset-size SIZE changes files; "),
    (("metric", "min", "max", "limit", "value"), "min_samples_per_s", _LIMIT),
    (("every_epochs", "every_epoch", "epochs", "interval", "frequency"), "every_steps",
     "a checkpoint is written after every epoch unless every_steps is set: checkpoint.every_steps=N; "),
)  # fmt: skip
# MB/s in other units of rates, at the end of a key.
_IN_MBPS = {"GBps": "1000", "TBps": "1000000", "GiBps": "1073.74", "TiBps": "1099511.63"}
# Factors that people write behind a count.
_POWERS = {"": 1, "k": 1000, "m": 1000000}
# Formats of images that are not generated.
_IMAGES = ("image", "images", "tiff", "tif", "gif", "bmp", "webp")
# Least length of the beginning of a key by which the key is suggested.
_BEGINNING = 4


class KeyFault(NamedTuple):
    """An invalid value of a document. steps: keys and indices that lead to the value. place: keys and indices for the
    message; an unknown key is not included. reason: message without the place. takes_list: whether the value may be a
    list, so that several values are not a sweep. unknown: name of an unknown key with its sections, and a suggestion;
    empty for other faults.
    """

    steps: Steps
    place: Steps
    reason: str
    takes_list: bool = False
    unknown: str = ""

    @property
    def text(self) -> str:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.place).lstrip(".")
        return f"{place}: {self.reason}" if place else self.reason


def explain(message: str, data: object, kind: Any, hook: Callable[[type, object], Any], file: Any = None) -> KeyFault:
    """Return the fault that a msgspec.ValidationError describes. message: text of the error. data: input of the
    conversion that failed. kind, hook: struct and hook function of this conversion. file: struct of the whole file;
    None if it is `kind`.
    """
    file = kind if file is None else file
    match = re.fullmatch(_FAULT, message)
    assert match is not None
    names = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", match["path"] or "")
    steps: list[str | int] = [name or (index if index == "..." else int(index)) for name, index in names]
    if "..." in steps:
        return _in_mapping(steps[: steps.index("...")], data, kind, hook, file)
    expected, text, value, place = _type_at(kind, steps), match["text"], _value_at(data, steps), tuple(steps)
    if unknown := re.search(r"unknown field `(.*)`", text):
        fields = [field.encode_name for field in msgspec.structs.fields(_struct_in(expected))]
        owner = None if steps else _OF_FILES.get(unknown[1])
        hint = meant(unknown[1], fields, kind) if owner is None else f"it is a key of {owner}; "
        text = f"unknown key {unknown[1]!r}; {hint}{known_keys(fields, file, bool(hint))}"
        suggested = f" ({hint.rstrip(' ;')})" if hint else ""
        return KeyFault((*place, unknown[1]), place, text, unknown=".".join(map(str, (*place, unknown[1]))) + suggested)
    if missing := re.search(r"missing required field `(.*)`", text):
        text = f"key {missing[1]!r} is missing; {_example_of(_struct_in(expected), missing[1])}"
    elif match["of_key"]:
        text = _wrong_key(value, expected, file)
    elif text.startswith(("Expected ", "Invalid enum value")):
        text = _wrong_value(value, expected, _example_at(kind, steps)) + _rate(value, str(steps[-1] if steps else ""))
    return KeyFault(place, place, text, _takes_list(expected))


def known_keys(fields: Sequence[str], file: Any, has_hint: bool) -> str:
    """Return the end of a message about an unknown key: the first known keys, unless a key was suggested, and the
    command that lists all of them. fields: known keys. file: struct of the file. has_hint: whether a key was suggested.
    """
    schema = _SCHEMAS.get(getattr(file, "__name__", ""))
    command = "" if schema is None else f"dlio-hpc schema {schema} --text lists all keys"
    if has_hint and command:
        return command
    known = f"known keys: {units.listed(fields, _MOST_KNOWN)}"
    return f"{known}; {command}" if command and len(fields) > _MOST_KNOWN else known


def meant(name: str, known: Sequence[str], kind: Any) -> str:
    """Return a suggestion for the unknown key `name`. If some section has a key of this name, suggest that key.
    Otherwise suggest a similar key of the same section or, if there is none, a very similar one of any section. Return
    "" if no key is similar. known: keys of the same section. kind: struct with all sections.
    """
    return meant_of(name, known, list(keys_of(kind)))


def meant_of(name: str, known: Sequence[str], everywhere: Sequence[str]) -> str:
    """Return a suggestion for the unknown key `name`, by the rules of meant(). known: keys of the same section.
    everywhere: keys of all sections, with the names of their sections.
    """
    if advice := [text for names, neighbour, text in _ADVICE if name in names and neighbour in known]:
        return advice[0]
    same = [key for key in everywhere if key.rpartition(".")[2] == name]
    if same:
        return f"did you mean {' or '.join(map(repr, same[:_MOST_MEANT]))}? "
    begun = [key for key in known if len(name) >= _BEGINNING and key.startswith(name.lower())]
    elsewhere = _ELSEWHERE.get(name.lower())
    if (of_unit := _of_other_unit(name, known)) is not None:
        return of_unit
    if begun or elsewhere in known:
        return f"did you mean {(min(begun, key=len) if begun else elsewhere)!r}? "
    if hint := name_hint(name, known):
        return hint
    leaf = nearest_name(name, [key.rpartition(".")[2] for key in everywhere], _SIMILAR)
    return "" if leaf is None else meant_of(leaf, known, everywhere)


def _of_other_unit(name: str, known: Sequence[str]) -> str | None:
    """Return a suggestion for a key with another unit, such as min_read_GBps; None if it is not such a key."""
    begin, _, unit = name.rpartition("_")
    meant = f"{begin}_MBps"
    if unit not in _IN_MBPS or meant not in known:
        return None
    return f"did you mean {meant!r}? Multiply the value by {_IN_MBPS[unit]}, because its unit is MB/s; "


def keys_of(kind: Any, section: str = "") -> Iterator[str]:
    """Yield the keys of a struct and of the structs nested in it. A key includes its sections, as in
    reader.read_threads. NAME stands for a key that the user chooses, as in parts.NAME.sweep.
    """
    for field in msgspec.structs.fields(kind):
        yield section + field.encode_name
        for part in _parts(field.type):
            inner = typing.get_args(part)[1] if typing.get_origin(part) is dict else None
            for struct, name in ((part, ""), (inner, "NAME.")):
                if hasattr(struct, "__struct_fields__"):
                    yield from keys_of(struct, f"{section}{field.encode_name}.{name}")


def wanted(kind: Any, example: str = "") -> str:
    """Return a description of the values that a type accepts, such as "a whole number of at least 1, or null". example:
    a valid value.
    """
    parts = [part for part in _parts(kind) if part is not type(None)]
    null = ["null"] if len(parts) < len(_parts(kind)) else []
    choices = [str(choice) for part in parts for choice in _choices(part)]
    ways = [_way(part, example) for part in sorted(parts, key=_is_nested) if not _choices(part)]
    if choices and not ways:
        return f"one of: {', '.join([*choices, *null])}"
    return " or ".join([*([f"one of {', '.join(choices)}"] if choices else []), *ways, *null])


def _in_mapping(
    steps: list[str | int], data: object, kind: Any, hook: Callable[[type, object], Any], file: Any
) -> KeyFault:
    """Return the fault of a value in the mapping at `steps`. msgspec's messages do not name the keys of a mapping. For
    the other arguments, see explain().
    """
    expected = _type_at(kind, steps)
    inner = next(typing.get_args(part)[1] for part in _parts(expected) if typing.get_origin(part) is dict)
    for key, value in _value_at(data, steps).items():
        try:
            msgspec.convert(value, inner, dec_hook=hook)
        except msgspec.ValidationError as fault:
            above = (*steps, str(key))
            if nested := _without_name(steps, str(key), value, inner):
                return KeyFault(above, above, nested)
            below = explain(str(fault), value, inner, hook, file)
            return below._replace(steps=(*above, *below.steps), place=(*above, *below.place))
    raise AssertionError("a value of the mapping is invalid")


def _without_name(steps: Sequence[str | int], key: str, value: object, inner: Any) -> str:
    """Return advice if an entry of a mapping has the name of a key of its entries: the user left out the level of
    names, as in criteria: {min_au: 90%}. Return "" if this is not so. inner: type of the entries.
    """
    struct = _struct_in(inner)
    fields = [] if struct is None else [field.encode_name for field in msgspec.structs.fields(struct)]
    if key not in fields or (isinstance(value, dict) and set(value) & set(fields)):
        return ""
    nested = f"{'.'.join(map(str, steps))}: {{NAME: {plainly({key: value})}}}"
    return f"the level of names is missing; write {nested}, with a NAME that you choose"


def _wrong_value(value: object, kind: Any, example: str) -> str:
    choices = [str(choice) for part in _parts(kind) for choice in _choices(part)]
    if choices and isinstance(value, str):
        if value.lower() in _IMAGES and "jpeg" in choices:
            return (
                f"found {plainly(value)}; use jpeg or png, or raw for images of other kinds; formats: "
                f"{', '.join(choices)}"
            )
        if value == "mpirun" and "hydra" in choices:
            return (
                "found mpirun, which is a command; kind is its MPI library (mpirun --version): openmpi for Open MPI, "
                f"hydra for MPICH and Intel MPI; kinds: {', '.join(choices)}"
            )
        return f"found {plainly(value)}; {_meant_choice(value, choices)}use {wanted(kind, example)}"
    most = " and at most 2^53" if isinstance(value, int) and value > _LARGEST else ""
    advice = _as_number(value, kind) + _as_text(value, kind) + _glued(value, kind) + _by_number(value, kind)
    return f"found {shown(value)}; use {wanted(kind, example)}{most}{advice}"


def _meant_choice(value: str, choices: Sequence[str]) -> str:
    """Return a suggestion for a value that is none of the choices: the choice that reports write so, as samples/s for
    samples_per_s, or a similar one. Return "" if there is none.
    """
    written = {choice.replace("_per_", "/").lower(): choice for choice in choices}
    if value.lower() in written:
        return f"did you mean {written[value.lower()]!r}? "
    return name_hint(value, choices, _SIMILAR_CHOICE)


def _by_number(value: object, kind: Any) -> str:
    """Return advice if a mapping by numbers of nodes is required, and the value is one for all numbers."""
    inner = next((typing.get_args(part) for part in _parts(kind) if typing.get_origin(part) is dict), (None, None))
    if inner[0] is not int or not isinstance(value, (str, int, float)):
        return ""
    return f"; for any number of nodes: {{1: {value}}}"


def _as_text(value: object, kind: Any) -> str:
    """Return advice if text is required, and YAML reads the value as a number or as true or false."""
    is_text = str in _bases(kind) and isinstance(value, (int, float))
    return f'; write "{shown(value)}" in quotation marks' if is_text else ""


def _as_number(value: object, kind: Any) -> str:
    """Return advice if a whole number is required, and the value is one in another notation: 8.0, 100_000 or 100k."""
    if int not in _bases(kind) or isinstance(value, bool) or not isinstance(value, (float, str)):
        return ""
    match = re.fullmatch(r"(\d+|\d{1,3}(?:[_, ']\d{3})+|\d+\.0*)([kKM]?)", str(value).strip())
    if match is None:
        return ""
    number = int(re.sub(r"\.0*$|\D", "", match[1])) * _POWERS[match[2].lower()]
    return f"; write {number}"


def _rate(value: object, key: str) -> str:
    """Return advice if a rate in MB/s has a unit."""
    match = re.fullmatch(r"([\d.]+) *([kMGT]i?)B/s", value) if isinstance(value, str) else None
    if match is None or not key.endswith("_MBps"):
        return ""
    return f"; in MB/s and without a unit: {units.size(f'{match[1]} {match[2]}B') / 1e6:.12g}"


def _glued(value: object, kind: Any) -> str:
    """Return advice if a mapping is required, but the value is text such as batch_size:4, without a blank."""
    match = re.fullmatch(r"(\w+):(\S.*)", value) if isinstance(value, str) else None
    if match is None or _struct_in(kind) is None:
        return ""
    return f"; write a blank after the colon: {match[1]}: {match[2]}"


def _wrong_key(mapping: object, kind: Any, file: Any) -> str:
    """Return the message about a key whose type the mapping does not accept. file: struct of the file."""
    struct = _struct_in(kind)
    if struct is not None:
        fields = [field.encode_name for field in msgspec.structs.fields(struct)]
        odd = next((key for key in mapping if not isinstance(key, str)), None) if isinstance(mapping, dict) else None
        return f"found the key {plainly(odd)}; {known_keys(fields, file, has_hint=False)}"
    expected = next(typing.get_args(part)[0] for part in _parts(kind) if typing.get_origin(part) is dict)
    return f"found {shown(mapping)}; each of its keys must be {wanted(expected)}{_unbracketed(mapping)}"


def _unbracketed(mapping: object) -> str:
    """Return advice if a mapping in braces has a list without brackets, such as {a: 1, 2}."""
    items = list(mapping.items()) if isinstance(mapping, dict) else []
    rest = [key for key, value in items if value is None and not isinstance(key, str)]
    first = [(key, value) for key, value in items if isinstance(key, str) and value is not None]
    if len(first) != 1 or len(rest) + 1 != len(items):
        return ""
    return f"; write a list in brackets: {first[0][0]}: {plainly([first[0][1], *rest])}"


def _parts(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return typing.get_args(kind) if typing.get_origin(kind) in _UNIONS else (kind,)


def _choices(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if typing.get_origin(kind) is Literal else ()


def _is_nested(kind: Any) -> bool:
    return (typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind) not in _SCALARS


def _struct_in(kind: Any) -> Any:
    return next((part for part in _parts(kind) if hasattr(part, "__struct_fields__")), None)


def _way(kind: Any, example: str) -> str:
    """Return a description of the values that a type accepts. The type is not a union."""
    base, *metas = typing.get_args(kind) if typing.get_origin(kind) is Annotated else (kind,)
    if base in _SCALARS:
        described = next((meta.description for meta in metas if meta.description), None)
        return described or _SCALARS[base] + "".join(map(_limits, metas))
    such = f", such as {example}" if example[:1] in ("{", "[") else ""
    if hasattr(base, "__struct_fields__"):
        names = [field.encode_name for field in msgspec.structs.fields(base)]
        listed = ", ".join([*names[:_MOST_LISTED], *(["..."] if len(names) > _MOST_LISTED else [])])
        return f"a mapping{such}" if such else f"a mapping with keys such as {listed}"
    if typing.get_origin(base) is dict:
        return f"a mapping{such}"
    inner = typing.get_args(base)
    if typing.get_origin(base) is tuple and inner[-1] is not Ellipsis:
        return f"a list of {len(inner)} items{such}"
    return "a list" + "".join(map(_lengths, metas)) + such


def example_key(kind: Any, steps: Steps, value: object, hook: Callable[[type, object], Any]) -> str:
    """Return KEY=VALUE for a key of the section at `steps`: the first key that accepts `value`, or the first key whose
    docstring has an example. Return "" if there is no section or no such key.
    """
    struct = _struct_in(_type_at(kind, steps))
    fields = [] if struct is None else msgspec.structs.fields(struct)
    for field in fields:
        with suppress(msgspec.ValidationError):
            msgspec.convert(value, field.type, dec_hook=hook)
            return f"{field.encode_name}={value if isinstance(value, str) else plainly(value)}"
    examples = (f"{field.encode_name}={text}" for field in fields if (text := _example(struct, field.encode_name)))
    return next(examples, "")


def _takes_list(kind: Any) -> bool:
    """Return whether a type accepts a list."""
    return any(typing.get_origin(base) in (list, tuple) for base in _bases(kind))


def _bases(kind: Any) -> list[Any]:
    """Return the members of a union without their limits."""
    return [typing.get_args(part)[0] if typing.get_origin(part) is Annotated else part for part in _parts(kind)]


def _limits(meta: Any) -> str:
    """Return the limits of a number or of the length of a text."""
    if meta.min_length:
        return " that is not empty"
    if meta.ge is not None and meta.le is not None and meta.le < _LARGEST:
        return f" from {meta.ge:g} to {meta.le:g}"
    return f" of at least {meta.ge:g}" if meta.ge is not None else "" if meta.gt is None else f" above {meta.gt:g}"


def _lengths(meta: Any) -> str:
    return f" of {meta.min_length or 0} to {meta.max_length} items" if meta.max_length else ""


def _inner(kind: Any, step: str | int) -> Any:
    """Return the type of a key of a mapping, or of an item of a list. Return None if the type has none."""
    for part in _parts(kind):
        base = typing.get_args(part)[0] if typing.get_origin(part) is Annotated else part
        if hasattr(base, "__struct_fields__"):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(base)}
            if step in fields:
                return fields[str(step)]
        inner, origin = typing.get_args(base), typing.get_origin(base)
        if origin is dict:
            return inner[1]
        if origin in (list, tuple) and isinstance(step, int):
            return inner[0] if origin is list or inner[-1] is Ellipsis else inner[step]
    return None


def _type_at(kind: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        kind = _inner(kind, step)
    return kind


def _value_at(data: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _example_at(kind: Any, steps: Sequence[str | int]) -> str:
    """Return an example of the value at `steps`, from the docstring of the key. Return "" if there is none."""
    if not steps or isinstance(steps[-1], int):
        return ""
    struct = _struct_in(_type_at(kind, steps[:-1]))
    return "" if struct is None else _example(struct, str(steps[-1]))


def _example(struct: Any, key: str) -> str:
    with suppress(OSError):  # the source of the package is not installed
        text = key_texts.of(struct).get(key)
        return "" if text is None else text.example
    return ""


def _example_of(struct: Any, key: str) -> str:
    """Return advice for the missing key of a struct."""
    field_type = next(field.type for field in msgspec.structs.fields(struct) if field.encode_name == key)
    example = _example(struct, key)
    return f"add it, such as {key}: {example}" if example else f"set it to {wanted(field_type)}"
