"""Workloads of dlio_benchmark become workloads that make the same requests, and each key has its outcome."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped, workload
from dlio_hpc.config.dlio_benchmark import importing, source
from dlio_hpc.config.dlio_benchmark.importing import Imported
from dlio_hpc.config.dlio_benchmark.keys import KEYS, OLD_NAMES
from dlio_hpc.config.image_keys import ImageShape
from dlio_hpc.config.workload import Workload
from dlio_hpc.reports import imported_yaml
from tests.conftest import Run
from tests.support.places import ROOT

# Volumes, one per file: the form of MLPerf Storage's 3D U-Net.
VOLUMES = """
model:
  name: volumes
  type: cnn
  model_size: 499153191
framework: pytorch
workflow: {generate_data: False, train: True, checkpoint: True}
dataset:
  data_folder: somewhere/volumes/
  format: npz
  num_files_train: 168
  num_samples_per_file: 1
  record_length_bytes: 146600628
  record_length_bytes_stdev: 68341808
  record_length_bytes_resize: 2097152
reader:
  data_loader: pytorch
  batch_size: 7
  read_threads: 4
  file_shuffle: seed
  sample_shuffle: seed
train: {epochs: 5, computation_time: 0.323}
checkpoint: {checkpoint_folder: elsewhere, checkpoint_after_epoch: 5, epochs_between_checkpoints: 2}
metric: {au: 0.90}
"""
# Many small records per file: the form of MLPerf Storage's ResNet-50.
PHOTOS = """
model: {name: photos, type: cnn}
framework: tensorflow
workflow: {generate_data: False, train: True}
dataset:
  num_files_train: 1024
  num_samples_per_file: 1251
  record_length_bytes: 114660.07
  record_length_bytes_resize: 150528
  data_folder: somewhere/photos
  format: tfrecord
train: {computation_time: 0.224, epochs: 5}
reader: {data_loader: tensorflow, read_threads: 8, computation_threads: 8, batch_size: 400, dont_use_mmap: True}
"""
# One record per file, of various sizes: the form of MLPerf Storage's CosmoFlow, with the names of keys of v1.0.
SKIES = """
model: skies
framework: tensorflow
workflow: {generate_data: False, train: True}
dataset:
  data_folder: somewhere/skies
  num_files_train: 524288
  num_samples_per_file: 1
  record_length: 2828486
  record_length_stdev: 71311
  format: tfrecord
reader:
  data_loader: tensorflow
  read_threads: 4
  batch_size: 1
  file_shuffle: seed
  sample_shuffle: seed
  shuffle_size: 2
train: {epochs: 5, computation_time: 0.0035}
"""
# Very many small records, and checkpoints: the form of BERT.
TEXTS = """
model: {name: texts, model_size_bytes: 4034713312}
framework: tensorflow
workflow: {generate_data: False, train: True, debug: False, checkpoint: True}
dataset:
  format: tfrecord
  num_files_train: 500
  num_samples_per_file: 313532
  record_length_bytes: 2500
  file_prefix: part
train: {seed_change_epoch: False, computation_time: 0.968, total_training_steps: 1000}
reader:
  data_loader: tensorflow
  computation_threads: 1
  transfer_size: 262144
  batch_size: 48
  file_shuffle: seed
  sample_shuffle: seed
checkpoint: {checkpoint_folder: elsewhere, steps_between_checkpoints: 250}
"""
SOURCES = {"volumes": VOLUMES, "photos": PHOTOS, "skies": SKIES, "texts": TEXTS}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the four workload files."""
    made = tmp_path / "configs" / "workload"
    made.mkdir(parents=True)
    for name, text in SOURCES.items():
        (made / f"{name}.yaml").write_text(text)
    return made


def _imported(folder: Path, name: str, *overrides: str) -> Imported:
    return importing.load(folder / f"{name}.yaml", overrides)


def _workload(folder: Path, name: str, *overrides: str) -> Workload:
    return workload.Draft(_imported(folder, name, *overrides).data, name).with_settings({})


def test_large_archives_read_by_pytorch(folder: Path) -> None:
    made = _workload(folder, "volumes")
    dataset, reader = made.dataset, made.reader
    assert (dataset.format, dataset.files, dataset.samples_per_file) == ("npz", 168, 1)
    assert dataset.sample.bytes == 12107**2, "the generator's side is the root of the length, rounded down"
    assert dataset.sample.stdev == pytest.approx(68341808 / 2**0.5, rel=0.02), "two sides vary independently"
    assert (reader.loader, reader.mode, reader.batch_size, reader.read_threads) == ("pytorch", "framework", 7, 4)
    assert reader.prefetch == 4, "a prefetch of 2 is one batch for each of four workers"
    assert (reader.shuffle.files, reader.shuffle.samples, reader.shuffle.seed) == (True, True, 123)
    assert reader.drop_last
    assert reader.resize == 1448**2, "the side of the resized array is rounded down, too"
    assert (made.train.epochs, made.train.steps, made.compute.time.mean) == (5, None, 0.323)
    assert made.checkpoint is not None
    assert made.checkpoint.sizes == (10240,), "model_size is no key of dlio_benchmark, so its default applies"
    assert not made.checkpoint.fsync
    assert made.checkpoint.mode == "torch"


