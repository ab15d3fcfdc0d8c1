"""An operation that meets a fault: a command, the files whose calls count, and what must be true of it."""

import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.faults.ground import BIN, Done, Ground, end_session, environment, run, taken
from tests.support.faults.nursery import Nursery, program

Check = Callable[[Ground, Done], str | None]
_PATIENCE_S = 90.0


class Operation(NamedTuple):
    """prepare: fills a new ground. command: meets the fault; it sets no variables of its own. below: folders whose
    files count. program: text in the command line of the processes that may be hit. truth: returns what is untrue of
    a command that ended well, None if all is true. again: gives the command once more, without a fault, to what the
    fault left, and returns what is wrong then. share: share of the faults, relative to the other operations. ranks:
    number of ranks that may be hit. forks: whether the nursery may fork it, which has no PyTorch and no TensorFlow.
    """

    name: str
    prepare: Callable[[Ground], None]
    command: Callable[[Ground], Sequence[str | Path]]
    below: Callable[[Ground], list[Path]]
    program: str
    truth: Check
    again: Callable[["Operation", Ground, Nursery | None], str | None]
    share: float = 1.0
    ranks: int = 1
    forks: bool = True

    def run(self, ground: Ground, variables: dict[str, str] | None = None, nursery: Nursery | None = None) -> Done:
        """Run the command, with variables for faults or without. The nursery forks it if there is one that can."""
        command = tuple(map(str, self.command(ground)))
        known = program(command) if self.forks and nursery is not None else None
        if known is None or nursery is None:
            return run(command, ground.live, variables or {}, _PATIENCE_S)
        log = ground.live / ".output"
        pid = nursery.start(*known, ground.live, environment(variables or {}), log)
        if not select.select([nursery.descriptor], [], [], _PATIENCE_S)[0]:
            end_session(pid)
            nursery.code()
            return Done(command, None, taken(log))
        return Done(command, nursery.code(), taken(log))


def once_more(operation: Operation, ground: Ground, nursery: Nursery | None) -> str | None:
    """Give the same command again without a fault, and return what is wrong then."""
    done = operation.run(ground, nursery=nursery)
    if done.code != 0:
        return f"without a fault the same command ends with {done.code}: {done.out.strip()[-600:]}"
    untrue = operation.truth(ground, done)
    return f"without a fault: {untrue}" if untrue else None


def ours(*arguments: str | Path) -> list[str | Path]:
    """Return a command of the project."""
    return [BIN / arguments[0], *arguments[1:]]


def ranks(plan: Path, number: int, count: int) -> list[str | Path]:
    """Return the command of a run of a plan: one rank by itself, or several under mpiexec."""
    core: list[str | Path] = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", plan, "--run", str(number)]
    return core if count == 1 else [BIN / "mpiexec", "-n", str(count), *core]
