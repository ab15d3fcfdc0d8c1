"""The programs of tests/apps and the truth about them: what the text of a program decides, in keys of a workload.

A value is the one that a workload of this program would have, whether or not a log can show it. None is a workload's
null: `checkpoint` None is a program that saves nothing, `dataset.chunk` None is contiguous storage, `reader.interleave`
None is one file after another, `checkpoint.every_steps` None is a checkpoint at the end of each epoch. Keys without a
meaning for the program are absent: `reader.shard` of a single process, the order of the samples of a file that has one,
interleaving where every file has one sample or where samples of all files are mixed, the native loader.

Conventions: the bytes of a sample are those of its array, without labels and headers. `reader.shuffle.samples` is the
order in which samples are read, so a buffer that shuffles in memory leaves it false. `reader.prefetch` counts the
batches of that buffer, because they are read before they are needed. The shape of a CSV sample counts the numbers of a
line. Programs that do not train have no truth except that.
"""

from typing import Any, NamedTuple

KIB = 1024


class Program(NamedTuple):
    """A program of tests/apps. ranks: ranks under MPI; 0 without MPI, when each process has a log. needs: packages that
    a machine may lack. data: glob of the files of the dataset below the program's folder. truth: values by key of a
    workload. step_s: seconds that the program sleeps in a step for what a larger model would compute, which is less
    than its step takes; None if it does not sleep or if no read separates the steps. training: whether it trains.
    """

    ranks: int
    needs: tuple[str, ...]
    data: str
    truth: dict[str, Any]
    step_s: float | None
    training: bool


_READ_ALL = {"reader.load": "on_demand", "train.steps": None}
_ONE_THREAD = {"reader.read_threads": 1, "reader.prefetch": 0}
_TENSORFLOW, _PYTORCH = {"reader.loader": "tensorflow"}, {"reader.loader": "pytorch"}
_SAVED = {
    "checkpoint.by": "root", "checkpoint.every_steps": None, "checkpoint.fsync": False, "checkpoint.read_back": False,
}  # fmt: skip