def test_many_records_per_file_read_by_tensorflow(folder: Path) -> None:
    made = _workload(folder, "photos")
    dataset, reader = made.dataset, made.reader
    assert (dataset.files, dataset.samples_per_file) == (1024, 1251)
    # dlio_benchmark writes 914,432 bytes for eight records of 338 x 338 bytes.
    assert dataset.sample.bytes == 914432 // 8 - 16
    assert (reader.loader, reader.mode, reader.read_threads) == ("tensorflow", "framework", 8)
    assert (reader.preprocess_threads, reader.prefetch, reader.transfer_size) == (8, 2, None)
    assert reader.files_in_turn(dataset) == 8
    assert not reader.shuffle.files
    assert made.checkpoint is None
    notes = _imported(folder, "photos").notes
    assert [note for note in notes if "dataset.num_samples_per_file: 1251" in note], "the revision trims files"


def test_names_of_keys_before_2025(folder: Path) -> None:
    made, imported = _workload(folder, "skies"), _imported(folder, "skies")
    assert made.dataset.sample.bytes == 1681**2 + 50
    assert made.dataset.sample.stdev == pytest.approx(71311 / 2**0.5, rel=0.001)
    assert made.reader.shuffle.files
    assert not made.reader.shuffle.samples, "tf.data shuffles records in memory"
    assert [line for line in imported.lines if line.startswith("dataset.record_length: 2828486: mapped")]
    assert [line for line in imported.lines if line.startswith("model: skies: ignored")]


def test_checkpoints_between_steps(folder: Path) -> None:
    made = _workload(folder, "texts")
    assert made.checkpoint is not None
    assert (made.checkpoint.every_steps, made.checkpoint.sizes, made.checkpoint.by) == (250, (4034713312,), "root")
    assert made.checkpoint.transfer_size == 8 << 20
    assert (made.train.steps, made.train.epochs) == (1000, 1)
    assert (made.reader.transfer_size, made.reader.shuffle.reseed) == (262144, False)
    assert made.dataset.sample.bytes == 50**2 + 38, "the frame of tf.train.Example"


@pytest.mark.parametrize("name", SOURCES)
def test_each_key_has_an_outcome_on_stderr_and_in_the_file(folder: Path, name: str, run: Run) -> None:
    path = folder / f"{name}.yaml"
    target = folder / "imported.yaml"
    done = run("dlio-hpc", "import", path, "-o", target)
    assert done.code == 0
    text = target.read_text()
    given = source.read(path)
    for key in given.values:
        written = given.old.get(key, key)
        outcome = next(line for line in done.err.splitlines() if f": {written}: " in f": {line}")
        assert any(f": {fate}" in outcome for fate in ("mapped", "approximated", "ignored", "left out"))
        assert f"{written}:" in text
    assert workload.load(str(target)) == _renamed(_workload(folder, name))
    assert max(map(len, text.splitlines())) <= 120


def _renamed(made: Workload) -> Workload:
    return serialization.convert(serialization.plain(made), Workload, "test")


def test_the_file_is_printed_without_an_output(folder: Path, run: Run) -> None:
    done = run("dlio-hpc", "import", folder / "photos.yaml")
    data = serialization.parse_yaml(done.out, "stdout")
    assert data["name"] == "photos"
    assert data["source"] == "dlio-hpc import photos.yaml"
    assert data["dataset"]["files"] == 1024


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_key_of_dlio_benchmark_is_known(folder: Path, key: str) -> None:
    """With its own default, no key changes whether the workload can be imported."""
    default = KEYS[key].default
    if default in (None, "") or key in {"framework", "dataset.format"}:
        return
    imported = _imported(folder, "volumes", f"++workload.{key}={default}")
    assert [line for line in imported.lines if line.startswith(f"{key}: ")]
    assert "has no such key" not in "\n".join(line for line in imported.lines if line.startswith(f"{key}: "))


def test_old_names_lead_to_keys() -> None:
    assert set(OLD_NAMES.values()) <= set(KEYS)


