"""Forecast the load of substations from Parquet files of readings. Reads one row group at a time.

python -m tests.visitors.substation_load prepare DIR
python -m tests.visitors.substation_load train DIR
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch


@dataclass(frozen=True)
class Settings:
    files: int = 5
    groups: int = 10
    rows: int = 1024  # of a row group
    columns: int = 32
    batch: int = 256
    epochs: int = 3
    save_every: int = 150
    pause: float = 0.01  # seconds that a temporal fusion transformer would compute for a batch


S = Settings()
FEATURES = [f"f{i:02d}" for i in range(S.columns)]


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(50)
    weights = rng.normal(size=S.columns)
    schema = pa.schema([(name, pa.float64()) for name in [*FEATURES, "load"]])
    for month in range(S.files):
        path = folder / f"readings-2031-{month + 1:02d}.parquet"
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for _ in range(S.groups):
                x = rng.normal(size=(S.rows, S.columns))
                y = x @ weights + rng.normal(scale=0.1, size=S.rows)
                columns = [pa.array(c) for c in (*x.T, y)]
                writer.write_table(pa.table(columns, schema=schema), row_group_size=S.rows)


def row_groups(paths: list[Path], rng: random.Random) -> Iterator[np.ndarray]:
    """All row groups of all files, file after file, both in random order."""
    for path in rng.sample(paths, len(paths)):
        with pq.ParquetFile(path) as file:
            for group in rng.sample(range(file.num_row_groups), file.num_row_groups):
                table = file.read_row_group(group, columns=[*FEATURES, "load"], use_threads=False)
                yield np.stack([c.to_numpy() for c in table.columns], axis=1).astype(np.float32)


def batches(paths: list[Path], epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    permute = np.random.default_rng(epoch).permutation
    for block in row_groups(paths, random.Random(epoch)):
        order = permute(len(block))
        for start in range(0, len(block), S.batch):
            part = torch.from_numpy(block[order[start : start + S.batch]])
            yield part[:, :-1], part[:, -1:]


def train(folder: Path) -> None:
    torch.manual_seed(3)
    torch.set_num_threads(1)
    paths = sorted(folder.glob("readings-*.parquet"))
    model = torch.nn.Sequential(torch.nn.Linear(S.columns, 64), torch.nn.SiLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(S.epochs):
        errors = []
        for x, y in batches(paths, epoch):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(S.pause)
            errors.append(loss.item())
            step += 1
            if step % S.save_every == 0:
                state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, folder / f"load-step{step:05d}.pt")
        print(f"epoch {epoch}: {len(errors)} batches, mse {np.mean(errors):.3f}")


if __name__ == "__main__":
    command, folder = sys.argv[1:]
    match command:
        case "prepare":
            prepare(Path(folder))
        case "train":
            train(Path(folder))
        case _:
            raise SystemExit(f"unknown command {command}")
