"""Samples are compared with the generated contents: any single wrong bit is found, through every loader."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import Size
from dlio_hpc.config import shipped, site
from dlio_hpc.config import workload as workloads
from dlio_hpc.config.dataset_keys import Chunk, Dataset, Sample
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.loaders.loader import Loader
from dlio_hpc.core.loaders.loader_choice import LOADERS, Inputs
from dlio_hpc.core.loaders.memory import MemoryLoader
from dlio_hpc.dataset import rank_shares
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.plan import run_plan, study, study_file
from dlio_hpc.plan.study import Study
from tests.conftest import Run
from tests.support import written

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",  # warnings of the frameworks themselves
    "ignore::UserWarning",
)

_SAMPLE = Sample(shape=(9, 11), dtype="float32")
_BYTES = 9 * 11 * 4
_BATCH = 4
# The third sample of its batch, in the second file.
_WRONG = 10


def _dataset(kind: str, **keys: Any) -> Dataset:
    return Dataset(kind, files=2, samples_per_file=8, sample=keys.pop("sample", _SAMPLE), **keys)  # type: ignore[arg-type]


def _path(folder: Path, number: int) -> str:
    return str(folder / str(number))


def _write(folder: Path, dataset: Dataset, bit: int | None = None) -> None:
    """Write the dataset with one wrong bit in its contents; the files are sound and have the right checksums."""
    fill = content.fill

    def with_fault(row: content.Rows, first: int, *compressibility: content.Compressibility) -> None:
        fill(row, first, *compressibility)
        if bit is not None and first <= bit // 8 < first + len(row):
            row[bit // 8 - first] ^= 1 << bit % 8

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "fill", with_fault)
        for number in range(dataset.files):
            written.write(_path(folder, number), dataset, number)


def _open(workload: Workload, folder: Path, steps: int) -> Loader:
    return LOADERS[workload.reader.loader](Inputs(workload, partial(_path, folder), steps))


def _compared(folder: Path, dataset: Dataset, **keys: Any) -> int:
    """Return the number of samples that one rank compared in an epoch."""
    in_memory = keys.pop("load", None) == "memory"
    workload = Workload("w", dataset, reader=Reader(batch_size=_BATCH, **keys))
    steps = rank_shares.steps_per_epoch(workload, 1)
    loader = _open(workload, folder, steps)
    if in_memory:
        loader = MemoryLoader(workload, loader, steps, 1)
    verification = Verification(workload, partial(_path, folder))
    order = Order(workload.dataset, workload.reader, 0)
    try:
        return sum(verification(batch) for batch in loader.epoch(order, 0, dataset.samples, steps))
    finally:
        loader.close()


_PLAIN = [_dataset(kind) for kind in ("npz", "raw", "tfrecord", "hdf5", "csv")]
_SEVERAL = [
    _dataset(kind, sample=Sample(bytes=Size(_BYTES)), arrays=(Size(100), Size(200), Size(_BYTES - 300)))
    for kind in ("npz", "hdf5")
]
_PACKED = [
    _dataset("npz", compression="gzip", random_bits=8),
    _dataset("hdf5", compression="gzip", compression_ratio=2.0),
    _dataset("hdf5", chunk=Chunk(bytes=Size(100))),
    _dataset("tfrecord", sample=Sample(bytes=Size(_BYTES), stdev=Size(1))),
]
_WAYS = [(dataset, mode) for dataset in (*_PLAIN, *_SEVERAL, *_PACKED) for mode in ("posix", "framework")]


def _named(value: Any) -> str:
    arrays = f" {len(value.arrays)} arrays" if isinstance(value, Dataset) and value.arrays else ""
    return f"{value.format} {value.compression}{arrays}" if isinstance(value, Dataset) else str(value)


@pytest.mark.parametrize("loader", [*LOADERS, "memory"])
@pytest.mark.parametrize(("dataset", "mode"), _WAYS, ids=_named)
def test_a_wrong_bit_of_any_sample_is_found(tmp_path: Path, dataset: Dataset, mode: str, loader: str) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    keys = {"load": "memory"} if loader == "memory" else {"loader": loader}
    keys["mode"] = mode
    sound, wrong = tmp_path / "sound", tmp_path / "wrong"
    for folder, bit in ((sound, None), (wrong, 8 * (_WRONG * _BYTES + 123) + 5)):
        folder.mkdir()
        _write(folder, dataset, bit)
    with pytest.raises(InvalidRun, match=rf"{wrong}/1: sample {_WRONG} has 0x.. at its byte 1..?, expected 0x..:"):
        _compared(wrong, dataset, verify_content="all", **keys)
    assert _compared(wrong, dataset, verify_content="first", **keys) == 4
    assert _compared(wrong, dataset, verify_content="none", **keys) == 0
    assert _compared(sound, dataset, verify_content="all", **keys) == dataset.samples


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*_PLAIN, *_SEVERAL]), st.integers(0, 8 * 16 * _BYTES - 1))
def test_no_bit_is_passed_over(tmp_path: Path, dataset: Dataset, bit: int) -> None:
    for left in tmp_path.iterdir():
        left.unlink()  # HDF5 keeps a file open that it cannot read to its end
    _write(tmp_path, dataset, bit)
    sample = bit // 8 // _BYTES
    with pytest.raises(InvalidRun, match=f"{tmp_path}/{sample // 8}: sample {sample} has"):
        _compared(tmp_path, dataset, verify_content="all", read_threads=2)


def test_samples_larger_than_a_block_are_compared_to_their_end(tmp_path: Path) -> None:
    size = 2 * content.BLOCK + 5
    dataset = Dataset("raw", files=1, samples_per_file=2, sample=Sample(bytes=Size(size)))
    _write(tmp_path, dataset, 8 * (2 * size - 1))
    with pytest.raises(InvalidRun, match=f"sample 1 has 0x.. at its byte {size - 1}, "):
        _compared(tmp_path, dataset, verify_content="all")


def test_a_bit_that_is_wrong_on_its_way_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are sound, but a request returns other bytes."""
    dataset = _dataset("npz")
    _write(tmp_path, dataset)
    preadv = os.preadv

    def wrong(descriptor: int, views: list[memoryview], offset: int) -> int:
        count = preadv(descriptor, views, offset)
        if offset == 4096 + 3 * _BYTES:
            views[0][100] ^= 1
        return count

    monkeypatch.setattr(os, "preadv", wrong)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0: sample 3 has 0x.. at its byte 100"):
        _compared(tmp_path, dataset, verify_content="all")
    assert _compared(tmp_path, dataset, verify_content="first") == 4


