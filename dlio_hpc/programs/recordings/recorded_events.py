"""Events of a recording, and the values that each kind of event has. Each event is checked, because a recording may
come from any source.
"""

import functools
import math
import sys
from collections.abc import Mapping
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=0, le=1 << 50)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]
Text = Annotated[str, Meta(max_length=1 << 16)]
# Lengths of the axes of an array. NumPy has at most 64.
Shape = Annotated[list[Count], Meta(max_length=64)]
# Most bytes of an array: the product of its axes is a number that others are computed from.
_LARGEST_ARRAY = 1 << 60
# Number of a loader, or that of a pipeline of tf.data with a name before it; see _is_loader().
Loader = Any


class _Settings(Struct):
    """Settings of a loader or of a fit that a workload uses. Other settings are only text for the reader."""

    batch_size: Annotated[int, Meta(ge=1, le=1 << 40)] | None = None
    workers: Annotated[int, Meta(ge=0, le=1 << 16)] | None = None
    prefetch_factor: Annotated[int, Meta(ge=0, le=1 << 20)] | None = None
    samples: Count | None = None
    seed: int | None = None
    shards: Annotated[int, Meta(ge=1, le=1 << 32)] | None = None
    drop_last: bool | None = None
    is_iterable: bool | None = None
    library: Text | None = None
    dataset: Text | None = None


class _FitSettings(_Settings, kw_only=True):
    """Settings of a fit. dataset: "arrays", or the type of the object that feeds the fit."""

    dataset: Text


# Number of an array, and the first row and the number of rows, as far as they are known.
_PLACE = Annotated[list[Annotated[int, Meta(ge=-(1 << 50), le=1 << 50)] | None], Meta(min_length=3, max_length=3)]
_FILE = tuple[Text, Seconds, Count | None, Count | None]
_CALL = tuple[Text, Seconds, Count | None, Count | None, Count | None, _PLACE | None]
_NUMBER = tuple[int | None]
# Types of the values of each kind.
_KINDS: dict[str, Any] = {
    "start": tuple[()], "end": tuple[()], "library": tuple[Text, Any], "loader": tuple[Count, _Settings],
    "fit": tuple[_FitSettings], "pass": tuple[Loader, Seconds],
    "batch": tuple[Loader, Seconds, Count | None, Count],
    "end_of_pass": tuple[Loader, Seconds, tuple[Count, Count, Count, list[int]] | None],
    "worker": tuple[Count | None, Count | None], "fetcher": tuple[()],
    "fetch": tuple[Count, Seconds, Count], "step": tuple[Text],
    "save": _FILE, "restore": _FILE, "rank": tuple[Count, Count, Text], "read": _CALL, "write": _CALL,
    "map": tuple[Text, Count | None, Count], "table": tuple[Count | None, Count | None, Count | None, Count | None],
    "array": tuple[Count, Count, Shape, Count, Shape | None, Text | None, Any],
    "stage": tuple[Count | None, Count | None, Text, list[Any], dict[str, Any]],
    "source": tuple[Count, list[Count | None]], "gradient": tuple[Seconds], "unseen": tuple[Text, Text],
    "open": tuple[Count, Count], "child": tuple[Text, Count], "file": tuple[Count, Text, Count | None],
    "written": tuple[Count, Count], "fault": tuple[Text, Text], "moved": tuple[Count, Count],
    "counts": tuple[dict[str, tuple[Count, Seconds]]],
    "train_begin": _NUMBER, "train_end": _NUMBER, "epoch_begin": _NUMBER, "epoch_end": _NUMBER,
    "train_batch_begin": _NUMBER, "train_batch": _NUMBER, "test_begin": _NUMBER, "test_end": _NUMBER,
    "test_batch": _NUMBER,
}  # fmt: skip
# Kinds with settings for the reader besides those that are checked, or with a value that earlier versions lack.
_LOOSE = frozenset({"loader", "fit", "pass"})
_OF_LOADERS = frozenset({"pass", "batch", "end_of_pass"})
# Place of the number of a file in the values of a kind.
_FILES = {
    "read": 2, "write": 2, "save": 2, "restore": 2, "map": 1, "array": 1, "open": 0, "written": 0, "table": 0,
}  # fmt: skip


def decoded(line: bytes, files: Mapping[int, str]) -> tuple[float, str, tuple[Any, ...]] | None:
    """Return the time, the kind and the values of an event, or None if the event is malformed. files: paths of the
    files of the process, by number.
    """
    kind = sys.intern(line.partition(b'"')[2].partition(b'"')[0].decode("ascii", "replace"))
    if kind not in _KINDS:
        return None
    try:
        time, name, *given = _decoder(kind).decode(line)
        if kind in _LOOSE:
            msgspec.convert((time, name, *given[:2]), _types(kind))
    except (ValueError, RecursionError):  # of msgspec, of text that is no UTF-8, or of lists in lists in lists
        return None
    values = tuple(given)
    numbers = values[1] if kind == "source" else values[_FILES[kind] :][:1] if kind in _FILES else ()
    is_whole = name == kind and all(number is None or number in files for number in numbers) and _is_sound(kind, values)
    return (time, kind, values) if is_whole else None


def _is_sound(kind: str, values: tuple[Any, ...]) -> bool:
    """Return whether values are valid. Only conditions that the types do not express are checked."""
    if kind == "array":
        _, _, shape, itemsize, chunks, *_ = values
        return bool(max(math.prod(shape), math.prod(chunks or ())) * itemsize <= _LARGEST_ARRAY)
    return kind not in _OF_LOADERS or _is_loader(values[0])


@functools.cache
def _decoder(kind: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(list[Any] if kind in _LOOSE else _types(kind))


def _types(kind: str) -> Any:
    """Return the type of an event of a kind. It contains the time, the kind and the values."""
    return tuple.__class_getitem__((Seconds, str, *get_args(_KINDS[kind])))


def _is_loader(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int | None)
    return isinstance(value, int | None)