PROGRAMS = {
    "npz_archives": Program(
        2, (), "train/*.npz",
        {"dataset.format": "npz", "dataset.file_access": "multi", "dataset.files": 64, "dataset.samples_per_file": 1,
         "dataset.sample.bytes": 442_368, "reader.mode": "framework", "reader.batch_size": 4,
         "reader.shuffle.files": True, "reader.shard": True, "train.epochs": 3,
         "checkpoint.transfer_size": 1_728_000, **_READ_ALL, **_ONE_THREAD, **_SAVED},
        0.02, training=True,
    ),
    "h5_patches": Program(
        2, (), "tissue.h5",
        {"dataset.format": "hdf5", "dataset.file_access": "shared", "dataset.files": 1,
         "dataset.sample.bytes": 32 * KIB, "dataset.samples_per_file": 1024,
         "dataset.chunk": 32 * KIB, "reader.mode": "framework", "reader.batch_size": 16,
         "reader.shuffle.samples": True, "reader.shard": True, "train.epochs": 2, "checkpoint": None,
         **_READ_ALL, **_ONE_THREAD},
        0.02, training=True,
    ),
    # Each rank loads the whole file, then learns from its share of the lines: reader.shard tells of the reads.
    "csv_memory": Program(
        2, ("pandas",), "expression_train.csv",
        {"dataset.format": "csv", "dataset.file_access": "shared", "dataset.files": 1, "dataset.samples_per_file": 400,
         "dataset.sample.shape": [6001], "reader.mode": "framework", "reader.load": "memory", "reader.batch_size": 20,
         "reader.shuffle.samples": True, "reader.shard": False, "train.epochs": 4, "train.steps": None,
         "checkpoint.files": [768_128], **_SAVED},
        None, training=True,
    ),
    # Read ahead: prefetch(2), and 128 records to shuffle.
    "tf_records": Program(
        2, ("tensorflow",), "train-*.tfrecord",
        {"dataset.format": "tfrecord", "dataset.file_access": "multi", "dataset.files": 16,
         "dataset.samples_per_file": 64, "dataset.sample.bytes": 27 * KIB, "reader.mode": "framework",
         "reader.batch_size": 16, "reader.interleave": 2, "reader.transfer_size": 256 * KIB, "reader.read_threads": 2,
         "reader.prefetch": 10, "reader.shuffle.files": True, "reader.shuffle.samples": False, "reader.shard": True,
         "train.epochs": 2, "checkpoint.files": [600, 110_592], **_TENSORFLOW, **_READ_ALL, **_SAVED},
        0.03, training=True,
    ),
    "torch_loader": Program(
        0, ("torch",), "images/*.bin",
        {"dataset.format": "raw", "dataset.file_access": "multi", "dataset.files": 256, "dataset.samples_per_file": 1,
         "dataset.sample.bytes": 75 * KIB, "reader.mode": "framework", "reader.batch_size": 8,
         "reader.read_threads": 2, "reader.prefetch": 4, "reader.shuffle.files": True, "train.epochs": 2,
         **_PYTORCH, **_READ_ALL, **_SAVED},
        0.03, training=True,
    ),
    # Keras decides the size of the checkpoint's file.
    # Read ahead: prefetch(2), and 64 records to shuffle.
    "tf_sharded": Program(
        2, ("tensorflow",), "train-*-of-*",
        {"dataset.format": "tfrecord", "dataset.file_access": "multi", "dataset.files": 16,
         "dataset.samples_per_file": 32, "dataset.sample.bytes": 48 * KIB, "reader.mode": "framework",
         "reader.batch_size": 8, "reader.interleave": 4, "reader.transfer_size": 256 * KIB, "reader.read_threads": 4,
         "reader.prefetch": 10, "reader.shuffle.files": True, "reader.shuffle.samples": False, "reader.shard": True,
         "train.epochs": 3, **_TENSORFLOW, **_READ_ALL, **_SAVED},
        0.025, training=True,
    ),
    "h5_sequential": Program(
        2, (), "run*.h5",
        {"dataset.format": "hdf5", "dataset.file_access": "multi", "dataset.files": 8, "dataset.samples_per_file": 96,
         "dataset.sample.bytes": 36 * KIB, "dataset.chunk": 144 * KIB, "reader.mode": "framework",
         "reader.batch_size": 16, "reader.interleave": None, "reader.shuffle.files": False,
         "reader.shuffle.samples": False, "reader.shard": True, "train.epochs": 3, "checkpoint": None,
         **_READ_ALL, **_ONE_THREAD},
        0.025, training=True,
    ),
    # A workload has no evaluation: the files below valid/ are none of its dataset. HDF5 decides the checkpoint's size.
    "h5_contiguous_shuffled": Program(
        2, (), "train/*.hdf5",
        {"dataset.format": "hdf5", "dataset.file_access": "multi", "dataset.files": 6, "dataset.samples_per_file": 112,
         "dataset.sample.bytes": 64 * KIB, "dataset.chunk": None, "reader.mode": "framework", "reader.batch_size": 8,
         "reader.shuffle.files": True, "reader.shuffle.samples": True, "reader.shard": True, "train.epochs": 3,
         **_READ_ALL, **_ONE_THREAD, **_SAVED},
        0.02, training=True,
    ),
    "npy_map": Program(
        0, ("torch",), "spectra/*.npy",
        {"dataset.format": "npy", "dataset.file_access": "multi", "dataset.files": 192, "dataset.samples_per_file": 1,
         "dataset.sample.bytes": 108 * KIB, "reader.batch_size": 8, "reader.read_threads": 3, "reader.prefetch": 9,
         "reader.shuffle.files": True, "train.epochs": 3, "checkpoint": None, **_PYTORCH, **_READ_ALL},
        0.03, training=True,
    ),
    # A workload cannot say that four workers read a file each, and the batches come in turn. tarfile reads 10 KiB at a
    # time (RECORDSIZE). Each worker reads ahead two batches, and 32 samples to shuffle.
    "torch_iterable": Program(
        0, ("torch",), "shard-*.tar",
        {"dataset.format": "tar", "dataset.file_access": "multi", "dataset.files": 12, "dataset.samples_per_file": 40,
         "dataset.sample.bytes": 48 * KIB, "reader.mode": "framework", "reader.transfer_size": 10 * KIB,
         "reader.batch_size": 8, "reader.read_threads": 4, "reader.prefetch": 24, "reader.shuffle.files": True,
         "reader.shuffle.samples": False, "train.epochs": 2, **_PYTORCH, **_READ_ALL, **_SAVED},
        0.02, training=True,
    ),
    "csv_chunks": Program(
        0, ("pandas",), "sensors_*.csv",
        {"dataset.format": "csv", "dataset.file_access": "multi", "dataset.files": 6, "dataset.samples_per_file": 160,
         "dataset.sample.shape": [1201], "reader.mode": "framework", "reader.batch_size": 20,
         "reader.interleave": None, "reader.shuffle.files": True, "reader.shuffle.samples": False, "train.epochs": 3,
         "checkpoint.files": [9608], "checkpoint.transfer_size": 9608, **_READ_ALL, **_ONE_THREAD, **_SAVED,
         "checkpoint.every_steps": 30},
        0.03, training=True,
    ),
    # The sizes of samples are those of the files as they were made for the logs. The model is saved once, after the
    # last of 60 steps.
    "jpeg_folder": Program(
        0, ("torch", "PIL"), "images/*/*.jpg",
        {"dataset.format": "jpeg", "dataset.file_access": "multi", "dataset.files": 240, "dataset.samples_per_file": 1,
         "dataset.sample.bytes": 52_130, "dataset.sample.stdev": 19_198, "reader.batch_size": 8,
         "reader.preprocess_time": 0.003, "reader.shuffle.files": True, "train.epochs": 2,
         **_PYTORCH, **_READ_ALL, **_ONE_THREAD, **_SAVED, "checkpoint.every_steps": 60},
        0.015, training=True,
    ),
    "heat": Program(2, (), "input.txt", {}, None, training=False),
    "postprocess": Program(0, (), "output/plot_*.h5", {}, None, training=False),
    "parameter_sweep": Program(2, (), "opacity.h5", {}, None, training=False),
    "restart": Program(2, (), "restart.*", {}, None, training=False),
}  # fmt: skip
TRAINING = tuple(name for name, program in PROGRAMS.items() if program.training)
OTHERS = tuple(name for name, program in PROGRAMS.items() if not program.training)
