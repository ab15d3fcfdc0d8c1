"""Checkpoints through torch.distributed.checkpoint: a folder for each checkpoint, to which all ranks write together.

FileSystemWriter lays the folder out as follows (pytorch/pytorch, revision cf30153c, torch/distributed/checkpoint/
filesystem.py): rank 3 writes its tensors to __3_0.distcp, and the coordinator, rank 0, writes .metadata last. .metadata
names the file, the offset and the length of each tensor.
"""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.core.checkpoint_modes import framework, system_error, torch_files
from dlio_hpc.core.checkpoint_modes.framework import Calls, CheckpointUnit
from dlio_hpc.core.checkpoint_modes.parts import CheckpointPart, Restored, Saved
from dlio_hpc.dataset import checkpoint_files

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_METADATA = ".metadata"
# Longest time that a rank waits for the others in a collective call of PyTorch. If a rank fails, MPI ends the others.
_PATIENCE = timedelta(hours=1)


class Groups(NamedTuple):
    """The process groups of PyTorch. calls: the calls of the framework. meet: function that waits for all ranks.
    meet_writers: function that waits for the ranks that write.
    """

    calls: Calls
    meet: Callable[[], None]
    meet_writers: Callable[[], None]


def start(comm: "Intracomm | None", keys: Checkpoint) -> Groups:
    """Import PyTorch, and connect all ranks with gloo. Raise ConfigError if PyTorch cannot be imported."""
    assert comm is not None
    torch = torch_files.imported()
    import torch.distributed.checkpoint as dcp
    from torch import distributed

    distributed.init_process_group(
        "gloo", store=_store(comm, distributed), rank=comm.rank, world_size=comm.size, timeout=_PATIENCE
    )
    writers = [
        rank for rank, writes in enumerate(comm.allgather(bool(checkpoint_files.of_rank(keys, comm.rank)))) if writes
    ]
    group = distributed.new_group(writers, timeout=_PATIENCE)

    def save(state: dict[str, Any], path: str) -> None:
        writer = dcp.FileSystemWriter(path, sync_files=False)
        for name, file in (("write_data", _file(comm.rank)), ("finish", _METADATA)):
            setattr(writer, name, _with_cause(getattr(writer, name), [f"{path}/{file}"]))
        _unwrapped(lambda: dcp.save(state, storage_writer=writer, process_group=group), dcp)

    def load(state: dict[str, Any], path: str) -> dict[str, Any]:
        reader = dcp.FileSystemReader(path)
        opened, opens = [path], reader.fs.create_stream

        def noted(file: Any, mode: str) -> Any:
            opened.append(os.fspath(file))
            return opens(file, mode)

        reader.fs.create_stream = noted
        reader.read_data = _with_cause(reader.read_data, opened)
        reader.read_metadata = _passed_on(_with_cause(reader.read_metadata, opened))
        _unwrapped(lambda: dcp.load(state, storage_reader=reader), dcp)
        return state

    calls = Calls(
        prepare=lambda rows: {name: torch.from_numpy(row) for name, row in rows.items()},
        save=save,
        blank=lambda sizes: {name: torch.from_numpy(np.zeros(size, np.uint8)) for name, size in sizes.items()},
        load=load,
        tensors=lambda state: {name: tensor.numpy() for name, tensor in state.items()},
    )
    return Groups(calls, distributed.barrier, lambda: distributed.barrier(group))


def _store(comm: "Intracomm", distributed: Any) -> Any:
    """Return the store through which ranks exchange their addresses. Rank 0 serves it on a free port."""
    hosts = set(comm.allgather(socket.gethostname()))
    address, store = "127.0.0.1" if len(hosts) == 1 else socket.gethostname(), None
    if comm.rank == 0:
        store = distributed.TCPStore(address, 0, comm.size, is_master=True, wait_for_workers=False)
    address, port = comm.bcast((address, store.port) if store else None)
    return store or distributed.TCPStore(address, port, comm.size, is_master=False, wait_for_workers=False)


