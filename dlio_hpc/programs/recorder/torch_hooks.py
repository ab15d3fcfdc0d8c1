"""Hooks for PyTorch: loaders and their workers, steps of optimizers, saved states, ranks."""

from __future__ import annotations

import functools
import itertools
import os
import threading
import weakref
from types import ModuleType
from typing import Any

from .hooks import Context, amount, argument, attributes, transfer, wrap, wrap_next
from .recording import clock, is_of_program

_numbers = itertools.count()
# Seconds that all workers together have at the exit of the program to end by themselves.
_END_S = 1.0


def loader(context: Context, module: ModuleType) -> None:
    """Record loaders, when they are first iterated, and passes. Record each batch, and the time that the program waited
    for the batch. Record the order of samples that the sampler yields.
    """
    recording, workers = context.recording, _Workers(context)

    def iterated(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        result._dlio_number = number = _number(context, arguments[0])
        recording.add("pass", number, round(seconds, 7))
        workers.keep(result)

    def renewed(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        arguments[0]._dlio_order = _Order()

    def indexed(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        own = arguments[0]
        if not hasattr(own, "_dlio_order"):
            own._dlio_order = _Order()
        own._dlio_order.take(result)

    def ordered(iterator: Any) -> list[Any] | None:
        order = getattr(iterator, "_dlio_order", None)
        return None if order is None else order.summary()

    wrap(context, module.DataLoader, "__iter__", iterated)
    # An iterator of workers asks for batches before __iter__ returns, and serves several passes if they persist.
    wrap(context, module._BaseDataLoaderIter, "_reset", renewed)
    wrap(context, module._BaseDataLoaderIter, "_next_index", indexed)
    wrap_next(context, module._BaseDataLoaderIter, lambda iterator: getattr(iterator, "_dlio_number", None), ordered)


class _Workers:
    """Workers that are alive at the exit of the program, such as persistent workers. PyTorch leaves them to
    multiprocessing, which kills them, and a killed worker writes no more events. They are asked to end before, as
    PyTorch asks them when an iterator is deleted.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._iterators: weakref.WeakSet[Any] = weakref.WeakSet()
        self._process = 0

    def keep(self, iterator: Any) -> None:
        """Keep an iterator of a loader for the exit. PyTorch itself ends persistent workers of a loader that pins
        memory. A forked process has iterators of its own: those of its parent are not its to end.
        """
        is_pinned = hasattr(iterator, "_pin_memory_thread")
        if not getattr(iterator, "_workers", None) or (is_pinned and iterator._persistent_workers):
            return
        if self._process != os.getpid():
            self._process = os.getpid()
            self._iterators = weakref.WeakSet()
            from multiprocessing import util  # PyTorch has imported it

            # In the main process and in its children, it runs before queues are closed (10) and workers are killed (0).
            util.Finalize(None, self._end, args=(self._process,), exitpriority=20)
        self._iterators.add(iterator)

    def _end(self, process: int) -> None:
        if os.getpid() != process:
            return
        try:
            self._ask()
        except Exception as fault:
            self._context.recording.fault("end of workers", fault)

    def _ask(self) -> None:
        alive = [one for one in self._iterators if not one._shutdown]
        for one in alive:
            one._workers_done_event.set()
            for queue in one._index_queues:
                queue.cancel_join_thread()
                queue.put(None)
        late = clock() + _END_S
        for worker in itertools.chain.from_iterable(one._workers for one in alive):
            worker.join(max(0.0, late - clock()))


class _Order:
    """Order of the samples of a pass: the number of samples, the number of pairs with consecutive indices, the number
    of pairs with rising indices, and the first indices.
    """

    def __init__(self) -> None:
        self._count = self._next = self._up = 0
        self._last: Any = None
        self._first: list[int] = []

    def take(self, indexes: Any) -> None:
        if type(indexes).__name__ == "ndarray":
            indexes = indexes.tolist()
        for given in indexes if type(indexes) in (list, tuple) else [indexes]:
            if not isinstance(given, int) and type(given).__module__ not in ("numpy", "torch"):
                return
            index = int(given)
            if self._last is not None:
                self._next += index == self._last + 1
                self._up += index > self._last
            self._last = index
            self._count += 1
            if len(self._first) < 16:
                self._first.append(index)

    def summary(self) -> list[Any]:
        return [self._count, self._next, self._up, self._first]


def _number(context: Context, loader: Any) -> int:
    """Return the number of a loader. Record the settings of a loader that has no number yet. A copy of a loader is
    another loader.
    """
    owner, number = vars(loader).get("_dlio_number", (None, 0))
    if owner != id(loader):
        number = next(_numbers)
        vars(loader)["_dlio_number"] = id(loader), number
        context.recording.add("loader", number, _settings(context, loader))
    return int(number)


def _settings(context: Context, loader: Any) -> dict[str, Any]:
    name = context.label
    dataset, sampler = getattr(loader, "dataset", None), getattr(loader, "sampler", None)
    batches = getattr(loader, "batch_sampler", None)
    start = getattr(loader, "multiprocessing_context", None)
    generator = getattr(loader, "generator", None)
    is_iterable = any(kind.__name__ == "IterableDataset" for kind in type(dataset).__mro__)
    return {
        "library": "torch",
        "batch_size": getattr(loader, "batch_size", None) or _own(batches, "batch_size"),
        "workers": getattr(loader, "num_workers", None),
        "prefetch_factor": getattr(loader, "prefetch_factor", None),
        "persistent_workers": getattr(loader, "persistent_workers", None),
        "pin_memory": getattr(loader, "pin_memory", None),
        "drop_last": getattr(loader, "drop_last", None) or _own(batches, "drop_last") or False,
        "start_method": start.get_start_method() if start is not None else None,
        "seed": generator.initial_seed() if generator is not None else _own(sampler, "seed"),
        "dataset": name(type(dataset).__name__),
        "samples": None if is_iterable else _length(dataset, sampler, batches),
        "is_iterable": is_iterable,
        "sampler": name(type(sampler).__name__),
        "batch_sampler": name(type(batches).__name__),
        "shards": _own(sampler, "num_replicas"),
        "shuffle": _own(sampler, "shuffle"),
        "collate": name(getattr(getattr(loader, "collate_fn", None), "__name__", "")),
    }


def _own(sampler: Any, name: str) -> Any:
    """Return an attribute of a sampler that is a number or truth value, such as the seed of a DistributedSampler.
    Properties that the program defines are not read.
    """
    value = attributes(sampler).get(name)
    return value if type(value) in (int, bool) else None


def _length(dataset: Any, sampler: Any, batches: Any) -> int | None:
    """Return the length of a dataset. Return it only if PyTorch also reads the length of this dataset."""
    if batches is not None:  # the loader has a sampler all the same, which it does not use
        sampler = attributes(batches).get("sampler") if _is_torch(batches) else None
    is_asked = _is_torch(sampler) and any(
        attributes(sampler).get(name) is dataset for name in ("data_source", "dataset")
    )
    if not is_asked and not _is_torch(dataset) and type(dataset) not in (list, tuple, dict, range):
        return None
    try:
        return len(dataset)
    except Exception as fault:  # of the program's own
        if is_of_program(fault):
            raise
        return None


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch"


def worker(context: Context, module: ModuleType) -> None:
    """Record that a process is a worker, and its number. Write the events of the worker when it ends."""
    work, recording = getattr(module, "_worker_loop"), context.recording

    @functools.wraps(work)
    def recorded(*arguments: Any, **keys: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():  # a worker that is no process of its own
            return work(*arguments, **keys)
        try:
            names = work.__code__.co_varnames[: work.__code__.co_argcount]
            given = dict(zip(names, arguments), **keys)
            recording.add("worker", given.get("worker_id"), given.get("num_workers"))
        except Exception as fault:
            recording.fault("worker", fault)
        try:
            return work(*arguments, **keys)
        finally:
            recording.end()

    setattr(module, "_worker_loop", recorded)


def fetchers(context: Context, module: ModuleType) -> None:
    """Record the time at which a process is ready to read samples, and the time that it takes to read and collate the
    samples of each batch.
    """

    def made(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        context.recording.add("fetcher")

    def fetched(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        indexes = argument(arguments, keys, 1, "possibly_batched_index")
        count = len(indexes) if isinstance(indexes, (list, tuple)) else 1
        context.recording.add("fetch", count, round(seconds, 7), amount(result)[0])

    if hasattr(module, "_BaseDatasetFetcher"):
        wrap(context, module._BaseDatasetFetcher, "__init__", made)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        if hasattr(module, name):
            wrap(context, getattr(module, name), "fetch", fetched)


def optimizer(context: Context, module: ModuleType) -> None:
    """Record the steps of all optimizers."""

    def stepped(own: Any, arguments: Any, keys: Any) -> None:
        context.recording.add("step", context.label(type(own).__name__))

    if hasattr(module, "register_optimizer_step_post_hook"):
        module.register_optimizer_step_post_hook(stepped)
    else:
        context.recording.fault("optimizer", NotImplementedError("this PyTorch has no hook for steps"))


def serialization(context: Context, module: ModuleType) -> None:
    """Record states that are saved and loaded."""
    wrap(context, module, "save", transfer(context, "torch", "save", 1, "f"), is_outermost=True)
    wrap(context, module, "load", transfer(context, "torch", "restore", 0, "f"), is_outermost=True)


def process_groups(context: Context, module: ModuleType) -> None:
    """Record the rank when a process group is initialised."""

    def joined(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        context.recording.add("rank", module.get_rank(), module.get_world_size(), "torch.distributed")

    wrap(context, module, "init_process_group", joined)


def distributed_checkpoints(context: Context, module: ModuleType) -> None:
    """Record states that ranks save and load together."""

    def noted(kind: str) -> Any:
        def transferred(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
            target = keys.get("checkpoint_id") or getattr(keys.get("storage_writer"), "path", None)
            target = target or getattr(keys.get("storage_reader"), "path", None)
            number = None if target is None else context.file(target)
            context.recording.add(kind, "torch.distributed", round(seconds, 6), number, None)

        return transferred

    for name, kind in (
        ("save", "save"), ("async_save", "save"), ("save_state_dict", "save"), ("load", "restore"),
        ("load_state_dict", "restore"),
    ):  # fmt: skip
        wrap(context, module, name, noted(kind), is_outermost=True)
