"""Detection of a batch system from a login node, for a new site profile."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dlio_hpc.base import command
from dlio_hpc.base.command import Answer, Unanswered

# While a batch system is being detected, a command that takes longer than this number of seconds counts as not
# answering.
_PATIENCE_S = 20


class DetectedQueue(NamedTuple):
    """A queue that was detected. nodes: maximum number of nodes of a job; None if unknown. walltime: value of the key
    `walltime` of a site profile, as text. It maps a minimum number of nodes to the maximum walltime of jobs of at least
    that size. "{}" if unknown.
    """

    name: str
    nodes: int | None
    walltime: str


class DetectedLauncher(NamedTuple):
    """The launcher for a new profile. why: reason for the choice. mpi: value of srun's option --mpi; None to leave the
    option out. mpis: the values of --mpi that srun supports, as text.
    """

    kind: str
    command: str
    why: str
    mpi: str | None = None
    mpis: str = ""


class DetectedSystem(NamedTuple):
    """A batch system that was detected. version: name and version of the batch system. queue: the default queue; None
    if there is no default queue. cpus: number of CPUs of a node; None if unknown. job_options, remote: values of these
    keys for a new profile. launcher: function that returns the batch system's own launcher; None if ranks are started
    with mpiexec. The argument of this function is the first line of the version text of the MPI library. clusters:
    names of the clusters that jobs can be submitted to from here. queues_from, cpus_from: commands that name the queues
    and the number of CPUs.
    """

    version: str
    queue: str | None = None
    queues: Sequence[DetectedQueue] = ()
    cpus: int | None = None
    job_options: Sequence[str] = ()
    remote: str | None = None
    launcher: Callable[[str], DetectedLauncher] | None = None
    clusters: Sequence[str] = ()
    queues_from: str = ""
    cpus_from: str = ""


def try_ask(*arguments: str) -> Answer | None:
    """Run a command and return its answer, or None if the command does not exist or does not answer."""
    try:
        return command.ask(*arguments, patience_s=_PATIENCE_S)
    except Unanswered:
        return None


def count(text: str) -> int | None:
    """Return the integer that `text` stands for, or None if `text` is not a number. A trailing + is ignored: sinfo
    writes 64+ if nodes differ.
    """
    match = re.fullmatch(r"([0-9]{1,9})\+?", text)
    return int(match[1]) if match else None


def qsub_version() -> str | None:
    """Return what qsub --version prints, or None if there is no qsub or it does not answer. PBS and Cobalt both have a
    qsub; this text tells them apart.
    """
    qsub = try_ask("qsub", "--version")
    return None if qsub is None else f"{qsub.out} {qsub.err}".strip()
