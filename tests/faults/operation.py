"""What is done while a fault comes: a command, the files whose calls count, and what has to be true of it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.faults.ground import BIN, Done, Ground, run

Check = Callable[[Ground, Done], str | None]
_PATIENCE_S = 90.0


class Operation(NamedTuple):
    """prepare: fills a new ground. command: what meets the fault, without variables of its own. below: folders whose
    files count. program: text in the command line of the processes that may be hit. truth: what is untrue of a command
    that has ended well, None where all is true. again: what is wrong where the command is given once more, without a
    fault, to what the fault left. share: of the faults, relative to other operations. ranks: how many may be hit.
    """

    name: str
    prepare: Callable[[Ground], None]
    command: Callable[[Ground], Sequence[str | Path]]
    below: Callable[[Ground], list[Path]]
    program: str
    truth: Check
    again: Callable[["Operation", Ground], str | None]
    share: float = 1.0
    ranks: int = 1

    def run(self, ground: Ground, variables: dict[str, str] | None = None) -> Done:
        """The command, with variables for faults or none."""
        return run(self.command(ground), ground.live, variables or {}, _PATIENCE_S)


def once_more(operation: Operation, ground: Ground) -> str | None:
    """What is wrong when the same command is given again without a fault."""
    done = operation.run(ground)
    if done.code != 0:
        return f"without a fault the same command ends with {done.code}: {done.out.strip()[-600:]}"
    untrue = operation.truth(ground, done)
    return f"without a fault: {untrue}" if untrue else None


def ours(*words: str | Path) -> list[str | Path]:
    """A command of the project."""
    return [BIN / words[0], *words[1:]]


def ranks(plan: Path, number: int, count: int) -> list[str | Path]:
    """A run of a plan: one rank by itself, or several under mpiexec."""
    core: list[str | Path] = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", plan, "--run", str(number)]
    return core if count == 1 else [BIN / "mpiexec", "-n", str(count), *core]
