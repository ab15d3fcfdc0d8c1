"""What the text of each program decides, key by key.

A key is absent if it has no meaning for the program, or if its text leaves it open. reader.batch_size, steps and
batches are of one rank. reader.prefetch is in batches of all workers of a rank. checkpoint.every_steps is in batches.
checkpoint.count counts the checkpoints of a run, also if one overwrites the other. dataset.* is the
training data alone. Values of `dataset.format` that no workload has, such as zarr, are those of the program. Sizes of
checkpoints are those of the files on disk.
"""

from tests.strangers.truth import Truth

_NO_WORKERS = {"reader.read_threads": 1, "reader.prefetch": 0}

PROGRAMS: dict[str, Truth] = {
    "lidar_crowns": (
        1,
        ("torch", "h5py"),
        {
            # 200 to 1499 points of 16 bytes to a sample: a slice of one flat table. The offsets and labels of all
            # files are read once before the first epoch.
            "dataset.format": "hdf5",
            "dataset.files": 6,
            "dataset.samples_per_file": 200,
            "reader.load": "on_demand",
            "reader.batch_size": 24,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            # One permutation of all samples of all files.
            "reader.shuffle.files": True,
            "reader.shuffle.samples": True,
            "train.epochs": 3,
            "train.steps": None,
            "checkpoint.every_steps": None,
            "checkpoint.by": "root",
            "checkpoint.count": 3,
            "checkpoint.files": (14_995,),
            "steps": 150,
            "batches": 150,
            "ranks": 1,
        },
        0.03,
        True,
    ),
    "herbarium_sheets": (
        1,
        ("torch", "lmdb"),
        {
            # LMDB maps its file: records are page faults, not requests. A record is two bytes of label and the pixels.
            # drop_last leaves out 16 of the 720 in each epoch, so train.steps is 22 also if seen as a limit.
            "dataset.format": "lmdb",
            "dataset.files": 1,
            "dataset.samples_per_file": 720,
            "dataset.sample.bytes": 96 * 96 * 3,
            "reader.load": "on_demand",
            "reader.batch_size": 32,
            "reader.read_threads": 2,
            "reader.prefetch": 6,
            "reader.shuffle.samples": True,
            "train.epochs": 5,
            "train.steps": None,
            # 96 other records in three batches, from val.lmdb, in order.
            "evaluation.every_epochs": 1,
            # One file, written under another name and renamed, five times.
            "checkpoint.every_steps": None,
            "checkpoint.by": "root",
            "checkpoint.count": 5,
            "checkpoint.files": (18_991,),
            "steps": 110,
            "batches": 110,
            "ranks": 1,
        },
        0.04,
        True,
    ),
    "substation_load": (
        1,
        ("torch", "pyarrow"),
        {
            # A sample is a row (33 columns of float64). The program reads a row group of 1024, which is four batches.
            "dataset.format": "parquet",
            "dataset.files": 5,
            "dataset.samples_per_file": 10_240,
            "dataset.sample.bytes": 264,
            "reader.load": "on_demand",
            "reader.batch_size": 256,
            **_NO_WORKERS,
            "reader.shuffle.files": True,
            # Row groups within a file, and rows within a group.
            "reader.shuffle.samples": True,
            "train.epochs": 3,
            "train.steps": None,
            "checkpoint.every_steps": 150,
            "checkpoint.by": "root",
            "checkpoint.count": 4,
            "checkpoint.files": (32_013,),
            "steps": 600,
            "batches": 600,
            "ranks": 1,
        },
        0.01,
        True,
    ),
    "sst_patches": (
        1,
        ("torch", "zarr"),
        {
            # An array of 120 chunks, each a file of four samples. Chunks come in random order, the samples of a chunk
            # in theirs. An item of the DataLoader is a chunk: its batch_size is 4, a batch has 16 samples.
            "dataset.format": "zarr",
            "dataset.files": 1,
            "dataset.samples_per_file": 480,
            "dataset.sample.bytes": 3 * 64 * 64 * 4,
            "reader.load": "on_demand",
            "reader.batch_size": 16,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            "reader.shuffle.samples": True,
            "train.epochs": 6,
            "train.steps": None,
            # After every second epoch.
            "checkpoint.every_steps": 60,
            "checkpoint.by": "root",
            "checkpoint.count": 3,
            "checkpoint.files": (50_313,),
            "steps": 180,
            "batches": 180,
            "ranks": 1,
        },
        0.03,
        True,
    ),
    "ledger_pretrain": (
        1,
        ("torch",),
        {
            # Steps are batches: four of them make a step of the optimizer. A sample is 1025 tokens of int32 of a
            # memory map, from one or more documents; neighbours share a token. The run uses 960 samples, less than an
            # epoch of the corpus (1582). The first run in a directory writes three index arrays.
            "dataset.format": "raw",
            "dataset.files": 1,
            "dataset.sample.bytes": 1025 * 4,
            "reader.load": "on_demand",
            "reader.batch_size": 4,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            "reader.shuffle.samples": True,
            "train.epochs": 1,
            "train.steps": 240,
            "train.accumulate": 4,
            "checkpoint.every_steps": 80,
            "checkpoint.by": "root",
            # And a text file with the number of the newest.
            "checkpoint.count": 3,
            "checkpoint.files": (273_852, 2),
            "steps": 60,
            "batches": 240,
            "ranks": 1,
        },
        0.015,
        True,
    ),
    "road_signs": (
        1,
        ("torch", "webdataset", "PIL"),
        {
            # Tar shards of JPEG files and labels; each of two workers reads six shards and makes its own batches. A
            # worker's buffer holds 200 of its 480 samples and is full before the first batch.
            "dataset.format": "tar",
            "dataset.files": 12,
            "dataset.samples_per_file": 80,
            "reader.load": "on_demand",
            "reader.batch_size": 24,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": True,
            "reader.shuffle.buffer": 200,
            "train.epochs": 3,
            "train.steps": None,
            "checkpoint.every_steps": None,
            "checkpoint.by": "root",
            # The model alone, without the state of the optimizer.
            "checkpoint.count": 3,
            "checkpoint.files": (29_519,),
            "steps": 120,
            "batches": 120,
            "ranks": 1,
        },
        0.04,
        True,
    ),
    "frog_calls": (
        1,
        ("tensorflow", "keras"),
        {
            # The first epoch reads the shards for training and writes the cache (a file of data and one of index); the
            # others read the cache alone. A record has some bytes besides the array. A run removes an older cache.
            "dataset.format": "tfrecord",
            "dataset.files": 8,
            "dataset.samples_per_file": 60,
            "dataset.sample.bytes": 64 * 96 * 4,
            "reader.load": "on_demand",
            "reader.cache": "file",
            "reader.batch_size": 20,
            "reader.read_threads": 1,
            "reader.prefetch": 2,
            "reader.shuffle.files": False,
            # A buffer after the cache.
            "reader.shuffle.samples": True,
            "reader.shuffle.buffer": 120,
            "train.epochs": 4,
            "train.steps": None,
            # Two other shards of 60, in order, not cached: six batches.
            "evaluation.every_epochs": 1,
            "checkpoint.every_steps": None,
            "checkpoint.by": "root",
            "checkpoint.count": 4,
            "checkpoint.files": (176_318,),
            "steps": 96,
            "batches": 96,
            "ranks": 1,
        },
        0.04,
        True,
    ),
    "retina_staged": (
        1,
        ("torch",),
        {
            # All 20 files are copied from DIR/archive to DIR/scratch before the first epoch; the training reads the
            # copies alone, whole files, two batches of each. A run removes the copies at its end.
            "dataset.format": "npz",
            "dataset.files": 20,
            "dataset.samples_per_file": 32,
            "dataset.sample.bytes": 3 * 48 * 48 * 4,
            "stage.files": 20,
            "reader.load": "on_demand",
            "reader.batch_size": 16,
            **_NO_WORKERS,
            "reader.shuffle.files": True,
            # Of the rows in memory; the file is read in order.
            "reader.shuffle.samples": True,
            "train.epochs": 4,
            "train.steps": None,
            "checkpoint.every_steps": None,
            "checkpoint.by": "root",
            "checkpoint.count": 4,
            "checkpoint.files": (1_774_093,),
            "steps": 160,
            "batches": 160,
            "ranks": 1,
        },
        0.035,
        True,
    ),
    "papers_sage": (
        1,
        ("torch",),
        {
            # A sample is a node with its features. A step classifies 128 nodes and touches up to 5248 rows of the
            # memory map (128 + 128 * 8 + 1024 * 4; fewer, as gather() takes each once, and many come again). An epoch
            # is the 6400 nodes for training, not all 30000. The graph itself is read into memory before the first.
            "dataset.format": "raw",
            "dataset.files": 1,
            "dataset.samples_per_file": 30_000,
            "dataset.sample.bytes": 512,
            "reader.load": "on_demand",
            "reader.batch_size": 128,
            **_NO_WORKERS,
            "reader.shuffle.samples": True,
            "train.epochs": 3,
            "train.steps": 50,
            # One, at the end.
            "checkpoint.every_steps": 150,
            "checkpoint.by": "root",
            "checkpoint.count": 1,
            "checkpoint.files": (112_181,),
            "steps": 150,
            "batches": 150,
            "ranks": 1,
        },
        0.03,
        True,
    ),
    "gait_windows": (
        1,
        ("torch",),
        {
            # A sample is a window of 16 of a clip's 96 frames; windows do not overlap. Each is an open, a seek, a read.
            "dataset.format": "raw",
            "dataset.files": 30,
            "dataset.samples_per_file": 6,
            "dataset.sample.bytes": 16 * 64 * 96,
            "reader.load": "on_demand",
            "reader.batch_size": 6,
            "reader.read_threads": 2,
            "reader.prefetch": 8,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": True,
            "train.epochs": 6,
            "train.steps": None,
            # 36 windows of six other clips, in order, in six batches.
            "evaluation.every_epochs": 2,
            # After each evaluation.
            "checkpoint.every_steps": 60,
            "checkpoint.by": "root",
            "checkpoint.count": 3,
            "checkpoint.files": (13_277,),
            "steps": 180,
            "batches": 180,
            "ranks": 1,
        },
        0.03,
        True,
    ),
    "ecg_stream": (
        1,
        ("torch",),
        {
            # Files of features, memory-mapped; beside each lies a file of 160 labels, read whole. A worker has four
            # files in an epoch and reads each from its begin to its end; it makes its own batches. Workers are spawned
            # once for the run.
            "dataset.format": "npy",
            "dataset.files": 8,
            "dataset.samples_per_file": 160,
            "dataset.sample.bytes": 12 * 500 * 4,
            "reader.load": "on_demand",
            "reader.batch_size": 32,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": False,
            "train.epochs": 3,
            "train.steps": None,
            "checkpoint.every_steps": 50,
            "checkpoint.by": "root",
            "checkpoint.count": 2,
            # The second has 31689 bytes.
            "checkpoint.files": (31_283,),
            "steps": 120,
            "batches": 120,
            "ranks": 1,
        },
        0.04,
        True,
    ),
    "cloud_masks": (
        2,
        ("torch",),
        {
            # Both ranks read the same checkpoint (of epoch 1, written by `prepare`) before the first step; the run has
            # the epochs 2 to 4.
            "dataset.format": "raw",
            "dataset.files": 480,
            "dataset.samples_per_file": 1,
            "dataset.sample.bytes": 3 * 64 * 64 * 4,
            "reader.load": "on_demand",
            "reader.batch_size": 8,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            "reader.shuffle.files": True,
            "reader.shard": True,
            "train.epochs": 3,
            "train.steps": None,
            "checkpoint.every_steps": None,
            "checkpoint.by": "root",
            "checkpoint.count": 3,
            "checkpoint.files": (2_071_747,),
            "restart.files": 1,
            "restart.by": "all",
            "steps": 90,
            "batches": 90,
            "ranks": 2,
        },
        0.045,
        True,
    ),
    # These do not train. Their data are here for orientation alone; no key has to be found.
    "stellar_stats": (
        1,
        ("h5py",),
        # One pass in order, in 25 blocks (chunks) of 20 rows to a file.
        {
            "dataset.format": "hdf5",
            "dataset.files": 8,
            "dataset.samples_per_file": 500,
            "dataset.sample.bytes": 4000,
            "steps": 0,
            "ranks": 1,
        },
        None,
        False,
    ),
    "welllog_convert": (
        1,
        ("pandas", "pyarrow"),
        # Ten pieces of 2000 lines to a file; writes 12 Parquet files.
        {"dataset.format": "csv", "dataset.files": 12, "dataset.samples_per_file": 20_000, "steps": 0, "ranks": 1},
        None,
        False,
    ),
    "weld_inference": (
        1,
        ("torch",),
        # Reads weights, then 800 .npy files once in order, in 80 batches, by two workers; writes a table and an array.
        {
            "dataset.format": "npy",
            "dataset.files": 800,
            "dataset.samples_per_file": 1,
            "dataset.sample.bytes": 96 * 96 * 4,
            "reader.batch_size": 10,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            "steps": 0,
            "ranks": 1,
        },
        None,
        False,
    ),
    "archive_thumbs": (
        1,
        ("PIL",),
        # Two processes read a JPEG file and write a PNG file, 180 times in all.
        {"dataset.format": "jpeg", "dataset.files": 180, "dataset.samples_per_file": 1, "steps": 0, "ranks": 1},
        None,
        False,
    ),
    # Programs that were written after the rules of high confidence had been changed for those above.
    # records of 12,296 B (8 B label, 3 x 32 x 32 float32) in 5 files of 300; any record of any file may be next
    "galaxy_stamps": (
        1,
        (),
        {
            "dataset.format": "raw",
            "dataset.file_access": "multi",
            "dataset.files": 5,
            "dataset.samples_per_file": 300,
            "dataset.sample.bytes": 12296,
            "reader.load": "on_demand",
            "reader.batch_size": 25,
            **_NO_WORKERS,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": True,
            "train.epochs": 3,
            "checkpoint.by": "root",
            "checkpoint.every_steps": 30,
        },
        0.03,
        True,
    ),
    # 6 shards of 80 examples of 4 x 1024 float32 (16,384 B) and a label; interleaved two at a time; buffer of 100
    "leaf_tfrecords": (
        1,
        ("tensorflow",),
        {
            "dataset.format": "tfrecord",
            "dataset.file_access": "multi",
            "dataset.files": 6,
            "dataset.samples_per_file": 80,
            "dataset.sample.bytes": 16384,
            "reader.load": "on_demand",
            "reader.batch_size": 16,
            "reader.shuffle.files": True,
            "reader.shuffle.samples": True,
            "reader.interleave": 2,
            "train.epochs": 4,
            "checkpoint.by": "root",
        },
        0.03,
        True,
    ),
    # 240 JPEG files of training, 40 of validation (other folder) after each epoch
    "bird_photos": (
        1,
        ("torch", "PIL"),
        {
            "dataset.format": "jpeg",
            "dataset.file_access": "multi",
            "dataset.files": 240,
            "dataset.samples_per_file": 1,
            "reader.load": "on_demand",
            "reader.batch_size": 12,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            "reader.shuffle.files": True,
            "train.epochs": 3,
            "evaluation.every_epochs": 1,
            "checkpoint.by": "root",
        },
        0.05,
        True,
    ),
    # 4 CSV files of 3,000 lines of 21 numbers, line after line; 100 lines a batch
    "taxi_lines": (
        1,
        (),
        {
            "dataset.format": "csv",
            "dataset.file_access": "multi",
            "dataset.files": 4,
            "dataset.samples_per_file": 3000,
            "reader.load": "on_demand",
            "reader.batch_size": 100,
            **_NO_WORKERS,
            "reader.shuffle.files": False,
            "reader.shuffle.samples": False,
            "train.epochs": 3,
            "checkpoint.by": "root",
        },
        0.025,
        True,
    ),
    # one HDF5 file, contiguous, 800 images of 64 x 64 float32; RandomSampler
    "jet_images": (
        1,
        ("torch", "h5py"),
        {
            "dataset.format": "hdf5",
            "dataset.files": 1,
            "dataset.samples_per_file": 800,
            "dataset.sample.bytes": 16384,
            "reader.load": "on_demand",
            "reader.batch_size": 20,
            **_NO_WORKERS,
            "reader.shuffle.samples": True,
            "train.epochs": 3,
            "checkpoint.by": "root",
            # An epoch has 40 steps.
            "checkpoint.every_steps": None,
        },
        0.03,
        True,
    ),
    # 150 npz files, one sample each: image 48x48x12 float32 (110,592 B) and mask 48x48 uint8 (2,304 B)
    "mri_npz": (
        1,
        ("keras",),
        {
            "dataset.format": "npz",
            "dataset.file_access": "multi",
            "dataset.files": 150,
            "dataset.samples_per_file": 1,
            "dataset.sample.bytes": 112896,
            "reader.load": "on_demand",
            "reader.batch_size": 10,
            "reader.shuffle.files": True,
            "train.epochs": 3,
            "checkpoint.by": "root",
        },
        0.05,
        True,
    ),
    # 200 files of 40,000 B staged from DIR/store to DIR/fast; epochs read the copies alone
    "staged_tiles": (
        1,
        ("torch",),
        {
            "dataset.format": "raw",
            "dataset.file_access": "multi",
            "dataset.files": 200,
            "dataset.samples_per_file": 1,
            "dataset.sample.bytes": 40000,
            "reader.load": "on_demand",
            "reader.batch_size": 8,
            "reader.read_threads": 2,
            "reader.prefetch": 4,
            "reader.shuffle.files": True,
            "train.epochs": 4,
            "checkpoint.by": "root",
            "checkpoint.every_steps": 50,
        },
        0.03,
        True,
    ),
    # 30 text files; each is read whole, and gives windows of 129 letters, 32 a batch
    "story_letters": (
        1,
        (),
        {
            "dataset.format": "raw",
            "dataset.file_access": "multi",
            "dataset.files": 30,
            "reader.load": "on_demand",
            "reader.batch_size": 32,
            **_NO_WORKERS,
            "reader.shuffle.files": True,
            "train.epochs": 4,
            "checkpoint.by": "root",
        },
        0.03,
        True,
    ),
    "archive_verify": (1, (), {}, None, False),  # hashes, copies, hashes both again
    "colour_stats": (1, ("PIL",), {}, None, False),  # mean in one pass, deviation in a second
    "key_lookups": (1, (), {}, None, False),  # random records of a table, as requests come
    "land_model": (1, (), {}, None, False),  # a simulation: monthly forcing, each year again; restart file each year
}
