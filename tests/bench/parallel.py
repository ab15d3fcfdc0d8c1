"""Work on all cores."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def mapped(task: Callable[[Item], Result], items: Sequence[Item], chunk: int = 4) -> list[Result]:
    """Return the results for all items, in their order. chunk: number of items that a process gets at a time."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(task, items, chunksize=chunk))
