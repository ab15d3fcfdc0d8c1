"""Keras learns from TFRecord shards without extension. tf.data reads four shards at a time, in a new order every epoch.

python -m tests.apps.tf_sharded prepare DIR
mpiexec -n 2 python -m tests.apps.tf_sharded train DIR
"""

import pathlib
import sys
import time
from typing import Any

import numpy as np

SHARDS, PER_SHARD, SIZE, CLASSES, EPOCHS, BATCH, STEP_S = 16, 32, 128, 4, 3, 8, 0.025


def prepare(folder: pathlib.Path) -> None:
    """Write gray images of noise with one bright quarter, whose number is the label."""
    import tensorflow as tf

    rng = np.random.default_rng(7)
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(str(folder / f"train-{shard:05d}-of-{SHARDS:05d}")) as out:
            for i in range(PER_SHARD):
                image = rng.integers(0, 160, (SIZE, SIZE, 3), dtype=np.uint8)
                row, column = divmod(i % CLASSES, 2)
                image[row * 64 : row * 64 + 64, column * 64 : column * 64 + 64] += 60
                example = tf.train.Example()
                example.features.feature["image"].bytes_list.value.append(image.tobytes())
                example.features.feature["label"].int64_list.value.append(i % CLASSES)
                out.write(example.SerializeToString())


def decode(serialized: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(serialized, spec)
    image = tf.reshape(tf.io.decode_raw(example["image"], tf.uint8), (SIZE, SIZE, 3))
    return tf.cast(image, tf.float32) / 128 - 0.8, example["label"]


def train(folder: pathlib.Path) -> None:
    import tensorflow as tf
    from mpi4py import MPI

    comm, layers = MPI.COMM_WORLD, tf.keras.layers
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [layers.AveragePooling2D(16), layers.Flatten(), layers.Dense(64), layers.Dense(CLASSES)]
    )
    model.compile(tf.keras.optimizers.Adam(3e-3), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    ds = tf.data.Dataset.list_files(str(folder / "train-*-of-*"), shuffle=False)
    ds = ds.shard(comm.size, comm.rank).shuffle(SHARDS)
    ds = ds.interleave(tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=4, deterministic=True)
    ds = ds.shuffle(64).map(decode).batch(BATCH).prefetch(2)

    def after_epoch(epoch: int, logs: dict[str, float]) -> None:
        model.set_weights([comm.allreduce(w) / comm.size for w in model.get_weights()])
        if comm.rank == 0:
            model.save_weights(folder / "ckpt.weights.h5", overwrite=True)
            print(f"epoch {epoch}: loss {logs['loss']:.3f}")

    compute = tf.keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: time.sleep(STEP_S), on_epoch_end=after_epoch
    )
    model.fit(ds, epochs=EPOCHS, callbacks=[compute], verbose=0)


if __name__ == "__main__":
    globals()[sys.argv[1]](pathlib.Path(sys.argv[2]))