def test_overrides_of_hydra(folder: Path, run: Run) -> None:
    given = (
        "++workload.reader.batch_size=3", "++dataset.num_files_train=12", "+workload.train.epochs=2",
        "workload.reader.read_threads=2", "++hydra.run.dir=/tmp/x", "++workload.workflow.checkpoint=False",
    )  # fmt: skip
    done = run("dlio-hpc", "import", folder / "volumes.yaml", *given)
    data = serialization.parse_yaml(done.out, "stdout")
    assert (data["reader"]["batch_size"], data["reader"]["read_threads"]) == (3, 2)
    assert (data["dataset"]["files"], data["train"]["epochs"]) == (12, 2)
    assert "checkpoint" not in data
    assert data["source"].endswith("++workload.workflow.checkpoint=False")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("++workload.reader.batch_size",), "write ++workload.KEY=VALUE"),
        (("workload=photos",), "dlio:photos"),
        (("++workload.reader.batchsize=4",), "has no key reader.batchsize; did you mean 'batch_size'?"),
        (("++workload.batch_size=4",), "has no key batch_size; did you mean 'reader.batch_size'?"),
        (("++workload.datset.format=npz",), "has no key datset.format; did you mean 'dataset.format'?"),
        (("++workload.train={epoch: 2}",), "has no key train.epoch; did you mean 'epochs'?"),
        (("~workload.reader",), "keys cannot be deleted"),
        (("++workload.reader.batch_size.x=1",), "has a value and no keys below it"),
        (("photos.yaml",), "give one FILE, DIR or dlio:NAME, not 2"),
    ],
)
def test_arguments_that_cannot_be(folder: Path, run: Run, arguments: tuple[str, ...], message: str) -> None:
    done = run("dlio-hpc", "import", folder / "volumes.yaml", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dataset.format=hdf5_opt", "has no reader for it"),
        ("dataset.format=orc", "not a format of dlio_benchmark e1919d7; use one of: npz, npy"),
        ("dataset.num_samples_per_file=4", "loads the whole npz file again for each of its samples"),
        ("dataset.record_element_type=complex64", "use one of: int8, uint8"),
        ("dataset.record_dims=[64, 64]", "record_length_bytes_stdev: 68341808: dlio_benchmark does not accept"),
        ("dataset.record_length_bytes=0", "expected a number of bytes from 1"),
        ("dataset.record_length_bytes=.inf", "expected a number"),
        ("dataset.record_length_bytes=1e300", "expected a number of bytes"),
        ("reader.batch_size=10000000000", "reader: batch_size x"),
        ("train.computation_time=soon", "expected numbers from 0: mean"),
        ("train.computation_time=1e9", "compute.time.mean: found 1000000000; use less than a year"),
        ("dataset.hdf5.num_dset_per_record=2", "from a single dataset"),
        ("dataset.num_files_train=many", "dataset.num_files_train: many: expected a whole number"),
        ("dataset.num_files_train=-1", "expected a whole number from 0"),
        ("dataset.num_files_train=0", "dataset.files: found 0; use a whole number"),
        ("workflow.train=False", "model.num_layers: -1: expected the number of layers of a transformer"),
        ("workflow.train=perhaps", "expected True or False"),
        ("framework=tensorflow", "dlio_benchmark refuses it with framework tensorflow"),
        ("storage.storage_type=s3", "++workload.storage.storage_type=local_fs"),
        ("reader.data_loader=native_dali", "use one of: pytorch, tensorflow, dali, synthetic"),
        ("reader.reader_classname=a.B", "a custom class"),
        ("reader.data_loader_classname=a.B", "a custom class"),
        ("reader.file_shuffle=often", "use one of: off, seed, random"),
        ("checkpoint.checkpoint_mechanism_classname=a.B", "++workload.workflow.checkpoint=False"),
        ("checkpoint.mode=subset", "depend on the number of ranks"),
        ("model.num_layers=32", "depend on the number of ranks"),
        ("model.parallelism.zero_stage=1", "depend on the number of ranks"),
        ("model.model_size_bytes=0", "expected at least 1"),
        ("train.computation_time={type: beta}", "use one of: normal, uniform, gamma, exponential, poisson"),
        ("train.computation_time={type: gamma, shape: 2}", "expected numbers from 0: shape, scale"),
    ],
)
def test_what_is_refused_says_why_and_what_to_change(folder: Path, run: Run, override: str, message: str) -> None:
    done = run("dlio-hpc", "import", folder / "volumes.yaml", f"++workload.{override}")
    assert (done.code, done.out) == (2, "")
    assert message in done.err.splitlines()[-1]
    assert "volumes.yaml" in done.err


# Columns of Parquet: the form of MLPerf Storage's Flux and DLRM.
_TABLES = """\
framework: pytorch
workflow: {generate_data: False, train: True, checkpoint: False}
dataset:
  format: parquet
  compression: none
  num_files_train: 4296
  num_samples_per_file: 288
  record_length: 2164832
  parquet:
    read_mode: row_group
    columns:
      - {name: t5_encodings, dtype: float32, size: 524328}
      - {name: clip_encodings, dtype: float32, size: 409}
      - {name: mean, dtype: float32, size: 8232}
      - {name: logvar, dtype: float32, size: 8232}
      - {name: timestamp, dtype: float32, size: 7}
reader: {data_loader: pytorch, batch_size: 48, read_threads: 8, file_shuffle: seed}
train: {epochs: 1, computation_time: 1.35}
metric: {au: 0.90}
"""


def _tables(folder: Path, *overrides: str) -> Imported:
    (folder / "tables.yaml").write_text(_TABLES)
    return _imported(folder, "tables", *overrides)


def test_columns_of_parquet(folder: Path) -> None:
    imported = _tables(folder)
    made, shipped_one = workload.Draft(imported.data, "tables").with_settings({}), workload.load("flux_b200")
    assert made.dataset == shipped_one.dataset
    assert (made.reader.mode, made.reader.prefetch, made.reader.columns) == ("framework", 8, None)
    lines = "\n".join(imported.lines)
    assert "5 columns, 2164832 bytes" in lines
    assert "dataset.record_length: 2164832: ignored (the size of a sample follows from the columns)" in lines
    assert "dataset.parquet.read_mode: row_group: ignored (row groups are read with any value of this key)" in lines
    assert max(map(len, imported.lines)) < 700


