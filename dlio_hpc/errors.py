"""Everything that can go wrong on purpose: one tree, each class with the exit code of its kind."""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class DlioError(Exception):
    """Root of the tree. The message is one or two lines and says what to do."""

    exit_code = 6


class ConfigError(DlioError):
    """The user asked for something that cannot be: option, workload, site, dataset that does not fit."""

    exit_code = 2


class InvalidRun(DlioError):
    """What was read, written or archived is not what was planned; its figures must not be used."""

    exit_code = 3


class InfrastructureError(DlioError):
    """The scheduler, the MPI launch, a node or a file system let us down."""

    exit_code = 6


class Incomplete(DlioError):
    """The job has not come to its end: still running, cancelled, over its time limit, lost."""

    exit_code = 7


class Unexpected(DlioError):
    """A bug of dlio-hpc itself; the code is EX_SOFTWARE of sysexits(3)."""

    exit_code = 70


def kind_of(exit_code: int) -> type[DlioError]:
    """The class of faults with this exit code; InfrastructureError for codes that are not ours."""
    kinds: tuple[type[DlioError], ...] = (ConfigError, InvalidRun, Incomplete, Unexpected)
    return next((kind for kind in kinds if kind.exit_code == exit_code), InfrastructureError)


# Packages whose exceptions report a fault of the machine or the storage, not a bug in dlio-hpc.
_LIBRARIES = {"mpi4py", "tensorflow", "torch"}


def classified(fault: Exception) -> DlioError:
    """The fault as a DlioError: InfrastructureError for faults that the system, MPI or a framework reports, Unexpected
    for all others.
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
    """The file that a fault is about, and the system's words for the cause. path: of a fault that names no file, or
    names one by its folder's descriptor.
    """
    cause = fault.strerror or str(fault) or type(fault).__name__
    name = path if _is_nameless(fault) else os.fsdecode(fault.filename)
    if path is not None and (by_descriptor := _BY_DESCRIPTOR.match(str(name))):
        name = f"{path}{by_descriptor['rest']}"
    return cause if name is None else f"{name}: {cause}"


def _is_nameless(fault: OSError) -> bool:
    """Whether the fault has no path; what is done by a descriptor may have that number for a name."""
    return fault.filename is None or isinstance(fault.filename, int)


# What was named is not there: whoever named it can help, not the system.
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}


def unreadable(fault: OSError, path: object, absent: type[DlioError] = ConfigError, advice: str = "") -> DlioError:
    """The error for a file that cannot be read. absent: its class, and advice: what it adds, where there is no such
    file; InfrastructureError otherwise.
    """
    if fault.errno in ABSENT:
        return absent(f"cannot read {of_system(fault, path)}{advice}")
    return InfrastructureError(f"cannot read {of_system(fault, path)}")


# Letters of a message that are shown: from its beginning, and from its end.
_FIRST, _LAST = 3000, 500


def shortened(message: str) -> str:
    """A message of a readable length: what is left out of a longer one is said."""
    left_out = len(message) - _FIRST - _LAST
    if left_out <= 0:
        return message
    return f"{message[:_FIRST]} ... ({left_out} letters) ... {message[-_LAST:]}"


@contextmanager
def about(path: object, alias: object = None) -> Iterator[None]:
    """Around what is done with the file or folder at `path`: a fault that names none, or names it, or what lies in it,
    by `alias`, names it by its path.
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
    """Around a program that runs in the job: what goes wrong is said on stderr, and is its exit code."""
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - reported, then the program ends
        sys.exit(reported(fault).exit_code)


def reported(fault: Exception, lead: str = "") -> DlioError:
    """Print the fault that is being handled on stderr, after `lead`, and return it as a DlioError.

    A bug is printed with its traceback.
    """
    known = classified(fault)
    if isinstance(known, Unexpected):
        import traceback

        traceback.print_exc()
    print(f"dlio-hpc: {lead}{known}", file=sys.stderr, flush=True)
    return known
