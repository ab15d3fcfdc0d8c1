"""Try many permeabilities of an aquifer. Every run of the model reads the mesh and the wells again and writes heads.

python -m tests.newcomers.aquifer_sweep prepare DIR
python -m tests.newcomers.aquifer_sweep train DIR
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

CELLS, WELLS, RUNS = 120_000, 40, 60


def prepare(folder: Path) -> None:
    (folder / "wells").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(88)
    rng.random((CELLS, 3)).tofile(folder / "mesh.bin")
    for well in range(WELLS):
        record = {"cell": int(rng.integers(CELLS)), "rates": rng.normal(0, 1, 600).round(4).tolist()}
        (folder / "wells" / f"well{well:02d}.json").write_text(json.dumps(record))


def train(folder: Path) -> None:
    """Run the sweep. The name of the command is that of the other programs."""
    (folder / "heads").mkdir(exist_ok=True)
    summary = open(folder / "summary.csv", "w", buffering=1)  # noqa: SIM115
    for run, permeability in enumerate(np.geomspace(1e-3, 10, RUNS)):
        mesh = np.frombuffer((folder / "mesh.bin").read_bytes()).reshape(CELLS, 3)
        head = mesh.sum(1) / permeability
        for path in sorted((folder / "wells").glob("*.json")):
            well = json.loads(path.read_text())
            head[well["cell"]] += np.mean(well["rates"])
        time.sleep(0.08)
        (folder / "heads" / f"run{run:03d}.bin").write_bytes(head[::4].tobytes())
        summary.write(f"{permeability:.6f},{head.mean():.6f},{head.max():.6f}\n")
    summary.close()


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