@pytest.mark.parametrize(
    ("override", "columns", "row_group"),
    [
        ("dataset.parquet.columns=[{name: a, dtype: int8, read: false}, {name: b, size: 3}]", ("b",), 1024),
        ("dataset.parquet.columns=[{name: a, read: false}]", None, 1024),
        ("storage.storage_options={columns: [mean]}", ("mean",), 1024),
        ("dataset.parquet.generation_batch_size=64", None, 64),
        ("dataset.parquet.row_group_size=100", None, 100),
        ("dataset.parquet.columns=null", None, 1024),
    ],
)
def test_columns_and_row_groups_that_are_read(
    folder: Path, override: str, columns: tuple[str, ...] | None, row_group: int
) -> None:
    made = workload.Draft(_tables(folder, f"++workload.{override}").data, "tables").with_settings({})
    assert (made.reader.columns, made.dataset.row_group) == (columns, row_group)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "dataset.parquet.columns=[{name: a, dtype: string}]",
            "column a: dlio-hpc does not support columns of type string",
        ),
        ("dataset.parquet.columns=[{name: a, size: 0}]", "column a: expected a size from 1, not 0"),
        ("dataset.parquet.columns=a", "expected a list of columns"),
        ("dataset.parquet.partition_by=a", "does not divide a dataset into folders"),
    ],
)
def test_tables_that_are_refused(folder: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _tables(folder, f"++workload.{override}")


def test_tables_that_differ(folder: Path) -> None:
    notes = "\n".join(_tables(folder, "++workload.dataset.compression=snappy").notes)
    assert "dataset.compression: snappy: approximated (files are not compressed)" in notes
    odd = _tables(folder, "++workload.dataset.parquet.generation_batch_size=1500")
    assert "the last row group of a batch" in "\n".join(odd.notes)


_LARGE = """\
# Only checkpoints, in the form of MLPerf Storage's llama3_70b.
model:
  name: big
  type: transformer
  num_layers: 80
  model_datatype: fp16
  optimizer_datatype: fp32
  parallelism: {tensor: 8, pipeline: 1, zero_stage: 3}
  transformer:
    {vocab_size: 128256, hidden_size: 8192, ffn_hidden_size: 28672, num_attention_heads: 128, num_kv_heads: 8}
framework: pytorch
workflow: {generate_data: False, train: False, checkpoint: True}
checkpoint:
  checkpoint_folder: elsewhere
  time_between_checkpoints: 5
  num_checkpoints_write: 4
  num_checkpoints_read: 3
  fsync: True
"""


def test_checkpoints_of_a_large_model(tmp_path: Path, run: Run) -> None:
    (tmp_path / "big.yaml").write_text(_LARGE)
    done = run("dlio-hpc", "import", tmp_path / "big.yaml", "-o", tmp_path / "made.yaml")
    assert done.code == 0, done.err
    made, shipped_one = workload.load(str(tmp_path / "made.yaml")), workload.load("llama3_70b")
    assert made.checkpoint is not None
    assert shipped_one.checkpoint is not None
    assert made.checkpoint.state == shipped_one.checkpoint.state
    assert (made.checkpoint.writes, made.checkpoint.reads, made.checkpoint.keep) == (4, 3, 4)
    assert (made.dataset.format, made.dataset.samples) == ("null", 4)
    assert made.compute.time.mean == pytest.approx(5)
    assert made.checkpoint.mode == "torch"
    assert "the number of ranks of MLPerf Storage is assumed: 64" in done.err
    assert "| big | imported | checkpoints, 64 ranks, 911.2 GiB |" in run("dlio-hpc", "import", tmp_path).out


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.num_layers=81", "set ++workload.model.parallelism.data to the number of replicas"),
        ("model.parallelism.zero_stage=2", "dlio-hpc knows the stages 0, 1 and 3"),
        ("model.model_datatype=int4", "use one of: fp32, bf16, fp16"),
        ("checkpoint.num_checkpoints_write=0", "that the same run has written"),
        ("model.layer_parameters=[1]", "no key for the sizes of individual layers"),
        ("framework=tensorflow", "only PyTorch writes the files of each rank"),
        ("checkpoint.checkpoint_mechanism_classname=a.B", "a custom class"),
    ],
)
def test_checkpoints_of_a_large_model_that_are_refused(
    tmp_path: Path, run: Run, override: str, message: str
) -> None:  # fmt: skip
    (tmp_path / "big.yaml").write_text(_LARGE)
    done = run("dlio-hpc", "import", tmp_path / "big.yaml", f"++workload.{override}")
    assert (done.code, done.out) == (2, "")
    assert message in done.err.splitlines()[-1]


