"""What a study varies: keys with the values that each of them takes, as -P and study files say them."""

import itertools
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from dlio_hpc import document, units
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import SHORT_FORMS, Workload
from dlio_hpc.errors import ConfigError

# A range that is longer was not meant.
_MOST_VALUES = 10_000
_LAYOUT = "site.layout"
_DATA = "data"
Unit = Literal["bytes", "seconds", ""]


class Axis(Struct, frozen=True):
    """A key and its values, as YAML has them. labels: the values for people. numbers: where on an axis they lie, in
    `unit`; None where one of them is no number.
    """

    key: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    numbers: tuple[float, ...] | None
    unit: Unit = ""

    def identity(self, place: int) -> float | str:
        """The same for values that mean the same: 1 MiB and 1024 KiB."""
        number = _number(self.values[place], self.unit)
        return self.labels[place] if number is None else number

    @property
    def is_layout(self) -> bool:
        """Is it a key of the site's Lustre layout, rather than of the workload?"""
        return f"{self.key}.".startswith(f"{_LAYOUT}.")

    @property
    def is_data(self) -> bool:
        """Is it the folder that the dataset lies in, rather than a key?"""
        return self.key == _DATA


def sides(folders: Sequence[str]) -> Axis:
    """The axis of file systems that are compared, by a folder on each."""
    return Axis(_DATA, tuple(folders), tuple(folders), None)


def axis(text: str) -> Axis:
    """From key=a,b,c: values between commas, each YAML or a range; ConfigError where it cannot be read."""
    key, equals, values = text.partition("=")
    source = f"-P {text}"
    if not equals or not key.strip(".") or not values.strip():
        raise ConfigError(f"{source}: write key=value,value,..., such as reader.read_threads=1,2,4 or 1..8*2")
    return axis_of(key.strip(), document.parse_yaml(f"[{values}]", source), source)


def axis_of(key: str, given: object, source: str) -> Axis:
    """The key with a list of values, or a single range."""
    check_site_key(key, source)
    unit = _unit(key)
    listed: list[Any] = given if isinstance(given, list) else [given]
    values = [value for each in listed for value in (_range(each, unit, source) if _is_range(each) else [each])]
    if not values:
        raise ConfigError(f"{source}: no values")
    _check_spelling(key, values, unit, source)
    places = [_number(value, unit) for value in values]
    labels = [_label(value, unit) for value in values]
    numbers = tuple(float(place) for place in places if place is not None)
    return Axis(key, tuple(values), tuple(labels), numbers if len(numbers) == len(values) else None, unit)


def check_site_key(key: str, source: str) -> None:
    """ConfigError for a key of the site that all of a study has in common."""
    if key.startswith("site.") and not f"{key}.".startswith(f"{_LAYOUT}."):
        raise ConfigError(
            f"{source}: a study varies keys of the workload and of {_LAYOUT}; for another key of the site, submit a "
            "study each with -S"
        )


def counts(given: object, source: str) -> tuple[int, ...]:
    """Numbers from 1 on, in a list or a range such as 128..2048*2; ConfigError for anything else."""
    numbers = axis_of("n", given, source).numbers or ()
    if not numbers or any(number < 1 or not number.is_integer() for number in numbers):
        raise ConfigError(f"{source}: expected numbers from 1 on, such as 4 or 1,2,4 or 1..8*2, found {given!r}")
    return tuple(map(int, numbers))


def settings(axes: Sequence[Axis], zipped: bool) -> Iterator[dict[str, int]]:
    """Which value each key has, by its place in the axis: every combination, or one after the other side by side.

    ConfigError when lists to be zipped differ in length, or something is there twice.
    """
    keys, ranges = [axis.key for axis in axes], [range(len(axis.values)) for axis in axes]
    for key, other in itertools.permutations(keys, 2):
        if key == other:
            raise ConfigError(f"-P {key}: it is there twice; give all its values in one list")
        if key.startswith(f"{other}."):
            raise ConfigError(f"-P {other} would replace what -P {key} says; vary single keys of {other}")
    if zipped and len({len(each) for each in ranges}) > 1:
        told = ", ".join(f"{axis.key} has {len(axis.values)}" for axis in axes)
        raise ConfigError(f"--zip pairs lists of one length: {told}")
    seen: set[tuple[float | str, ...]] = set()
    for places in zip(*ranges, strict=True) if zipped and axes else itertools.product(*ranges):
        same = tuple(axis.identity(place) for axis, place in zip(axes, places, strict=True))
        if same in seen:
            words = ", ".join(f"{axis.key}={axis.labels[place]}" for axis, place in zip(axes, places, strict=True))
            raise ConfigError(f"-P {words}: it is there twice")
        seen.add(same)
        yield dict(zip(keys, places, strict=True))


