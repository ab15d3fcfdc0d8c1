"""Files are never opened and closed at the same time under Darshan."""

import threading
import time
from pathlib import Path

import pytest

from dlio_hpc.core import darshan_fd_gate


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darshan_fd_gate, "is_watched", lambda: True)


@pytest.mark.usefixtures("watched")
def test_nobody_opens_while_another_closes() -> None:
    """Several threads may open files at once."""
    busy: list[str] = []
    wrong: list[list[str]] = []
    most_opening = 0

    def work(kind: str) -> None:
        nonlocal most_opening
        for _ in range(100):
            with darshan_fd_gate.opening() if kind == "open" else darshan_fd_gate.closing():
                busy.append(kind)
                active = list(busy)
                if "close" in active and len(active) > 1:
                    wrong.append(active)
                most_opening = max(most_opening, len(active))
                time.sleep(1e-5)
                busy.remove(kind)

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("open", "open", "open", "close", "close")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert most_opening > 1


@pytest.mark.usefixtures("watched")
def test_a_thread_does_not_wait_for_itself(tmp_path: Path) -> None:
    """Garbage collection may close a file while its thread opens another one."""
    with darshan_fd_gate.opening(), darshan_fd_gate.closing(), darshan_fd_gate.closing():
        (tmp_path / "x").write_text("x")
    with darshan_fd_gate.opened(str(tmp_path / "x"), "rb") as file:
        assert file.read() == b"x"
    assert file.closed


def test_without_darshan_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(darshan_fd_gate, "is_watched", lambda: False)
    with darshan_fd_gate.closing():
        other = threading.Thread(target=lambda: darshan_fd_gate.opening().__enter__())
        other.start()
        other.join(5)
        assert not other.is_alive()
