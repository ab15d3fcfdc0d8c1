"""Which customers leave? A table of numbers is loaded with pandas, then Keras learns from memory.

python -m tests.unseen.churn_table prepare DIR
python -m tests.unseen.churn_table train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

CUSTOMERS, COLUMNS = 2210, 611


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(99)
    table = pd.DataFrame(rng.normal(size=(CUSTOMERS, COLUMNS)), columns=[f"f{i}" for i in range(COLUMNS)])
    table["left"] = (table["f3"] - table["f17"] + 0.5 * rng.normal(size=CUSTOMERS) > 0).astype(int)
    table.to_csv(folder / "customers.csv", index=False, float_format="%.6f")


def build():
    from tensorflow import keras

    model = keras.Sequential(
        [
            keras.layers.Input((COLUMNS,)),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
    return model


def train(folder: Path) -> None:
    from tensorflow import keras

    df = pd.read_csv(folder / "customers.csv", low_memory=False)
    y = df.pop("left").to_numpy(np.float32)
    x = df.to_numpy(np.float32)
    x = (x - x.mean(0)) / x.std(0)
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.028))
    best = keras.callbacks.ModelCheckpoint(str(folder / "churn-{epoch:02d}.h5"))
    build().fit(x, y, batch_size=48, epochs=4, callbacks=[slow, best], verbose=2)


if __name__ == "__main__":
    step, where = sys.argv[1], Path(sys.argv[2])
    if step == "prepare":
        prepare(where)
    elif step == "train":
        train(where)