def _unit(key: str) -> Unit:
    """What the key's numbers measure, by the type that the workload, or the site, gives it."""
    kind = SHORT_FORMS.get(key)
    if kind is None:
        root: type = Site if key.startswith("site.") else Workload
        kind = document.kind_at(root, key.removeprefix("site.").split("."))
    kinds = {kind, *typing.get_args(kind)}
    return "bytes" if units.Size in kinds else "seconds" if units.Seconds in kinds else ""


def _number(value: object, unit: Unit) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        if unit == "bytes":
            return int(units.size(value))
        if unit == "seconds":
            return float(units.seconds(value))
        return None if isinstance(value, str) else value
    except ValueError:
        return None


def _label(value: object, unit: Unit) -> str:
    number = _number(value, unit)
    if number is not None and unit:
        text = units.format_size(number) if unit == "bytes" else units.format_seconds(number)
        return text if _number(text, unit) == number else str(value)
    if isinstance(value, list):
        return "x".join(_label(item, "") for item in value) or "[]"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_label(item, '')}" for key, item in value.items()) or "{}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _check_spelling(key: str, values: list[Any], unit: Unit, source: str) -> None:
    """Raise ConfigError for a range in the notation of other programs, 1:4 or 1-4, where the key takes numbers."""
    import re

    kind = document.kind_at(Workload, key.split("."))
    if str in {kind, *typing.get_args(kind)}:
        return
    for value in values:
        ends = re.fullmatch(r"\s*(\d[\w. ]*)[:-](\d[\w. ]*)", value) if isinstance(value, str) else None
        if ends is not None and None not in [_end(end, unit) for end in ends.groups()]:
            first, last = (end.strip() for end in ends.groups())
            raise ConfigError(
                f"{source}: {value!r} is no value; a range is written {first}..{last}, in steps {first}..{last}*2"
            )


def _is_range(value: object) -> bool:
    return isinstance(value, str) and ".." in value and value.strip("./")[:1].isdigit()


def _range(text: str, unit: Unit, source: str) -> list[Any]:
    """1..8 (one by one), 1..64*2, 0..100+25, 64KiB..16MiB*4: from the first on, up to and with the last."""
    import re

    found = re.fullmatch(r"\s*(?P<first>[^.].*?)\.\.(?P<last>[^*+]+?)(?:(?P<how>[*+])(?P<step>[^*+]+))?\s*", text)
    if found is None:
        raise _no_range(text, source)
    first, last = (_end(found[name], unit) for name in ("first", "last"))
    how, step = found["how"] or "+", _end(found["step"] or "1", unit if found["how"] == "+" else "")
    if first is None or last is None or step is None or step <= (1 if how == "*" else 0):
        raise _no_range(text, source)
    if first > last or (how == "*" and first <= 0):
        raise ConfigError(f"{source}: the range {text} never ends; it goes from the smaller to the larger")
    values: list[float] = []
    for place in itertools.count():
        value = first * step**place if how == "*" else first + step * place
        if value > last * (1 + 1e-9):
            return [_spelt(value, unit) for value in values]
        if place == _MOST_VALUES:
            raise ConfigError(f"{source}: the range {text} has more than {_MOST_VALUES} values")
        values.append(value)
    raise AssertionError


def _no_range(text: str, source: str) -> ConfigError:
    return ConfigError(f"{source}: {text!r} is no range such as 1..8, 1..64*2, 0..100+25 or 64KiB..16MiB*4")


def _end(text: str, unit: Unit) -> int | float | None:
    """A number, with its unit where the key has one."""
    value = document.parse_yaml(text, "range")
    number = _number(value, unit)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _spelt(value: float, unit: Unit) -> int | float | str:
    """As a person would write it, where that says exactly the same."""
    text = _label(value, unit)
    if unit == "bytes" and _number(text, unit) == value:
        return text
    return value if isinstance(value, int) else float(f"{value:.12g}")
