"""A fault says what goes wrong, at which call on which files of which program."""

import errno
import os
from typing import NamedTuple

# Classes of calls, by their numbers in library.c.
ALL, SPACE, PART, PATH = range(4)
CLASSES = 4
# What a killed process and a killed rank leave the program with that started them.
_INFRASTRUCTURE = 6


class Kind(NamedTuple):
    """action, calls: see library.c. number: the errno of a call that fails, else 0. codes: the exit codes that a
    command may give up with; empty if it must not give up.
    """

    name: str
    action: str
    number: int
    calls: int
    codes: frozenset[int] = frozenset({_INFRASTRUCTURE})

    @property
    def cause(self) -> str:
        """The system's text for the errno; empty if the command need not name a cause."""
        return os.strerror(self.number) if self.number else ""


def _fails(name: str, calls: int, *others: int) -> Kind:
    return Kind(name, "fail", getattr(errno, name), calls, frozenset({_INFRASTRUCTURE, *others}))


KINDS = {
    kind.name: kind
    for kind in (
        _fails("EIO", ALL),
        _fails("ESTALE", ALL),
        _fails("ENOSPC", SPACE),
        _fails("EDQUOT", SPACE),
        _fails("EACCES", PATH, 2, 3),
        Kind("short", "short", 0, PART, frozenset()),
        Kind("late", "delay", 0, ALL, frozenset()),
        Kind("killed", "kill", 0, ALL),
    )
}


class Fault(NamedTuple):
    """A kind of fault at call `nth` of its class. lasting: at all later calls, too. rank: the rank of the process;
    None: any.
    """

    kind: Kind
    nth: int
    lasting: bool = False
    rank: int | None = None

    def __str__(self) -> str:
        rank = "" if self.rank is None else f" rank {self.rank}"
        return f"{self.kind.name} at {self.nth}{' and later' if self.lasting else ''}{rank}"


class Hit(NamedTuple):
    """The first call that a fault hit."""

    function: str
    path: str
