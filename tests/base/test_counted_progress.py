"""Progress of work on a known number of items."""

import time

import pytest

from dlio_hpc.base.counted_progress import CountedProgress, duration


def _lines(monkeypatch: pytest.MonkeyPatch, total: int, looks: list[tuple[float, int]]) -> list[str]:
    moment = [50.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    lines: list[str] = []
    progress = CountedProgress(lines.append, "scan", "files", total)
    for after, done in looks:
        moment[0] = 50.0 + after
        progress(done, "7 MB")
    return lines


def test_a_line_has_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [(0.9, 10), (1.0, 20), (2.9, 64), (3.1, 64), (5.1, 1024)]
    assert _lines(monkeypatch, 1024, looks) == [
        "scan: 20 of 1,024 files, 7 MB, 20/s, about 50 s left",
        "scan: 64 of 1,024 files, 7 MB, 21/s, about 47 s left",
        "scan: 1,024 of 1,024 files, 7 MB, 201/s",
    ]


def test_without_a_total_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _lines(monkeypatch, 0, [(0.5, 1), (1.5, 0), (9.0, 2000)]) == [
        "scan: 0 files, 7 MB",
        "scan: 2,000 files, 7 MB, 222/s",
    ]


def test_a_short_time_has_seconds_and_a_long_one_hours() -> None:
    assert [duration(seconds) for seconds in (0.2, 89.4, 90, 5369, 5400, 9000, 36_061)] == [
        "1 s", "89 s", "2 min", "89 min", "1:30 h", "2:30 h", "10:01 h",
    ]  # fmt: skip
