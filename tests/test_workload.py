from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc import document, plan, shipped, site, units, workload
from dlio_hpc.errors import ConfigError
from dlio_hpc.workload import Dataset, Sample, Workload


@pytest.mark.parametrize("name", shipped.names(shipped.WORKLOADS))
def test_every_shipped_workload_can_be_planned_on_every_shipped_site(name: str, tmp_path: Path) -> None:
    for known in shipped.names(shipped.SITES):
        made = plan.make(workload.load(name), site.load(known), plan.Request(runs=tmp_path, data=tmp_path))
        assert made.runs


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dataset.format=hdf9", "dataset.format: found 'hdf9'; use one of: csv, hdf5, npz, null, tfrecord"),
        ("reader.batchsize=3", "reader: unknown key 'batchsize'; did you mean 'batch_size'?"),
        ("reader.shuffle.seeds=3", "reader.shuffle: unknown key 'seeds'; did you mean 'seed'?"),
        ("dataset.files=0", "dataset.files: expected `int` >= 1, found 0"),
        ("dataset.files=many", "dataset.files: expected `int`, got `str`, found 'many'"),
        ("dataset.sample.shape=[3, x]", "dataset.sample.shape[1]: expected `int`, got `str`, found 'x'"),
        ("dataset.sample.bytes=4KiB", "dataset.sample: give either shape"),
        ("dataset.sample=null", "dataset.sample: expected `object`"),
        ("dataset.layout=shared", "dataset: layout: shared means one file, found files: 64"),
        ("reader.transfer_size=1 XB", "reader.transfer_size: expected a size"),
        ("reader.prefetch=1", "reader: prefetch: 1 batches would leave some of 2 read_threads idle"),
        ("compute.time=soon", "compute.time.mean: expected a duration"),
        ("train.epochs=1.5", "train.epochs: expected `int`, got `float`, found 1.5"),
        ("train.epochs=true", "train.epochs: expected `int`, got `bool`, found True"),
        ("name=''", "name must not be empty"),
        ("name.x=1", "name holds a value, not keys"),
        ("dataset.files", "write key=value"),
        ("dataset.files=[1", "-S dataset.files=[1: line 2 not valid YAML"),
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
        ("", "a mapping of keys is needed"),
        ("- 1", "a mapping of keys is needed"),
        ("name: a\nname: b\n", "key 'name' twice"),
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
    [("1:30:00", "1:30:00"), ("1e-3", 1e-3), ("on", "on"), ("0x10", "0x10"), ("010", "010"), ("-3", -3), (".5", 0.5),
     ("~", None), ("true", True), ("2026-01-01", "2026-01-01"), ("", None)],
)  # fmt: skip
def test_yaml_is_read_as_1_2_reads_it(text: str, value: object) -> None:
    assert document.parse_yaml(f"key: {text}", "here") == {"key": value}


@given(
    files=st.integers(1, 2000), samples=st.integers(1, 500), sample=st.integers(1, 10**6), size=st.integers(1, 10**10),
    ranks=st.integers(1, 64),
)  # fmt: skip
def test_a_shrunk_dataset_keeps_the_sample_and_fits(
    files: int, samples: int, sample: int, size: int, ranks: int
) -> None:
    whole = Workload("w", Dataset("npz", files, samples, Sample(bytes=units.Size(sample))))
    if size < sample:
        with pytest.raises(ConfigError, match="holds no sample"):
            workload.shrunk(whole, size, ranks)
        return
    small = workload.shrunk(whole, size, ranks).dataset
    assert small.sample == whole.dataset.sample
    assert small.size <= max(size, 0) or small.size <= whole.dataset.size <= size
    assert small.files <= files
    assert small.samples_per_file <= samples
    if small.files > ranks:
        assert small.samples_per_file == samples
    if size >= whole.dataset.size:
        assert small == whole.dataset


def test_framework_readers_choose_their_own_transfer_size() -> None:
    with pytest.raises(ConfigError, match="transfer_size goes with mode: floor"):
        workload.load("demo", ("reader.mode=framework", "reader.transfer_size=4096"))
    made = plan.resolved(workload.load("demo", ("reader.mode=framework",)))
    assert made.reader.transfer_size is None


def test_a_plan_has_nothing_implicit() -> None:
    made = plan.resolved(replace(workload.load("demo"), reader=workload.Reader(read_threads=3)))
    assert made.reader.prefetch == 6
    assert made.reader.transfer_size == 2**20
    assert made.dataset.sample.dtype == "float32"
