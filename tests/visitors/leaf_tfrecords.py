"""Leaf spectra, TFRecord shards, a custom training loop with GradientTape."""

import glob
import os
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf


def prepare(d):
    os.makedirs(d, exist_ok=True)
    rng = np.random.default_rng(5)
    for s in range(6):
        with tf.io.TFRecordWriter(f"{d}/leaf-{s:02d}.tfrecord") as w:
            for _ in range(80):
                f = {
                    "x": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[rng.normal(size=(4, 1024)).astype(np.float32).tobytes()])
                    ),
                    "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(rng.integers(4))])),
                }
                w.write(tf.train.Example(features=tf.train.Features(feature=f)).SerializeToString())


def parse(r):
    f = tf.io.parse_single_example(
        r, {"x": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([], tf.int64)}
    )
    return tf.reshape(tf.io.decode_raw(f["x"], tf.float32), (4096,)), f["y"]


def train(d):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    ds = tf.data.Dataset.from_tensor_slices(sorted(glob.glob(d + "/leaf-*.tfrecord"))).shuffle(6)
    ds = (
        ds.interleave(tf.data.TFRecordDataset, cycle_length=2, block_length=1)
        .shuffle(100)
        .map(parse)
        .batch(16)
        .prefetch(1)
    )
    dense = tf.keras.layers.Dense(4)
    dense.build((None, 4096))
    opt = tf.keras.optimizers.SGD(0.01)
    ckpt = tf.train.Checkpoint(dense=dense)
    lossf = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for epoch in range(4):
        for x, y in ds:
            with tf.GradientTape() as t:
                loss = lossf(y, dense(x))
            g = t.gradient(loss, dense.trainable_variables)
            opt.apply_gradients(zip(g, dense.trainable_variables, strict=False))
            time.sleep(0.03)
        ckpt.write(f"{d}/ck-{epoch}")
        print(epoch, float(loss))


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](sys.argv[2])
