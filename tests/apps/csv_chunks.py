"""pandas reads several CSV files in chunks of rows, all of them in every epoch, in one process without MPI.

python -m tests.apps.csv_chunks prepare DIR
DARSHAN_ENABLE_NONMPI=1 python -m tests.apps.csv_chunks train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

FILES, ROWS, FEATURES = 6, 160, 1200
CHUNK, EPOCHS, SAVE_EVERY, STEP_S = 20, 3, 30, 0.03


def prepare(folder: Path) -> None:
    """Write a target and features in [0, 1). The target is a weighted sum of the features."""
    random = np.random.default_rng(2)
    folder.mkdir(parents=True, exist_ok=True)
    secret = random.normal(0, 1 / np.sqrt(FEATURES), FEATURES)
    for part in "abcdef"[:FILES]:
        x = random.random((ROWS, FEATURES))
        y = 0.5 + (x - 0.5) @ secret
        columns = ["target", *(f"f{number:08}" for number in range(FEATURES))]
        pd.DataFrame(np.column_stack([y, x]), columns=columns).to_csv(
            folder / f"sensors_{part}.csv", index=False, float_format="%.7f"
        )


def train(folder: Path) -> None:
    pd.set_option("mode.max_threads", 1)  # several threads map the file, and a log does not show that
    weights, bias, step = np.zeros(FEATURES), 0.0, 0
    for epoch in range(EPOCHS):
        squares = []
        for path in np.random.default_rng(epoch).permutation(sorted(folder.glob("sensors_*.csv"))):
            for chunk in pd.read_csv(path, chunksize=CHUNK):
                y, x = chunk["target"].to_numpy(), chunk.drop(columns="target").to_numpy() - 0.5
                error = x @ weights + bias - y
                squares.append(float((error**2).mean()))
                weights -= 0.05 * x.T @ error / len(y)
                bias -= 0.5 * error.mean()
                time.sleep(STEP_S)
                step += 1
                if step % SAVE_EVERY == 0:
                    (folder / "model.bin").write_bytes(np.append(weights, bias).tobytes())
        print(f"epoch {epoch}: loss {np.mean(squares):.4f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
