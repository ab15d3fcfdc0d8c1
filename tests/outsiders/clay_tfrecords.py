"""Clay minerals from hyperspectral patches, TFRecord files compressed with gzip.

python -m tests.outsiders.clay_tfrecords prepare DIR
python -m tests.outsiders.clay_tfrecords train DIR
"""

import os
import sys
import time

import numpy as np
import tensorflow as tf

FILES, PER_FILE, BANDS, SIDE, MINERALS = 6, 100, 48, 16, 5
BATCH, EPOCHS, BUFFER = 20, 3, 150


def prepare(out):
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(8)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    for f in range(FILES):
        with tf.io.TFRecordWriter(os.path.join(out, f"clay_{f:03d}.tfrecord.gz"), options) as w:
            for _ in range(PER_FILE):
                m = int(rng.integers(MINERALS))
                cube = rng.normal(1000 + 50 * m, 60, (SIDE, SIDE, BANDS)).round().astype(np.uint16)
                feature = {
                    "cube": tf.train.Feature(bytes_list=tf.train.BytesList(value=[cube.tobytes()])),
                    "mineral": tf.train.Feature(int64_list=tf.train.Int64List(value=[m])),
                }
                w.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def parse(record):
    ex = tf.io.parse_single_example(
        record, {"cube": tf.io.FixedLenFeature([], tf.string), "mineral": tf.io.FixedLenFeature([], tf.int64)}
    )
    cube = tf.reshape(tf.io.decode_raw(ex["cube"], tf.uint16), (SIDE, SIDE, BANDS))
    return tf.cast(cube, tf.float32) / 1000.0, ex["mineral"]


def pipeline(folder):
    files = tf.data.Dataset.list_files(os.path.join(folder, "*.tfrecord.gz"), shuffle=True)
    ds = tf.data.TFRecordDataset(files, compression_type="GZIP")
    return ds.shuffle(BUFFER).map(parse).batch(BATCH).prefetch(2)


def main(folder):
    tf.random.set_seed(6)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((SIDE, SIDE, BANDS)),
            tf.keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(MINERALS),
        ]
    )
    opt = tf.keras.optimizers.Adam(1e-3)
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ds = pipeline(folder)
    for epoch in range(EPOCHS):
        for cube, mineral in ds:
            with tf.GradientTape() as tape:
                loss = loss_fn(mineral, model(cube, training=True))
            opt.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
            )
            time.sleep(0.03)
        model.save_weights(os.path.join(folder, f"clay_{epoch}.weights.h5"))
        print("epoch", epoch, "loss", float(loss))


if __name__ == "__main__":
    (prepare if sys.argv[1] == "prepare" else main)(sys.argv[2])