_SQUARE = ImageShape(1000, 1000, 1)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("format=npy",), {"format": "npy", "mode": "framework", "bytes": 1000**2, "transfer_size": None}),
        (("format=jpeg",), {"format": "jpeg", "mode": "framework", "bytes": 555400, "image": _SQUARE}),
        (("format=png",), {"format": "png", "mode": "framework", "bytes": 1002400, "image": _SQUARE}),
        (("format=png", "record_dims=[30, 400]"), {"bytes": 12028, "image": ImageShape(400, 30, 1)}),
        (("format=jpeg", "record_dims=[30, 40, 2]"), {"bytes": 1332, "image": None}),
        (("format=indexed_binary", "num_samples_per_file=4"), {"format": "raw", "mode": "posix", "bytes": 1000**2}),
        (
            ("format=mmap_indexed_binary", "num_samples_per_file=4"),
            {"format": "indexed", "mapped": True, "mode": "framework"},
        ),
        (("format=csv",), {"format": "csv", "mode": "framework", "shape": (357000,)}),
        (("format=hdf5",), {"format": "hdf5", "mode": "framework", "shape": (1000, 1000)}),
        (("format=hdf5", "record_dims=[1, 30, 40]", "record_element_type=float32"), {"shape": (30, 40)}),
        (("record_element_type=float64",), {"bytes": 8 * 1000**2}),
        (("record_dims=[30, 40, 2]", "record_element_type=uint16"), {"bytes": 2 * 30 * 40 * 2}),
        (("num_files_train=1",), {"file_access": "shared"}),
        (("format=hdf5", "compression=gzip", "compression_level=6"), {"compression": "gzip", "level": 6}),
        (("format=hdf5", "hdf5.chunk_dims=[1, 100, 1000]"), {"chunk_shape": (1, 100, 1000)}),
        (("format=hdf5", "hdf5.max_shape=[1000, 1000]"), {"chunk_shape": (1, 1000, 1000)}),
        (("format=synthetic",), {"format": "null"}),
    ],
)
def test_formats_and_sizes(folder: Path, overrides: tuple[str, ...], expected: dict[str, Any]) -> None:
    small = ("record_length_bytes=1000000", "record_length_bytes_stdev=0", *overrides)
    made = _workload(folder, "volumes", *(f"++workload.dataset.{override}" for override in small))
    places = (made.dataset.sample, made.dataset, made.reader)
    actual = {key: next(getattr(place, key) for place in places if hasattr(place, key)) for key in expected}
    assert actual == expected


@pytest.mark.parametrize(
    ("files", "samples", "expected"),
    [
        (8, 4, {"bytes": 32, "count": 64, "by": "root", "file_size": 512}),
        (1, 4, {"bytes": 32, "count": 8, "by": "all", "file_size": 64}),
        (1, 2**28, {"bytes": 2**30, "count": 16, "by": "all", "file_size": 2**32}),
    ],
)
def test_indexes_of_indexed_binary_are_an_auxiliary_file(
    folder: Path, files: int, samples: int, expected: dict[str, Any]
) -> None:
    keys = ("format=indexed_binary", f"num_files_train={files}", f"num_samples_per_file={samples}")
    sizes = ("record_length_bytes=4096", "record_length_bytes_stdev=0")
    made = _workload(folder, "volumes", *(f"++workload.dataset.{key}" for key in (*keys, *sizes)))
    (index,) = made.dataset.auxiliary_files
    assert index.when == "epoch", "new workers read the indexes in every epoch"
    assert {key: getattr(index, key) for key in expected} == expected


def test_a_checkpoint_of_more_than_one_tensor_is_approximated(folder: Path, run: Run) -> None:
    size = "++workload.model.model_size_bytes=100000000"
    done = run("dlio-hpc", "import", folder / "volumes.yaml", size, "-o", folder / "made.yaml")
    assert "dlio_benchmark has one" in done.err
    made = workload.load(str(folder / "made.yaml"))
    assert made.checkpoint is not None
    assert (made.checkpoint.mode, made.checkpoint.sizes) == ("torch", (100000000,))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("read_threads=0",), {"read_threads": 1, "prefetch": 0}),
        (("prefetch_size=0",), {"prefetch": 8}),
        (("prefetch_size=9",), {"prefetch": 12}),
        (("odirect=True",), {"direct": True, "mode": "posix"}),
        (("read_type=memory",), {"load": "memory"}),
        (("multiprocessing_context=spawn",), {"multiprocessing_context": "spawn"}),
        (("preprocess_time=0.01",), {"preprocess_time": 0.01}),
        (("preprocess_time={mean: 0.01}", "preprocess_time_stdev=0.001"), {"preprocess_time": 0.01}),
        (("data_loader=dali",), {"loader": "native", "prefetch": 4}),
        (("transformed_record_dims=[3, 224, 224]",), {"resize": 3 * 224 * 224}),
        (
            ("transformed_record_dims=[3, 224, 224]", "transformed_record_element_type=float32"),
            {"resize": 4 * 3 * 224 * 224},
        ),
        (("file_shuffle=off", "sample_shuffle=off"), {"drop_last": True}),
    ],
)
def test_ways_of_reading(folder: Path, overrides: tuple[str, ...], expected: dict[str, Any]) -> None:
    reader = _workload(folder, "volumes", *(f"++workload.reader.{override}" for override in overrides)).reader
    assert {key: getattr(reader, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("0.5", ("constant", 0.5, None)),
        ("{mean: 0.5}", ("constant", 0.5, None)),
        ("{mean: 0.5, stdev: 0.1}", ("normal", 0.5, 0.1)),
        ("{mean: 0.5, stdev: 0.1, type: normal}", ("normal", 0.5, 0.1)),
        ("{mean: 0.5, stdev: 0}", ("constant", 0.5, None)),
        ("{type: gamma, shape: 4, scale: 0.1}", ("gamma", 0.4, 0.2)),
        ("{type: exponential, scale: 0.1}", ("exponential", 0.1, None)),
        ("{type: uniform, min: 0.1, max: 0.5}", ("normal", 0.3, 0.4 / 12**0.5)),
        ("{type: poisson, lam: 4}", ("normal", 4, 2)),
    ],
)
def test_computation_times(folder: Path, time: str, expected: tuple[str, float, float | None]) -> None:
    made = _workload(folder, "volumes", f"++workload.train.computation_time={time}").compute.time
    assert made.distribution == expected[0]
    assert (made.mean, made.stdev or 0) == pytest.approx((expected[1], expected[2] or 0))


