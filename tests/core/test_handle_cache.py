import contextlib
import os
import threading
from pathlib import Path

import pytest

from dlio_hpc.base.errors import InfrastructureError, InvalidRun
from dlio_hpc.core.files import OpenFiles, ReadRequests, open_file
from dlio_hpc.core.handle_cache import PINNED, HandleCache
from dlio_hpc.core.io_counters import Tally


def _open(folder: Path) -> int:
    """This process's open files below `folder`."""
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(folder))
    return count


def test_open_files_are_shared_and_bounded(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).write_bytes(b"x")
    files = OpenFiles(lambda number: str(tmp_path / str(number)), 1)
    tallies = [Tally() for _ in range(4)]

    def use(tally: Tally) -> None:
        for number in range(50):
            buffer = bytearray(1)
            files.fetch(ReadRequests.single(number, 0, [memoryview(buffer)]), tally)
            assert buffer == b"x"

    threads = [threading.Thread(target=use, args=(tally,)) for tally in tallies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(tally.opens for tally in tallies) == 50
    for number in range(50, 100):
        files.fetch(ReadRequests.single(number, 0, [memoryview(bytearray(1))]), tallies[0])
    assert 50 < _open(tmp_path) <= 64 + PINNED
    files.close()
    assert _open(tmp_path) == 0


def test_a_file_in_use_stays_open_and_a_failed_one_may_come_later(tmp_path: Path) -> None:
    for number in range(80):
        (tmp_path / str(number)).write_bytes(b"x")
    kept = HandleCache(lambda number, _: open_file(str(tmp_path / str(number))))
    tally = Tally()
    first = kept.get(0, tally)

    def others() -> None:
        for number in range(1, 80):
            kept.get(number, tally)

    thread = threading.Thread(target=others)
    thread.start()
    thread.join()
    assert os.pread(first.descriptor, 1, 0) == b"x"
    with pytest.raises(InvalidRun, match="cannot read"):
        kept.get(80, tally)
    (tmp_path / "80").write_bytes(b"x")
    late = kept.get(80, tally)
    assert os.pread(late.descriptor, 1, 0) == b"x"
    for number in range(1, 1 + PINNED):
        assert os.pread(late.descriptor, 1, 0) == b"x"
        kept.get(number, tally)
    kept.close()
    assert _open(tmp_path) == 0


def test_a_file_that_is_asked_for_again_stays_pinned(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / str(number)).write_text(str(number))
    kept = HandleCache(lambda number, _: open_file(str(tmp_path / str(number))))
    tally = Tally()
    for number in range(PINNED):
        kept.get(number, tally)
    first = kept.get(0, tally)
    kept.get(PINNED, tally)

    def others() -> None:
        for number in range(100, 200):
            kept.get(number, tally)

    thread = threading.Thread(target=others)
    thread.start()
    thread.join()
    assert os.pread(first.descriptor, 3, 0) == b"0"
    assert tally.opens == PINNED + 1 + 100
    assert len(tally.opened) == tally.opens > len(tally.closed) > 0
    kept.close()


def test_a_file_that_is_read_once_is_closed_at_once(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 10)
    files, tally, buffer = OpenFiles(lambda number: str(tmp_path / str(number)), 4, once=True), Tally(), bytearray(10)
    for number in (2, 0, 1):
        files.fetch(ReadRequests.single(number, 0, [memoryview(buffer)]), tally)
        assert buffer == bytes([number]) * 10
        assert _open(tmp_path) == 0
    assert (tally.opens, tally.requests, tally.sizes) == (3, 9, [4, 4, 2] * 3)
    times = [time for start, end in zip(tally.starts, tally.ends, strict=True) for time in (start, end)]
    assert [len(tally.opened), len(tally.closed), times] == [3, 3, sorted(times)]
    for number in range(3):
        opening, closing = tally.opened[number], tally.closed[number]
        assert opening[0] <= opening[1] <= times[6 * number]
        assert times[6 * number + 5] <= closing[0] <= closing[1]
    with pytest.raises(InvalidRun, match="truncated"):
        files.fetch(ReadRequests.single(0, 8, [memoryview(buffer)]), tally)
    assert _open(tmp_path) == 0


def test_files_that_a_library_opens_have_no_latency_of_opens(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"0")
    tally: Tally = Tally()
    kept = HandleCache(lambda number, _: open_file(str(tmp_path / str(number))), by_library=True)
    kept.get(0, tally)
    kept.close()
    assert (tally.opens, len(tally.opened), len(tally.handled)) == (1, 0, 1)


def test_a_file_that_cannot_be_read_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0").write_bytes(b"0123456789")
    files = OpenFiles(lambda number: str(tmp_path / str(number)), 100, once=True)

    def failing(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(InfrastructureError, match=r"cannot read .*/0 at byte 3: Input/output error"):
        files.fetch(ReadRequests.single(0, 3, [memoryview(bytearray(4))]), Tally())
    assert _open(tmp_path) == 0
