"""Program of test_checkpoint.py: the ranks of a run, of which one finds a wrong byte when it reads its checkpoint.

Usage: mpiexec -n N python -m mpi4py -m tests.support.damaged_checkpoint VICTIM PLAN.json --run N
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from dlio_hpc.core import __main__ as core
from dlio_hpc.core.checkpoint import Checkpoints
from dlio_hpc.core.checkpoint_modes import posix
from dlio_hpc.files import safe_folders

AT = 5000


def _damaging(victim: int, forget: Callable[[Checkpoints], None]) -> Callable[[Checkpoints], None]:
    def damage(checkpoints: Checkpoints) -> None:
        forget(checkpoints)
        if checkpoints._rank == victim:
            descriptor = os.open(checkpoints.paths(checkpoints.restorable()[-1])[0], os.O_RDWR)
            os.pwrite(descriptor, bytes([os.pread(descriptor, 1, AT)[0] ^ 1]), AT)
            os.close(descriptor)
        else:  # this rank still opens and reads files after the victim has found the byte
            posix._pieces = _slowly(posix._pieces)

    return damage


def _slowly(pieces: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def slow(*arguments: Any) -> Iterator[Any]:
        for piece in pieces(*arguments):
            time.sleep(0.001)
            yield piece

    return slow


def _lasting(discard: Callable[[str], None]) -> Callable[[str], None]:
    def remove(path: str) -> None:
        discard(path)
        time.sleep(0.5)

    return remove


if __name__ == "__main__":
    safe_folders.discard = _lasting(safe_folders.discard)  # type: ignore[assignment]
    setattr(Checkpoints, "forget", _damaging(int(sys.argv[1]), Checkpoints.forget))  # noqa: B010
    core.main(sys.argv[2:])
