"""Classify the sea floor from sonar pings of fixed length. tf.data keeps all pings in memory after the first epoch.

python -m tests.newcomers.sonar_pings prepare DIR
python -m tests.newcomers.sonar_pings train DIR
"""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

LINES, PINGS, LENGTH, KINDS = 9, 320, 4000, 4
EPOCHS, BATCH = 4, 32


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(90)
    for line in range(LINES):
        echoes = rng.gamma(2, 900, (PINGS, LENGTH)).astype(np.uint16)
        echoes[:, 0] = rng.integers(KINDS, size=PINGS)
        echoes.tofile(folder / f"line{line}.pings")


def decode(record: Any) -> tuple[Any, Any]:
    values = tf.cast(tf.io.decode_raw(record, tf.uint16), tf.float32)
    return tf.math.log1p(values[1:]), tf.cast(values[0], tf.int32)


def train(folder: Path) -> None:
    tf.random.set_seed(11)
    paths = sorted(map(str, folder.glob("line*.pings")))
    pings = tf.data.FixedLengthRecordDataset(paths, 2 * LENGTH).map(decode).cache()
    batches = pings.shuffle(LINES * PINGS, reshuffle_each_iteration=True).batch(BATCH)
    net = tf.keras.Sequential(
        [tf.keras.layers.Input((LENGTH - 1,)), tf.keras.layers.Dense(24, "tanh"), tf.keras.layers.Dense(KINDS)]
    )
    optimizer = tf.keras.optimizers.SGD(0.001)
    measure = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    keeper = tf.train.Checkpoint(net=net)
    for epoch in range(EPOCHS):
        for echoes, kind in batches:
            with tf.GradientTape() as tape:
                loss = measure(kind, net(echoes))
            optimizer.apply_gradients(
                zip(tape.gradient(loss, net.trainable_weights), net.trainable_weights, strict=True)
            )
            time.sleep(max(0.0, random.gauss(0.02, 0.002)))
        keeper.write(str(folder / f"floor-{epoch}"))
        print(f"epoch {epoch}: loss {float(loss):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