def _file(rank: int) -> str:
    """Return the name of the file to which a rank writes its tensors."""
    return f"__{rank}_0.distcp"


def _with_cause(method: Callable[..., Any], paths: list[str]) -> Callable[..., Any]:
    """Return `method` with more informative exceptions. They name the file and, in an OSError, the error of the system
    that is the cause. Only the rank that fails knows the file and the error; PyTorch sends the exception to the other
    ranks. paths: paths of files; the last one is the file that the method writes or reads.
    """

    def called(*arguments: Any, **keywords: Any) -> Any:
        behind = system_error.watched()
        try:
            return method(*arguments, **keywords)
        except Exception as fault:  # noqa: BLE001 - frameworks raise errors of many kinds
            if (number := behind(fault)) is None:
                raise RuntimeError(f"{os.path.basename(paths[-1])}: {framework.described(fault)}") from None
            named = fault.filename if isinstance(fault, OSError) else None
            raise OSError(number, os.strerror(number), named or paths[-1]) from None

    return called


class MetadataError(BaseException):
    """Exception that carries the error of reading .metadata in args[0]. It is not a subclass of Exception, because
    PyTorch would print a traceback for an Exception and look for other metadata.
    """


def _passed_on(method: Callable[[], Any]) -> Callable[[], Any]:
    """Return a method that raises MetadataError instead of any exception."""

    def called() -> Any:
        try:
            return method()
        except Exception as fault:  # noqa: BLE001 - it is passed on
            raise MetadataError(fault) from None

    return called


def _unwrapped(call: Callable[[], None], dcp: Any) -> None:
    """Call a function. If it raises a CheckpointException, raise the error of the first rank instead, because
    CheckpointException is not a subclass of Exception.
    """
    try:
        call()
    except dcp.CheckpointException as fault:
        rank, (cause, _) = next(iter(sorted(fault.failures.items())))
        if isinstance(cause, MetadataError):
            cause = cause.args[0]
        if isinstance(cause, OSError):
            raise cause from None
        raise RuntimeError(f"rank {rank}: {str(cause).strip() or type(cause).__name__}") from fault


def stop(groups: Groups) -> None:
    """Disconnect the ranks. Do nothing if an error ends this rank. Otherwise, other ranks would fail because this rank
    is gone, and might report their failure before this rank reports its error.
    """
    from torch import distributed

    if sys.exc_info()[0] is None:
        distributed.destroy_process_group()


def names(part: CheckpointPart) -> list[str]:
    """Return the names of the rank's file and of .metadata, which every rank reads."""
    return framework.names([_unit(part)]) if part.files else []


def write(part: CheckpointPart) -> Saved:
    """Write the tensors of all ranks together. Raise InfrastructureError if any rank fails. The coordinator includes
    .metadata in its bytes. The ranks start at the same time.
    """
    if not part.files:
        return Saved()
    unit, coordinates = _unit(part), part.rank == 0
    if coordinates:
        # A folder with .metadata holds a whole checkpoint; PyTorch warns if it overwrites one.
        name = f"{unit.name}/{_METADATA}"
        with framework.faults(part, "write", part.outputs.path(name), InfrastructureError), suppress(FileNotFoundError):
            os.unlink(part.outputs.held(name))
    unit = unit if coordinates else unit._replace(stored=unit.stored[:1])
    return framework.write(part, [unit], part.framework.calls, part.framework.meet_writers)


def read(part: CheckpointPart, compares: bool) -> Restored:
    """Read the tensors of all ranks together. Raise InvalidRun if any rank fails, or if tensors are compared and
    differ. A rank without files takes part, because the call is collective.
    """
    unit = _unit(part)
    unit = unit if part.files else unit._replace(stored=())
    return framework.read(part, [unit], part.framework.calls, compares, part.framework.meet)


def _unit(part: CheckpointPart) -> CheckpointUnit:
    folder = part.prefix.rstrip("-") or "checkpoint"
    return CheckpointUnit(folder, part.files, (f"{folder}/{_file(part.rank)}", f"{folder}/{_METADATA}"))
