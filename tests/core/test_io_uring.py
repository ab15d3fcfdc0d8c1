"""Reads through io_uring deliver the same bytes as pread(2), whatever the order of completion."""

import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.core import io_uring
from dlio_hpc.core.clock import now
from dlio_hpc.core.io_uring import Completions, Ring
from tests.support import rings
from tests.support.places import TESTS

_PAGE, _SIZE = 4096, 1 << 18
_CONTENTS = np.random.default_rng(1).bytes(_SIZE)


_possible = pytest.mark.skipif(bool(rings.refusal()), reason=rings.refusal())


@pytest.fixture(scope="module")
def descriptor() -> Iterator[int]:
    # /tmp may have no O_DIRECT
    with tempfile.NamedTemporaryFile(dir=TESTS) as file:
        file.write(_CONTENTS)
        file.flush()
        os.fsync(file.fileno())
        yield file.fileno()


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring(8)
    yield made
    made.close()


def _memory(size: int) -> npt.NDArray[np.uint8]:
    """Return page-aligned memory."""
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8)


def _read(ring: Ring, descriptor: int, lengths: list[int], offsets: list[int]) -> tuple[Completions, list[bytes]]:
    """Read into memory that is filled from its beginning. Return also the bytes of each request."""
    ends = np.cumsum([0, *lengths])
    memory = _memory(int(ends[-1]))
    reads = ring.read(
        np.full(len(lengths), descriptor),
        memory.ctypes.data + ends[:-1],
        np.array(lengths, int),
        np.array(offsets, int),
    )
    return reads, [
        memory[begin : begin + max(count, 0)].tobytes()
        for begin, count in zip(ends.tolist(), reads.counts, strict=False)
    ]


_layouts = st.lists(st.tuples(st.integers(0, 3 * _PAGE), st.integers(0, _SIZE + _PAGE)), max_size=50)


@_possible
@given(st.integers(1, 20), st.lists(_layouts, max_size=3))
def test_bytes_are_those_of_pread(descriptor: int, depth: int, layouts: list[list[tuple[int, int]]]) -> None:
    ring = Ring(depth)
    for layout in layouts:
        lengths, offsets = [length for length, _ in layout], [offset for _, offset in layout]
        before = now()
        reads, data = _read(ring, descriptor, lengths, offsets)
        assert data == [os.pread(descriptor, length, offset) for length, offset in layout]
        assert (reads.starts >= before).all()
        assert (reads.ends >= reads.starts).all()
        assert (reads.ends <= now()).all()
    ring.close()


@_possible
def test_a_file_ends(ring: Ring, descriptor: int) -> None:
    reads, _ = _read(ring, descriptor, [100] * 3, [0, _SIZE - 60, _SIZE])
    assert reads.counts.tolist() == [100, 60, 0]


@_possible
def test_each_request_has_its_own_error(ring: Ring, descriptor: int) -> None:
    memory = _memory(_PAGE)
    reads = ring.read(
        np.array([descriptor, 10**6, descriptor, descriptor]),
        memory.ctypes.data * np.array([1, 1, 0, 1]),
        np.array([10, 10, 10, 20]),
        np.zeros(4, int),
    )
    assert reads.counts.tolist() == [10, -errno.EBADF, -errno.EFAULT, 20]
    assert memory[:20].tobytes() == _CONTENTS[:20]


Call = Callable[..., int]


def _failing(code: int) -> int:
    """Fail as a system call does."""
    ctypes.set_errno(code)
    return -1


def _entered(monkeypatch: pytest.MonkeyPatch, enter: Call) -> Ring:
    """Return a ring whose calls of io_uring_enter go to `enter`. Its first argument makes the real system call; the
    others are the number of requests to start, the number of results to wait for, and the rest.
    """
    system_call = io_uring._system_call()

    def replaced(number: int, *arguments: Any) -> int:
        if number != io_uring._ENTER:
            return system_call(number, *arguments)
        descriptor, *others = arguments
        return enter(lambda *changed: system_call(number, descriptor, *changed), *others)

    monkeypatch.setattr(io_uring, "_system_call", lambda: replaced)
    return Ring(8)


