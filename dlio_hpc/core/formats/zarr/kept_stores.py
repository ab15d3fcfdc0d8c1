"""Stores of a dataset whose metadata are in memory."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from dlio_hpc.core.io_counters import Tally

S = TypeVar("S")

# Number of stores whose metadata are kept.
_MOST = 1024


class KeptStores(Generic[S]):
    """Cache of the 1024 stores that were opened last. opened: function that opens the store with a given number, and
    counts its requests. Threads that need a store at the same time open it once.
    """

    def __init__(self, opened: Callable[[int, Tally], S]) -> None:
        self._opened = opened
        self._lock = threading.Lock()
        self._stores: OrderedDict[int, S] = OrderedDict()

    def get(self, number: int, tally: Tally) -> S:
        store = self._stores.get(number)
        if store is None:
            with self._lock:
                store = self._stores.get(number)
                if store is None:
                    store = self._stores[number] = self._opened(number, tally)
                    if len(self._stores) > _MOST:
                        self._stores.popitem(last=False)
        return store

    def close(self) -> None:
        """Forget all stores. A later use of a store opens it again."""
        self._stores.clear()
