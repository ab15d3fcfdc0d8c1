"""The files defaults.yaml of a user and of a facility. They give default values of options. An option on the command
line or in the environment takes precedence.
"""

import functools
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import search_path

NAME = "defaults.yaml"
# Keys whose values may contain environment variables, such as /scratch/$USER/dlio-runs.
_PATHS = ("data", "runs", "archive", "sign")


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a defaults.yaml. The keys are long option names without "--". time: walltime in the syntax of the
    option --time.
    """

    site: str | None = None
    account: str | None = None
    queue: str | None = None
    time: units.Walltime | None = None
    data: str | None = None
    runs: str | None = None
    archive: str | None = None
    sign: str | None = None


KEYS = frozenset(_File.__struct_fields__)


class Default(NamedTuple):
    """A default value. value: the value as text, in the syntax of the option. path: file that sets the value."""

    value: str
    path: Path


@functools.cache
def load() -> dict[str, Default]:
    """Return the default value of each key that a defaults.yaml sets. If the files of several folders set a key, the
    first of these folders in the search path takes precedence. Raise ConfigError, with the file and the key, if a file
    is invalid.
    """
    known: dict[str, Default] = {}
    for folder in search_path.folders():
        path = folder / NAME
        if not path.exists():
            continue
        data = serialization.read_yaml(path)
        file = serialization.convert_changed({} if data is None else data, _File, str(path))
        for key in _File.__struct_fields__:
            if getattr(file, key) is not None:
                known.setdefault(key, Default(_text(key, data[key], path), path))
    return known


def _text(key: str, value: Any, path: Path) -> str:
    text = str(value)
    if key not in _PATHS:
        return text
    expanded = os.path.expandvars(os.path.expanduser(text))
    if (left := re.search(r"\$\{?\w+\}?", expanded)) is not None:
        raise ConfigError(f"{path}: {key}: {left[0]} is not set in this environment")
    if not os.path.isabs(expanded):
        raise ConfigError(f"{path}: {key}: {text!r} is not an absolute path")
    return expanded
