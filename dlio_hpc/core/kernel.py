"""What the kernel says of this process or thread: proc(5), /proc/pid/io."""

from typing import NamedTuple

# More than the file ever has; read in one call.
_LONGEST = 1024


class IO(NamedTuple):
    """requested: bytes that read calls brought, from wherever (rchar). calls: how many (syscr). fetched: bytes that the
    kernel got from storage for them (read_bytes); pages that lay in the page cache are not in it.
    asking: bytes that this very question brought, which the next one will count.
    """

    requested: int
    calls: int
    fetched: int
    asking: int

    def since(self, before: "IO") -> "IO":
        """What came between, without the call that asked for `before` and the bytes it brought."""
        requested = self.requested - before.requested - before.asking
        return IO(requested, self.calls - before.calls - 1, self.fetched - before.fetched, 0)


def process_io() -> IO | None:
    """All threads since the start; None where the kernel does not tell."""
    return _io("/proc/self/io")


def thread_io() -> IO | None:
    """The calling thread since its start."""
    return _io("/proc/thread-self/io")


def _io(path: str) -> IO | None:
    try:
        with open(path, "rb", buffering=0) as file:
            text = file.read(_LONGEST)
        fields = text.split()
        return IO(int(fields[1]), int(fields[5]), int(fields[9]), len(text))
    except (OSError, IndexError, ValueError):
        return None


class Apart:
    """What the kernel fetched for the calling thread within such blocks."""

    def __init__(self) -> None:
        self._fetched = 0
        self._before: IO | None = None

    def __enter__(self) -> None:
        self._before = thread_io()

    def __exit__(self, *_: object) -> None:
        after = thread_io()
        if self._before is not None and after is not None:
            self._fetched += after.fetched - self._before.fetched

    def taken(self) -> int:
        """Bytes since the last question."""
        fetched, self._fetched = self._fetched, 0
        return fetched
