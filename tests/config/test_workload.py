from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import reader_keys, shipped, site, workload
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset import fingerprints, resizing
from dlio_hpc.plan import plan
from tests.support import planning


@pytest.mark.parametrize("name", shipped.names(shipped.WORKLOADS))
def test_every_shipped_workload_can_be_planned_on_every_shipped_site(name: str, tmp_path: Path) -> None:
    for known in shipped.names(shipped.SITES):
        profile = site.load(known, ("limits={}", "queues={}"))
        request = planning.Request(runs=tmp_path, data=tmp_path, walltime=units.walltime("7d"), account="a")
        assert planning.make(workload.load(name), profile, request).runs


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "dataset.format=hdf9",
            "dataset.format: found 'hdf9'; did you mean 'hdf5'? use one of: tfrecord, hdf5, npz, npy, jpeg, png",
        ),
        ("reader.batchsize=3", "reader: unknown key 'batchsize'; did you mean 'batch_size'?"),
        ("reader.shuffle.seeds=3", "reader.shuffle: unknown key 'seeds'; did you mean 'seed'?"),
        ("dataset.files=0", "dataset.files: found 0; use a whole number of at least 1"),
        ("dataset.files=many", "dataset.files: found text 'many'; use a whole number of at least 1"),
        ("dataset.sample.shape=[3, x]", "dataset.sample.shape[1]: found text 'x'; use a whole number"),
        ("dataset.sample.bytes=4KiB", "dataset.sample: shape and bytes exclude each other"),
        ("dataset.sample=null", "dataset.sample: found null (empty); use a mapping, such as {bytes: 150 KiB}"),
        ("dataset.file_access=shared", "dataset: file_access=shared needs files=1, not 64"),
        ("reader.transfer_size=1 XB", "reader.transfer_size: found '1 XB'; use a size"),
        ("reader.prefetch=1", "reader: prefetch=1 batches would leave some of 2 read_threads idle"),
        ("compute.time=soon", "compute.time.mean: found 'soon'; use a duration"),
        ("train.epochs=1.5", "train.epochs: found 1.5; use a whole number"),
        ("train.epochs=true", "train.epochs: found true; use a whole number"),
        ("name=''", "name must not be empty"),
        ("name.x=1", "name has a value and no keys below it"),
        ("dataset.files", "write key=value"),
        ("dataset.files=[1", "-S dataset.files=[1: not valid YAML: a list is not closed"),
        ("nonsense=1", "unknown key 'nonsense'; known keys: name, dataset"),
    ],
)
def test_overrides_that_cannot_be(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        workload.load("demo", (override,))
    assert message in str(caught.value)


def test_overrides_are_read_as_yaml_and_then_as_the_keys_type() -> None:
    made = workload.load(
        "demo",
        (
            "dataset.sample.shape=[202, 202]", "reader.transfer_size=256KiB", "compute.time=20 ms", "train.steps=null",
            "reader.shuffle=null", "reader.shuffle.seed=9",
        ),
    )  # fmt: skip
    assert made.dataset.sample.shape == (202, 202)
    assert made.reader.transfer_size == 262144
    assert made.compute.time.mean == pytest.approx(0.02)
    assert made.reader.shuffle.seed == 9
    assert not made.reader.shuffle.files


@pytest.mark.parametrize("text", ["null", "'null'"])
def test_the_null_format_may_be_written_as_yamls_null(text: str) -> None:
    assert workload.load("null", (f"dataset.format={text}",)).dataset.format == "null"


def test_a_file_that_is_no_workload(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    for content, message in (
        ("", r"found null \(empty\); use a mapping with keys such as name"),
        ("- 1", r"found the list \[1\]; use a mapping with keys such as name"),
        ("name: a\nname: b\n", "line 2: key 'name' is given twice"),
        ("name: a\ncompute: {time: 1e400}\n", "line 2: 1e400 is too large for a number"),
        ("name: a", "key 'dataset' is missing"),
        ("name: [", "not valid YAML"),
    ):
        path.write_text(content)
        with pytest.raises(ConfigError, match=message) as caught:
            workload.load(str(path))
        assert str(path) in str(caught.value)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot read"):
        workload.load(str(path))
    with pytest.raises(ConfigError, match="cannot read"):
        workload.load(str(tmp_path / "absent.yaml"))
    with pytest.raises(ConfigError, match=r"one of: .*demo, "):
        workload.load("absent")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1:30:00", "1:30:00"), ("1e-3", 1e-3), ("1e5", 100_000), ("1.5e1", 15),
     ("1e20", 1e20), ("on", "on"), ("0x10", "0x10"), ("010", "010"), ("-3", -3), (".5", 0.5),
     ("~", None), ("true", True), ("2026-01-01", "2026-01-01"), ("", None)],
)  # fmt: skip
def test_yaml_is_read_as_1_2_reads_it(text: str, value: object) -> None:
    assert serialization.parse_yaml(f"key: {text}", "here") == {"key": value}


