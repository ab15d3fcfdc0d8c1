"""Formats of which raw files are special kinds: their names, their first bytes, and the sizes of their samples."""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.files import content_sniff, named_formats
from dlio_hpc.programs.files.named_formats import NamedFormat


def _keys(**changes: Any) -> dict[str, DerivedValue]:
    values = {
        "dataset.format": "raw", "dataset.samples_per_file": 1, "dataset.sample.bytes": 5000, "reader.mode": "posix",
        "reader.transfer_size": None, "reader.shuffle.samples": False, "compute.time": 0.02,
    }  # fmt: skip
    values |= {name.replace("__", "."): value for name, value in changes.items()}
    return {name: DerivedValue(value, "medium", "why") for name, value in values.items()}


def _fitted(name: Any, file_size: int, is_mapped: bool = False, **changes: Any) -> dict[str, Any]:
    keys = named_formats.fitted(_keys(**changes), NamedFormat(name, "ending"), file_size, is_mapped)
    return {name: value.value for name, value in keys.items()}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.jpg", "b.JPEG"], "jpeg"),
        (["a.png"] * 9 + ["b.txt"], "png"),
        (["a.png"] * 8 + ["b.txt"] * 2, None),
        (["x.npy"], "npy"),
        (["train-000.tar", "train-001.tar"], "tar"),
        (["a.bin"], None),
        ([], None),
    ],
)
def test_names_show_the_format(names: list[str], expected: str | None) -> None:
    form = named_formats.of_names(names)
    assert (form and form.name) == expected


def test_the_first_bytes_show_the_format(tmp_path: Path) -> None:
    """The files have misleading names, and are written by the libraries of their formats."""
    picture = Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3))
    for kind in ("jpeg", "png"):
        picture.save(tmp_path / f"{kind}.dat", format=kind.upper())
    np.save(io_npy := io.BytesIO(), np.arange(5))
    (tmp_path / "npy.dat").write_bytes(io_npy.getvalue())
    with tarfile.open(tmp_path / "tar.dat", "w") as archive:
        archive.addfile(tarfile.TarInfo("000.jpg"), io.BytesIO())
    for name in ("jpeg", "png", "npy", "tar"):
        content = content_sniff.look({str(tmp_path / f"{name}.dat"): 1})
        assert content is not None
        assert content.form is not None
        assert (content.name, content.form.name) == ("raw", name)
    (tmp_path / "short.dat").write_bytes(b"ustar")
    assert content_sniff.look({str(tmp_path / "short.dat"): 1}) is None


def test_images_are_whole_samples() -> None:
    made = _fitted("jpeg", 5000, reader__transfer_size=4096)
    assert made == {
        "dataset.format": "jpeg", "reader.mode": "framework", "compute.time": 0.02, "reader.transfer_size": None
    }  # fmt: skip
    assert _fitted("png", 5000, dataset__samples_per_file=3) == {}
    assert _fitted("png", 1000, dataset__sample__bytes=1000) == {}  # no PNG file of the workload is as small
    assert _fitted("jpeg", 5000, dataset__format="npz") == {}


def test_a_header_precedes_the_array_of_a_npy_file() -> None:
    made = _fitted("npy", 5128, dataset__sample__bytes=5128)
    assert (made["dataset.sample.bytes"], made["reader.mode"]) == (5000, "framework")
    assert "dataset.sample.bytes" not in _fitted("npy", 5128)  # the size of the array is known
    rows = _fitted("npy", 5000 * 7 + 128, dataset__samples_per_file=8)
    assert rows == {"dataset.format": "npy", "dataset.samples_per_file": 7}
    mapped = _fitted("npy", 5000 * 7 + 128, True, dataset__samples_per_file=8, reader__transfer_size=4096)
    assert (mapped["reader.mapped"], mapped["reader.mode"], mapped["reader.transfer_size"]) == (True, "framework", None)
    assert _fitted("jpeg", 5000, True) == {}  # no library maps images


