"""Pick first arrivals on seismic traces. Every epoch visits the shots in a new order and reads a shot batch by batch.

python -m tests.strangers.seismic_traces prepare DIR
mpiexec -n 4 python -m tests.strangers.seismic_traces train DIR
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHOTS, TRACES, LENGTH = 24, 320, 1501
REEL_HEADER = 3600
TRACE = np.dtype([("header", "<i4", (60,)), ("wave", "<f4", (LENGTH,))])
EPOCHS, BATCH = 3, 32


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1906)
    for shot in range(SHOTS):
        traces = np.zeros(TRACES, TRACE)
        arrival = rng.integers(200, 900, TRACES)
        traces["header"][:, 0] = arrival
        traces["wave"] = rng.normal(size=(TRACES, LENGTH))
        for row, first in enumerate(arrival):
            traces["wave"][row, first:] *= 4
        (folder / f"shot_{shot:04d}.sgy").write_bytes(bytes(REEL_HEADER) + traces.tobytes())


def batches(folder: Path, epoch: int, rank: int, size: int) -> Iterator[NDArray[Any]]:
    shots = np.random.default_rng(epoch).permutation(SHOTS)
    for shot in shots[rank::size]:
        with open(folder / f"shot_{shot:04d}.sgy", "rb", buffering=0) as file:
            file.seek(REEL_HEADER)
            for _ in range(TRACES // BATCH):
                yield np.frombuffer(file.read(BATCH * TRACE.itemsize), TRACE)


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    jitter = np.random.default_rng(comm.rank)
    weights, momentum = np.zeros(79), np.zeros(79)
    for epoch in range(EPOCHS):
        misfits = []
        for traces in batches(folder, epoch, comm.rank, comm.size):
            energy = np.log1p(np.abs(traces["wave"]).reshape(BATCH, 79, 19).mean(2))
            error = energy @ weights - traces["header"][:, 0] / LENGTH
            misfits.append(float(np.abs(error).mean()))
            momentum = 0.8 * momentum + comm.allreduce(energy.T @ error / BATCH) / comm.size
            weights -= 0.02 * momentum
            time.sleep(max(0.0, jitter.normal(0.018, 0.002)))
        filters = np.tile([weights, momentum], (1, 1000))  # the part of this process
        (folder / f"state.{comm.rank}.bin").write_bytes(filters.tobytes())
        misfit = comm.allreduce(float(np.mean(misfits))) / comm.size
        if comm.rank == 0:
            print(f"epoch {epoch}: misfit {misfit * LENGTH:.1f} samples")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
