"""Damaged copies of the files of a job, with bytes and values that no version of dlio-hpc writes."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

LONG = "x" * 70_000
HUGE = "9" * 400
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 2**63, "", LONG, "9999-99-99T99:99:99Z", "0001-01-01T00:00:00Z", "yesterday", [], {},
    [None], {"x": 1}, "\x1b[31m\0", -0.5, "../../etc/passwd",
)  # fmt: skip
_LITERALS = (HUGE, "NaN", "-Infinity", "1e999", f"-{HUGE}")
_MARK = "@literal@"
_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{', '.join([f'*{chr(97 + at)}'] * 9)}]\n" for at in range(9)
)


def damage(path: Path, random_: random.Random) -> str:
    """Change the file and return a description of the change."""
    kinds: dict[str, tuple[Callable[[Path, random.Random], str], ...]] = {
        ".json": (_bytes, _key, _key, _key),
        ".h5": (_bytes, _dataset, _dataset, _dataset),
        ".yaml": (_bytes, _bomb),
    }
    return random_.choice(kinds.get(path.suffix, (_bytes,)))(path, random_)


def _bytes(path: Path, random_: random.Random) -> str:
    content = bytearray(path.read_bytes())
    how = random_.choice(("flip", "flip", "cut", "empty", "random", "nest", "zeros"))
    if how == "flip":
        for _ in range(random_.choice((1, 8, 64))):
            if content:
                content[random_.randrange(len(content))] ^= 1 << random_.randrange(8)
    elif how == "cut":
        del content[random_.randrange(len(content) + 1) :]
    elif how == "zeros" and content:
        begin = random_.randrange(len(content))
        content[begin : begin + 512] = bytes(len(content[begin : begin + 512]))
    else:
        content = bytearray({"empty": b"", "random": random_.randbytes(4000), "nest": b"[" * 100_000}.get(how, b""))
    path.write_bytes(content)
    return f"{path.name}: {how}"


def _bomb(path: Path, _: random.Random) -> str:
    path.write_text(_BOMB)
    return f"{path.name}: aliases of aliases"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a value, with each of its keys or indices."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in pairs:
        yield value, key
        yield from _places(below)


def _key(path: Path, random_: random.Random) -> str:
    """Remove a key or give it another value."""
    document = json.loads(path.read_bytes())
    places = list(_places(document))
    if not places:
        return f"{path.name}: nothing to change"
    container, key = random_.choice(places)
    if random_.randrange(4) == 0:
        del container[key]
        path.write_text(json.dumps(document))
        return f"{path.name}: {key} removed"
    literal = random_.choice(_LITERALS) if random_.randrange(3) == 0 else None
    value = _MARK if literal else random_.choice(_VALUES)
    container[key] = value
    path.write_text(json.dumps(document).replace(f'"{_MARK}"', str(literal)))
    return f"{path.name}: {key} = {str(literal or value)[:40]}"


def _dataset(path: Path, random_: random.Random) -> str:
    """Damage a dataset or an attribute: remove it, or change its shape or its type."""
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name = random_.choice(names)
        if random_.randrange(4) == 0 and len(file[name].attrs):
            key = random_.choice(list(file[name].attrs))
            del file[name].attrs[key]
            if random_.randrange(2):
                file[name].attrs[key] = random_.choice([np.nan, -1.0, 0.0, np.inf, LONG[:60_000], [1, 2, 3], 1e300])
            return f"{name}@{key} changed"
        old = file[name][...] if isinstance(file[name], h5py.Dataset) else np.zeros((2, 3))
        del file[name]
        how = random_.choice(("removed", "group", "text", "nan", "huge", "negative", "flat", "more", "empty", "scalar"))
        other = {
            "text": lambda: np.array([b"x" * 10] * 3), "nan": lambda: np.full(old.shape, np.nan),
            "huge": lambda: np.full(old.shape, 1e300), "negative": lambda: np.full(old.shape, -1.0),
            "flat": old.ravel, "more": lambda: np.concatenate((old, old)) if old.ndim else old,
            "empty": lambda: old[:0] if old.ndim else old, "scalar": lambda: 1.0,
        }  # fmt: skip
        if how == "group":
            file.create_group(name)
        elif how in other:
            file[name] = other[how]()
        return f"{name} {how}"
