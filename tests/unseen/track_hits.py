"""Particle tracks from binary event files with records of one size. Two threads of each rank read behind the training.

python -m tests.unseen.track_hits prepare DIR
mpiexec -n 4 python -m tests.unseen.track_hits train DIR
"""

import os
import queue
import sys
import threading
import time

import numpy as np

RECORD = np.dtype([("charge", "<i4"), ("run", "<i4"), ("hits", "<f4", (611, 3))])
FILES, EVENTS = 3, 1300
EPOCHS, BATCH, THREADS, DEPTH = 2, 25, 2, 4


def prepare(d):
    os.makedirs(d, exist_ok=True)
    g = np.random.default_rng(6)
    for f in range(FILES):
        events = np.zeros(EVENTS, RECORD)
        events["charge"] = g.choice([-1, 1], EVENTS)
        events["run"] = 300 + f
        events["hits"] = g.normal(size=(EVENTS, 611, 3))
        events["hits"][:, :, 0] += 0.1 * events["charge"][:, None]
        events.tofile(os.path.join(d, f"run{300 + f}.evt"))


def reader(fds, todo, ready):
    while (batch := todo.get()) is not None:
        blobs = [os.pread(fds[n // EVENTS], RECORD.itemsize, n % EVENTS * RECORD.itemsize) for n in batch]
        ready.put(np.frombuffer(b"".join(blobs), RECORD))


def epoch_batches(fds, numbers):
    todo, ready = queue.Queue(), queue.Queue(maxsize=DEPTH)
    batches = [numbers[i : i + BATCH] for i in range(0, len(numbers), BATCH)]
    for item in batches + [None] * THREADS:
        todo.put(item)
    threads = [threading.Thread(target=reader, args=(fds, todo, ready)) for _ in range(THREADS)]
    for t in threads:
        t.start()
    for _ in batches:
        yield ready.get()
    for t in threads:
        t.join()


def train(d):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    fds = [os.open(os.path.join(d, f"run{300 + f}.evt"), os.O_RDONLY) for f in range(FILES)]
    w = np.zeros(6)
    for epoch in range(EPOCHS):
        shuffled = np.random.default_rng(epoch).permutation(FILES * EVENTS)
        right = 0
        for events in epoch_batches(fds, shuffled[comm.rank :: comm.size].tolist()):
            x = np.concatenate([events["hits"].mean(1), events["hits"].std(1)], axis=1)
            margin = events["charge"] * (x @ w)
            right += int((margin > 0).sum())
            slope = -(x * (events["charge"] / (1 + np.exp(margin)))[:, None]).mean(0)
            w -= 2 * comm.allreduce(slope) / comm.size
            time.sleep(0.05)
        with open(os.path.join(d, f"optimizer-{comm.rank:02d}.bin"), "wb") as out:  # a shard of each rank
            out.write(np.resize(w, 41_000).tobytes())
        right = comm.allreduce(right)
        if comm.rank == 0:
            print("epoch", epoch, "accuracy", right / (FILES * EVENTS))


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](sys.argv[2])
