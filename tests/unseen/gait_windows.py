"""Keras classifier of walking patterns. Windows of sensor data come from TFRecords and stay in memory afterwards.

python -m tests.unseen.gait_windows prepare DIR
python -m tests.unseen.gait_windows train DIR
"""

import glob
import sys
import time

import numpy as np
import tensorflow as tf
from tensorflow import keras

FILES, WINDOWS = 7, 131
LENGTH, CHANNELS = 509, 11
EPOCHS, BATCH = 5, 27


def _bytes(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def prepare(folder):
    tf.io.gfile.makedirs(folder)
    rng = np.random.RandomState(4)
    for number in range(FILES):
        writer = tf.io.TFRecordWriter(f"{folder}/windows-{number:05d}-of-{FILES:05d}")
        for _ in range(WINDOWS):
            kind = rng.randint(3)
            t = np.linspace(0, 12 + 5 * kind, LENGTH)[:, None]
            signal = np.sin(t + rng.rand(CHANNELS)) + rng.randn(LENGTH, CHANNELS)
            feature = {"x": _bytes(signal.astype(np.float32).tobytes()), "y": _bytes(bytes([kind]))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        writer.close()


def decode(record):
    spec = {"x": tf.io.FixedLenFeature((), tf.string), "y": tf.io.FixedLenFeature((), tf.string)}
    parsed = tf.io.parse_single_example(record, spec)
    x = tf.reshape(tf.io.decode_raw(parsed["x"], tf.float32), (LENGTH, CHANNELS))
    return x, tf.cast(tf.io.decode_raw(parsed["y"], tf.uint8)[0], tf.int32)


class Gpu(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.018)


def train(folder):
    names = sorted(glob.glob(folder + "/windows-*-of-*"))
    data = tf.data.TFRecordDataset(names).map(decode).cache().batch(BATCH).prefetch(1)
    model = keras.Sequential(
        [
            keras.layers.Input((LENGTH, CHANNELS)),
            keras.layers.Conv1D(8, 9, strides=4, activation="relu"),
            keras.layers.GlobalMaxPooling1D(),
            keras.layers.Dense(3),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    saver = keras.callbacks.ModelCheckpoint(folder + "/gait.weights.h5", save_weights_only=True)
    model.fit(data, epochs=EPOCHS, verbose=2, callbacks=[Gpu(), saver])


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2])
    else:
        train(sys.argv[2])
