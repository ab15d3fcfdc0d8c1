"""Parameter sweeps: the keys that a study varies and the values of each key, from the option -P and from study
files.
"""

import itertools
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.yaml_words import shown
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import SHORT_FORMS, Workload
from dlio_hpc.plan import mix

# Maximum number of values in a range. A longer range is rejected as a mistake.
_MOST_VALUES = 10_000
_LAYOUT = "site.layout"
_DATA = "data"
# Options that take several values themselves, by names that users give to -P.
_OPTIONS = {
    **dict.fromkeys(("nodes", "num_nodes"), "--nodes"),
    **dict.fromkeys(("ppn", "ranks_per_node", "ranks", "ntasks_per_node", "tasks_per_node"), "--ppn"),
}
Unit = Literal["bytes", "seconds", ""]


class Axis(Struct, frozen=True):
    """A varied key and its values. values: the values, as read from YAML. labels: the values as text. numbers: the
    values as numbers in `unit`, for the axis of a plot; None if any of the values is not a number.
    """

    key: str
    values: tuple[Any, ...]
    labels: tuple[str, ...]
    numbers: tuple[float, ...] | None
    unit: Unit = ""

    def identity(self, place: int) -> float | str:
        """Return a number or text that identifies the value at index `place`. Equivalent values, such as 1 MiB and 1024
        KiB, have the same identity.
        """
        number = _number(self.values[place], self.unit)
        return self.labels[place] if number is None else number

    @property
    def is_layout(self) -> bool:
        """True if the key belongs to the site's Lustre layout rather than to the workload."""
        return f"{self.key}.".startswith(f"{_LAYOUT}.")

    @property
    def is_data(self) -> bool:
        """True if the axis varies the file system under test instead of a key. The values are then dataset folders, one
        on each file system.
        """
        return self.key == _DATA

    @property
    def is_mix(self) -> bool:
        """True if the axis varies which other loads run at the same time. The values are then the sets of these
        loads.
        """
        return self.key == mix.AXIS


def sides(folders: Sequence[str]) -> Axis:
    """Return the axis of a comparison of file systems. folders: one folder on each file system."""
    return Axis(_DATA, tuple(folders), tuple(folders), None)


def companies(listed: Sequence[tuple[str, ...]], labels: Sequence[str]) -> Axis:
    """Return the axis of the other loads with which a load of a mix is measured. labels: these loads in words."""
    return Axis(mix.AXIS, tuple(map(list, listed)), tuple(labels), None)


def axis(text: str) -> Axis:
    """Parse a sweep in the form key=a,b,c, and return its axis. Each of the items between commas is a YAML value or a
    range. Raise ConfigError if `text` is not valid.
    """
    key, equals, values = text.partition("=")
    source = f"-P {text}"
    if not equals or not key.strip(".") or not values.strip():
        raise ConfigError(f"{source}: write key=value,value,..., such as reader.read_threads=1,2,4 or 1..8*2")
    if (option := _OPTIONS.get(key.strip())) is not None:
        raise ConfigError(f"{source}: {key.strip()} is no key of a workload; use the option {option} {values.strip()}")
    return axis_of(key.strip(), serialization.parse_yaml(f"[{values}]", source), source)


def axis_of(key: str, given: object, source: str) -> Axis:
    """Return the axis of a varied key. given: a list whose items are values or ranges, or a single value or range.
    source: origin of the value, for messages.
    """
    check_site_key(key, source)
    unit = unit_of(key)
    listed: list[Any] = given if isinstance(given, list) else [given]
    values = [value for item in listed for value in (_range(item, unit, source) if _is_range(item) else [item])]
    if not values:
        raise ConfigError(f"{source}: no values")
    _check_spelling(key, values, unit, source)
    places = [_number(value, unit) for value in values]
    labels = [_label(value, unit) for value in values]
    numbers = tuple(float(place) for place in places if place is not None)
    return Axis(key, tuple(values), tuple(labels), numbers if len(numbers) == len(values) else None, unit)


def check_site_key(key: str, source: str) -> None:
    """Raise ConfigError if `key` is a key of the site profile that a study cannot vary. A study can vary only
    site.layout and its keys. source: origin of the key, for messages.
    """
    if key.startswith("site.") and not f"{key}.".startswith(f"{_LAYOUT}."):
        raise ConfigError(
            f"{source}: a study can vary only keys of the workload and of {_LAYOUT}. To vary another key of the site, "
            "submit one study for each value, and set the value with -S"
        )


def counts(given: object, source: str) -> tuple[int, ...]:
    """Return the positive integers in a list, or in a range such as 128..2048*2. Raise ConfigError for anything else.
    source: origin of the value, for messages.
    """
    values = axis_of("n", given, source).values
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value != int(value):
            raise ConfigError(
                f"{source}: found {shown(value)}; use whole numbers of at least 1, such as 4 or 1,2,4 or 1..8*2"
            )
    return tuple(map(int, values))