@given(
    files=st.integers(1, 2000), samples=st.integers(1, 500), sample=st.integers(1, 10**6), size=st.integers(1, 10**10),
    ranks=st.integers(1, 64),
)  # fmt: skip
def test_a_resized_dataset_keeps_the_sample_and_misses_the_size_by_less_than_a_file(
    files: int, samples: int, sample: int, size: int, ranks: int
) -> None:
    whole = Workload("w", Dataset("npz", files, samples, Sample(bytes=units.Size(sample))))
    if size < sample:
        with pytest.raises(ConfigError, match="is less than one sample"):
            resizing.resized(whole, size, ranks)
        return
    made = resizing.resized(whole, size, ranks).dataset
    assert made.sample == whole.dataset.sample
    assert made.size <= size
    if made.files != files or size >= whole.dataset.size:
        assert size - made.size < made.samples_per_file * sample
    else:  # the dataset keeps its files, with fewer samples in each
        assert size - made.size < max(made.samples_per_file, files) * sample
    assert made.samples_per_file <= samples
    if size >= whole.dataset.size:
        assert made.samples_per_file == samples
    else:
        assert made.files <= files


@given(samples=st.integers(1, 5000), size=st.integers(1, 10**9), ranks=st.integers(1, 64))
def test_a_resized_shared_file_stays_one_file(samples: int, size: int, ranks: int) -> None:
    whole = Workload("w", Dataset("hdf5", 1, samples, Sample(bytes=units.Size(1000)), file_access="shared"))
    if size >= 1000:
        made = resizing.resized(whole, size, ranks).dataset
        assert made.files == 1
        assert 0 <= size - made.size < 1000


def test_a_dataset_size_that_no_format_can_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="--dataset-size 8192 PiB: dataset too large"):
        resizing.resized(workload.load("demo"), 2**63, 1)


def test_framework_readers_choose_their_own_transfer_size() -> None:
    csv = ("dataset.format=csv", "dataset.sample={shape: [10]}")
    with pytest.raises(ConfigError, match="transfer_size needs mode=posix"):
        workload.load("demo", (*csv, "reader.mode=framework", "reader.transfer_size=4096"))
    for kind in ("npz", "raw"):
        loaded = workload.load("demo", (f"dataset.format={kind}", "reader.mode=framework", "reader.transfer_size=4096"))
        assert loaded.request_size == 4096
    made = plan.resolved(workload.load("demo", ("reader.mode=framework",)))
    assert made.reader.transfer_size is None


def test_a_plan_has_nothing_implicit() -> None:
    made = plan.resolved(replace(workload.load("demo"), reader=reader_keys.Reader(read_threads=3)))
    assert made.reader.prefetch == 6
    assert made.reader.transfer_size == 2**20
    assert made.dataset.sample.dtype == "float32"


