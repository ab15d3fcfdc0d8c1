"""What the text of each program decides, key by key.

A key is absent if no workload has it, if it has no meaning for the program, or if its text leaves it open. Batches and
steps are of one rank. reader.prefetch is in batches of all workers. checkpoint.count counts the checkpoints of a run,
also if one overwrites the other. Sizes of JPEG and PNG files, and of samples in tar files, are those of the files on
disk.
"""

from tests.strangers.truth import Truth

_NO_WORKERS = {"reader.read_threads": 1, "reader.prefetch": 0}
_TWO_WORKERS = {"reader.read_threads": 2, "reader.prefetch": 4}
_EACH_EPOCH = {"checkpoint.every_steps": None, "checkpoint.by": "root"}

PROGRAMS: dict[str, Truth] = {
    "cactus_photos": (
        1,
        ("torch", "PIL"),
        {
            "dataset.format": "jpeg",
            "dataset.files": 240,
            "dataset.samples_per_file": 1,
            "dataset.sample.bytes": 29_270,
            "dataset.sample.stdev": 7133,
            "reader.mode": "framework",
            "reader.batch_size": 16,
            **_TWO_WORKERS,
            "reader.shuffle.files": True,
            "train.epochs": 3,
            **_EACH_EPOCH,
            "checkpoint.count": 3,
            "steps": 45,
        },
        0.03,
        True,
    ),
    "diatom_png": (
        1,
        ("torch", "PIL"),
        {
            # The program reads whole files, and Pillow decodes the bytes: neither mode is said.
            "dataset.format": "png",
            "dataset.files": 260,
            "dataset.samples_per_file": 1,
            "dataset.sample.bytes": 29_350,
            "dataset.sample.stdev": 32_454,
            "reader.batch_size": 8,
            **_NO_WORKERS,
            "reader.shuffle.files": True,
            "train.epochs": 2,
            # The model, once at the end.
            "checkpoint.by": "root",
            "checkpoint.count": 1,
            "steps": 66,
        },
        0.025,
        True,
    ),
    "cough_spectra": (
        1,
        ("torch",),
        {
            # An array of 64 x 200 float32 to a file.
            "dataset.format": "npy",
            "dataset.files": 300,
            "dataset.samples_per_file": 1,
            "dataset.sample.bytes": 51_200,
            "dataset.sample.stdev": 0,
            "reader.mode": "framework",
            "reader.batch_size": 10,
            **_TWO_WORKERS,
            "reader.shuffle.files": True,
            "train.epochs": 4,
            # Each epoch overwrites the one file.
            **_EACH_EPOCH,
            "checkpoint.count": 4,
            "steps": 120,
        },
        0.02,
        True,
    ),
    "aerosol_rows": (
        1,
        ("torch",),
        {
            # A sample is a row of 2048 float32 of one mapped matrix.
            "dataset.format": "npy",
            "dataset.files": 1,
            "dataset.samples_per_file": 4000,
            "dataset.sample.bytes": 8192,
            "dataset.sample.stdev": 0,
            "reader.mode": "framework",
            "reader.mapped": True,
            "reader.batch_size": 40,
            **_NO_WORKERS,
            "reader.shuffle.samples": True,
            "train.epochs": 3,
            **_EACH_EPOCH,
            "checkpoint.count": 3,
            "steps": 300,
        },
        0.015,
        True,
    ),
    "recipe_gpt": (
        1,
        ("torch",),
        {
            # Megatron's pair of files. A sample is a document of 900 to 3099 tokens of two bytes: the program opens the
            # file for each, and reads it in one request.
            "dataset.format": "indexed",
            "dataset.files": 1,
            "dataset.samples_per_file": 3000,
            "dataset.sample.bytes": 3965,
            "dataset.sample.stdev": 1289,
            "reader.mode": "posix",
            "reader.batch_size": 12,
            **_TWO_WORKERS,
            "reader.shuffle.samples": True,
            "train.epochs": 2,
            "checkpoint.every_steps": 100,
            "checkpoint.by": "root",
            "checkpoint.count": 5,
            "steps": 500,
        },
        0.015,
        True,
    ),
    "parking_wds": (
        1,
        ("torch", "webdataset", "PIL"),
        {
            # A sample is a JPEG file and a JSON file; each of two workers reads four shards and makes its own batches.
            "dataset.format": "tar",
            "dataset.files": 8,
            "dataset.samples_per_file": 50,
            "dataset.sample.bytes": 27_222,
            "dataset.sample.stdev": 2075,
            "reader.mode": "framework",
            "reader.batch_size": 20,
            **_TWO_WORKERS,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": True,
            "reader.shuffle.buffer": 60,
            "train.epochs": 3,
            **_EACH_EPOCH,
            "checkpoint.count": 3,
            "steps": 60,
        },
        0.04,
        True,
    ),
    "whale_tars": (
        1,
        ("torch",),
        {
            # One permutation of the members of all archives. The program reads a member where it lies, but through
            # tarfile: neither mode is said.
            "dataset.format": "tar",
            "dataset.files": 5,
            "dataset.samples_per_file": 80,
            "dataset.sample.bytes": 47_121,
            "dataset.sample.stdev": 11_194,
            "reader.batch_size": 16,
            **_NO_WORKERS,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": True,
            "train.epochs": 3,
            "checkpoint": None,
            "steps": 75,
        },
        0.02,
        True,
    ),
    "snow_zarr": (
        1,
        ("torch", "zarr"),
        {
            # One array of 96 chunks. A sample is a patch of four chunks, some of which other samples have too. No
            # workload has such samples, so that their number and size, and the size of a batch, have no meaning.
            "dataset.format": "zarr",
            "dataset.compression": "zstd",
            "dataset.files": 1,
            "reader.mode": "framework",
            "reader.prefetch": 0,
            "train.epochs": 4,
            **_EACH_EPOCH,
            "checkpoint.count": 4,
            "steps": 72,
        },
        0.04,
        True,
    ),
    "credit_parquet": (
        1,
        ("torch", "pyarrow"),
        {
            # A sample is a row of 32 float32 and an int8, with 175 bytes in the file. A row group of 2000 rows is four
            # batches.
            "dataset.format": "parquet",
            "dataset.files": 4,
            "dataset.samples_per_file": 16_000,
            "dataset.sample.bytes": 129,
            "reader.mode": "framework",
            "reader.batch_size": 500,
            "reader.prefetch": 0,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": False,
            "train.epochs": 3,
            **_EACH_EPOCH,
            "checkpoint.count": 3,
            "steps": 384,
        },
        0.012,
        True,
    ),
    "clay_tfrecords": (
        1,
        ("tensorflow",),
        {
            # A record has some bytes besides the array of 16 x 16 x 48 uint16. Compressed, it has 16,456 bytes.
            "dataset.format": "tfrecord",
            "dataset.compression": "gzip",
            "dataset.files": 6,
            "dataset.samples_per_file": 100,
            "dataset.sample.bytes": 24_576,
            "reader.mode": "framework",
            "reader.batch_size": 20,
            "reader.read_threads": 1,
            "reader.prefetch": 2,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": True,
            "reader.shuffle.buffer": 150,
            "train.epochs": 3,
            **_EACH_EPOCH,
            "checkpoint.count": 3,
            "steps": 90,
        },
        0.03,
        True,
    ),
}
