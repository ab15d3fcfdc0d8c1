"""Functions of the C library that a preloaded library replaces in this process (LD_PRELOAD). Such a library may cache
data, for example HVAC and UnifyFS. It may also let fsync(2) return before data are on storage, for example
libeatmydata. A filter of system calls may disable fsync(2), too, for example systemd-nspawn --suppress-sync.
"""

import ctypes
import os
from collections.abc import Iterable

READS = ("open", "open64", "openat", "openat64", "read", "pread64", "preadv64", "posix_fadvise64", "mincore")
SYNCS = ("fsync", "fdatasync")
# Beginnings of names of libraries that define these functions, or that only record or check calls and pass them on.
_HARMLESS = (
    "libc.", "libc-", "libc_", "ld-", "libpthread", "libdarshan", "libdftracer", "librecorder", "libasan", "libtsan",
)  # fmt: skip


class _Symbol(ctypes.Structure):
    """Struct Dl_info of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p),
    )  # fmt: skip


# Number of a file that is not open: no process may have so many.
_CLOSED = 1 << 30


def syncs() -> bool:
    """Return whether fsync(2) reaches the kernel. The test calls fsync(2) for a descriptor that is not open: the call
    fails only if it reaches the kernel. Also return False if a library replaces fsync(2).
    """
    try:
        os.fsync(_CLOSED)
    except OSError:
        return not replacing(SYNCS)
    return False


def replacing(functions: Iterable[str]) -> list[str]:
    """Return the names of the libraries that replace any of these functions, sorted. Libraries that only record calls
    are left out. Return an empty list if this cannot be determined (a C library without dladdr(3)).
    """
    process = ctypes.CDLL(None)
    if not hasattr(process, "dladdr"):
        return []
    names = {_library(process, function) for function in functions if hasattr(process, function)}
    return sorted(name for name in names if name and not name.startswith(_HARMLESS))


def _library(process: ctypes.CDLL, function: str) -> str:
    """Return the name of the library whose `function` this process calls, or an empty text."""
    symbol = _Symbol()
    address = ctypes.cast(getattr(process, function), ctypes.c_void_p)
    if not process.dladdr(address, ctypes.byref(symbol)) or not symbol.file:
        return ""
    return os.path.basename(os.fsdecode(symbol.file))
