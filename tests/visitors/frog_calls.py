"""Frog species from spectrograms. tf.data reads TFRecord shards once, and keeps the parsed examples in a cache file.

python -m tests.visitors.frog_calls prepare DIR
python -m tests.visitors.frog_calls train DIR
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

MELS, FRAMES, SPECIES = 64, 96, 7
TRAIN_SHARDS, VAL_SHARDS, CALLS = 8, 2, 60
BATCH, EPOCHS = 20, 4
STEP = 0.04  # seconds of sleep at the end of a training batch, for the larger network


def _example(spec, label):
    feature = {
        "spec": tf.train.Feature(bytes_list=tf.train.BytesList(value=[spec.tobytes()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def prepare(root):
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(31)
    for split, shards in (("train", TRAIN_SHARDS), ("val", VAL_SHARDS)):
        for shard in range(shards):
            with tf.io.TFRecordWriter(str(root / f"{split}-{shard:03d}-of-{shards:03d}.tfrecord")) as writer:
                for _ in range(CALLS):
                    label = int(rng.integers(SPECIES))
                    spec = rng.normal(size=(MELS, FRAMES)).astype(np.float32)
                    spec[8 * label : 8 * label + 8] += 0.5
                    writer.write(_example(spec, label))


def parse(record):
    fields = tf.io.parse_single_example(
        record, {"spec": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    )
    spec = tf.reshape(tf.io.decode_raw(fields["spec"], tf.float32), (MELS, FRAMES, 1))
    return spec, fields["label"]


def datasets(root):
    train_files = sorted(str(p) for p in root.glob("train-*.tfrecord"))
    val_files = sorted(str(p) for p in root.glob("val-*.tfrecord"))
    train = (
        tf.data.TFRecordDataset(train_files)
        .map(parse, num_parallel_calls=2)
        .cache(str(root / "calls.cache"))
        .shuffle(120, seed=4)
        .batch(BATCH)
        .prefetch(2)
    )
    val = tf.data.TFRecordDataset(val_files).map(parse).batch(BATCH)
    return train, val


class Pace(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(STEP)

    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch + 1}: " + " ".join(f"{k}={v:.3f}" for k, v in logs.items()), flush=True)


def train(root):
    keras.utils.set_random_seed(12)
    for stale in root.glob("calls.cache*"):
        stale.unlink()
    train_set, val_set = datasets(root)
    model = keras.Sequential(
        [
            keras.Input((MELS, FRAMES, 1)),
            keras.layers.AveragePooling2D((2, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(SPECIES),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    saver = keras.callbacks.ModelCheckpoint(str(root / "frogs-{epoch:02d}.keras"))
    model.fit(train_set, validation_data=val_set, epochs=EPOCHS, callbacks=[Pace(), saver], verbose=0)


if __name__ == "__main__":
    commands = {"prepare": prepare, "train": train}
    commands[sys.argv[1]](Path(sys.argv[2]))
