"""Tell calving glaciers from calm ones in radar images. Keras reads shards in turn and validates on two others.

python -m tests.newcomers.glacier_calving prepare DIR
python -m tests.newcomers.glacier_calving train DIR
"""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

SHARDS = {"train": 12, "valid": 2}
RECORDS, SIDE = 60, 112


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(71)
    for split, shards in SHARDS.items():
        (folder / split).mkdir(parents=True, exist_ok=True)
        for shard in range(shards):
            with tf.io.TFRecordWriter(str(folder / split / f"front-{shard:02d}.tfrecord")) as writer:
                for _ in range(RECORDS):
                    calves = int(rng.integers(2))
                    scene = rng.normal(0.2 * calves, 1 + calves, (SIDE, SIDE)).astype(np.float32)
                    example = tf.train.Example()
                    example.features.feature["scene"].bytes_list.value.append(scene.tobytes())
                    example.features.feature["calves"].int64_list.value.append(calves)
                    writer.write(example.SerializeToString())


def parse(record: Any) -> tuple[Any, Any]:
    keys = {"scene": tf.io.FixedLenFeature([], tf.string), "calves": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, keys)
    return tf.reshape(tf.io.decode_raw(example["scene"], tf.float32), (SIDE, SIDE, 1)), example["calves"]


class Pace(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Take the time of a larger model."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(max(0.0, random.gauss(0.06, 0.005)))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        time.sleep(0.02)


def train(folder: Path) -> None:
    fronts = tf.data.Dataset.list_files(str(folder / "train" / "*.tfrecord"), shuffle=True, seed=5)
    records = fronts.interleave(
        lambda path: tf.data.TFRecordDataset(path),  # noqa: PLW0108
        cycle_length=3,
        block_length=1,
        num_parallel_calls=3,
    )
    training = records.map(parse).shuffle(48).batch(24).prefetch(1)
    valid = tf.data.TFRecordDataset(sorted(map(str, (folder / "valid").glob("*.tfrecord")))).map(parse).batch(40)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [layers.Input((SIDE, SIDE, 1)), layers.Conv2D(4, 7, 4), layers.GlobalAveragePooling2D(), layers.Dense(2)]
    )
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    keeper = tf.keras.callbacks.ModelCheckpoint(str(folder / "calving-{epoch}.keras"))
    model.fit(training, validation_data=valid, epochs=4, verbose=2, callbacks=[Pace(), keeper])


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
