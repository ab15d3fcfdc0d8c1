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


@contextmanager
def told() -> Iterator[None]:
    """Around a program that runs in the job: what goes wrong is said on stderr, and is its exit code."""
    try:
        yield
    except DlioError as fault:
        print(f"dlio-hpc: {fault}", file=sys.stderr)
        sys.exit(fault.exit_code)
    except OSError as fault:
        print(f"dlio-hpc: {fault}", file=sys.stderr)
        sys.exit(DlioError.exit_code)
