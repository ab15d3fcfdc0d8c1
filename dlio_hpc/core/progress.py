"""Progress of a run, printed as plain lines to job.out. Commands that watch the job print these lines if the ranks
leave no states (live_writer.py).
"""

import sys
from typing import TextIO

from dlio_hpc.core.clock import now

_SOON_S, _LATER_S = 1.0, 10.0


class Progress:
    """Printer of progress lines. In the first half minute of a run it prints one line per second, then one every ten
    seconds, and one at the end. speaks: whether this rank prints. to: file to print to; None for stdout.

    done: number of items that this rank has finished. total: number of all items of this rank. unit: name of the items.
    bytes: bytes that this rank has written. elapsed_s: seconds since begin() at the last call of add().
    """

    def __init__(self, run: str, speaks: bool, to: TextIO | None = None) -> None:
        self._to = to or sys.stdout
        self._run = run
        self._speaks = speaks
        self._began = now()
        self._next = self._began
        self.done, self.total, self.unit, self.bytes, self.elapsed_s = 0, 0, "", 0, 0.0

    def is_due(self, done: int, total: int) -> bool:
        """Return whether a line is due."""
        return self._speaks and (done >= total or now() >= self._next)

    def begin(self, total: int, unit: str) -> None:
        """Set the number of items of this rank, before the first item. elapsed_s is counted from this call on."""
        self.total, self.unit, self._began = total, unit, now()

    def add(self, size: int, count: int = 1) -> None:
        """Count `count` items as done, which have `size` bytes together."""
        self.done, self.bytes, self.elapsed_s = self.done + count, self.bytes + size, now() - self._began

    def show(self, done: int, total: int, unit: str, rest: str = "") -> None:
        """Print a line such as "01-measure 12/44 steps, epoch 1 of 2" if one is due; otherwise do nothing."""
        if not self.is_due(done, total):
            return
        self._next = now() + (_SOON_S if now() - self._began < 30 else _LATER_S)
        print(f"{self._run} {done}/{total} {unit}{', ' if rest else ''}{rest}", file=self._to, flush=True)
