"""Rank offers for passengers of ferries. Row groups of Parquet files are read one by one and mixed in memory.

python -m tests.newcomers.ferry_bookings prepare DIR
python -m tests.newcomers.ferry_bookings train DIR
"""

import random
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

MONTHS, GROUPS, ROWS, COLUMNS = 8, 12, 4000, 24
EPOCHS = 3


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(77)
    names = [f"feature{number}" for number in range(COLUMNS - 1)] + ["booked"]
    for month in range(MONTHS):
        values = rng.normal(0, 1, (COLUMNS, GROUPS * ROWS)).astype(np.float32)
        table = pa.table(dict(zip(names, values, strict=True)))
        path = folder / f"month={month:02d}.parquet"
        pq.write_table(table, path, row_group_size=ROWS, compression="none", use_dictionary=False)


def train(folder: Path) -> None:
    shuffler = random.Random(9)
    paths = sorted(folder.glob("*.parquet"))
    weights = np.zeros(COLUMNS - 1, np.float32)
    for epoch in range(EPOCHS):
        shuffler.shuffle(paths)
        for path in paths:
            with open(path, "rb") as source, pq.ParquetFile(source) as file:
                for group in shuffler.sample(range(GROUPS), GROUPS):
                    rows = np.column_stack(file.read_row_group(group, use_threads=False).columns)
                    np.random.default_rng(group).shuffle(rows)
                    chances = 1 / (1 + np.exp(-rows[:, :-1] @ weights))
                    weights -= 0.01 * rows[:, :-1].T @ (chances - (rows[:, -1] > 0)) / ROWS
                    time.sleep(max(0.0, random.gauss(0.04, 0.004)))
        print(f"epoch {epoch}: norm {np.linalg.norm(weights):.4f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
