"""The format of files by their content: each format, and files that show nothing or must not be read."""

import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dlio_hpc.darshan import log_reader
from dlio_hpc.programs.characterize import derive
from dlio_hpc.programs.files import content_sniff, file_formats
from dlio_hpc.programs.files.content_sniff import FileContent
from dlio_hpc.programs.files.file_stats import FileStats
from tests.conftest import Run
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced


def _look(path: Path, least: int = 0) -> FileContent | None:
    return content_sniff.look({str(path): least})


def _record(size: int) -> bytes:
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", content_sniff.masked_crc(length)) + bytes(size + 4)


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_the_checksum_is_that_of_tfrecord() -> None:
    tfrecord = pytest.importorskip("dlio_hpc.core.formats.tfrecord")
    pytest.importorskip("google_crc32c")
    for size in (0, 1, 255, 1 << 40):
        data = struct.pack("<Q", size)
        assert content_sniff.masked_crc(data) == tfrecord.masked_crc(data)


def test_hdf5_by_its_signature(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "data.bin"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros(4)
    content = _look(path)
    assert content is not None
    assert content.name == "hdf5"
    assert f"the file {path} begins with the signature of HDF5" in content.evidence
    assert content.sample_bytes is None


def test_parquet_by_its_signature(tmp_path: Path) -> None:
    content = _look(_written(tmp_path / "part-0", b"PAR1" + bytes(100) + b"PAR1"))
    assert content is not None
    assert (content.name, content.sample_bytes) == ("parquet", None)


def test_npz_by_the_name_of_its_member(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", samples=np.zeros(4))
    content = _look(tmp_path / "x.npz")
    assert content is not None
    assert (content.name, content.evidence.endswith("samples.npy")) == ("npz", True)
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("readme.txt", "text")
    assert _look(tmp_path / "other.npz") is None


@pytest.mark.parametrize("sizes", [[100], [100, 300, 200], [200_000] * 3, [10] * 100, [1 << 20] * 2 + [5]])
def test_tfrecord_by_its_heads(tmp_path: Path, sizes: list[int]) -> None:
    path = _written(tmp_path / "data", b"".join(map(_record, sizes)))
    content = _look(path)
    assert content is not None
    some = sizes[:64]
    assert (content.name, content.sample_bytes) == ("tfrecord", sorted(some)[len(some) // 2])
    assert (f"first {len(some)} records of {path}" in content.sizes) == (len(some) > 1)


def test_a_cut_record_is_left_out(tmp_path: Path) -> None:
    content = _look(_written(tmp_path / "data", (_record(100) * 2 + _record(9_000))[:-1]))
    assert content is not None
    assert content.sizes.startswith("the lengths of the first 2 records")
    assert content.sample_bytes == 100
    assert _look(_written(tmp_path / "cut", _record(9_000)[:-1])) is None


def test_a_wrong_checksum_is_no_tfrecord(tmp_path: Path) -> None:
    wrong = bytearray(_record(100))
    wrong[8] ^= 1
    assert _look(_written(tmp_path / "data", bytes(wrong))) is None


@pytest.mark.parametrize(
    ("text", "is_csv"),
    [
        ("a,b,c\n1,2,3\n4,5,6\n", True),
        ("\ufeffa,b\r\n1,2\r\n", True),
        ("a,b\n" * 40_000, True),
        ("1,2\n3,4", True),
        ("a,b,c\n1,2\n", False),
        ("one line, of text\n", False),
        ("a\nb\nc\n", False),
        ('{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n', False),
        ("a,b\n1,\x00\n", False),
    ],
)
def test_csv_by_equal_numbers_of_values(tmp_path: Path, text: str, is_csv: bool) -> None:
    content = _look(_written(tmp_path / "data", text.encode()))
    assert (content is not None and content.name == "csv") == is_csv


@pytest.mark.parametrize(
    "content", [b"", b"P", b"PK\x03\x04", b"\x89HDF", b"\x00" * 11, b"\xff\xfe\n,\n,\n", bytes(70_000)]
)
def test_what_shows_nothing(tmp_path: Path, content: bytes) -> None:
    assert _look(_written(tmp_path / "data", content)) is None


def test_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO without a writer would block, and a device may react to being opened."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("opened"))
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero"), tmp_path / "none", tmp_path / "loop"):
        assert _look(path) is None
    assert content_sniff.look({"a\0b": 0}) is None


def test_a_fifo_that_takes_the_place_of_a_file_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    regular = os.stat(_written(tmp_path / "file", _record(1)))
    monkeypatch.setattr(os, "stat", lambda _: regular)
    assert _look(tmp_path / "fifo") is None


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _written(tmp_path / "data", _record(100))

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    for call in ("pread", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            assert _look(path) is None
    assert _look(path) is not None


def test_a_smaller_file_of_the_same_path_is_another_file(tmp_path: Path) -> None:
    path = _written(tmp_path / "data", _record(100))
    assert _look(path, 116) is not None
    assert _look(path, 117) is None


def test_four_files_are_tried(tmp_path: Path) -> None:
    path = _written(tmp_path / "data", _record(100))
    absent = {str(tmp_path / f"absent{number}"): 0 for number in range(4)}
    assert content_sniff.look({**absent, str(path): 0}) is None
    absent.popitem()
    assert content_sniff.look({**absent, str(path): 0}) is not None


def _stats(path: Path) -> FileStats:
    return FileStats(str(path), 100, 0, 1, 0, 1, 0, path.stat().st_size, 1, None, None, 0, 0)


def test_content_decides_where_the_name_is_wrong(tmp_path: Path) -> None:
    path = _written(tmp_path / "data.h5", _record(100) * 3)
    by_name, by_content = (file_formats.detect([_stats(path)], None, reads) for reads in (False, True))
    assert (by_name.name.value, by_name.sample_bytes) == ("hdf5", None)
    assert (by_content.name.value, by_content.name.confidence, by_content.streams) == ("tfrecord", "high", True)
    assert by_content.sample_bytes is not None
    assert (by_content.sample_bytes.value, by_content.sample_bytes.confidence) == (100, "medium")
    text = _written(tmp_path / "text.h5", b"nothing that is known")
    assert file_formats.detect([_stats(text)], None, True) == file_formats.detect([_stats(text)], None)


def _log_of(data: Path, log: Path, sizes: list[int]) -> None:
    """Write a log of a program that reads three files as TensorFlow does."""
    data.mkdir()
    traces = []
    for number in range(3):
        size = _written(data / f"{number}.data", b"".join(map(_record, sizes))).stat().st_size
        starts = range(0, size, 256 << 10)
        rows = [(at, min(256 << 10, size - at), 1 + number + at / 1e8, 1.001 + number + at / 1e8) for at in starts]
        traces.append(Traced(str(data / f"{number}.data"), 0, [*rows, (size, 0, number + 1.9, number + 1.9)]))
    counted = darshanlog.counters_of(traces)
    for (_, _, values), trace in zip(counted, traces, strict=True):
        values["MAX_BYTE_READ"] = trace.reads[-1][0] - 1
    darshanlog.write(log, 1, traces, counted=counted)


@pytest.mark.parametrize("traced", [True, False])
def test_the_size_of_samples_comes_from_the_files(tmp_path: Path, run: Run, traced: bool) -> None:
    _log_of(tmp_path / "files", tmp_path / "a.darshan", [90_000] * 30)
    if not traced:
        log = log_reader.load(tmp_path / "a.darshan")
        made = derive.derive(log, None, lambda _: True, True, True)
        assert (made.keys["dataset.sample.bytes"].value, made.keys["dataset.samples_per_file"].value) == (90_000, 30)
        return
    command = ("dlio-hpc", "characterize", tmp_path / "a.darshan", "--force", "--json")
    known, unread = (run(*command, *more).json["estimates"] for more in ((), ("--no-content",)))
    sample = known["dataset.sample.bytes"]
    assert (sample["value"], sample["confidence"]) == (90_000, "medium")
    assert sample["evidence"] == f"the lengths of the first 30 records of {tmp_path}/files/0.data"
    assert known["dataset.samples_per_file"]["value"] == 30
    assert (known["dataset.format"]["value"], known["dataset.format"]["confidence"]) == ("tfrecord", "high")
    assert unread["dataset.sample.bytes"] != sample
    assert "the checksum of this head is right" not in unread["dataset.format"]["evidence"]
    for path in (tmp_path / "files").iterdir():
        path.unlink()
    assert run(*command).json["estimates"] == unread, "a log from another machine"