def _planned(*overrides: str, **changes: Any) -> Study:
    file = _changed(study_file.load(str(shipped.find(shipped.SUITES, "acceptance"))), **changes)
    machine = site.load("local")
    parts = study_file.asked_of(file, machine, study_file.FileChanges(overrides=overrides))
    about = study.About(warmup_set=file.warmup_set)
    return study.make("s", parts, study.JobRequest(Path("/runs"), data=Path("/data"), warmup=1), about)


def _changed(file: study_file.StudyFile, **changes: Any) -> study_file.StudyFile:
    return serialization.convert(serialization.plain(file) | changes, study_file.StudyFile, "suite")


def test_the_acceptance_suite_compares_everything_as_it_warms_up() -> None:
    made = _planned()
    for point in made.points:
        warm, measure = (run_plan.of_point(made, point, kind, kind, "j") for kind in ("warmup", "measure"))
        assert warm.workload.reader.verify_content == "all"
        assert measure.workload.reader.verify_content == "first"
        assert warm.dataset == measure.dataset


def test_what_a_warm_up_is_given_has_to_be_a_key_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"warmup_set: dataset.files cannot differ in warm-ups"):
        _planned(warmup_set={"dataset.files": 3})
    made = _planned(warmup_set={"reader.verify_contents": "all"})
    with pytest.raises(ConfigError, match="verify_contents"):
        run_plan.of_point(made, made.points[0], "warmup", "warmup", "j")


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reader.verify_content: the null format has no content to compare"):
        workloads.load("null", ("reader.verify_content=all",))


def test_comparing_is_no_part_of_wait_compute_and_sync(run: Run, small: Path) -> None:
    keys = ("reader.verify_content=all", "reader.load=memory", "dataset.sample={bytes: 16 MiB}", "dataset.files=2")
    options = [word for key in (*keys, "compute.time=0", "reader.batch_size=1") for word in ("-S", key)]
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, *options, "--wait", "--json")
    assert done.code == 0, done.err
    result = done.job["runs"][-1]["result"]
    summary, later = result["summary"], result["epochs"][1]
    assert summary["samples_verified"] == summary["samples"] == 20
    assert later["verify_s"] > 0.005
    assert summary["verify_s"] == pytest.approx(sum(epoch["verify_s"] for epoch in result["epochs"]))
    parts = sum(later[name] for name in ("wait_s", "compute_s", "sync_s"))
    assert parts + 0.5 * later["verify_s"] <= later["wall_s"], "but for the last of five steps it is in there"
    assert (
        "each batch is compared with the generated content after its step"
        in json.loads(Path(done.job["directory"], "plan.json").read_text())["notes"][0]
    )
    assert "20 samples are as generated" in run("dlio-hpc", "report", done.job["directory"]).out


def test_a_run_with_a_wrong_bit_is_invalid(run: Run, small: Path, tmp_path: Path) -> None:
    plain = ("-S", "reader.shuffle={}", "-s", "local", "--ppn", 2, "--wait", "--json")
    assert run("dlio-submit", small, *plain, "--generate", "only").code == 0
    (path,) = (tmp_path / "dlio-data").glob("npz-*/00000002.npz")
    with path.open("r+b") as file:
        file.seek(4096 + 3 * 12_000 + 77)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    assert run("dlio-submit", small, *plain).code == 0
    done = run("dlio-submit", small, *plain, "-S", "reader.verify_content=all")
    assert done.code == 3
    assert f"00000002.npz: sample 13 has {byte ^ 4:#04x} at its byte 77, expected {byte:#04x}" in done.err
    assert np.frombuffer(path.read_bytes(), np.uint8)[4096 + 3 * 12_000 + 77] == byte ^ 4
