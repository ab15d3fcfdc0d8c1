"""Click-through rates from Parquet. The row groups of all files are visited in random order, one per step.

python -m tests.unseen.clickstream prepare DIR
mpiexec -n 2 python -m tests.unseen.clickstream train DIR
"""

import pickle
import sys
import time
from pathlib import Path

import numpy as np

N_FILES, GROUPS, ROWS = 6, 19, 2300
FEATURES = [f"x{i:02d}" for i in range(12)]
EPOCHS = 3


def prepare(directory: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(17)
    truth = np.linspace(-1, 1, len(FEATURES))
    for n in range(N_FILES):
        x = rng.standard_normal((GROUPS * ROWS, len(FEATURES)))
        clicked = (x @ truth + rng.standard_normal(len(x)) > 0.5).astype(np.float64)
        columns = dict(zip(FEATURES, x.T, strict=True)) | {"clicked": clicked}
        pq.write_table(pa.table(columns), directory / f"part-{n}.parquet", row_group_size=ROWS, use_dictionary=False)


def train(directory: Path):
    import pyarrow.parquet as pq
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    parts = [pq.ParquetFile(path) for path in sorted(directory.glob("part-*.parquet"))]
    groups = [(part, g) for part in parts for g in range(part.num_row_groups)]
    theta = np.zeros(len(FEATURES) + 1)
    for epoch in range(EPOCHS):
        order = np.random.default_rng([epoch, 42]).permutation(len(groups))
        loss = []
        for k in order[comm.rank :: comm.size]:
            part, g = groups[k]
            frame = part.read_row_group(g).to_pandas()
            x = np.column_stack([frame[FEATURES].to_numpy(), np.ones(len(frame))])
            y = frame["clicked"].to_numpy()
            p = 1 / (1 + np.exp(-x @ theta))
            loss.append(-np.mean(y * np.log(p) + (1 - y) * np.log(1 - p)))
            theta -= 0.4 * comm.allreduce(x.T @ (p - y) / len(y)) / comm.size
            time.sleep(0.026)
        if comm.rank == 0:
            with open(directory / f"theta_{epoch}.pkl", "wb") as f:
                pickle.dump({"theta": theta, "history": np.zeros((3000, len(theta)))}, f)
            print(f"epoch {epoch}: log loss {np.mean(loss):.4f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["prepare", path]:
            prepare(Path(path))
        case ["train", path]:
            train(Path(path))
        case _:
            print(__doc__)
