"""Everything that can go wrong on purpose: one tree, each class with the exit code of its kind."""

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
    if isinstance(fault, (OSError, MemoryError)) or type(fault).__module__.partition(".")[0] in _LIBRARIES:
        return InfrastructureError(str(fault) or type(fault).__name__)
    return Unexpected(f"a bug of dlio-hpc, please report it: {type(fault).__name__}: {fault}")


@contextmanager
def told() -> Iterator[None]:
    """Around a program that runs in the job: what goes wrong is said on stderr, and is its exit code."""
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - reported, then the program ends
        known = classified(fault)
        if isinstance(known, Unexpected):
            import traceback

            traceback.print_exc()
        print(f"dlio-hpc: {known}", file=sys.stderr)
        sys.exit(known.exit_code)
