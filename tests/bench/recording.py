"""The cost of the recorder: steps of a loader of PyTorch that does nothing else, recorded and not recorded in turns."""

import importlib.util
import os
import statistics
import subprocess
import sys
from pathlib import Path

from dlio_hpc.programs.recordings import recorded_run
from tests.bench.table import row

# Step of the example programs in seconds, of which the recorder may take 2 %.
STEP_S = 0.02
_PAIRS = 5
# Prints the least mean time of a step of three passes, in microseconds. A step opens and reads eight files.
_PROGRAM = """
import pathlib, sys, time
import torch
folder = pathlib.Path(sys.argv[1])
torch.set_num_threads(1)
class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        return torch.frombuffer(bytearray((folder / f"{index % 64}.bin").read_bytes()), dtype=torch.uint8)
model = torch.nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def mean():
    began = time.perf_counter()
    for batch in torch.utils.data.DataLoader(Files(), batch_size=8):
        model(torch.ones(4, 10)).sum().backward()
        optimizer.step()
    return (time.perf_counter() - began) / 500
print(min(mean() for _ in range(3)) * 1e6)
"""


def bench(folder: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        return
    files = folder / "recorded"
    files.mkdir()
    for number in range(64):
        (files / f"{number}.bin").write_bytes(bytes(4096))
    pairs = []
    for number in range(_PAIRS):
        recording = folder / f"recording{number}"
        recorded_run.prepare(recording)
        with_it = _step_us(files, recorded_run.variables(recording, False))
        pairs.append((with_it, _step_us(files, {})))
    mine, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    row("step of PyTorch with 8 opens, recorded / not", f"{mine:.0f} us", f"{bare:.0f} us", mine / bare)
    cost = statistics.median(a - b for a, b in pairs) / 1e6
    row(f"the same, cost as a share of a step of {STEP_S * 1e3:.0f} ms", f"{cost / STEP_S:.2%}", goal="<= 2 %")


def _step_us(files: Path, variables: dict[str, str]) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, files], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    return float(done.stdout)
