"""Every rank loads the whole CSV file with pandas and learns from memory. Rank 0 saves the model after each epoch.

python -m tests.apps.csv_memory prepare DIR
mpiexec -n 2 python -m tests.apps.csv_memory train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np

ROWS, GENES, BATCH, EPOCHS, RATE = 400, 6000, 20, 4, 0.05
STEP_S = 0.05


def prepare(folder: Path) -> None:
    """Write a label and a fixed count of numbers to each row. A tenth of the numbers depend on the label."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "expression_train.csv").open("w") as file:
        for row in range(ROWS):
            values = random.normal(size=GENES)
            values[: GENES // 10] += 0.2 * (row % 2)
            file.write(f"{row % 2}," + ",".join(f"{value:.6f}" for value in values) + "\n")


def train(folder: Path) -> None:
    import pandas as pd
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    pd.set_option("mode.max_threads", 1)  # reads a log can show; several threads map the file instead
    table = pd.read_csv(folder / "expression_train.csv", header=None).to_numpy(np.float32)
    x, y = table[:, 1:], table[:, 0]
    random = np.random.default_rng(1)
    first, last = random.normal(0, 0.013, (GENES, 32)).astype(np.float32), random.normal(0, 0.3, 32).astype(np.float32)
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(ROWS)[world.rank :: world.size]
        losses = []
        for at in range(0, len(order), BATCH):
            rows = order[at : at + BATCH]
            hidden = np.maximum(x[rows] @ first, 0)
            guess = 1 / (1 + np.exp(-(hidden @ last)))
            losses.append(-np.log(np.where(y[rows] == 1, guess, 1 - guess) + 1e-9).mean())
            wrong = (guess - y[rows]) / len(rows)
            into = np.outer(wrong, last) * (hidden > 0)
            gradient = np.append((x[rows].T @ into).ravel(), hidden.T @ wrong).astype(np.float32)
            world.Allreduce(MPI.IN_PLACE, gradient)
            first -= RATE * gradient[: first.size].reshape(first.shape)
            last -= RATE * gradient[first.size :]
            time.sleep(STEP_S)
        if world.rank == 0:
            with (folder / "weights.bin").open("wb") as file:
                file.write(first.tobytes())
                file.write(last.tobytes())
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
