"""Emulated computation: a step takes its time without holding the interpreter from the reader threads."""

import time

from dlio_hpc.core.clock import now

# A sleep wakes up late by the timer's slack; the last bit is waited for in zero-length sleeps, which give way to
# other threads each time.
_TAIL_S = 300e-6


def emulate(seconds: float) -> None:
    """Return `seconds` after the call, within some ten microseconds."""
    if seconds <= 0:
        return
    deadline = now() + seconds
    if seconds > _TAIL_S:
        time.sleep(seconds - _TAIL_S)
    while now() < deadline:
        time.sleep(0)