def test_members_of_archives_have_headers() -> None:
    """A sample of 5000 B takes a header of 512 B and 120 B of padding."""
    made = _fitted("tar", 40 * 5632 + 10240, dataset__samples_per_file=40, reader__transfer_size=10240)
    assert 4800 <= made["dataset.sample.bytes"] <= 5400
    assert (made["reader.mode"], "reader.transfer_size" in made) == ("framework", False)
    assert _fitted("tar", 40 * 5632, dataset__samples_per_file=40, reader__transfer_size=8192)[
        "reader.transfer_size"
    ] is None  # fmt: skip
    in_any_order = _fitted("tar", 40 * 5632, dataset__samples_per_file=40, reader__shuffle__samples=True)
    assert "reader.mode" not in in_any_order
    assert _fitted("tar", 40 * 600, dataset__samples_per_file=40) == {}


def test_names_show_the_compression_of_records() -> None:
    keys = _keys(dataset__format="tfrecord", reader__shuffle__files=True)
    made = named_formats.compression(keys, ["a.tfrecord.gz"] * 3)
    assert made["dataset.compression"] == DerivedValue("gzip", "high", "3 of 3 files end in .gz")
    assert named_formats.compression(keys, ["a.tfrecord.gz", "b.tfrecord"]) == {}
    mixed = keys | {"reader.shuffle.samples": DerivedValue(True, "medium", "why")}
    assert named_formats.compression(mixed, ["a.tfrecord.gz"]) == {}, "no workload has it"
    assert named_formats.compression(_keys(reader__shuffle__files=True), ["a.bin.gz"]) == {}


def test_indexes_and_metadata_beside_the_files_show_the_format() -> None:
    tokens = named_formats.of_names(["/d/a.bin", "/d/b.bin"], {"/d/a.idx", "/d/b.idx"})
    assert (tokens and tokens.name) == "indexed"
    assert named_formats.of_names(["/d/a.bin", "/d/b.bin"], {"/d/a.idx"}) is None
    for names in (["0.0", "0.1"], ["c/0/0", "c/0/1"], ["0/0", "0/1"], ["c.0.0", "c.0.1"]):
        for metadata in (".zarray", "zarr.json"):
            paths = [f"/d/{array}.zarr/t/{name}" for array in ("a", "b") for name in names]
            form = named_formats.of_names(paths, {"/d/a.zarr/t/" + metadata, "/d/b.zarr/t/" + metadata})
            assert (form and (form.name, form.stores)) == ("zarr", 2), paths
    assert named_formats.of_names(["/d/1/2", "/d/1/3"], {"/d/readme"}) is None
    assert named_formats.is_part("/d/a.zarr/.zattrs", "zarr")
    assert named_formats.is_part("/d/a.idx", "indexed")
    assert not named_formats.is_part("/d/a.idx", "raw")


def test_chunks_are_samples_of_their_arrays() -> None:
    keys = _keys(
        dataset__files=24, reader__batch_size=8, reader__shuffle__files=True, reader__interleave=None,
        dataset__sample__stdev=30, reader__reopen=False,
    )  # fmt: skip
    form = NamedFormat("zarr", "chunks", 2)
    made = keys | named_formats.fitted(keys, form, 5000)
    named_formats.withdraw(made)
    assert {key: made[key].value for key in ("dataset.files", "dataset.samples_per_file", "dataset.sample.bytes")} == {
        "dataset.files": 2, "dataset.samples_per_file": 12, "dataset.sample.bytes": 5000
    }  # fmt: skip
    assert (made["reader.shuffle.samples"].value, made["reader.shuffle.files"].value) == (True, True)
    assert made["reader.batch_size"].confidence == "low"
    assert not {"reader.interleave", "dataset.sample.stdev", "reader.reopen"} & set(made)
    several = _keys(
        dataset__files=24, dataset__samples_per_file=3, reader__shuffle__files=True, reader__batch_size=8
    )  # fmt: skip
    known = named_formats.fitted(several, NamedFormat("zarr", "chunks", 1), 15000)
    assert (known["dataset.samples_per_file"].value, known["dataset.chunk"].value) == (72, 15000)
    assert known["reader.shuffle.files"].confidence == "unknown"


def test_sequences_that_are_opened_one_by_one_are_read_as_megatron_reads_without_maps() -> None:
    form = NamedFormat("indexed", "index")
    keys = _keys(dataset__samples_per_file=50, reader__reopen=True)
    assert named_formats.fitted(keys, form, 250_000)["reader.mode"].value == "framework"
    assert set(named_formats.fitted(_keys(dataset__samples_per_file=50), form, 250_000)) == {"dataset.format"}
    assert named_formats.fitted(_keys(), form, 5000) == {}, "a file of one sample is no sequence of documents"
