"""Sort defects on wafers by their photos. The decoded photos stay in memory after the first epoch.

python -m tests.strangers.wafer_defects prepare DIR
python -m tests.strangers.wafer_defects train DIR
"""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import Image

KINDS = ("particle", "scratch", "stain", "void")
PHOTOS = 115  # per kind
EPOCHS, BATCH = 5, 20


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(300)
    for label, kind in enumerate(KINDS):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(PHOTOS):
            photo = rng.normal(110 + 12 * label, rng.uniform(15, 35), (240, 240)).clip(0, 255).astype(np.uint8)
            photo[60 : 60 + 20 * (label + 1), 100:110] = 250
            Image.fromarray(photo).save(folder / kind / f"{kind}_{number:04d}.jpg", quality=90)


def load(path: Any, label: Any) -> tuple[Any, Any]:
    photo = tf.io.decode_jpeg(tf.io.read_file(path), channels=1)
    return tf.image.resize(tf.cast(photo, tf.float32) / 255, (24, 24)), label


def train(folder: Path) -> None:
    paths = sorted(folder.glob("*/*.jpg"))
    labels = [KINDS.index(path.parent.name) for path in paths]
    photos = tf.data.Dataset.from_tensor_slices((list(map(str, paths)), labels))
    batches = photos.map(load, num_parallel_calls=4).cache().shuffle(len(paths)).batch(BATCH)
    weights, bias = tf.Variable(tf.zeros((576, len(KINDS)))), tf.Variable(tf.zeros(len(KINDS)))
    for epoch in range(EPOCHS):
        losses = []
        for images, kinds in batches:
            with tf.GradientTape() as tape:
                logits = tf.reshape(images, (-1, 576)) @ weights + bias
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(kinds, logits))
            for variable, slope in zip((weights, bias), tape.gradient(loss, (weights, bias)), strict=True):
                variable.assign_sub(0.02 * slope)
            losses.append(float(loss))
            time.sleep(random.uniform(0.02, 0.026))
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
