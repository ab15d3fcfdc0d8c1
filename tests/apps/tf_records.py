"""TensorFlow reads TFRecord files, two at a time. tf.data parses, shuffles and batches the records.

python -m tests.apps.tf_records prepare DIR
mpiexec -n 2 python -m tests.apps.tf_records train DIR
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

FILES, RECORDS, SIDE, BATCH, EPOCHS = 16, 64, 96, 16, 2
STEP_S = 0.03


def prepare(folder: Path) -> None:
    """Write images of noise with a vertical or a horizontal stripe."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        with tf.io.TFRecordWriter(str(folder / f"train-{number:05}-of-{FILES:05}.tfrecord")) as writer:
            for record in range(RECORDS):
                label = record % 2
                image = random.integers(0, 100, (SIDE, SIDE, 3), np.uint8)
                image[(slice(None), slice(40, 56)) if label else (slice(40, 56), slice(None))] += 120
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def train(folder: Path) -> None:
    import tensorflow as tf
    from mpi4py import MPI  # before the first read, so that Darshan sees it

    def parse(record: Any) -> tuple[Any, Any]:
        shapes = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        features = tf.io.parse_single_example(record, shapes)
        image = tf.reshape(tf.io.decode_raw(features["image"], tf.uint8), (SIDE, SIDE, 3))
        return tf.cast(image, tf.float32) / 255, tf.cast(features["label"], tf.float32)

    world = MPI.COMM_WORLD
    names = sorted(map(str, folder.glob("train-*.tfrecord")))[world.rank :: world.size]
    weights = tf.Variable(tf.zeros((SIDE * SIDE * 3,)))
    for epoch in range(EPOCHS):
        files = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names), seed=epoch)
        records = files.interleave(tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2)
        losses = []
        for images, labels in records.shuffle(128, seed=epoch).map(parse).batch(BATCH).prefetch(2):
            with tf.GradientTape() as tape:
                logits = tf.linalg.matvec(tf.reshape(images, (len(images), -1)) - 0.3, weights)
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
            gradient = tape.gradient(loss, weights).numpy()
            world.Allreduce(MPI.IN_PLACE, gradient)
            weights.assign_sub(0.001 * gradient / world.size)
            losses.append(float(loss))
            time.sleep(STEP_S)
        if world.rank == 0:
            (folder / f"ckpt-{epoch}.index").write_bytes(bytes(600))
            weights.numpy().tofile(folder / f"ckpt-{epoch}.data")
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
