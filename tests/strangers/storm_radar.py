"""Forecast whether a storm grows from radar images. Keras reads four shards in turn and is tested on three others.

python -m tests.strangers.storm_radar prepare DIR
python -m tests.strangers.storm_radar train DIR
"""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

SHARDS = {"train": 16, "test": 3}
RECORDS, SIZE, FRAMES = 36, 63, 3


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(404)
    for split, shards in SHARDS.items():
        for shard in range(shards):
            with tf.io.TFRecordWriter(str(folder / f"{split}-{shard:03d}.tfrecord")) as writer:
                for _ in range(RECORDS):
                    grows = int(rng.integers(2))
                    image = rng.gamma(1 + 0.8 * grows, 8, (SIZE, SIZE, FRAMES)).astype(np.float32)
                    example = tf.train.Example()
                    example.features.feature["image"].bytes_list.value.append(image.tobytes())
                    example.features.feature["grows"].int64_list.value.append(grows)
                    writer.write(example.SerializeToString())


def decode(record: Any) -> tuple[Any, Any]:
    keys = {"image": tf.io.FixedLenFeature([], tf.string), "grows": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, keys)
    return tf.reshape(tf.io.decode_raw(example["image"], tf.float32), (SIZE, SIZE, FRAMES)) / 20, example["grows"]


class Accelerator(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Take as long for a step as a larger model would."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(max(0.0, random.gauss(0.028, 0.003)))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.009)


def train(folder: Path) -> None:
    shards = tf.data.Dataset.list_files(str(folder / "train-*.tfrecord"), shuffle=True)
    records = shards.interleave(tf.data.TFRecordDataset, cycle_length=4, block_length=1)
    training = records.shuffle(80).map(decode).batch(16).prefetch(2)
    testing = tf.data.TFRecordDataset(sorted(map(str, folder.glob("test-*.tfrecord")))).map(decode).batch(16)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((SIZE, SIZE, FRAMES)), layers.AveragePooling2D(7), layers.Flatten(), layers.Dense(96, "relu"),
         layers.Dense(2)]
    )  # fmt: skip
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    keeper = tf.keras.callbacks.ModelCheckpoint(str(folder / "storm-{epoch:02d}.weights.h5"), save_weights_only=True)
    model.fit(training, validation_data=testing, epochs=3, verbose=2, callbacks=[Accelerator(), keeper])


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
