"""Work on many items by several processes of this computer."""

import ctypes
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Largest number of processes. Other users work on a login node, too.
_MOST = 8
# Number of files from which several processes are used.
_MANY = 20_000
# Number of items for each process that are in progress at a time. It limits the memory.
_AHEAD = 4
_PR_SET_PDEATHSIG = 1


def count(files: int) -> int:
    """Return the number of processes that work on a number of files: one for few files, and otherwise as many as keep
    all processors of this process busy.
    """
    return min(_MOST, len(os.sched_getaffinity(0))) if files >= _MANY else 1


def mapped(function: Callable[[T], R], items: Iterable[T], processes: int) -> Iterator[R]:
    """Yield the result of the function for each item, in the order of the items. function: it is called in child
    processes, and in this process if `processes` is 1.
    """
    if processes == 1:
        yield from map(function, items)
        return
    import multiprocessing
    from concurrent.futures import Future, ProcessPoolExecutor

    context = multiprocessing.get_context("fork")  # the children have the open descriptors of this process
    with ProcessPoolExecutor(processes, context, _follow_parent) as pool:
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > _AHEAD * processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _follow_parent() -> None:
    """Ignore Ctrl-C in a child process, because the parent process reports it. Have the kernel kill the child when the
    parent dies (prctl(2), PR_SET_PDEATHSIG); otherwise the child would keep locks of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
