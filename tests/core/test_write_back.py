import os
from pathlib import Path

import numpy as np
import pytest

from dlio_hpc.core import write_back
from dlio_hpc.core.write_back import written_early


def test_pieces_pass_and_write_back_starts_after_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []
    monkeypatch.setattr(write_back, "_start", events.append)
    array = np.zeros((3 << 20) // 8)
    for piece in written_early(5, [b"12", memoryview(b"3"), array, array, b"4"]):
        size = memoryview(piece).nbytes
        events.append(f"{size} bytes")
    assert events == ["2 bytes", "1 bytes", "3145728 bytes", "3145728 bytes", 5, "1 bytes"]


def test_files_that_cannot_be_written_back_are_left_alone(tmp_path: Path) -> None:
    source, sink = os.pipe()
    assert sum(1 for _ in written_early(sink, [bytes(8 << 20)] * 3)) == 3
    os.close(source)
    os.close(sink)
    path = tmp_path / "file"
    with path.open("wb", buffering=0) as file:
        for piece in written_early(file.fileno(), [bytes([number]) * (5 << 20) for number in range(3)]):
            file.write(piece)
    assert path.read_bytes() == b"".join(bytes([number]) * (5 << 20) for number in range(3))