@_possible
def test_one_system_call_reads_a_ring_of_cached_bytes(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def enter(call: Call, count: int, *rest: Any) -> int:
        counts.append(count)
        return call(count, *rest)

    ring = _entered(monkeypatch, enter)
    for total, expected in ((1, [1]), (8, [8]), (16, [8, 8]), (17, [8, 8, 1]), (0, [])):
        os.pread(descriptor, _SIZE, 0)
        counts.clear()
        _read(ring, descriptor, [100] * total, [_PAGE * number for number in range(total)])
        assert counts == expected
    ring.close()


@_possible
@pytest.mark.parametrize("depth", [1, 5, 16])
def test_direct_reads_with_many_in_flight(descriptor: int, depth: int) -> None:
    path = f"/proc/self/fd/{descriptor}"
    try:
        direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        pytest.skip("this file system has no O_DIRECT")
    ring = Ring(depth)
    offsets = (np.random.default_rng(2).integers(0, _SIZE // _PAGE, 200) * _PAGE).tolist()
    reads, data = _read(ring, direct, [_PAGE] * 200, offsets)
    assert data == [_CONTENTS[offset : offset + _PAGE] for offset in offsets]
    in_flight = [((reads.starts <= start) & (reads.ends > start)).sum() for start in reads.starts]
    assert max(in_flight) <= depth
    ring.close()
    os.close(direct)


@_possible
@pytest.mark.parametrize("code", [errno.EINTR, errno.EAGAIN, errno.EBUSY])
def test_refused_calls_are_made_again(descriptor: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def enter(call: Call, *arguments: Any) -> int:
        nonlocal calls
        calls += 1
        return _failing(code) if calls % 3 else call(*arguments)

    ring = _entered(monkeypatch, enter)
    _, data = _read(ring, descriptor, [100] * 30, list(range(30)))
    assert data == [_CONTENTS[number : number + 100] for number in range(30)]
    ring.close()


@_possible
def test_requests_that_did_not_start_are_sent_again(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = _entered(monkeypatch, lambda call, count, *rest: call(-(-count // 2), *rest))
    _, data = _read(ring, descriptor, [100] * 30, list(range(30)))
    assert data == [_CONTENTS[number : number + 100] for number in range(30)]
    ring.close()


@_possible
def test_an_interrupted_read_waits_for_its_requests(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> None:
    """The requests in flight read from a pipe. Afterwards the ring works as before."""
    source, sink = os.pipe()
    calls = 0

    def enter(call: Call, count: int, wanted: int, *rest: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            call(count, 0, *rest)
            raise KeyboardInterrupt
        os.write(sink, b"xxxx" if calls == 2 else b"")
        return call(count, wanted, *rest)

    ring, memory = _entered(monkeypatch, enter), _memory(4)
    with pytest.raises(KeyboardInterrupt):
        ring.read(np.full(4, source), memory.ctypes.data + np.arange(4), np.ones(4, int), np.full(4, -1))
    assert memory.tobytes() == b"xxxx"
    _, data = _read(ring, descriptor, [100], [7])
    assert data == [_CONTENTS[7:107]]
    ring.close()
    os.close(source)
    os.close(sink)


@_possible
def test_a_failing_ring_is_a_fault_of_the_machine(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = _entered(monkeypatch, lambda *_: _failing(errno.EIO))
    with pytest.raises(InfrastructureError, match="Input/output error"):
        _read(ring, descriptor, [100], [0])
    ring.close()


@_possible
def test_a_closed_ring_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    ring = Ring(4)
    ring.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSYS, "older than Linux 5.6"),
        (errno.EPERM, "kernel.io_uring_disabled"),
        (errno.ENOMEM, "ulimit -l"),
        (errno.EINVAL, "1 to 32768 requests"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(code: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_uring, "_system_call", lambda: lambda *_: _failing(code))
    with pytest.raises(ConfigError) as caught:
        Ring(4)
    message = str(caught.value)
    assert message.startswith("reader.engine=io_uring is not possible here: the kernel refuses it (")
    assert reason in message
    assert message.endswith("; set reader.engine=preadv")


def test_a_kernel_without_the_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a kernel creates the ring, but does not name the features that came with the request."""
    monkeypatch.setattr(io_uring, "_system_call", lambda: lambda *_: os.open("/dev/null", os.O_RDONLY))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ConfigError, match=r"older than Linux 5\.6"):
        Ring(4)
    assert len(os.listdir("/proc/self/fd")) == before


@_possible
def test_a_ring_without_the_newest_flags(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_uring, "_FLAGS", (1 << 31, 0))
    ring = Ring(4)
    _, data = _read(ring, descriptor, [100] * 9, list(range(9)))
    assert data == [_CONTENTS[number : number + 100] for number in range(9)]
    ring.close()