@pytest.mark.parametrize(
    ("overrides", "is_written", "note"),
    [
        (("checkpoint_after_epoch=1", "epochs_between_checkpoints=1"), True, ""),
        (("checkpoint_after_epoch=6",), False, ""),
        (("steps_between_checkpoints=0",), False, ""),
        (("steps_between_checkpoints=4",), True, "steps are counted over all epochs"),
        (("checkpoint_after_epoch=2",), True, "a checkpoint after each of 5 epochs; dlio_benchmark writes 2"),
    ],
)
def test_times_of_checkpoints(folder: Path, overrides: tuple[str, ...], is_written: bool, note: str) -> None:
    given = [f"++workload.checkpoint.{override}" for override in overrides]
    assert (_workload(folder, "volumes", *given).checkpoint is not None) == is_written
    notes = [text for text in _imported(folder, "volumes", *given).notes if text.startswith("checkpoint")]
    assert len(notes) == bool(note)
    assert note in "".join(notes)


def test_a_shape_that_is_none(folder: Path) -> None:
    with pytest.raises(ConfigError, match="expected a list of whole numbers above 0"):
        _imported(folder, "photos", "++workload.dataset.record_dims=[2, x]")


def test_evaluation_passes_are_imported(folder: Path) -> None:
    given = ("++workload.workflow.evaluation=True", "++workload.dataset.num_files_eval=8",
             "++workload.reader.batch_size_eval=3", "++workload.evaluation.eval_time=0.25")  # fmt: skip
    passes = _workload(folder, "volumes", *given).evaluation
    assert passes is not None
    assert (passes.files, passes.every_epochs, passes.batch_size) == (8, 1, 3)
    assert passes.time is not None
    assert passes.time.mean == pytest.approx(0.25)
    later = (*given, "++workload.train.epochs=6", "++workload.evaluation.epochs_between_evals=2")
    passes = _workload(folder, "volumes", *later).evaluation
    assert passes is not None
    assert passes.every_epochs == 2
    notes = _imported(folder, "volumes", *later, "++workload.dataset.num_subfolders_train=2").notes
    (note,) = [note for note in notes if note.startswith("evaluation.eval_after_epoch")]
    assert "the first pass follows epoch 2, not 1" in note
    assert not [note for note in notes if note.startswith("dataset.num_subfolders_train")]
    assert _workload(folder, "volumes", *later, "++workload.dataset.num_subfolders_train=2").dataset.subfolders == (2,)
    over = _imported(folder, "volumes", "++workload.dataset.num_subfolders_train=100000").notes
    assert [note for note in over if note.startswith("dataset.num_subfolders_train: 100000: approximated")]
    never = (*given, "++workload.evaluation.epochs_between_evals=1000")
    assert _workload(folder, "volumes", *never).evaluation is None


def test_a_workload_that_only_generates(folder: Path) -> None:
    given = ("++workload.workflow.train=False", "++workload.workflow.generate_data=True")
    imported = _imported(folder, "photos", *given)
    assert [note for note in imported.notes if "--generate only" in note]


