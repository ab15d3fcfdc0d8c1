"""Convert well logs from text (CSV) to Parquet, in pieces of 2000 lines.

python -m tests.visitors.welllog_convert prepare DIR
python -m tests.visitors.welllog_convert train DIR   (or "run": the harness only knows prepare and train; this converts)
"""

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

WELLS = 12
LINES = 20_000
CURVES = ["GR", "RHOB", "NPHI", "DT", "RT", "CALI"]
PIECE = 2000
CLEANING = 0.03  # seconds per piece, for the despiking that this leaves out


def prepare(base: Path):
    source = base / "las_csv"
    source.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1859)
    for w in range(WELLS):
        depth = 1000 + 0.1524 * np.arange(LINES)
        values = rng.normal(100, 25, (LINES, len(CURVES)))
        values[rng.random(values.shape) < 0.01] = -999.25
        frame = pd.DataFrame(values, columns=CURVES)
        frame.insert(0, "DEPTH", depth)
        frame.to_csv(source / f"well_{w:02d}.csv", index=False, float_format="%.4f")


def convert(base: Path):
    target = base / "parquet"
    target.mkdir(exist_ok=True)
    for csv in sorted((base / "las_csv").glob("*.csv")):
        writer = None
        lines = 0
        for piece in pd.read_csv(csv, chunksize=PIECE):
            piece = piece.replace(-999.25, np.nan).astype(dict.fromkeys(CURVES, "float32"))
            table = pa.Table.from_pandas(piece, preserve_index=False)
            writer = writer or pq.ParquetWriter(target / (csv.stem + ".parquet"), table.schema, compression="zstd")
            writer.write_table(table)
            lines += len(piece)
            time.sleep(CLEANING)
        writer.close()
        print(f"{csv.name}: {lines} lines", flush=True)


if __name__ == "__main__":
    verb, base = sys.argv[1], Path(sys.argv[2])
    if verb == "prepare":
        prepare(base)
    elif verb in ("train", "run"):
        convert(base)
    else:
        sys.exit(2)
