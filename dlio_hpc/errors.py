"""Exceptions for expected failures: a tree of classes, each with the exit code of its kind."""

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class DlioError(Exception):
    """Root of the tree. A message has one or two lines and includes a remedy."""

    exit_code = 6


class ConfigError(DlioError):
    """The user requested something impossible: an option, workload, site or dataset that does not fit."""

    exit_code = 2


class InvalidRun(DlioError):
    """Data read, written or archived are not as planned; the figures must not be used."""

    exit_code = 3


class InfrastructureError(DlioError):
    """The batch system, the MPI launch, a node or a file system failed."""

    exit_code = 6


class Incomplete(DlioError):
    """The job has not completed: still running, cancelled, over its time limit, or lost."""

    exit_code = 7


class Unexpected(DlioError):
    """A bug in dlio-hpc; the code is EX_SOFTWARE of sysexits(3)."""

    exit_code = 70


def kind_of(exit_code: int) -> type[DlioError]:
    """Return the class with this exit code; InfrastructureError for codes that are not dlio-hpc's."""
    kinds: tuple[type[DlioError], ...] = (ConfigError, InvalidRun, Incomplete, Unexpected)
    return next((kind for kind in kinds if kind.exit_code == exit_code), InfrastructureError)


# Packages whose exceptions report a fault of the machine or the storage, not a bug in dlio-hpc.
_LIBRARIES = {"mpi4py", "tensorflow", "torch"}


def classified(fault: Exception) -> DlioError:
    """Return the fault as a DlioError: InfrastructureError for faults reported by the system, MPI or a framework,
    Unexpected for all others.
    """
    if isinstance(fault, DlioError):
        return fault
    if isinstance(fault, OSError):
        return InfrastructureError(of_system(fault))
    if isinstance(fault, MemoryError) or type(fault).__module__.partition(".")[0] in _LIBRARIES:
        return InfrastructureError(str(fault) or type(fault).__name__)
    return Unexpected(f"a bug of dlio-hpc, please report it: {type(fault).__name__}: {fault}")


_BY_DESCRIPTOR = re.compile(r"/proc/self/fd/\d+(?P<rest>.*)", re.DOTALL)


def of_system(fault: OSError, path: object = None) -> str:
    """Return the file of a fault and the system's description of the cause. path: the file's name if the fault names
    none, or names it by its folder's descriptor.
    """
    cause = fault.strerror or str(fault) or type(fault).__name__
    name = path if _is_nameless(fault) else os.fsdecode(fault.filename)
    if path is not None and (by_descriptor := _BY_DESCRIPTOR.match(str(name))):
        name = f"{path}{by_descriptor['rest']}"
    return cause if name is None else f"{name}: {cause}"


def _is_nameless(fault: OSError) -> bool:
    """Return whether the fault has no path; calls on a descriptor may have its number as a name."""
    return fault.filename is None or isinstance(fault.filename, int)


# Error numbers of a path that does not exist or is not a file: the user's mistake, not the system's fault.
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}


def unreadable(fault: OSError, path: object, absent: type[DlioError] = ConfigError, advice: str = "") -> DlioError:
    """Return the error for a file that cannot be read: of class `absent`, with `advice` added, if the file does not
    exist, InfrastructureError otherwise.
    """
    if fault.errno in ABSENT:
        return absent(f"cannot read {of_system(fault, path)}{advice}")
    return InfrastructureError(f"cannot read {of_system(fault, path)}")


# Characters of a long message that are kept, at its start and its end.
_FIRST, _LAST = 3000, 500


def shortened(message: str) -> str:
    """Return the message, shortened in the middle if it is long; the number of omitted characters is inserted."""
    left_out = len(message) - _FIRST - _LAST
    if left_out <= 0:
        return message
    return f"{message[:_FIRST]} ... ({left_out} characters) ... {message[-_LAST:]}"


@contextmanager
def about(path: object, alias: object = None) -> Iterator[None]:
    """Set the file name of OSErrors raised in the block to `path` if they have none, or name the file, or a file in it,
    by `alias`.
    """
    try:
        yield
    except OSError as fault:
        name = None if _is_nameless(fault) else os.fsdecode(fault.filename)
        if name is None or name == str(alias):
            fault.filename = str(path)
        elif name.startswith(f"{alias}/"):
            fault.filename = f"{path}{name.removeprefix(str(alias))}"
        raise


@contextmanager
def told() -> Iterator[None]:
    """Report a fault raised in the block on stderr and exit with its code. For programs that run in the job."""
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - reported, then the program ends
        sys.exit(reported(fault).exit_code)


def reported(fault: Exception, lead: str = "") -> DlioError:
    """Print the fault on stderr, after `lead`, and return it as a DlioError.

    A bug is printed with its traceback, so the fault must be the exception that is being handled.
    """
    known = classified(fault)
    if isinstance(known, Unexpected):
        import traceback

        traceback.print_exc()
    print(f"dlio-hpc: {lead}{known}", file=sys.stderr, flush=True)
    return known


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of the names; None if no name is similar."""
    import difflib  # slow import, needed only for wrong names

    lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[close[0]] if close else None


def name_hint(name: str, names: Iterable[str]) -> str:
    """Return "did you mean ...? " for a message, with a trailing blank; empty if no name is similar."""
    meant = nearest_name(name, names)
    return "" if meant is None else f"did you mean {meant!r}? "
