"""Generated files reach the requested compression ratio under gzip."""

import tempfile
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import Size
from dlio_hpc.config import workload as workloads
from dlio_hpc.config.dataset_keys import Chunk, Dataset, Sample
from dlio_hpc.core import content
from dlio_hpc.core.compression import compressibility
from dlio_hpc.dataset import fingerprints
from tests.support import written

_RATIOS = st.floats(1, 6)
_LEVELS = st.integers(1, 9)


def _ratio(dataset: Dataset, number: int) -> float:
    """Bytes of samples in file `number` over the bytes that they take up in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        written.write(str(path), dataset, number)
        if dataset.format == "npz":
            with zipfile.ZipFile(path) as archive:
                return dataset.samples_per_file * dataset.sample_bytes / archive.getinfo("x.npy").compress_size
        with h5py.File(path) as file:
            return float(file["x"].nbytes / file["x"].id.get_storage_size())


def _dataset(kind: str, ratio: float, level: int, sample: Sample, **keys: Any) -> Dataset:
    count = -(-(1 << 20) // sample.size)
    return Dataset(
        kind,  # type: ignore[arg-type]
        files=1 << 30,
        samples_per_file=count,
        sample=sample,
        compression="gzip",
        level=level,
        compression_ratio=ratio,
        **keys,
    )


@settings(max_examples=25, deadline=None)
@given(_RATIOS, _LEVELS, st.integers(1000, 300_000), st.integers(0, 1 << 29))
def test_an_archive_compresses_as_asked(ratio: float, level: int, size: int, number: int) -> None:
    dataset = _dataset("npz", ratio, level, Sample(bytes=Size(size)))
    assert _ratio(dataset, number) == pytest.approx(ratio, rel=0.01)


@settings(max_examples=25, deadline=None)
@given(_RATIOS, _LEVELS, st.integers(1000, 300_000), st.integers(8 << 10, 1 << 20), st.integers(0, 1 << 29))
def test_chunks_compress_as_asked(ratio: float, level: int, size: int, chunk: int, number: int) -> None:
    sample = Sample(bytes=Size(size), stdev=Size(1))  # samples lie end to end in the file's array and in its chunks
    count = -(-(1 << 20) // chunk) * chunk // size + 1
    whole = Dataset("hdf5", files=1 << 30, samples_per_file=count, sample=sample)
    chunk = min(chunk, whole.array_shape[0])
    made = _dataset("hdf5", ratio, level, sample, chunk=Chunk(bytes=Size(chunk)))
    measured = _ratio(made, number)
    padded = -(-made.array_shape[0] // chunk) * chunk / made.array_shape[0]  # the last chunk is stored whole
    assert measured == pytest.approx(ratio, rel=0.01 + padded - 1)


@pytest.mark.parametrize("level", range(1, 10))
@pytest.mark.parametrize("ratio", [1.0, 1.06, 1.35, 2.0, 4.0, 6.0])
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("npz", {}),
        ("hdf5", {}),
        ("hdf5", {"chunk": Chunk(bytes=Size(64 << 10))}),
        ("hdf5", {"chunk": Chunk(bytes=Size(8 << 10))}),
    ],
)
def test_usual_ratios_are_reached_at_every_level(kind: str, keys: dict[str, Any], ratio: float, level: int) -> None:
    dataset = _dataset(kind, ratio, level, Sample(shape=(128, 128), dtype="float32"), **keys)
    assert _ratio(dataset, 5) == pytest.approx(ratio, rel=0.01)


_TEXTURES = st.builds(
    content.Compressibility, bits=st.just(8), random_words=st.integers(1, content.BLOCK // content.WORD)
)


@settings(deadline=None)
@given(
    _TEXTURES, st.integers(0, 5 * content.BLOCK), st.integers(0, 2 * content.BLOCK), st.integers(0, 2 * content.BLOCK)
)
def test_the_stream_is_one_wherever_it_is_entered(
    woven: content.Compressibility, first: int, count: int, skip: int
) -> None:
    whole = b"".join(bytes(piece) for piece in content.pieces(first, count, woven))
    part = b"".join(bytes(piece) for piece in content.pieces(first + skip, max(0, count - skip), woven))
    assert len(whole) == count
    assert whole[skip:] == part
    head = content.head(first, woven)
    assert whole[: len(head)] == head[:count]


@pytest.mark.parametrize("ratio", [1.06, 4.0, 20.0])
def test_no_two_pages_are_alike(ratio: float) -> None:
    woven = compressibility(_dataset("npz", ratio, 4, Sample(bytes=Size(100_000))))
    rows = np.empty(16 * content.BLOCK, np.uint8)
    content.fill(rows, 10**12 // content.PAGE * content.PAGE, woven)
    pages = rows.reshape(-1, content.PAGE)
    assert len({page.tobytes() for page in pages}) == len(pages)


def test_another_ratio_is_another_dataset() -> None:
    asked = [
        workloads.load("demo", keys).dataset
        for keys in ((), ("dataset.compression_ratio=1.06",), ("dataset.compression_ratio=2",))
    ]
    assert len({fingerprints.of(dataset) for dataset in asked}) == 3


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (("dataset.compression_ratio=0.9",), "dataset.compression_ratio: found 0.9; use a number from 1 to 20"),
        (("dataset.compression_ratio=2", "dataset.random_bits=4"), "set only one of them"),
        (("dataset.compression_ratio=2", "dataset.compression=gzip", "dataset.level=0"), "set level 1 to 9"),
        (("dataset.compression_ratio=2", "dataset.format=csv"), "leave compression_ratio null"),
    ],
)
def test_what_cannot_be_is_refused(keys: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        workloads.load("demo", keys)
