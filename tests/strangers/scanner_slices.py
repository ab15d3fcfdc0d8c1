"""Convert the slices of a scanner to compressed volumes. A volume collects the slices of a patient.

python -m tests.strangers.scanner_slices prepare DIR
python -m tests.strangers.scanner_slices train DIR
"""

import sys
import time
from pathlib import Path

import h5py
import numpy as np

PATIENTS, SLICES, PIXELS = 9, 26, 268
HEADER = np.dtype([("magic", "S4"), ("rows", "<u2"), ("columns", "<u2"), ("position", "<f4"), ("slope", "<f4")])


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(7)
    for patient in range(PATIENTS):
        scan = folder / "scans" / f"patient{patient:02d}"
        scan.mkdir(parents=True, exist_ok=True)
        for number in range(SLICES):
            header = np.array([(b"SCAN", PIXELS, PIXELS, 2.5 * number, 1.2)], HEADER)
            pixels = rng.normal(1000, 60, (PIXELS, PIXELS)).astype("<u2")
            (scan / f"IM{number:04d}").write_bytes(header.tobytes() + pixels.tobytes())


def read_slice(path: Path) -> tuple[float, np.ndarray]:
    with open(path, "rb") as file:
        header = np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]
        shape = int(header["rows"]), int(header["columns"])
        pixels = np.frombuffer(file.read(2 * shape[0] * shape[1]), "<u2").reshape(shape)
    time.sleep(0.008)  # the correction of the detector
    return float(header["position"]), header["slope"] * pixels


def train(folder: Path) -> None:
    """Convert the scans. The name of the command is that of the other programs."""
    for scan in sorted((folder / "scans").iterdir()):
        slices = sorted((read_slice(path) for path in sorted(scan.iterdir())), key=lambda pair: pair[0])
        with h5py.File(folder / f"{scan.name}.h5", "w") as file:
            volume = np.stack([pixels for _, pixels in slices]).astype(np.float32)
            file.create_dataset("volume", data=volume, chunks=(1, PIXELS, PIXELS), compression="gzip")
            file["position"] = [position for position, _ in slices]
        print(scan.name, volume.mean())


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
