"""A workload file of dlio_benchmark: its keys and values, with the overrides of a Hydra command line."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

from msgspec import Struct

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, name_hint
from dlio_hpc.config.dlio_benchmark.keys import KEYS, OLD_NAMES

_EXPECTED = {
    "count": "a whole number from 0",
    "number": "a number",
    "flag": "True or False",
    "text": "a word",
    "any": "a value",
}
# Top-level keys of a workload of dlio-hpc that dlio_benchmark does not have, and the other way round.
_OWN, _FOREIGN = frozenset({"name", "source", "compute"}), frozenset({"model", "framework", "workflow"})
# Keys of Hydra, which composes the configuration of dlio_benchmark: they are not part of a workload.
HYDRA = ("hydra", "defaults")
# Maximum number of unknown keys that a message names.
_NAMED = 12
# Words that YAML 1.1, which dlio_benchmark reads, takes for false and true, in any case.
_FLAGS = {"false": False, "off": False, "no": False, "true": True, "on": True, "yes": True}


class SourceWorkload(Struct, frozen=True):
    """Keys of a workload file in dotted form, and their values. path: path of the file. overrides: options that changed
    values. old: for each key that has been renamed, the old name that the file uses. outside: names of the sections
    next to the section `workload`.
    """

    path: Path
    overrides: tuple[str, ...]
    values: dict[str, Any]
    old: dict[str, str]
    outside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.path.stem

    @property
    def origin(self) -> str:
        """Path of the file and overrides, for messages."""
        return " ".join((str(self.path), *self.overrides))

    @property
    def command(self) -> str:
        """Command that imports the file, to be run in the folder of the file."""
        return " ".join(("dlio-hpc import", self.path.name, *self.overrides))

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key, or the default of dlio_benchmark. Raise ConfigError for a value of a wrong
        type.
        """
        value = self.values.get(key)
        if value is None:
            return KEYS[key].default
        kind = KEYS[key].kind
        if kind == "flag" and isinstance(value, str):
            value = _FLAGS.get(value.lower(), value)
        if kind == "text" and value is False:
            value = "off"
        if not _fits(kind, value):
            raise self.refused(key, f"expected {_EXPECTED[kind]}")
        return value

    def refused(self, key: str, reason: str) -> ConfigError:
        """Return the error for a workload that is refused because of the value of a key."""
        value = self.values.get(key, KEYS[key].default or "not set")
        return ConfigError(f"{self.origin}: {self.old.get(key, key)}: {value}: {reason}")


def _fits(kind: str, value: object) -> bool:
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "text":
        return isinstance(value, str)
    if kind == "any":
        return True
    return is_number(value) and (kind == "number" or (isinstance(value, int) and value >= 0))


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def read(path: Path, overrides: tuple[str, ...] = ()) -> SourceWorkload:
    """Read a workload file of dlio_benchmark, and apply overrides such as ++workload.reader.batch_size=4. Raise
    ConfigError if the file is not a workload of dlio_benchmark.
    """
    data = serialization.read_yaml(path)
    if data is None:
        raise ConfigError(f"{path}: the file is empty; give a workload of dlio_benchmark")
    outside: tuple[str, ...] = ()
    if isinstance(data, dict) and isinstance(data.get("workload"), dict):
        data, outside = _one_level(data, path)
    if not isinstance(data, dict) or not _sections().intersection(data):
        raise ConfigError(f"{path}: not a workload of dlio_benchmark, which has keys such as dataset, reader and train")
    if _OWN & data.keys() and not _FOREIGN & data.keys():
        raise ConfigError(
            f"{path}: already a workload of dlio-hpc; there is nothing to import. Run it: dlio-submit {path}"
        )
    for override in overrides:
        _apply(data, override)
    if isinstance(data.get("data_reader"), dict):
        data["reader"] = data.pop("data_reader")  # dlio_benchmark prefers this name of the section
    values = dict(_flat(data))
    _check_names(path, values)
    old = {new: name for name, new in OLD_NAMES.items() if name in values and new not in values}
    for new, name in old.items():
        values[new] = values.pop(name)
    return SourceWorkload(path, overrides, values, old, outside)


