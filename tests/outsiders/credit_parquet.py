"""Credit default from 32 features; the table has four parts in Parquet, with eight row groups each.

python -m tests.outsiders.credit_parquet prepare DIR
python -m tests.outsiders.credit_parquet train DIR
"""

import argparse
import random
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

PARTS, GROUPS, GROUP_ROWS, FEATURES = 4, 8, 2000, 32
BATCH = 500


def prepare(root: Path) -> None:
    rng = np.random.default_rng(404)
    root.mkdir(parents=True, exist_ok=True)
    beta = rng.normal(size=FEATURES)
    for part in range(PARTS):
        x = rng.normal(size=(GROUPS * GROUP_ROWS, FEATURES)).astype(np.float32)
        columns = {f"f{j:02d}": x[:, j] for j in range(FEATURES)}
        columns["default"] = (x @ beta > 1).astype(np.int8)
        pq.write_table(pa.table(columns), root / f"part-{part}.parquet", row_group_size=GROUP_ROWS)


def stream(files: list[Path]):
    """Yield batches of rows, row group by row group."""
    for path in files:
        pf = pq.ParquetFile(path)
        for g in range(pf.num_row_groups):
            table = pf.read_row_group(g)
            y = torch.from_numpy(table["default"].to_numpy().astype(np.float32))
            x = torch.from_numpy(np.column_stack([table[f"f{j:02d}"].to_numpy() for j in range(FEATURES)]))
            for a in range(0, len(y), BATCH):
                yield x[a : a + BATCH], y[a : a + BATCH]
        pf.close()


def train(root: Path) -> None:
    torch.manual_seed(17)
    torch.set_num_threads(1)
    random.seed(17)
    files = sorted(root.glob("part-*.parquet"))
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(3):
        random.shuffle(files)
        for x, y in stream(files):
            loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.012)
        print(f"{epoch}: {loss.item():.4f}")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, root / f"model_{epoch}.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["prepare", "train"])
    parser.add_argument("root", type=Path)
    arguments = parser.parse_args()
    {"prepare": prepare, "train": train}[arguments.command](arguments.root)
