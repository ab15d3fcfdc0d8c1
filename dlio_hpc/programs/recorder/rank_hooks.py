"""Hooks that record the rank of a process: mpi4py, Horovod."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from .hooks import Context, wrap


def mpi(context: Context, module: ModuleType) -> None:
    """Record the rank in MPI_COMM_WORLD, as soon as MPI is initialised."""

    def ranked(*_: Any) -> None:
        world = module.COMM_WORLD
        context.recording.add("rank", world.Get_rank(), world.Get_size(), "MPI")

    if module.Is_initialized():
        ranked()
    else:
        for name in ("Init", "Init_thread"):
            wrap(context, module, name, ranked)


def horovod(context: Context, module: ModuleType) -> None:
    """Record the rank when Horovod starts."""

    def begun(seconds: float, arguments: Any, keys: Any, result: Any) -> None:
        context.recording.add("rank", module.rank(), module.size(), "horovod")

    wrap(context, module, "init", begun)