def settings(axes: Sequence[Axis], zipped: bool) -> Iterator[dict[str, int]]:
    """Yield each setting of the varied keys: for each key, the index of its value on its axis. Without `zipped`, the
    settings are all combinations of the values. With `zipped`, the first setting consists of the first values of all
    axes, the second setting of the second values, and so on. Raise ConfigError if zipped axes differ in length, or if a
    key or a setting is repeated.
    """
    keys, ranges = [axis.key for axis in axes], [range(len(axis.values)) for axis in axes]
    for key, parent in itertools.permutations(keys, 2):
        if key == parent:
            raise ConfigError(f"-P {key}: the key is given twice; give all its values in one list")
        if key.startswith(f"{parent}."):
            raise ConfigError(f"-P {parent} would replace the value of -P {key}; vary single keys of {parent}")
    if zipped and len({len(places) for places in ranges}) > 1:
        lengths = ", ".join(f"{axis.key} has {len(axis.values)}" for axis in axes)
        raise ConfigError(f"--zip needs lists of equal length: {lengths}")
    known: set[tuple[float | str, ...]] = set()
    for places in zip(*ranges, strict=True) if zipped and axes else itertools.product(*ranges):
        same = tuple(axis.identity(place) for axis, place in zip(axes, places, strict=True))
        if same in known:
            title = ", ".join(f"{axis.key}={axis.labels[place]}" for axis, place in zip(axes, places, strict=True))
            raise ConfigError(f"-P {title}: the value is given twice; give each value once")
        known.add(same)
        yield dict(zip(keys, places, strict=True))


def unit_of(key: str) -> Unit:
    """Return the unit of the numbers of a key, from the type of the key in Workload or Site. Return "" if the key has
    no unit.
    """
    kind = SHORT_FORMS.get(key)
    if kind is None:
        root: type = Site if key.startswith("site.") else Workload
        kind = serialization.kind_at(root, key.removeprefix("site.").split("."))
    kinds = {kind, *typing.get_args(kind)}
    if kinds & {units.Size, units.LargeSize}:
        return "bytes"
    return "seconds" if kinds & {units.Seconds, units.Latency} else ""


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
    """Raise ConfigError if a value of a numeric key is a range in the notation of other programs, such as
    1:4 or 1-4.
    """
    import re

    kind = serialization.kind_at(Workload, key.split("."))
    if str in {kind, *typing.get_args(kind)}:
        return
    for value in values:
        if isinstance(value, str) and "," in value:
            items = ", ".join(item.strip() for item in value.split(",") if item.strip())
            raise ConfigError(f"{source}: found text {value!r}; use a list [{items}], or a range such as 1..8*2")
        ends = re.fullmatch(r"\s*(\d[\w. ]*)[:-](\d[\w. ]*)", value) if isinstance(value, str) else None
        if ends is not None and None not in [_end(end, unit) for end in ends.groups()]:
            first, last = (end.strip() for end in ends.groups())
            raise ConfigError(
                f"{source}: {value!r} is not a value; write a range as {first}..{last}, or with a factor as "
                f"{first}..{last}*2"
            )


def _is_range(value: object) -> bool:
    return isinstance(value, str) and ".." in value and value.strip("./")[:1].isdigit()


def _range(text: str, unit: Unit, source: str) -> list[Any]:
    """Return the values of a range, including its end: 1..8 (step 1), 1..64*2 (factor 2), 0..100+25 (step 25) or
    64KiB..16MiB*4. Raise ConfigError if the text is not a range.
    """
    import re

    match = re.fullmatch(r"\s*(?P<first>[^.].*?)\.\.(?P<last>[^*+]+?)(?:(?P<how>[*+])(?P<step>[^*+]+))?\s*", text)
    if match is None:
        raise _no_range(text, source)
    first, last = (_end(match[name], unit) for name in ("first", "last"))
    how, step = match["how"] or "+", _end(match["step"] or "1", unit if match["how"] == "+" else "")
    if first is None or last is None or step is None:
        raise _no_range(text, source)
    if step <= (1 if how == "*" else 0):
        least = "a factor (*) must be above 1" if how == "*" else "a step (+) must be above 0"
        raise ConfigError(f"{source}: the range {text} never ends; {least}")
    if first > last:
        ordered = f"{match['last']}..{match['first']}"
        raise ConfigError(f"{source}: the range {text} never ends; write the smaller value first: {ordered}")
    if how == "*" and first <= 0:
        raise ConfigError(f"{source}: the range {text} never ends; with a factor (*), the first value must be above 0")
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
    return ConfigError(f"{source}: {text!r} is not a range such as 1..8, 1..64*2, 0..100+25 or 64KiB..16MiB*4")


def _end(text: str, unit: Unit) -> int | float | None:
    """Return the number that `text` denotes. The number is in bytes or seconds if `unit` is a size or a time. Return
    None if `text` is not a number.
    """
    value = serialization.parse_yaml(text, "range")
    number = _number(value, unit)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _spelt(value: float, unit: Unit) -> int | float | str:
    """Return the value as a person would write it. A size in bytes gets a larger unit if the result is exact; any other
    value is a plain number.
    """
    text = _label(value, unit)
    if unit == "bytes" and _number(text, unit) == value:
        return text
    return value if isinstance(value, int) else float(f"{value:.12g}")
