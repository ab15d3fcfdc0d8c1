import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.core import content
from dlio_hpc.core.files import OpenFiles
from dlio_hpc.core.formats import FORMATS, npz
from dlio_hpc.core.formats.format import Reader
from dlio_hpc.core.tally import Tally
from dlio_hpc.errors import InfrastructureError, InvalidRun
from dlio_hpc.workload import Dataset, Sample, Workload
from dlio_hpc.workload import Reader as ReaderKeys

_DATASET = Dataset("npz", 3, 5, Sample(shape=(30, 7), dtype="int16"))
_SIZE = _DATASET.sample.size


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(_DATASET.files):
        count = _DATASET.samples_per_file * _SIZE
        npz.write(str(tmp_path / str(number)), _DATASET, content.pieces(number * count, count))
    return tmp_path


def _reader(folder: Path, mode: str, transfer_size: int | None = None) -> Reader:
    keys = ReaderKeys(mode=mode, transfer_size=transfer_size)  # type: ignore[arg-type]
    return FORMATS["npz"].reader(Workload("w", _DATASET, reader=keys), lambda number: str(folder / str(number)))


def _read(reader: Reader, samples: list[int]) -> tuple[list[bytes], Tally]:
    rows, tally = np.empty((len(samples), _SIZE), np.uint8), Tally()
    reader.read(np.array(samples, np.uint64), rows, tally)
    return [row.tobytes() for row in rows], tally


def _expected(samples: list[int]) -> list[bytes]:
    return [b"".join(map(bytes, content.pieces(sample * _SIZE, _SIZE))) for sample in samples]


def test_numpy_reads_what_is_written(folder: Path) -> None:
    with np.load(folder / "1") as archive:
        array = archive["x"]
    assert array.shape == (5, 30, 7)
    assert array.dtype == np.int16
    assert [row.tobytes() for row in array] == _expected([5, 6, 7, 8, 9])


def test_the_data_begin_on_a_page(folder: Path) -> None:
    data = (folder / "0").read_bytes()
    assert data[npz.DATA_OFFSET : npz.DATA_OFFSET + _SIZE] == _expected([0])[0]


@pytest.mark.parametrize("mode", ["floor", "framework"])
@pytest.mark.parametrize("samples", [[0], [14, 0, 7], [5, 6, 7, 8, 9], [3, 3], []])
def test_samples_arrive_whole_in_both_modes(folder: Path, mode: str, samples: list[int]) -> None:
    rows, _ = _read(_reader(folder, mode), samples)
    assert rows == _expected(samples)


@given(st.integers(1, 500), st.lists(st.integers(0, 14), max_size=8))
@settings(max_examples=40)
def test_requests_are_of_the_transfer_size(transfer_size: int, samples: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for number in range(3):
            npz.write(f"{name}/{number}", _DATASET, content.pieces(number * 5 * _SIZE, 5 * _SIZE))
        reader = _reader(Path(name), "floor", transfer_size)
        rows, tally = _read(reader, samples)
        reader.close()
    assert rows == _expected(samples)
    assert tally.bytes_read == len(samples) * _SIZE
    assert len(tally.starts) == len(tally.ends) == len(samples) * -(-_SIZE // min(transfer_size, _SIZE))
    assert tally.opens == len({sample // 5 for sample in samples})


def test_the_framework_reads_the_whole_array_and_says_so(folder: Path) -> None:
    reader = _reader(folder, "framework")
    _, tally = _read(reader, [0, 1])
    assert tally.bytes_read == 5 * _SIZE
    assert tally.opens == 1
    assert tally.overhead_bytes >= npz.DATA_OFFSET
    _, again = _read(reader, [2])
    assert again.opens == again.bytes_read == 0, "the array loaded last is kept"
    reader.close()
    _, after = _read(reader, [2])
    assert after.opens == 1


def test_writing_over_leaves_the_same_bytes(folder: Path) -> None:
    before = (folder / "0").read_bytes()
    with (folder / "0").open("ab") as file:
        file.write(b"left over")
    npz.write(str(folder / "0"), _DATASET, content.pieces(0, 5 * _SIZE))
    assert (folder / "0").read_bytes() == before
    assert zipfile.ZipFile(folder / "0").testzip() is None


@pytest.mark.parametrize("mode", ["floor", "framework"])
def test_missing_cut_and_foreign_files(folder: Path, mode: str) -> None:
    os.truncate(folder / "0", npz.DATA_OFFSET + _SIZE + 10)
    (folder / "1").unlink()
    with pytest.raises(InvalidRun, match=str(folder / "0")):
        _read(_reader(folder, mode), [1])
    with pytest.raises(InvalidRun, match=str(folder / "1")):
        _read(_reader(folder, mode), [5])
    np.savez(folder / "2.npz", x=np.zeros((5, 30, 8), np.int16))
    (folder / "2.npz").rename(folder / "2")
    if mode == "framework":
        with pytest.raises(InvalidRun, match=r"shape \(5, 30, 8\), expected \(5, 30, 7\)"):
            _read(_reader(folder, mode), [10])


def test_a_cut_file_is_told_with_offset_and_what_was_expected(folder: Path) -> None:
    os.truncate(folder / "0", npz.DATA_OFFSET + _SIZE + 10)
    start = npz.DATA_OFFSET + _SIZE
    with pytest.raises(InvalidRun, match=f"ends at byte {start + 10}, .* expected from {start} to {start + _SIZE}"):
        _read(_reader(folder, "floor"), [1])


def test_open_files_are_shared_and_bounded(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / str(number)).write_bytes(b"x")
    before = len(os.listdir("/proc/self/fd"))
    files = OpenFiles(lambda number: str(tmp_path / str(number)))
    tallies = [Tally() for _ in range(4)]

    def use(tally: Tally) -> None:
        for number in range(50):
            with files.descriptor(number, tally) as (descriptor, _):
                assert os.pread(descriptor, 1, 0) == b"x"

    threads = [threading.Thread(target=use, args=(tally,)) for tally in tallies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(tally.opens for tally in tallies) == 50
    for number in range(50, 100):
        with files.descriptor(number, tallies[0]):
            pass
    assert len(os.listdir("/proc/self/fd")) - before <= 64
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("damage", [b"", b"PK", b"\x93NUMPY" * 700, None])
def test_the_framework_names_files_it_cannot_make_sense_of(folder: Path, damage: bytes | None) -> None:
    whole = (folder / "0").read_bytes()
    content = whole[:60] + b"{{{(" + whole[64:] if damage is None else damage
    (folder / "0").write_bytes(content)
    with pytest.raises(InvalidRun, match=str(folder / "0")):
        _read(_reader(folder, "framework"), [0])


def test_a_file_that_cannot_be_read_is_told_with_its_offset(folder: Path) -> None:
    (folder / "0").unlink()
    (folder / "0").mkdir()
    with pytest.raises(InfrastructureError, match=f"cannot read {folder}/0 at byte {npz.DATA_OFFSET}: Is a directory"):
        _read(_reader(folder, "floor"), [0])


@pytest.mark.parametrize("mode", ["floor", "framework"])
def test_a_file_of_the_right_size_and_other_contents_is_found(folder: Path, mode: str) -> None:
    npz.write(str(folder / "1"), _DATASET, content.pieces(12345, 5 * _SIZE))
    assert _read(_reader(folder, mode), [0])[0] == _expected([0])
    with pytest.raises(InvalidRun, match=f"{folder}/1: sample 5 begins with .* this is not what was generated"):
        _read(_reader(folder, mode), [5])