def test_the_configuration_that_hydra_keeps_of_a_run(folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text("workload:\n" + "".join(f"  {line}\n" for line in PHOTOS.strip().splitlines()))
    assert importing.load(path).data["dataset"]["files"] == 1024


def test_sections_beside_the_section_workload_are_imported(folder: Path, run: Run) -> None:
    """The data stand at the top, and the rest below `workload`. No key is dropped."""
    path = folder / "two.yaml"
    path.write_text(
        "dataset: {format: npz, num_files_train: 300}\nreadr: {batch_size: 9}\nhydra: {run: {dir: x}}\n"
        "workload:\n  workflow: {train: true}\n  train: {epochs: 3}\n  reader: {batch_size: 5}\n"
    )
    done = run("dlio-hpc", "import", path)
    data = serialization.parse_yaml(done.out, "stdout")
    assert (data["dataset"]["files"], data["train"]["epochs"], data["reader"]["batch_size"]) == (300, 3, 5)
    lines = done.err.splitlines()
    assert lines[0] == (
        f"warning: {path}, line 2: readr.batch_size: 9: ignored (did you mean 'reader.batch_size'? dlio_benchmark "
        "e1919d7 has no such key)"
    )
    assert "hydra.run.dir: x: ignored (an option of Hydra, not of the workload)" in lines
    assert any(
        line.startswith("workload: approximated (imported together with the sections next to it") for line in lines
    )
    path.write_text("dataset: {num_files_train: 3}\nworkload: {dataset: {num_files_train: 4, format: npz}}\n")
    twice = run("dlio-hpc", "import", path)
    assert (twice.code, "dataset.num_files_train is 3 at the top and 4 below workload" in twice.err) == (2, True)


@pytest.mark.parametrize(("text", "message"), [
    ("model: {depth: 50, width: 2}\ndata: {path: x}\n", "3 of 3 keys are unknown: model.depth"),
    ("train: {epochs: 90, lr: 0.1}\ndataset: {name: imagenet}\n", "2 of 3 keys are unknown"),
    ("model: {name: unet}\noutput: {folder: x}\n", "no key of the file has an effect: model.name: unet: ignored"),
    ("workload: {train: {epoch: 2}}\nservices: {web: {image: y}}\ndataset: {format_: npz}\n", "did you mean 'format'?"),
])  # fmt: skip
def test_files_of_other_programs_are_refused(folder: Path, run: Run, text: str, message: str) -> None:
    path = folder / "other.yaml"
    path.write_text(text)
    done = run("dlio-hpc", "import", path)
    assert (done.code, done.out) == (2, "")
    assert "not a workload of dlio_benchmark" in done.err
    assert message in done.err


def test_the_section_data_reader(folder: Path) -> None:
    path = folder / "old.yaml"
    path.write_text(PHOTOS.replace("\nreader:", "\ndata_reader:"))
    assert importing.load(path).data["reader"]["batch_size"] == 400


@pytest.mark.parametrize("text", ["", "- 1", "name: a\n", "defaults: [_self_]\n"])
def test_files_that_are_no_workload_of_dlio_benchmark(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"not a workload of dlio_benchmark|the file is empty"):
        importing.load(path)


@pytest.mark.parametrize("name", ["demo", "null", "llama3_8b", "dlrm_b200", "unet3d_h100"])
def test_a_workload_of_dlio_hpc_is_not_imported(run: Run, name: str) -> None:
    path = shipped.root() / shipped.WORKLOADS / f"{name}.yaml"
    done = run("dlio-hpc", "import", path)
    assert (done.code, done.out) == (2, "")
    assert f"{path}: already a workload of dlio-hpc" in done.err
    assert f"Run it: dlio-submit {path}" in done.err


# Keys of files of MLPerf Storage v3.0 (mlcommons/storage, configs/dlio/workload at revision 6980038d) that decide what
# becomes of them, and the key that is refused.
REFUSED_OF_V3 = [
    ("hybrid_storage", "storage: {storage_type: s3dlio, storage_root: 's3://a/'}", "storage.storage_type: s3dlio"),
    ("zerocopy_file_test", "storage: {storage_type: s3dlio, storage_root: 'file:///a'}", "storage.storage_type"),
    ("test_local_datagen",
     "{model: resnet50, workflow: {generate_data: true, train: false}, storage: {storage_type: s3dlio}}",
     "storage.storage_type: s3dlio"),
    ("test_local_train", "{model: resnet50, reader: {data_loader_classname: torch.utils.data.DataLoader}}",
     "reader.data_loader_classname: torch.utils.data.DataLoader"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "message"), REFUSED_OF_V3)
def test_files_of_v3_that_are_refused(folder: Path, run: Run, name: str, changes: str, message: str) -> None:
    data = serialization.parse_yaml(VOLUMES, "text") | {"workflow": {"train": True}}
    for section, keys in serialization.parse_yaml(changes, "text").items():
        data[section] = {**data.get(section, {}), **keys} if isinstance(keys, dict) else keys
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(data))
    done = run("dlio-hpc", "import", path)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_forms_of_v3_that_are_imported(folder: Path) -> None:
    """The keys of dlrm_b200 and of retinanet_mi355 at 6980038d: no thread, no prefetch; one JPEG file per sample."""
    tables = _imported(
        folder, "volumes", "dataset.format=parquet", "dataset.num_samples_per_file=1536000",
        "reader.read_threads=0", "reader.prefetch_size=0", "reader.batch_size=12288",
        "dataset.parquet={row_group_size: 6144, read_mode: row_group, columns: [{name: a, dtype: float16}]}",
        "reader.multiprocessing_context=fork", "workflow.checkpoint=False", "dataset.record_length_bytes_stdev=0",
    )  # fmt: skip
    made = workload.Draft(tables.data, "tables").with_settings({})
    assert (made.reader.read_threads, made.reader.prefetch, made.reader.batch_size) == (1, 0, 12288)
    assert (made.dataset.samples_per_file, made.dataset.row_group) == (1536000, 6144)
    photographs = _workload(
        folder, "volumes", "dataset.format=jpeg", "dataset.num_files_train=1170301",
        "dataset.record_length_bytes=322957", "dataset.record_length_bytes_stdev=0", "reader.batch_size=36",
        "reader.read_threads=8", "train.computation_time=0.071325", "workflow.checkpoint=False",
    )  # fmt: skip
    assert (photographs.dataset.format, photographs.dataset.files) == ("jpeg", 1170301)
    assert (photographs.reader.batch_size, photographs.compute.time.mean) == (36, 0.071325)


