import contextlib
import os
import threading
from pathlib import Path

import pytest

from dlio_hpc.core.files import OpenFiles, ReadRequest, open_file
from dlio_hpc.core.handle_cache import HandleCache
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.errors import InvalidRun


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
            files.fetch([ReadRequest(number, 0, [memoryview(buffer)])], tally)
            assert buffer == b"x"

    threads = [threading.Thread(target=use, args=(tally,)) for tally in tallies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(tally.opens for tally in tallies) == 50
    files.fetch([ReadRequest(number, 0, [memoryview(bytearray(1))]) for number in range(50, 100)], tallies[0])
    assert 50 < _open(tmp_path) <= 64
    files.close()
    assert _open(tmp_path) == 0


def test_a_file_in_use_stays_open_and_a_failed_one_may_come_later(tmp_path: Path) -> None:
    for number in range(80):
        (tmp_path / str(number)).write_bytes(b"x")
    kept = HandleCache(lambda number, _: open_file(str(tmp_path / str(number))))
    tally = Tally()
    with kept.use(0, tally) as first:
        for number in range(1, 80):
            with kept.use(number, tally):
                pass
        assert os.pread(first.descriptor, 1, 0) == b"x"
    with pytest.raises(InvalidRun, match="cannot read"), kept.use(80, tally):
        pass
    (tmp_path / "80").write_bytes(b"x")
    with kept.use(80, tally) as late:
        assert os.pread(late.descriptor, 1, 0) == b"x"
    assert tally.opens == 81
    kept.close()