def _one_level(data: dict[str, Any], path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the keys of the section `workload` and of the sections next to it, and the names of these sections. The
    configuration that Hydra saves for a run has only the section `workload`. Raise ConfigError if a key has two values.
    """
    inner = {key: value for key, value in data.items() if key != "workload"}
    outside = tuple(str(key) for key in inner if key not in HYDRA)
    other = dict(_flat(inner))
    for key, value in _flat(data["workload"]):
        if key in other and other[key] != value:
            raise ConfigError(
                f"{path}: {key} is {other[key]} at the top and {value} below workload; dlio_benchmark reads only one "
                "of the two: remove the other"
            )
        serialization.put(inner, key, value, f"{path}: workload")
    return inner, outside


def _check_names(path: Path, values: dict[str, Any]) -> None:
    """Raise ConfigError if dlio_benchmark does not know most keys of a file."""
    names = [key for key in values if key.partition(".")[0] not in HYDRA]
    unknown = [key for key in names if not is_known(key)]
    if names and 2 * len(unknown) >= len(names):
        keys = ", ".join(f"{key} ({hint.strip()})" if (hint := hint_of(key)) else key for key in unknown[:_NAMED])
        more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
        raise ConfigError(
            f"{path}: not a workload of dlio_benchmark: {len(unknown)} of {len(names)} keys are unknown: "
            f"{keys}{more}. Correct or remove them"
        )


def is_known(key: str) -> bool:
    """Return whether dlio_benchmark has a key with this name, or had a key with this name in an earlier version."""
    return key in OLD_NAMES or (f"reader.{key[12:]}" if key.startswith("data_reader.") else key) in KEYS


def hint_of(key: str) -> str:
    """Return a suggestion for a misspelt key, with a trailing blank, or "" if no key is similar."""
    section, _, name = key.rpartition(".")
    names = [known for known in KEYS if known.rpartition(".")[0] == section]
    if not names or not (hint := name_hint(name, [known.rpartition(".")[2] for known in names])):
        hint = name_hint(key, KEYS) or _hint_of_name(key)
    return hint


def _hint_of_name(key: str) -> str:
    """Return a suggestion for a key if exactly one other section has a key of the same name."""
    name = key.rpartition(".")[2]
    places = Counter(known.rpartition(".")[2] for known in KEYS)
    return next((f"did you mean {known!r}? " for known in KEYS if known.endswith(f".{name}") and places[name] == 1), "")


def is_override(argument: str) -> bool:
    """Return whether an argument of a command is an override in the form of Hydra."""
    return argument.startswith(("+", "~")) or ("=" in argument and "/" not in argument.partition("=")[0])


def _sections() -> set[str]:
    return {key.partition(".")[0] for key in KEYS} - {"framework"} | {"data_reader"}


def _apply(data: dict[str, Any], override: str) -> None:
    """Apply an override of Hydra to the workload `data`, which is modified. Raise ConfigError if dlio_benchmark has no
    such key.
    """
    if override.startswith("~"):
        raise ConfigError(f"{override}: keys cannot be deleted; set the default of dlio_benchmark instead")
    key, equals, value = override.lstrip("+").partition("=")
    if not equals:
        raise ConfigError(f"{override}: write ++workload.KEY=VALUE, such as ++workload.reader.batch_size=4")
    if key == "workload":
        raise ConfigError(f"{override}: give the name of the workload as the first argument: dlio:{value}")
    key = key.removeprefix("workload.")
    serialization.put(data, key, serialization.parse_yaml(value, override), override)
    for name in _names_below(data, key):
        if not is_known(name) and name.partition(".")[0] not in HYDRA:
            raise ConfigError(
                f"{override}: dlio_benchmark has no key {name}; {hint_of(name)}write ++workload.KEY=VALUE"
            )


def _names_below(data: dict[str, Any], key: str) -> list[str]:
    """Return the names of the keys that an override sets: `key` itself or, if its value is a mapping, the keys in the
    mapping.
    """
    value: Any = data
    for part in key.split("."):
        value = value[part]
    return [name for name, _ in _flat({key: value})] or [key]


def _flat(data: dict[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys in dotted form, and their values. A mapping that is the value of a known key stays whole."""
    for key, value in data.items():
        path = f"{section}{key}"
        if isinstance(value, dict) and path not in KEYS and (value or path in _sections()):
            yield from _flat(value, f"{path}.")
        else:
            yield path, value
