"""Program of test_checkpoint_modes.py: its ranks write three checkpoints through a framework, of which two are kept,
and examine the files. It is a process of its own, because frameworks must not be loaded in that of pytest.

Usage: mpiexec -n N python -m tests.support.framework_checkpoints FOLDER MODE CASE KEYS
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dlio_hpc.base.errors import DlioError
from dlio_hpc.config import site
from dlio_hpc.config.workload import load
from dlio_hpc.core import content
from dlio_hpc.core.checkpoint import Checkpoints
from dlio_hpc.dataset import checkpoint_files
from dlio_hpc.plan.plan import Run
from tests.support import planning

COMM = MPI.COMM_WORLD


def _made(folder: Path, keys: str) -> Run:
    plan = planning.make(load("demo", (keys,)), site.load("local"), planning.Request(folder, data=folder))
    return plan.runs[-1]


def _written(run: Run, number: int, rank: int) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the name of each file that a rank wrote, and the contents of its tensors."""
    assert run.workload.checkpoint is not None
    for place, file in enumerate(checkpoint_files.of_rank(run.workload.checkpoint, rank)):
        begin = ((number * COMM.size + rank) * 1024 + place) << 44
        whole = b"".join(map(bytes, content.pieces(begin, file.size)))
        ends = np.cumsum(file.arrays).tolist()
        yield file.name, [whole[end - size : end] for end, size in zip(ends, file.arrays, strict=True)]


def _by_torch(run: Run, number: int, rank: int) -> None:
    import torch

    for name, tensors in _written(run, number, rank):
        state = torch.load(Path(run.outputs) / f"checkpoint{number % 2:03}-{name}.pt", weights_only=True)
        assert [bytes(state[f"{name}.{place}"].numpy()) for place in range(len(state))] == tensors


def _by_distributed(run: Run, number: int, rank: int) -> None:
    import torch
    from torch.distributed.checkpoint import FileSystemReader, load_state_dict

    reader = FileSystemReader(Path(run.outputs) / f"checkpoint{number % 2:03}")
    saved = reader.read_metadata().state_dict_metadata
    assert len(saved) == 2 * sum(len(tensors) for _, tensors in _written(run, number, rank))
    for name, tensors in _written(run, number, rank):
        for place, tensor in enumerate(tensors):
            state = {f"{name}.{place}": torch.zeros(len(tensor), dtype=torch.uint8)}
            load_state_dict(state, reader, no_dist=True)
            assert bytes(state[f"{name}.{place}"].numpy()) == tensor


def _by_keras(run: Run, number: int, rank: int) -> None:
    import h5py

    for name, tensors in _written(run, number, rank):
        with h5py.File(Path(run.outputs) / f"checkpoint{number % 2:03}-{name}.weights.h5") as file:
            items: list[Any] = []
            file.visititems(lambda _, item, items=items: items.append(item))
            weights = [bytes(item[...]) for item in items if isinstance(item, h5py.Dataset)]
            assert sorted(weights) == sorted(tensors)


READERS = {"torch": _by_torch, "torch_distributed": _by_distributed, "keras": _by_keras}


def _damage(checkpoints: Checkpoints, run: Run) -> None:
    """Change a byte of the last tensor of rank 1's part of checkpoint 2."""
    *_, (_, tensors) = _written(run, 2, 1)
    for path in map(Path, checkpoints.paths(2)):
        data = bytearray(path.read_bytes())
        at = data.find(tensors[0][:64])
        if at >= 0:
            data[at + 100] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError("the tensor is in none of the files")


def main(folder: Path, mode: str, case: str, keys: str) -> None:
    run = COMM.bcast(_made(folder, keys) if COMM.rank == 0 else None)
    distance = 0 if case == "damaged" else 1
    checkpoints = Checkpoints(run, run.workload.checkpoint, COMM.rank, COMM.size, distance, COMM)
    for _ in range(3):
        saved = checkpoints.begin().result() if "asynchronous: true" in keys else checkpoints.save()
    COMM.barrier()
    size = sum(Path(path).stat().st_size for path in checkpoints.paths(3))
    if case == "read by the framework":
        assert COMM.size > 2 or saved.bytes > 600_000
        if COMM.rank < 2:
            assert min(saved.write_s, saved.fsync_s) > 0
            READERS[mode](run, 3, COMM.rank)
    if case == "damaged" and COMM.rank == 1:
        _damage(checkpoints, run)
    COMM.barrier()
    checkpoints.forget()
    try:
        restored = [checkpoints.restore(number) for number in checkpoints.restorable()]
        assert [part.bytes for part in restored] == [size, size]
        assert size == 0 or min(min(part.read_s, part.verify_s) for part in restored) > 0
        COMM.barrier()
        checkpoints.close()
    except DlioError as fault:
        checkpoints.close()
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr, flush=True)
        COMM.Abort(3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