_H5, _TF = "dataset.format=hdf5", "dataset.format=tfrecord"
_ARRAYS = ("dataset.sample={bytes: 100}", "dataset.arrays=[64, 36]")
_SHARDS = ("dataset.format=tar", "reader.mode=framework", "reader.shuffle={files: true}")
_SHARED = ("dataset.file_access=shared", "dataset.files=1")
_COLLECTIVE = ("reader.access=collective", "reader.read_threads=1")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("dataset.chunk=4KiB",), "dataset: chunk is for HDF5 and Zarr; format=npz has no chunks"),
        (
            (_H5, "dataset.chunk=[1, 600, 1]"),
            "dataset: chunk: the shape [1, 600, 1] does not fit into the array of a file, [4, 512, 512]",
        ),
        ((_H5, "dataset.chunk=[1, 1]"), "chunk: the shape [1, 1] does not fit"),
        ((_H5, "dataset.chunk={}"), "dataset.chunk: give either bytes or shape"),
        ((_H5, "dataset.chunk={bytes: 1, shape: [1]}"), "dataset.chunk: give either bytes or shape"),
        ((_H5, "dataset.samples_per_file=9000", "dataset.chunk=8GiB"), "HDF5 requires chunks smaller than 4 GiB"),
        (
            ("dataset.format=csv", "dataset.compression=gzip"),
            "compression=gzip needs format=tfrecord (gzip, zlib) or hdf5",
        ),
        (("dataset.compression=lzf",), "compression=lzf: npz files take gzip; lzf is for hdf5 only"),
        (
            ("dataset.format=raw", *_ARRAYS),
            "dataset: arrays needs format=tar or npz or hdf5; a file of format=raw cannot",
        ),
        (("dataset.compression=gzip", *_ARRAYS), "dataset: arrays are stored contiguously and without compression"),
        ((_H5, "dataset.chunk=64", *_ARRAYS), "dataset: arrays are stored contiguously and without compression"),
        (("dataset.arrays=[64, 36]",), "dataset: arrays divides samples of one size, given in bytes: set sample.bytes"),
        (("dataset.sample={bytes: 100, stdev: 2}", "dataset.arrays=[64, 36]"), "and leave shape, dtype and stdev null"),
        (
            ("dataset.format=tar", "dataset.sample={shape: [25]}", "dataset.arrays=[64, 36]"),
            "and leave shape and dtype null",
        ),
        (
            ("dataset.format=tar", "dataset.sample={bytes: 8 GiB}"),
            "dataset: format=tar: a sample must be smaller than 8 GiB; lower the size",
        ),
        (
            (*_ARRAYS, *_SHARDS, "reader.by_array=true"),
            "reader.by_array and reader.array_order: a shard is read front to back, so its members come in the order",
        ),
        ((*_ARRAYS, *_SHARDS, "reader.array_order=[1, 0]"), "leave both out, or set mode=posix"),
        ((*_SHARDS, "reader.keep_open=true"), "reader.keep_open=true has no effect"),
        (
            ("dataset.format=tar", "reader.reopen=true", "reader.shuffle.files=false"),
            "reader.reopen=true needs files of several samples, and settings with which files otherwise stay open",
        ),
        (
            (*_SHARDS, "reader.read_threads=4", "reader.interleave=2"),
            "reader.read_threads: each thread reads its own file from start to end, but with reader.interleave=2",
        ),
        (
            ("dataset.sample={bytes: 100}", "dataset.arrays=[64, 0, 36]"),
            "each array of a sample must have at least 1 byte",
        ),
        (
            ("dataset.sample={bytes: 100}", "dataset.arrays=[64, 32]"),
            "dataset: arrays: the sizes add up to 96 bytes, but a sample has 100 bytes; set sample.bytes: 96",
        ),
        (
            ("dataset.sample={bytes: 100}", "dataset.arrays=[100]"),
            "dataset.arrays: found the list [100]; use a list of 2 to 64",
        ),
        (
            (*_ARRAYS, "reader.transfer_size=101"),
            "reader.transfer_size: with dataset.arrays, at least one request is made for each array of a sample",
        ),
        (
            (*_ARRAYS, _H5, "reader.mode=framework", "reader.transfer_size=1MiB"),
            "reader.transfer_size: with dataset.arrays, each call of h5py reads an array of a sample",
        ),
        (
            (*_ARRAYS, "reader.engine=io_uring", "reader.direct=true"),
            "one array, and a sample size that is a multiple of 4096 bytes",
        ),
        (("dataset.level=3",), "level=3 needs compression=gzip or zlib, not none"),
        (("dataset.compression=gzip", "dataset.level=10"), "dataset.level: found 10; use a whole number from 0 to 9"),
        (("dataset.random_bits=0",), "dataset.random_bits: found 0; use a whole number from 1 to 8"),
        (("dataset.format=csv", "dataset.sample={bytes: 1 KiB}"), "csv contains numbers: set sample.shape"),
        (("dataset.format=csv", "dataset.sample.dtype=float64"), "dtype float32"),
        (("dataset.sample.stdev=10",), "dataset.sample: stdev must be from 1 byte to 1 TiB, and needs"),
        (("dataset.sample={bytes: 9, stdev: 0}",), "dataset.sample: stdev must be from 1 byte to 1 TiB"),
        (
            ("dataset.auxiliary_files=[{name: a/b, bytes: 1}]",),
            "dataset.auxiliary_files[0].name: found text 'a/b'; use a name of letters",
        ),
        (
            ("dataset.auxiliary_files=[{name: a, bytes: 0}]",),
            "dataset.auxiliary_files[0]: bytes (the size of a request) must be at least 1",
        ),
        (
            ("dataset.auxiliary_files=[{name: a, bytes: 9, size: 3}]",),
            "size (the size of the file) must not be less than bytes",
        ),
        (("dataset.auxiliary_files=[{name: a, bytes: 1}, {name: a, bytes: 2}]",), "names must be unique"),
        (("dataset.auxiliary_files=[{name: a, bytes: 1, count: 4, burst: 2}]",), "burst needs random=true"),
        (("dataset.auxiliary_files=[{name: a, bytes: 1, count: 4, random: true, burst: 3}]",), "a multiple of burst"),
        (
            ("dataset.auxiliary_files=[{name: a, bytes: 9, count: 4, size: 20, random: true, burst: 4}]",),
            "a burst of 4 requests has more bytes than the file, which has 20 bytes",
        ),
        (
            ("dataset.auxiliary_files=[{name: a, bytes: 1, random: true, read_to_eof: true}]",),
            "read_to_eof needs access=read",
        ),
        (
            ("dataset.auxiliary_files=[{name: a, bytes: 1, access: write, read_to_eof: true}]",),
            "read_to_eof needs access=read",
        ),
        (
            ("dataset.auxiliary_files=[{name: a, bytes: 2, size: 3, read_to_eof: true}]",),
            "needs requests that read the whole file",
        ),
        (("reader.shuffle={ascending: true}",), "set shuffle.samples or shuffle.files to true as well"),
        (
            (
                "dataset.format=tfrecord",
                "reader.loader=tensorflow",
                "reader.mode=framework",
                "reader.shuffle={files: true, ascending: true}",
            ),
            "TensorFlow reads each TFRecord file from start to end",
        ),
        (("reader.transfer_size=0",), "reader: transfer_size must be at least 1 byte"),
        (("reader.transfer_size=2GiB",), "at most 1 GiB"),
        (("dataset.sample.shape=[]",), "dataset.sample.shape: found the list []; use a list of 1 to 31"),
        (("reader.loader=pytorch", "reader.prefetch=0"), "prefetch=0 leaves PyTorch without workers"),
        (("reader.direct=true", "reader.mode=framework"), "direct=true needs mode=posix"),
        (("reader.direct=true", "reader.transfer_size=5000"), "needs a transfer_size that is a multiple of 4096 bytes"),
        (("reader.direct=true", _H5, "dataset.chunk=4KiB"), "needs contiguous samples: no chunk, no compression"),
        (("reader.direct=true", "dataset.compression=gzip"), "needs contiguous samples: no chunk, no compression"),
        (
            ("reader.interleave=2",),
            "interleave reads files in turn, but if shuffle.files and shuffle.samples are both true, any",
        ),
        (
            ("reader.interleave=2", "reader.shuffle.files=false", "reader.mode=framework"),
            "reader.interleave: with these settings, each sample would require loading a whole file",
        ),
        (("reader.loader=pytorch", "reader.preprocess_threads=2"), "raise read_threads, not preprocess_threads"),
        (("reader.multiprocessing_context=spawn",), "multiprocessing_context is for PyTorch"),
        (("reader.reorder_tasks=true", "reader.shard=false"), "reorder_tasks=true has no effect with shard=false"),
        (("reader.hints={a: b}",), "hints are for MPI-IO and need access=collective"),
        (("reader.engine=io_uring", "reader.mode=framework"), "engine=io_uring needs loader=native, mode=posix"),
        (("reader.engine=io_uring", _H5, "dataset.chunk=4KiB"), "io_uring needs contiguous samples"),
        (("reader.engine=io_uring", "reader.transfer_size=1GiB"), "io_uring makes at least one request per sample"),
        (
            ("reader.engine=io_uring", "reader.direct=true", _H5),
            "io_uring with direct=true needs samples that begin and end at a block of the file",
        ),
        (("reader.engine=aio",), "reader.engine: "),
        (("reader.queue_depth=4",), "queue_depth needs engine=io_uring"),
        (("reader.keep_open=true", "reader.loader=pytorch"), "keep_open=true needs loader=native"),
        (("reader.keep_open=true", "reader.mode=framework"), "keep_open=true has no effect"),
        (("reader.reopen=true", "reader.keep_open=true"), "reopen=true needs keep_open=false"),
        (("reader.reopen=true", "reader.engine=io_uring"), "reopen=true needs keep_open=false"),
        (("reader.reopen=true", "dataset.samples_per_file=1"), "reopen=true needs files of several samples"),
        (("reader.reopen=true", "reader.mode=framework"), "reopen=true needs files of several samples"),
        (("reader.reopen=true", _H5, "dataset.chunk=4KiB"), "reopen=true needs files of several samples"),
        (("reader.reopen=true", "reader.transfer_size=1GiB"), "no request can read several samples"),
        (("reader.shuffle.block=2", "reader.shuffle.samples=false"), "shuffle.block has no effect without"),
        (("reader.shuffle.block=3", "dataset.samples_per_file=4"), "must divide dataset.samples_per_file (4)"),
        (
            ("dataset.format=tfrecord", "reader.mode=framework", "reader.shuffle={samples: true, block: 2}"),
            "shuffle.block: with these settings",
        ),
        (("reader.array_order=[0, 1]",), "array_order: list each position in dataset.arrays once"),
        (("reader.by_array=true",), "by_array=true needs dataset.arrays and loader=native"),
        (("reader.access=collective",), "access=collective needs loader=native, read_threads=1"),
        (_COLLECTIVE, "collective needs a single file that all ranks read: dataset.file_access=shared"),
        ((*_COLLECTIVE, *_SHARED, "reader.mode=framework"), "collective with format=npz needs mode=posix"),
        (
            (*_COLLECTIVE, *_SHARED, "dataset.compression=gzip"),
            "with reader.mode=posix needs contiguous samples",
        ),
        (
            (*_COLLECTIVE, *_SHARED, _H5, "reader.mode=framework", "reader.transfer_size=4KiB"),
            "HDF5's own collective reads support neither hints nor transfer_size",
        ),
        (
            ("dataset.format=csv", "reader.mode=framework", "reader.transfer_size=1"),
            "in mode=framework, pandas chooses the request size",
        ),
        (
            (
                "dataset.format=tfrecord",
                "reader.loader=tensorflow",
                "reader.mode=framework",
                "reader.shuffle.files=false",
                "reader.interleave=1",
            ),
            "reader.read_threads: each thread reads its own file from start to end, but with reader.interleave=1",
        ),
        (("reader.verify=true",), "reader.verify checks the checksums of TFRecord files; format=npz has none"),
        ((_H5, "dataset.compression=lzf"), "reader.mode=posix cannot decompress lzf"),
        (("dataset.format=null", "reader.load=memory"), "the null format has no storage; do not set access"),
        (("dataset.format=null", "reader.transfer_size=1"), "the null format makes no requests"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, tuple) else "",
)
def test_combinations_that_cannot_be(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        workload.load("demo", overrides)
    assert message in str(caught.value)


def test_a_chunk_may_be_bytes_or_a_shape() -> None:
    for chunk, shape in (
        ("null", None),
        ("64KiB", (1, 32, 512)),
        ("2KiB", (1, 1, 512)),
        ("3000", (1, 1, 512)),
        ("100", (1, 1, 25)),
        ("1", (1, 1, 1)),
        ("2MiB", (2, 512, 512)),
        ("1GiB", (4, 512, 512)),
        ("[2, 3, 4]", (2, 3, 4)),
    ):
        assert workload.load("demo", (_H5, f"dataset.chunk={chunk}")).dataset.chunk_shape == shape
    compressed = workload.load("demo", (_H5, "dataset.compression=gzip")).dataset
    assert compressed.chunk_shape == (1, 512, 512), "a filter needs chunks: a sample each"


def test_a_chunk_of_many_samples_may_be_too_large_for_a_smaller_file() -> None:
    whole = workload.load("demo", (_H5, "dataset.files=1", "dataset.chunk=[4, 512, 512]"))
    with pytest.raises(
        ConfigError, match=r"--dataset-size 2 MiB: with fewer samples in a file, chunk: the shape \[4, 512, 512\]"
    ):
        resizing.resized(whole, 2 << 20, 1)


_RECORDS = (
    "dataset.format=tfrecord", "reader.loader=tensorflow", "reader.mode=framework", "reader.shuffle.files=false",
)  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "files"),
    [
        ((*_RECORDS, "reader.read_threads=8", "reader.prefetch=null"), 8),
        ((*_RECORDS, "reader.read_threads=1"), 1),
        ((*_RECORDS, "reader.read_threads=2", "reader.interleave=5"), 5),
        ((*_RECORDS, "reader.read_threads=8", "reader.prefetch=null", "reader.mode=posix"), 1),
        ((*_RECORDS, "reader.read_threads=8", "reader.prefetch=null", "reader.loader=native"), 8),
        ((*_RECORDS, "reader.read_threads=8", "reader.prefetch=null", "reader.loader=pytorch"), 8),
        (
            (*_RECORDS, "reader.read_threads=8", "reader.prefetch=null", "reader.shuffle={files: true, samples: true}"),
            1,
        ),
        (
            (
                "reader.read_threads=8",
                "reader.prefetch=null",
            ),
            1,
        ),
    ],
    ids=str,
)
def test_files_in_turn_where_nobody_says_how_many(overrides: tuple[str, ...], files: int) -> None:
    made = workload.load("demo", overrides)
    assert made.reader.files_in_turn(made.dataset) == files
    assert plan.resolved(made).reader.interleave == files


@pytest.mark.parametrize("name", ["cosmoflow", "imagenet"])
@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_read_threads_can_be_swept_without_a_word_on_interleaving(tmp_path: Path, name: str, threads: int) -> None:
    made = workload.load(name, (f"reader.read_threads={threads}",))
    request = planning.Request(tmp_path, data=tmp_path, walltime=units.walltime("7d"))
    planned = planning.make(made, site.load("local"), request).runs[1].workload
    assert planned.reader.interleave == threads
    assert fingerprints.of(planned.dataset) == fingerprints.of(plan.resolved(workload.load(name)).dataset)
