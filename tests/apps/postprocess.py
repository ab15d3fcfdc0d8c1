"""Statistics of a simulation's output: each of its files is read once, in the order of time. It learns nothing.

python -m tests.apps.postprocess prepare DIR
DARSHAN_ENABLE_NONMPI=1 python -m tests.apps.postprocess train DIR
"""

import json
import sys
from pathlib import Path

import h5py
import numpy as np

STEPS, SIDE, FIELDS = 12, 64, ("density", "pressure", "velocity_x", "velocity_y")


def prepare(folder: Path) -> None:
    """Write fields of noise that grows with time."""
    random = np.random.default_rng(0)
    (folder / "output").mkdir(parents=True, exist_ok=True)
    for step in range(STEPS):
        with h5py.File(folder / f"output/plot_{step * 100:06}.h5", "w") as file:
            file.attrs["time"] = 0.01 * step
            for field in FIELDS:
                file[field] = random.normal(0, 1 + step, (SIDE,) * 3).astype("f4")


def train(folder: Path) -> None:
    rows = []
    for path in sorted((folder / "output").glob("plot_*.h5")):
        with h5py.File(path) as file:
            fields = {name: file[name][:] for name in FIELDS}
            row = {"time": float(file.attrs["time"])}
        for name, values in fields.items():
            spectrum = np.abs(np.fft.rfftn(values)) ** 2
            row |= {f"{name}_mean": float(values.mean()), f"{name}_max": float(values.max())}
            row[f"{name}_small_scales"] = float(spectrum[SIDE // 4 :].sum() / spectrum.sum())
        rows.append(row)
    (folder / "statistics.json").write_text(json.dumps(rows, indent=2))
    print(f"largest density: {max(row['density_max'] for row in rows):.1f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
