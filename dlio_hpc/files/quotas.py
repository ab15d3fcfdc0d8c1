"""Quotas of space and of files. dlio_hpc.lustre.lfs asks Lustre for them, and this module other file systems."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from dlio_hpc.base import command

# Heading of the quotas of an owner in the output of quota(1), such as "Disk quotas for user ann (uid 1000): ".
_OWNER = re.compile(r"\(([ug])id (\d+)\)")
# Space used, its soft limit and its hard limit in KiB, the end of the grace period, and the same for files. An asterisk
# follows what exceeds a limit.
_FIGURES = re.compile(r"\s(\d+)\*?\s+(\d+)\s+(\d+)\s+\d+\s+(\d+)\*?\s+(\d+)\s+(\d+)\s+\d+\s*$")
# Message of quota(1) for a file system without quotas.
_NONE = "has no quota enabled"


class Quota(NamedTuple):
    """Quota of a user, group or project. most_bytes, most_files: limits; 0 means no limit."""

    used_bytes: int
    most_bytes: int
    used_files: int
    most_files: int


def of_process(mount: str) -> dict[tuple[str, int], Quota]:
    """Return the quotas of the user and the groups of this process on the file system at a mount point, by "u" or "g"
    and the number of the user or group. The dict is empty if the file system has no quotas. Raise Unanswered if
    quota(1) is not installed or its answer is not understood.
    """
    answer = command.ask("quota", "-ugwpv", "-f", mount)
    kept = dict(_parsed(answer.out))
    if not kept and _NONE not in answer.text:
        raise command.unexplained(f"quota -ugwpv -f {mount}", answer)
    return kept


def _parsed(output: str) -> Iterator[tuple[tuple[str, int], Quota]]:
    """Yield the owners and their quotas in the output of quota -wpv."""
    owner = None
    for line in output.splitlines():
        if heading := _OWNER.search(line):
            owner = (heading[1], int(heading[2]))
        elif owner is not None and (figures := _FIGURES.search(line)):
            used, soft, hard, files, soft_files, hard_files = map(int, figures.groups())
            yield owner, Quota(used * 1024, (hard or soft) * 1024, files, hard_files or soft_files)