def test_the_table_of_the_documentation_counts_its_rows() -> None:
    text = (ROOT / "docs/reference/dlio-benchmark-workloads.md").read_text()
    parts = text.partition("## The files of both repositories")[2].split("\n### ")[1:]
    total = [0, 0]
    for part in parts:
        counts = [part.count("| imported |"), part.count("| refused |")]
        assert f"{counts[0]} imported, {counts[1]} refused." in part, part.splitlines()[0]
        total = [left + right for left, right in zip(total, counts, strict=True)]
    assert f"{total[0]} files are imported, {total[1]} are refused" in text
    assert any("6980038d" in part.splitlines()[0] for part in parts)


def test_a_folder_gives_a_table_and_files(folder: Path, run: Run, tmp_path: Path) -> None:
    (folder / "bucket.yaml").write_text(VOLUMES + "storage: {storage_type: s3}\n")
    for given in (folder, folder.parent):
        done = run("dlio-hpc", "import", given, "-o", tmp_path / "made")
        assert done.code == 2, "one of them is refused"
        rows = done.out.splitlines()
        assert rows[0] == "| workload | outcome | dataset | differences |"
        assert [row.split(" | ")[0] for row in rows[2:]] == ["| bucket", "| photos", "| skies", "| texts", "| volumes"]
        assert rows[2].startswith("| bucket | refused | | storage.storage_type: s3: ")
        assert rows[3].startswith("| photos | imported | tfrecord, 136.4 GiB | ")
    assert sorted(path.stem for path in (tmp_path / "made").iterdir()) == ["photos", "skies", "texts", "volumes"]
    assert workload.load(str(tmp_path / "made" / "skies.yaml")).dataset.files == 524288
    assert run("dlio-hpc", "import", tmp_path).code == 2


def test_names_of_workloads_of_dlio_benchmark(folder: Path, run: Run) -> None:
    where = {"DLIO_HPC_DLIO_CONFIGS": str(folder.parent)}
    planned = run("dlio-submit", "dlio:volumes", "-s", "local", "--dry-run", "--json", **where)
    assert planned.code == 0
    (job,) = json.loads(planned.out)["jobs"]
    assert [note for note in job["notes"] if note.startswith("dlio:volumes: reader.file_shuffle: seed: approximated")]
    assert job["notes"][-1].startswith("dlio:volumes: ignored, no effect on requests: ")
    assert "dlio:volumes: model.model_size: 499153191: ignored (did you mean 'model_size_bytes'? " in "".join(
        job["notes"]
    )
    shown = run("dlio-hpc", "workloads", "dlio:photos", **where)
    assert serialization.parse_yaml(shown.out, "stdout")["dataset"]["files"] == 1024
    assert run("dlio-hpc", "workloads", "dlio:photos", "--json", **where).json["dataset"]["files"] == 1024
    assert run("dlio-hpc", "import", "dlio:skies", **where).code == 0
    assert run("dlio-hpc", "estimate", f"dlio:{folder / 'texts.yaml'}", "-s", "local").code == 0
    unknown = run("dlio-submit", "dlio:photo", "-s", "local", **where)
    assert unknown.code == 2
    assert "did you mean 'photos'? give one of: photos, skies, texts, volumes" in unknown.err
    absent = run("dlio-submit", "dlio:photos", "-s", "local", DLIO_HPC_DLIO_CONFIGS=str(folder / "absent"))
    assert absent.code == 2
    assert "DLIO_HPC_DLIO_CONFIGS: " in absent.err


def test_an_installed_dlio_benchmark_is_found_and_not_imported(
    folder: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "set DLIO_HPC_DLIO_CONFIGS to the folder" in run("dlio-submit", "dlio:photos", "-s", "local").err
    package = tmp_path / "site" / "dlio_benchmark"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    folder.parent.rename(package / "configs")
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    assert run("dlio-submit", "dlio:photos", "-s", "local", "--dry-run").code == 0


def test_comments_hold_no_control_characters(folder: Path) -> None:
    text = imported_yaml.write(_imported(folder, "photos", '++workload.dataset.data_folder="a\\nname: b"'))
    assert serialization.parse_yaml(text, "text")["name"] == "photos"


@pytest.mark.job
def test_an_imported_workload_runs(folder: Path, run: Run, tmp_path: Path) -> None:
    """A run reads each sample once per epoch, as dlio_benchmark does with this file."""
    small = (
        "dataset.num_files_train=17", "dataset.record_length_bytes=100000", "dataset.record_length_bytes_stdev=10000",
        "reader.batch_size=2", "train.epochs=2", "train.computation_time=0.001",
    )  # fmt: skip
    target = tmp_path / "w.yaml"
    overrides = [f"++workload.{override}" for override in small]
    assert run("dlio-hpc", "import", folder / "volumes.yaml", *overrides, "-o", target).code == 0
    done = run("dlio-submit", target, "-s", "local", "--ppn", "2", "-d", tmp_path / "data", "--wait", "--json",
               "-S", "reader.loader=native")  # fmt: skip
    assert done.code in {0, 4}, done.err
    result = json.loads(next((tmp_path / "dlio-runs").glob("*/runs/01-measure/result.json")).read_text())
    assert result["summary"]["samples"] == 2 * 16, "the incomplete last batch is dropped"
