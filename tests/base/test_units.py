from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.base import serialization, units
from dlio_hpc.base.nights import nights_of
from dlio_hpc.config import site


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (4096, 4096), ("4096", 4096), ("256KiB", 262144), ("256 KB", 256000), ("4k", 4096), ("1.5 MiB", 1572864),
        ("2GB", 2 * 10**9), (" 1 TiB ", 2**40), ("0", 0), ("1e3", 1000),
    ],
)  # fmt: skip
def test_size(text: object, expected: int) -> None:
    assert units.size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "1 XB", "0.3", "1.0001 KiB", True, None, [], "1 KiB x", "nan", 10**400]
)
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match=r"found .*; use "):
        units.size(text)


@pytest.mark.parametrize(("text", "expected"), [(0.25, 0.25), ("250ms", 0.25), ("2 min", 120), ("1us", 1e-6), (3, 3)])
def test_seconds(text: object, expected: float) -> None:
    assert units.seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "s", "-1", "1 week", 10**400, -(10**400), "1e400s", True, None, [], "nan"])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match=r"found .*; use "):
        units.seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 1800),
        (30, 1800),
        ("30m", 1800),
        ("90s", 90),
        ("2h", 7200),
        ("1:30:00", 5400),
        ("1d", 86400),
        ("1-00:00:00", 86400),
        ("1-12", 129600),
        ("2-01:30", 178200),
        (" 0-00:00:05 ", 5),
    ],
)
def test_walltime(text: object, expected: int) -> None:
    assert units.walltime(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "abc", "1:2:3:4", "0", "-5", "1:-1", ":", None, True, "1-", "1-1:2:3:4", 10**400, "9" * 400 + "h", 1e300],
)
def test_what_is_no_walltime(text: object) -> None:
    with pytest.raises(ValueError, match=r"found .*; use "):
        units.walltime(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1:60:00", "2:00:00"),
        ("01:75:00", "2:15:00"),
        ("0:00:61", "0:01:01"),
        ("1-24:00", "2-0:00:00"),
        ("1-0:60", "1-1:00:00"),
    ],
)  # fmt: skip
def test_a_walltime_with_too_many_minutes_gets_the_right_one(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=r"found .*; minutes and seconds are at most 59") as caught:
        units.walltime(text)
    assert units.walltime(str(caught.value).rpartition("write ")[2]) == units.walltime(meant)


def test_hours_and_minutes_are_refused_as_a_walltime() -> None:
    """Slurm and PBS read 1:30 as 90 seconds."""
    with pytest.raises(ValueError, match=r"read as minutes and seconds; for hours and minutes, write 90m or 1:30:00"):
        units.walltime("1:30")


@given(st.integers(1, 10**7))
def test_a_walltime_is_read_back_from_what_it_is_written_as(total: int) -> None:
    assert units.walltime(units.format_walltime(total)) == total


@pytest.mark.parametrize(
    ("text", "expected"), [(0.9, 0.9), ("90%", 0.9), ("12.5 %", 0.125), (0, 0), (1, 1), ("100%", 1), (1e-5, 1e-5)]
)
def test_share(text: object, expected: float) -> None:
    assert units.share(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "%", 90, "101%", -0.1, "half", float("nan"), True, False, None, []])
def test_what_is_no_share(text: object) -> None:
    with pytest.raises(ValueError, match="use a share such as 90%"):
        units.share(text)


@given(st.text())
def test_parsers_answer_or_refuse_with_a_message(text: str) -> None:
    for parse in (units.size, units.seconds, units.share, units.walltime):
        try:
            value: float = parse(text)
        except ValueError as fault:
            message = str(fault)
            assert "use " in message
        else:
            assert value >= 0


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**28, "256 MiB"), (2**50 * 3, "3 PiB")]
)
def test_format_size(count: int, text: str) -> None:
    assert units.format_size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (2e-9, "2 ns"), (1.234e-6, "1.23 us"), (0.0355, "35.5 ms"), (61, "61 s"), (4000, "4000 s")],
)
def test_format_seconds(value: float, text: str) -> None:
    assert units.format_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "count"), [("1MiB", 1 << 20), ("512 B", 512), ("1e7", 10**7), (1 << 20, 1 << 20), (0, 0)]
)
def test_large_sizes(value: object, count: int) -> None:
    assert units.large_size(value) == count


@pytest.mark.parametrize("value", ["512", 512, 64.0, "1e3", " 7 "])
def test_large_sizes_without_a_unit_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"give the unit, such as .*GiB"):
        units.large_size(value)


@pytest.mark.parametrize(("value", "seconds"), [("50ms", 0.05), ("50 s", 50.0), (0.25, 0.25), ("0.9", 0.9), (0, 0)])
def test_latencies(value: object, seconds: float) -> None:
    assert units.latency(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [50, "50", 1, "1e2"])
def test_latencies_without_a_unit_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"give the unit, such as .*ms or .*s"):
        units.latency(value)


def test_small_sizes_of_a_machine_are_written_with_their_unit() -> None:
    """A plan can be read again, also if a limit of its site is small."""
    small = site.Limits(space=units.large_size("10 B"), bytes_read=units.large_size("2 MiB"))
    written = serialization.encode(small)
    assert b'"10 B"' in written
    assert serialization.convert(msgspec.json.decode(written), site.Limits, "test") == small


def _nights(*times: str) -> list[str]:
    return [str(night)[8:] for night in nights_of([f"2026-07-{time}:00Z" for time in times])]


@pytest.fixture
def _utc(time_zone: Callable[[str], None]) -> None:
    time_zone("UTC")


@pytest.mark.usefixtures("_utc")
def test_nights_last_from_noon_to_noon_unless_jobs_end_near_noon() -> None:
    assert _nights() == []
    assert _nights("01T18:00", "02T03:00", "02T09:59", "02T14:01") == ["02", "02", "02", "03"]
    assert _nights("01T11:55", "02T12:05", "03T11:50", "04T12:20") == ["01", "02", "03", "04"]
    assert _nights("01T12:05") == ["01"]
    assert _nights("01T03:00", "01T12:30", "02T03:10", "02T12:20") == ["01", "01", "02", "02"]
    assert _nights("01T12:30", "02T03:00", "02T13:40", "03T04:00", "02T21:00") == ["01", "01", "02", "02", "02"], (
        "nights begin at 08:15"
    )
    assert _nights(*(f"01T{hour:02}:30" for hour in range(0, 24, 4)))[:3] == ["01"] * 3, "no part of the day is free"
