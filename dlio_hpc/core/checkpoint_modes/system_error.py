"""System error that caused an exception of a framework. Frameworks often do not report the system error: torch.save
reports a full disk as "unexpected pos 704 vs 598", and HDF5 as text in the middle of its own messages.
"""

import ctypes
import errno
import re
from collections.abc import Callable, Iterator

# Error numbers of a failing file system. Other numbers, such as ENOENT and EAGAIN, remain from calls that may fail.
_OF_STORAGE = frozenset(
    {
        errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ESTALE, errno.EFBIG,
        errno.ENXIO, errno.ENODEV, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.ESHUTDOWN,
    }
)  # fmt: skip
_IN_TEXT = re.compile(r"\berrno[ =]+(\d+)", re.IGNORECASE)


def watched() -> Callable[[BaseException], int | None]:
    """Return a function that takes an exception, and returns the number of the system error that caused the exception,
    or None if this is unknown. The returned function must be called as soon as the exception is caught, by the thread
    that called watched().

    The number is taken from an OSError in the chain of exceptions, or from the text of an exception in this chain. If
    neither has a number, it is the last error of a call of the C library in this thread, provided that this is an error
    of storage. EINVAL is ignored, because a library causes it itself when it uses the offsets in a damaged file.
    """
    locate = ctypes.CDLL(None).__errno_location
    locate.restype = ctypes.POINTER(ctypes.c_int)
    last = locate().contents
    last.value = 0

    def number(fault: BaseException) -> int | None:
        of_thread = last.value
        for one in _chain(fault):
            if isinstance(one, OSError) and one.errno and one.errno != errno.EINVAL:
                return one.errno
            named = [int(text) for text in _IN_TEXT.findall(str(one))]
            if known := [value for value in named if value in _OF_STORAGE]:
                return known[0]
        return of_thread if of_thread in _OF_STORAGE else None

    return number


def _chain(fault: BaseException) -> Iterator[BaseException]:
    """Yield an exception, then the exception that caused it, and so on."""
    following: BaseException | None = fault
    while following is not None:
        yield following
        following = following.__cause__ or following.__context__
