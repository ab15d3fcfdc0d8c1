"""The rules for every operation and fault: is what a command said, and left behind, true?"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.faults.fault import Fault, Hit
from tests.support.faults.ground import Done, Ground
from tests.support.faults.nursery import Nursery
from tests.support.faults.operation import Operation

# Of a file that never had a name in its folder.
_NAMELESS = " (deleted)"
COMPLETED, REFUSED, FAILED = "completed", "refused", "failed"
_INFRASTRUCTURE = 6
# SQLite has words of its own.
_OTHERWISE = re.compile(
    "disk I/O error|database or disk is full|unable to open database file|readonly database|disk image is malformed"
)
# Behind the name of a file that is being written, locked or journalled.
_AUXILIARY = re.compile(r"^[.]?(?P<name>.+?)([.]\d+(-[0-9a-f]+@.+)?[.]tmp|[.]lock|-wal|-shm|-journal|[.]tmp)?$")


class Verdict(NamedTuple):
    """outcome: one of the three above. why: the reason of a failure, else empty."""

    outcome: str
    why: str = ""


def judge(
    operation: Operation, ground: Ground, fault: Fault, done: Done, hits: Sequence[Hit], nursery: Nursery | None
) -> Verdict:
    """Judge a command that met the fault, and has ended or was killed."""
    why = _misbehaved(done) or (_untrue(operation, ground, done) if done.code == 0 else _misled(fault, done, hits))
    if why:
        return Verdict(FAILED, why)
    if done.code == 0:
        return Verdict(COMPLETED)
    wrong = operation.again(operation, ground, nursery)
    return Verdict(FAILED, wrong) if wrong else Verdict(REFUSED)


def _untrue(operation: Operation, ground: Ground, done: Done) -> str | None:
    untrue = operation.truth(ground, done)
    return f"it ended well, but {untrue}" if untrue else None


def _misbehaved(done: Done) -> str | None:
    if done.code is None:
        return "it does not end"
    if "Traceback" in done.out or "a bug in dlio-hpc" in done.out:
        return "a traceback"
    return None


def _misled(fault: Fault, done: Done, hits: Sequence[Hit]) -> str | None:
    """Return the reason why a command gave up in a wrong way; None if it did not."""
    kind = fault.kind
    if kind.action == "kill":
        return None if done.killed or done.code in {_INFRASTRUCTURE, 7, 9, 137} else f"exit code {done.code}"
    if done.code not in kind.codes:
        return f"exit code {done.code}"
    if kind.cause not in done.out and not _OTHERWISE.search(done.out):
        return f"the cause is not told: {kind.cause}"
    if not any(_is_named(hit, done.out) for hit in hits):
        return f"no file is named that was hit, such as {hits[0].path}"
    return None


def _is_named(hit: Hit, message: str) -> bool:
    path = Path(hit.path)
    match = _AUXILIARY.match(path.parent.name if hit.path.endswith(_NAMELESS) else path.name)
    return match is not None and match["name"] in message
