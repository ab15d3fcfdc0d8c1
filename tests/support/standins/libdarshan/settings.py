"""Settings of Darshan: darshan.conf as libdarshan 3.5 reads it, with the expressions of regcomp(3). A library before
3.4 reads the environment variables of 3.1.8 instead (darshan-core.c, darshan-dxt.c).
"""

import ctypes
import os
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

_EXTENDED, _NO_MATCHES = 1, 8
_MODULES = {"POSIX", "MPI-IO", "STDIO", "DXT_POSIX", "DXT_MPIIO"}
_KEYS = {"MOD_ENABLE", "MOD_DISABLE", "MAX_RECORDS", "MODMEM", "NAMEMEM", "NAME_EXCLUDE", "NAME_INCLUDE"}


class Expression:
    """A POSIX extended regular expression. An invalid one raises ValueError."""

    def __init__(self, text: str) -> None:
        self._libc = ctypes.CDLL(None)
        self._compiled = ctypes.create_string_buffer(256)
        if self._libc.regcomp(self._compiled, os.fsencode(text), _EXTENDED | _NO_MATCHES):
            raise ValueError(text)

    def finds(self, path: str) -> bool:
        return not self._libc.regexec(self._compiled, os.fsencode(path), 0, None, 0)


class Settings(NamedTuple):
    """Limits and filters. records: number of files of POSIX. trace_bytes: memory of DXT. excluded, included:
    expressions for names. left_out: beginnings of paths.
    """

    traces: bool = "DXT_ENABLE_IO_TRACE" in os.environ
    records: int = 1024
    trace_bytes: int = 2 << 20
    pool_bytes: int = 4 << 20
    name_bytes: int = 1 << 20
    excluded: tuple[Expression, ...] = ()
    included: tuple[Expression, ...] = ()
    left_out: tuple[str, ...] = ()

    def records_name(self, path: str) -> bool:
        """Return whether files of this name are recorded. NAME_INCLUDE overrides NAME_EXCLUDE."""
        if path.startswith(self.left_out):
            return False
        return any(rule.finds(path) for rule in self.included) or not any(rule.finds(path) for rule in self.excluded)


def warn(message: str) -> None:
    print(f"darshan library warning: {message}", file=sys.stderr, flush=True)


def load() -> Settings:
    path = os.environ.get("DARSHAN_CONFIG_PATH")
    settings = Settings()
    preloaded = os.environ["LD_PRELOAD"].replace(":", " ").split()
    library = next(name for name in preloaded if name.endswith("libdarshan.so"))
    if b"DARSHAN_CONFIG_PATH" not in Path(library).read_bytes():
        return _early()
    if path is None:
        return settings
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().split("\n")
    except OSError:
        warn(f"unable to open Darshan config at path {path}")
        return settings
    for line in lines:
        fields = list(takewhile(lambda word: not word.startswith("#"), line.split()))
        if fields and fields[0] not in _KEYS:
            warn(f"invalid Darshan config setting {fields[0]}")
        elif fields:
            settings = _with(settings, fields)
    return settings


def _early() -> Settings:
    return Settings(
        trace_bytes=4 << 20,
        pool_bytes=int(float(os.environ.get("DARSHAN_MODMEM", "2")) * 2**20),
        left_out=tuple(os.environ.get("DARSHAN_EXCLUDE_DIRS", "/etc/,/dev/,/usr/,/proc/,/var/").split(",")),
    )


def _with(settings: Settings, fields: list[str]) -> Settings:
    key, value, modules = fields[0], fields[1], _modules(fields[2:])
    changed: dict[str, Any] = {}
    if key == "MOD_ENABLE":
        changed["traces"] = settings.traces or "DXT_POSIX" in _modules([value])
    elif key == "MODMEM":
        changed["pool_bytes"] = int(value) << 20
    elif key == "NAMEMEM":
        changed["name_bytes"] = int(value) << 20
    elif key == "MAX_RECORDS":
        changed |= {"records": int(value)} if "POSIX" in modules else {}
        changed |= {"trace_bytes": int(value) << 10} if "DXT_POSIX" in modules else {}
    elif key == "NAME_EXCLUDE" and "POSIX" in modules:
        changed["excluded"] = (*settings.excluded, *_expressions(key, value))
    elif key == "NAME_INCLUDE" and "POSIX" in modules:
        changed["included"] = (*settings.included, *_expressions(key, value))
    return settings._replace(**changed)


def _modules(fields: list[str]) -> set[str]:
    """Parse one list without blanks; the rest of the line is dropped."""
    named = set(fields[0].split(",")) if fields else set()
    for unknown in named - _MODULES:
        warn(f'unknown module "{unknown}" in Darshan config module csv')
    return named & _MODULES


def _expressions(key: str, value: str) -> list[Expression]:
    """Parse expressions that are separated by commas, wherever those stand."""
    expressions = []
    for text in value.split(","):
        try:
            expressions.append(Expression(text))
        except ValueError:
            warn(f"unable to compile Darshan config {key} regex {text}")
    return expressions
