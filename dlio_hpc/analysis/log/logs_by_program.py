"""Logs that belong to one program. A program without MPI leaves a log for each of its processes."""

import os
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.darshan.log import LogJob

# <user>_<exe>_id<job>-<pid>_<date>.darshan
_PID = re.compile(r"_id\d+-(\d+)_")
# Programs of the processes that Python's multiprocessing starts.
_HELPER = re.compile(r"\bmultiprocessing[. -]|spawn_main")
_INTERPRETER = re.compile(r"^(?:python|bash|sh|perl|Rscript|julia)[\d.]*$")
# Options of Python that have a value.
_WITH_VALUE = ("-W", "-X")
# Seconds by which the clocks of nodes may differ.
_SLACK_S = 2.0
# Largest number of jobs or programs that a note names.
_NAMED = 5

# User, job, executable, and name of a program. A program with MPI has its path instead of the name.
_Key = tuple[int, int, str, str]


class LogHead(NamedTuple):
    """Path and job record of a log."""

    path: Path
    job: LogJob

    @property
    def pid(self) -> str:
        """Number of the process, from the name of the log; "" if the name has none."""
        match = _PID.search(self.path.name)
        return match[1] if match else ""

    @property
    def executable(self) -> str:
        return os.path.basename((self.job.program.split() or [""])[0])

    @property
    def is_helper(self) -> bool:
        """Whether Python's multiprocessing has started the process."""
        return _HELPER.search(self.job.program) is not None

    def is_during(self, other: "LogHead") -> bool:
        """Return whether the process started while the process of another log was running."""
        ended = other.job.ended or float("inf")
        return other.job.started - _SLACK_S <= self.job.started <= ended + _SLACK_S


def short_name(program: str) -> str:
    """Return the name of the script or module in a command line. If there is none, return the name of the executable.
    The name is without folder and extension. Return "" for an empty command line.
    """
    arguments = program.split()
    scripts = [word for word in arguments if word.endswith((".py", ".sh"))]
    modules = [after for word, after in pairwise(arguments) if word == "-m" and after != "mpi4py"]
    scripts += [module.rpartition(".")[2] for module in modules] + _operands(arguments) + arguments[:1]
    return os.path.basename(scripts[0]).removesuffix(".py").removesuffix(".sh") if scripts else ""


def _operands(arguments: list[str]) -> list[str]:
    """Return a list with the script that an interpreter runs. Return an empty list if there is none."""
    if not arguments or not _INTERPRETER.match(os.path.basename(arguments[0])):
        return []
    for before, word in pairwise(arguments):
        if word in ("-c", "-m", "-"):
            return []
        if not word.startswith("-") and before not in _WITH_VALUE:
            return [word]
    return []


def merging_notes(jobs: Sequence[LogJob]) -> list[str]:
    """Return a list with a note if several logs are analysed as the logs of one program. The note lists the jobs if
    there are several, and the programs if there are several. Return an empty list for a single log.
    """
    if len(jobs) == 1:
        return []
    note = f"{len(jobs)} logs, read as the logs of the processes of one program"
    numbers = list(dict.fromkeys(str(job.id) for job in jobs))
    names = list(dict.fromkeys(short_name(job.program) for job in jobs if not _HELPER.search(job.program)))
    for kind, values in (("jobs", numbers), ("programs", names)):
        if len(values) > 1:
            more = "" if len(values) <= _NAMED else f" and {len(values) - _NAMED} more"
            note += f"; they name {len(values)} {kind}: {', '.join(values[:_NAMED])}{more}"
    return [note]


def groups(heads: Iterable[LogHead]) -> list[list[LogHead]]:
    """Group the logs by program. Two logs belong to one program in three cases: their user, job id, executable and
    script are equal; one process has forked the other; or Python's multiprocessing has started one process in the job
    of the other. A log of a program with MPI forms a group of its own.
    """
    heads = list(heads)
    own = {head.path: _own_key(head) for head in heads}
    parents: dict[tuple[int, str], list[LogHead]] = {}
    scripts: dict[tuple[int, int, str], list[LogHead]] = {}
    for head in heads:
        if head.job.ranks == 1:
            parents.setdefault((head.job.uid, head.pid), []).append(head)
            if not head.is_helper:
                scripts.setdefault(own[head.path][:3], []).append(head)
    made: dict[_Key, list[LogHead]] = {}
    for head in heads:
        root = _root(head, parents)
        if root.job.ranks == 1 and root.is_helper:
            root = _starter(root, scripts.get(own[root.path][:3], []))
        made.setdefault(own[root.path], []).append(head)
    return [sorted(members, key=lambda head: (head.job.started, head.path)) for members in made.values()]


def _own_key(head: LogHead) -> _Key:
    name = short_name(head.job.program) if head.job.ranks == 1 else str(head.path)
    return head.job.uid, head.job.id, head.executable, name


def _root(head: LogHead, parents: dict[tuple[int, str], list[LogHead]]) -> LogHead:
    """Return the log of the first ancestor of a forked process that has a log."""
    passed = {head.path}
    while parent := head.job.metadata.get("fork_parent", ""):
        running = [other for other in parents.get((head.job.uid, parent), []) if head.is_during(other)]
        if not running or running[-1].path in passed:
            break
        head = running[-1]
        passed.add(head.path)
    return head


def _starter(helper: LogHead, others: Sequence[LogHead]) -> LogHead:
    """Return a log of the program that started a helper process: the program that started last before the helper.
    others: logs of the same job and executable that are not helpers. Return `helper` if no such program was running.
    """
    running = [other for other in others if helper.is_during(other)]
    return max(running, key=lambda other: other.job.started, default=helper)
