"""A campaign draws faults by a seed, lets an operation meet each one, and judges the outcome."""

import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.faults import core, verbs
from tests.support.faults.fault import KINDS, Fault, Kind
from tests.support.faults.ground import Ground
from tests.support.faults.library import Library
from tests.support.faults.nursery import Nursery
from tests.support.faults.operation import Operation
from tests.support.faults.oracle import Verdict, judge

OPERATIONS = [*core.OPERATIONS, *verbs.OPERATIONS]
# One fault in so many that can last does.
_LASTING = 2
_TRIES = 20


class Case(NamedTuple):
    """A fault that an operation met. seconds: the time of the case without its preparation."""

    operation: Operation
    fault: Fault
    verdict: Verdict
    function: str
    path: str
    out: str
    seconds: float


class Campaign:
    """Runs operations on grounds of their own below a folder. forks: one process forks the short commands."""

    def __init__(self, folder: Path, forks: bool = True) -> None:
        self._folder = folder
        self._library = Library(folder)
        self._nursery = Nursery(self._library.path) if forks else None
        self._grounds: dict[str, Ground] = {}
        self._counts: dict[str, tuple[int, ...]] = {}

    def ground(self, operation: Operation) -> Ground:
        """Return the ground of an operation. The first call prepares it and counts calls in a run without faults."""
        if operation.name not in self._grounds:
            ground = Ground(self._folder / "".join(letter if letter.isalnum() else "-" for letter in operation.name))
            operation.prepare(ground)
            ground.keep()
            variables = self._library.environment(operation.below(ground), operation.program, None)
            done = operation.run(ground, variables, self._nursery)
            untrue = operation.truth(ground, done)
            assert (done.code, untrue) == (0, None), f"{operation.name}, without a fault: {untrue}: {done.out}"
            self._grounds[operation.name] = ground
            self._counts[operation.name] = self._library.counts()
        return self._grounds[operation.name]

    def close(self) -> None:
        if self._nursery is not None:
            self._nursery.close()

    def calls(self, operation: Operation, kind: Kind) -> int:
        """Return the number of calls of a run without faults that the kind may hit."""
        self.ground(operation)
        return self._counts[operation.name][kind.calls]

    def meet(self, operation: Operation, fault: Fault) -> Case | None:
        """Run the operation with the fault and judge it; None if the run did not make that call."""
        started = time.perf_counter()
        ground = self.ground(operation)
        ground.restore()
        below = operation.below(ground)
        done = operation.run(ground, self._library.environment(below, operation.program, fault), self._nursery)
        hits = self._library.hits()
        if not hits:
            return None
        verdict = judge(operation, ground, fault, done, hits, self._nursery)
        return Case(operation, fault, verdict, *hits[0], done.out, time.perf_counter() - started)


def drawn(campaign: Campaign, operations: Sequence[Operation], count: int, seed: int) -> Iterator[Case]:
    """Meet `count` faults. Each operation meets its share of them and all kinds in turn; the seed draws the calls."""
    random_ = random.Random(seed)
    kinds: dict[str, list[Kind]] = {operation.name: [] for operation in operations}
    for operation in _order(operations, count, random_):
        for _ in range(_TRIES):
            if not (due := kinds[operation.name]):
                due += [kind for kind in KINDS.values() if campaign.calls(operation, kind)]
                random_.shuffle(due)
            kind = due.pop()
            nth = random_.randint(1, campaign.calls(operation, kind))
            lasting = kind.action == "fail" and not random_.randrange(_LASTING)
            case = campaign.meet(operation, Fault(kind, nth, lasting))
            if case is not None:
                yield case
                break


def _order(operations: Sequence[Operation], count: int, random_: random.Random) -> list[Operation]:
    """Return operations in a random order, each as often as its share says, at least once if the count allows it."""
    total = sum(operation.share for operation in operations)
    due = {operation.name: count * operation.share / total for operation in operations}
    order = [operation for operation in operations for _ in range(int(due[operation.name]))]
    by_rest = sorted(operations, key=lambda one: int(due[one.name]) - due[one.name])
    order += by_rest[: count - len(order)]
    random_.shuffle(order)
    return order


def folder() -> Path:
    """Make a new folder for grounds."""
    return Path(tempfile.mkdtemp(prefix="dlio-hpc-faults-"))


def remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
