"""Train a linear detector of bird calls on mel spectrograms in TFRecord shards.

python -m tests.unseen.bird_calls prepare DIR
mpiexec -n 2 python -m tests.unseen.bird_calls train DIR
"""

import argparse
import os
import time

import numpy as np

NUM_SHARDS = 12
CLIPS_PER_SHARD = 38
MELS, FRAMES = 128, 117


def prepare(data_dir):
    import tensorflow as tf

    rng = np.random.default_rng(77)
    os.makedirs(data_dir, exist_ok=True)
    for shard in range(NUM_SHARDS):
        with tf.io.TFRecordWriter(os.path.join(data_dir, f"calls-{shard:05d}-of-{NUM_SHARDS:05d}.tfrecord")) as out:
            for _ in range(CLIPS_PER_SHARD):
                call = int(rng.integers(2))
                mel = rng.normal(size=(MELS, FRAMES)).astype("float32")
                mel[40:52] += 0.4 * call
                example = tf.train.Example()
                example.features.feature["mel"].bytes_list.value.append(mel.tobytes())
                example.features.feature["call"].int64_list.value.append(call)
                out.write(example.SerializeToString())


def parse(serialized):
    import tensorflow as tf

    example = tf.io.parse_single_example(
        serialized, {"mel": tf.io.FixedLenFeature([], tf.string), "call": tf.io.FixedLenFeature([], tf.int64)}
    )
    mel = tf.reshape(tf.io.decode_raw(example["mel"], tf.float32), (MELS, FRAMES))
    return tf.reduce_mean(mel, axis=1), tf.cast(example["call"], tf.float32)


def train(data_dir, epochs=3, batch=14, lr=0.8):
    import tensorflow as tf
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    shards = tf.data.Dataset.list_files(os.path.join(data_dir, "calls-*.tfrecord"), shuffle=True, seed=5)
    ds = shards.shard(comm.size, comm.rank).interleave(
        tf.data.TFRecordDataset, cycle_length=3, block_length=1, num_parallel_calls=3
    )
    ds = ds.shuffle(60).map(parse).batch(batch).prefetch(2)
    w, b = tf.Variable(tf.zeros((MELS,))), tf.Variable(0.0)
    checkpoint = tf.train.Checkpoint(w=w, b=b)
    for epoch in range(epochs):
        for mel, call in ds:
            with tf.GradientTape() as tape:
                logits = tf.linalg.matvec(mel, w) + b
                loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(call, logits))
            grads = [comm.allreduce(g.numpy()) / comm.size for g in tape.gradient(loss, [w, b])]
            w.assign_sub(lr * grads[0])
            b.assign_sub(lr * grads[1])
            time.sleep(0.035)  # the convolutions
        if comm.rank == 0:
            checkpoint.write(os.path.join(data_dir, f"ckpt-{epoch + 1}"))
            print(f"epoch {epoch + 1}/{epochs} loss={float(loss):.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["prepare", "train"])
    parser.add_argument("data_dir")
    args = parser.parse_args()
    (prepare if args.action == "prepare" else train)(args.data_dir)
