"""Units in configuration files and in output: sizes ("4 MiB", "1.5GB"), durations ("250 ms", "1.5h"), walltimes ("30",
"1:30:00") and shares ("90%").
"""

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from msgspec import Meta

from dlio_hpc.base.yaml_words import plainly

_CLOCK = re.compile(r"\s*(?:([0-9]+)-)?([0-9]+)(?::([0-9]+)(?::([0-9]+))?)?\s*")
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*([A-Za-z]*)\s*")
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*")
_SIZES = {"": 1, "b": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for suffix, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_SECONDS = {"": 1.0, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
# Least size and limit of a latency that numbers without a unit may have; see LargeSize and Latency.
LEAST_LARGE, MOST_LATENCY_S = 1 << 20, 1.0
# Limit of the time of a step or a sample that options may give without a unit.
MOST_STEP_S = 10.0
_MOST_BYTES, _MOST_SECONDS = 2**63 - 1, 366 * 86400
# A number of seconds, minutes or hours that is too long for a time limit. Larger ones may not be converted to float.
_TOO_LONG = 10**12


# Counts. They are limited to integers that a double represents exactly, because timelines and JSON readers require
# that.
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Natural = Annotated[int, Meta(ge=0, le=2**53)]


class Size(int):
    """A number of bytes, parsed from an integer or from text such as "256 KiB" (1024) or "256 KB" (1000)."""


class Seconds(float):
    """A duration in seconds, parsed from a number or from text such as "0.25", "250 ms" or "2 min"."""


class LargeSize(Size):
    """A number of bytes of the memory, the storage or the rates of a machine. A number without a unit must be at least
    1 MiB or 0, because a smaller one is almost certainly meant in GiB.
    """


class Latency(Seconds):
    """A duration of a request or of a wait for one. A number without a unit must be below 1 s, because a larger one is
    almost certainly meant in milliseconds.
    """


class Share(float):
    """A share from 0 to 1, parsed from a number such as 0.9 or from text such as "90%"."""


class LeastShare(Share):
    """A share that a measurement must reach. A value below 1 with a percent sign, such as 0.9%, is almost certainly
    meant without the sign.
    """


class Walltime(int):
    """A time limit of a job in whole seconds, parsed from "30" (minutes, as in batch systems), "30m" or "1:30:00"."""


# What a message asks for, by type.
SUCH: dict[Any, str] = {
    Size: "a size such as 4096, 256KiB or 1.5 GB",
    LargeSize: "a size with its unit, such as 512GiB or 1.5 TB",
    Latency: "a duration with its unit, such as 50ms or 2 s",
    Seconds: "a duration such as 0.25, 250ms or 2min",
    Share: "a share such as 90% or 0.9",
    LeastShare: "a share such as 90% or 0.9",
    Walltime: "a time limit such as 30 (minutes), 30m, 2h or 1:30:00",
}


def size(value: object) -> Size:
    """Parse a size in bytes. Raise ValueError if the value is not a size, or not a whole number of bytes."""
    number, unit = _split(value, _SIZES, SUCH[Size])
    count = number * _SIZES[unit]
    if count > _MOST_BYTES or count != int(count):
        raise _unusable(value, "a whole number of bytes below 8 EiB")
    return Size(count)


def seconds(value: object) -> Seconds:
    """Parse a duration in seconds. Raise ValueError if the value is not a duration."""
    number, unit = _split(value, _SECONDS, SUCH[Seconds])
    if number > _MOST_SECONDS / _SECONDS[unit]:
        raise _unusable(value, "less than a year")
    return Seconds(number * _SECONDS[unit])


def large_size(value: object) -> LargeSize:
    """Parse a size in bytes. Raise ValueError if the value is not a size, or a number without a unit that is too small
    to be meant in bytes.
    """
    count = size(value)
    if 0 < count < LEAST_LARGE and _is_bare(value):
        raise ValueError(
            f"found {plainly(value)}, which is {count} bytes; give the unit, such as {_digits(value)}GiB or "
            f"{_digits(value)}B"
        )
    return LargeSize(count)


def latency(value: object) -> Latency:
    """Parse a duration in seconds. Raise ValueError if the value is not a duration, or a number without a unit that is
    too large to be meant in seconds.
    """
    return Latency(_small_or_with_unit(value, MOST_LATENCY_S))


def step_time(value: object) -> Seconds:
    """Parse the time of a step or a sample, as given by an option. Raise ValueError if the value is not a duration, or
    a number without a unit that is almost certainly meant in milliseconds.
    """
    return _small_or_with_unit(value, MOST_STEP_S)


def _small_or_with_unit(value: object, limit_s: float) -> Seconds:
    """Parse a duration. Raise ValueError for a number without a unit that is not below the limit."""
    duration = seconds(value)
    if duration >= limit_s and _is_bare(value):
        raise ValueError(
            f"found {plainly(value)}, which is {duration:g} s; give the unit, such as {_digits(value)}ms or "
            f"{_digits(value)}s"
        )
    return duration


def _is_bare(value: object) -> bool:
    """Return whether a size or a duration has no unit."""
    return not isinstance(value, str) or not any(letter.isalpha() for letter in value.lower().replace("e", ""))


def _digits(value: object) -> str:
    return str(value).strip()


def share(value: object) -> Share:
    """Parse a share from 0 to 1. Raise ValueError if the value is not a share."""
    number = -1.0
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str) and (match := _SHARE.fullmatch(value)) is not None:
        number = float(match[1]) / (100 if match[2] else 1)
    if not 0 <= number <= 1:
        raise _unusable(value, SUCH[Share] + _percent(number, value))
    return Share(number)


def least_share(value: object) -> LeastShare:
    """Parse a share that a measurement must reach. Raise ValueError if the value is not a share, or if it is a fraction
    followed by a percent sign.
    """
    number = share(value)
    if 0 < number < 0.01 and "%" in str(value):
        fraction = str(value).replace("%", "").strip()
        meant = f"{100 * float(fraction):g}% or {fraction}, or {number:g} if the limit is that low"
        raise ValueError(f"found {plainly(value)}, which is {number:g}; write {meant}")
    return LeastShare(number)


def _percent(number: float, value: object) -> str:
    """Return a hint for a share above 1 that is almost certainly meant in percent; otherwise, return ""."""
    return f"; {_digits(value)} percent is {_digits(value)}%" if 1 < number <= 100 and "%" not in str(value) else ""


def walltime(value: object) -> Walltime:
    """Parse a time limit and return it in seconds. A number without a unit means minutes. Days may precede the hours,
    in Slurm's form 1-12:00:00. Raise ValueError if the value is not a time limit or is zero, or if it is hours and
    minutes such as 1:30, which other programs read as minutes and seconds.
    """
    expected = SUCH[Walltime]
    if isinstance(value, str) and re.search(r":|^\s*[0-9]+-", value):
        match = _CLOCK.fullmatch(value)
        if match is None:
            raise _unusable(value, expected)
        if match[4] is None and match[1] is None:
            hours, minutes = int(match[2]), int(match[3])
            raise ValueError(
                f"found {plainly(value)}, which batch systems read as minutes and seconds; for hours and minutes, "
                f"write {hours * 60 + minutes}m or {match[2]}:{match[3]}:00"
            )
        days, hours, minutes, secs = (int(field or 0) for field in match.groups())
        total = float(min(((days * 24 + hours) * 60 + minutes) * 60 + secs, _TOO_LONG))
        if max(minutes, secs) > 59 or (match[1] and hours > 23):
            raise ValueError(
                f"found {plainly(value)}; minutes and seconds are at most 59, and hours after days at most 23; write "
                f"{format_walltime(int(total))}"
            )
    else:
        number, unit = _split(value, _SECONDS, expected)
        total = min(number, _TOO_LONG) * (_SECONDS[unit] if unit else 60.0)
    if not 1 <= total <= _MOST_SECONDS:
        raise _unusable(value, "a time limit between a second and a year, such as 30m")
    return Walltime(total)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 job, 2 jobs, 1,000 processes."""
    plural = "es" if noun.endswith(("ss", "tch")) else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, separated by commas, and the number of the others. most: number of names to return."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def interval(value: object) -> Walltime:
    """Parse the time between two starts of jobs, such as "24h", "1d" or "24:00:00", and return it in seconds. Raise
    ValueError if the value is not such a time, or is a number without a unit.
    """
    if _is_bare(value) and ":" not in str(value):
        raise ValueError(f"found {plainly(value)}; give the unit, such as {_digits(value)}h")
    return walltime(value)


def _split(value: object, units: dict[str, int] | dict[str, float], expected: str) -> tuple[float | int, str]:
    match = _NUMBER.fullmatch(str(value)) if isinstance(value, (int, float, str)) and value is not True else None
    unit = match[2].lower() if match else ""
    if match is None or unit not in units:
        raise _unusable(value, expected)
    digits = match[1]
    return (int(digits) if digits.isdigit() else float(digits)), unit


def _unusable(value: object, expected: str) -> ValueError:
    return ValueError(f"found {plainly(value)}; use {expected}")


# Functions that parse a value of YAML, by type.
PARSERS: dict[type, Callable[[object], Any]] = {
    Size: size, LargeSize: large_size, Seconds: seconds, Latency: latency, Share: share,
    LeastShare: least_share, Walltime: walltime,
}  # fmt: skip


def format_size(count: float) -> str:
    """Format `count` bytes in binary units: "256 MiB", "1.5 KiB"."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def rounded_up(count: float) -> str:
    """Return a size of at least `count` bytes as an option, in a unit that is easy to read: 118GiB, 5.25GiB."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    step = 1.0 if value >= 10 or unit == "B" else 0.25
    return f"{math.ceil(value / step) * step:g}{unit}"


def format_seconds(value: float) -> str:
    """Format `value` seconds with three significant digits: "1.2 us", "35 ms", "3.08 s"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}" if value < 1000 else f"{value:.0f} s"
    return f"{value * 1e9:.3g} ns" if value else "0 s"


def utc_now(fraction: bool = False) -> str:
    """Return the current time (UTC) in the format of all records, such as 2026-11-21T14:25:01Z. If `fraction` is True,
    include milliseconds, as in 2026-11-21T14:25:01.123Z.
    """
    return utc(time.time(), fraction)


def utc(moment: float, fraction: bool = False) -> str:
    """Format a time in the same way as utc_now(). moment: the time in seconds since 1970."""
    thousandths = f".{int(moment % 1 * 1000):03}" if fraction else ""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + thousandths + "Z"


def timestamp(text: str) -> float:
    """Convert a time in the format of utc_now() to seconds since 1970."""
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def seconds_between(earlier: str, later: str) -> float:
    """Return the seconds between two times in the format of utc_now()."""
    return timestamp(later) - timestamp(earlier)


def format_local(moment: float) -> str:
    """Format a time in minutes, in the time zone of this machine, such as 2026-11-28 02:00 CET. moment: the time in
    seconds since 1970.
    """
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(moment))


def format_walltime(total: int) -> str:
    """Format a number of seconds as H:MM:SS, a format that every batch system accepts."""
    return f"{total // 3600}:{total // 60 % 60:02}:{total % 60:02}"
