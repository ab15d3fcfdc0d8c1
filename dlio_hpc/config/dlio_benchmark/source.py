"""A workload file of dlio_benchmark: its keys and values, with the overrides of a Hydra command line."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

from msgspec import Struct

from dlio_hpc import document
from dlio_hpc.config.dlio_benchmark.keys import KEYS, OLD_NAMES
from dlio_hpc.errors import ConfigError

_EXPECTED = {
    "count": "a whole number from 0",
    "number": "a number",
    "flag": "True or False",
    "text": "a word",
    "any": "a value",
}
# Top-level keys of a workload of dlio-hpc that dlio_benchmark does not have, and the other way round.
_OWN, _FOREIGN = frozenset({"name", "source", "compute"}), frozenset({"model", "framework", "workflow"})
# Words that YAML 1.1, which dlio_benchmark reads, takes for false and true, in any case.
_FLAGS = {"false": False, "off": False, "no": False, "true": True, "on": True, "yes": True}


class SourceWorkload(Struct, frozen=True):
    """Keys of a workload file, with dots, and their values. path: the file. overrides: options that changed values.
    old: names in the file of keys that are known by their new name.
    """

    path: Path
    overrides: tuple[str, ...]
    values: dict[str, Any]
    old: dict[str, str]

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.path.stem

    @property
    def origin(self) -> str:
        """Path and options, for messages."""
        return " ".join((str(self.path), *self.overrides))

    @property
    def command(self) -> str:
        """Command that imports the file from its folder."""
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
    data = document.read_yaml(path)
    if isinstance(data, dict) and isinstance(data.get("workload"), dict):
        data = data["workload"]  # the configuration that Hydra keeps of a run
    if not isinstance(data, dict) or not _sections().intersection(data):
        raise ConfigError(f"{path}: not a workload of dlio_benchmark, which has keys such as dataset, reader and train")
    if _OWN & data.keys() and not _FOREIGN & data.keys():
        raise ConfigError(
            f"{path}: this is a workload of dlio-hpc already, so there is nothing to import; run it: dlio-submit {path}"
        )
    for override in overrides:
        _apply(data, override)
    if isinstance(data.get("data_reader"), dict):
        data["reader"] = data.pop("data_reader")  # dlio_benchmark prefers this name of the section
    values = dict(_flat(data))
    old = {new: name for name, new in OLD_NAMES.items() if name in values and new not in values}
    for new, name in old.items():
        values[new] = values.pop(name)
    return SourceWorkload(path, overrides, values, old)


def is_override(argument: str) -> bool:
    """Return whether an argument of a command is an override in the form of Hydra."""
    return argument.startswith(("+", "~")) or ("=" in argument and "/" not in argument.partition("=")[0])


def _sections() -> set[str]:
    return {key.partition(".")[0] for key in KEYS} - {"framework"} | {"data_reader"}


def _apply(data: dict[str, Any], override: str) -> None:
    """Apply an override of Hydra to the workload `data`, which is modified. Overrides of Hydra itself are ignored."""
    if override.startswith("~"):
        raise ConfigError(f"{override}: keys cannot be deleted; set the default of dlio_benchmark instead")
    key, equals, value = override.lstrip("+").partition("=")
    if not equals:
        raise ConfigError(f"{override}: write ++workload.KEY=VALUE, such as ++workload.reader.batch_size=4")
    if key == "workload":
        raise ConfigError(f"{override}: give the name of the workload as the first argument: dlio:{value}")
    if key.startswith("hydra."):
        return
    key = key.removeprefix("workload.")
    document.put(data, key, document.parse_yaml(value, override), override)


def _flat(data: dict[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys with dots, and their values. A mapping that is the value of a known key is not taken apart."""
    for key, value in data.items():
        path = f"{section}{key}"
        if isinstance(value, dict) and path not in KEYS:
            yield from _flat(value, f"{path}.")
        else:
            yield path, value
