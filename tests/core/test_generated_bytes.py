"""Datasets that exist are used again, so the bytes of a dataset must never change."""

import hashlib
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import Chunk, Dataset, Sample, ZarrKeys
from tests.support import written

_ODD = Sample(shape=(31, 7), dtype="int16")
_SPREAD = Sample(bytes=Size(1000), stdev=Size(200), seed=3)
_LARGE_SPREAD = Sample(bytes=Size((3 << 20) + 5), stdev=Size(300_000))
_MEBIBYTES = Sample(shape=(3, 1 << 19), dtype="float32")
_NUMBERS = Sample(shape=(30, 7))
_PIECE = Chunk(shape=(2, 8, 3))
_MEMBERS = Sample(bytes=Size(10_000), stdev=Size(2000))


def _hash(path: Path, kind: str) -> str:
    """Return the start of the SHA-256 of a file, or of its array if the bytes around the array depend on the version of
    a library.
    """
    if kind == "hdf5":
        with h5py.File(path) as file:
            data = np.ascontiguousarray(file["x"]).tobytes()
    elif kind == "gzip":
        with zipfile.ZipFile(path) as archive:
            data = archive.read("x.npy")
    else:
        data = path.read_bytes()
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize(
    ("dataset", "hashes"),
    [
        (Dataset("raw", 2, 5, _ODD), ("969228651ab997c8", "34551a11d75b3dea")),
        (Dataset("raw", 2, 5, _SPREAD, random_bits=3), ("8e1747671bfd6dd4", "53bac25e80189042")),
        (Dataset("raw", 2, 3, _LARGE_SPREAD, compression_ratio=1.5), ("ee7ff9b37feb3dcb", "6d1f4591793eeee3")),
        (Dataset("raw", 2, 1, _MEBIBYTES), ("7b8cd02fc47324da", "070d4902c5a7444f")),
        (Dataset("npz", 2, 5, _ODD), ("2fe08810c71cbbd3", "4f50fa5c05e94fa0")),
        (Dataset("npz", 2, 5, _SPREAD), ("699daa54c19869f2", "c4a953ccb3aa283a")),
        (Dataset("npz", 2, 2, _MEBIBYTES, random_bits=5), ("b166616db3f083e8", "84c7ed78c03f47ba")),
        (Dataset("npz", 2, 3, _LARGE_SPREAD), ("5bf7ff25f0e1d49b", "1b20b20ca10169cc")),
        (Dataset("npz", 2, 5, _ODD, compression="gzip"), ("52fdc770a7ce0ce7", "762c38ebc598b315")),
        (Dataset("npz", 2, 3, _LARGE_SPREAD, compression="gzip", level=1), ("e04926053b314989", "8f30db1507491f04")),
        (Dataset("npy", 2, 5, _ODD), ("b7bc4d65db078195", "c1e86e86eeb3de80")),
        (Dataset("npy", 2, 5, _SPREAD), ("2238dfba3f5db9c5", "aad9e76aff0d1184")),
        (Dataset("npy", 2, 2, _MEBIBYTES, random_bits=5), ("4146bc495aba9b27", "62f7fa6c2ebc6718")),
        (Dataset("tar", 2, 5, _ODD), ("a923d2ffc57fa662", "aebb162a067c83b8")),
        (Dataset("tar", 2, 3, _LARGE_SPREAD, random_bits=3), ("52c90393139b76bc", "fb1d5129ae564ff4")),
        (
            Dataset("tar", 2, 4, _MEMBERS, arrays=(Size(9000), Size(992), Size(8))),
            ("11b19adb6f31444e", "43639024e5bfb8e2"),
        ),
        # Metadata of a store, and its first chunk or shard.
        (Dataset("zarr", 2, 5, _ODD, chunk=_PIECE, zarr=ZarrKeys(version=2)), ("fe9f2ca0379281ef", "2e12bf57d179c030")),
        (
            Dataset("zarr", 2, 5, _ODD, chunk=_PIECE, zarr=ZarrKeys(shard=(4, 16, 6))),
            ("c071fd17af2b6ce3", "eb5a47851f99baaf"),
        ),
        (Dataset("tfrecord", 2, 5, _ODD), ("eb0cdd319731d1db", "65bfde4d451a8b86")),
        (Dataset("tfrecord", 2, 5, _SPREAD), ("aa3e5154c539beab", "df3ecb1c164584ba")),
        (Dataset("tfrecord", 2, 3, _LARGE_SPREAD, random_bits=1), ("9b6888d38cd8c23c", "9f0a51676152e00f")),
        (Dataset("tfrecord", 2, 2, _MEBIBYTES), ("4ef70c74f37ba93a", "0cd2f660d9055475")),
        (Dataset("hdf5", 2, 5, _ODD), ("969228651ab997c8", "34551a11d75b3dea")),
        (Dataset("hdf5", 2, 5, _SPREAD), ("abbb2512c0c02e24", "0491ba4aea4fec32")),
        (Dataset("hdf5", 2, 3, _LARGE_SPREAD), ("087bb38937e1e962", "07c8906f8053a4ba")),
        (Dataset("hdf5", 2, 2, _MEBIBYTES, chunk=Chunk(shape=(1, 2, 999))), ("bde076503737c12b", "57b315ed6c0d5226")),
        (
            Dataset("hdf5", 2, 5, _ODD, compression="gzip", compression_ratio=2),
            ("8b5bfdbe27ef8f3c", "7964c2b2f390d129"),
        ),
        (Dataset("hdf5", 2, 5, _ODD, compression="lzf"), ("969228651ab997c8", "34551a11d75b3dea")),
        (Dataset("csv", 2, 5, _NUMBERS), ("d57bfc9ea89bf8c1", "52f56167555422e6")),
        (Dataset("csv", 2, 3, Sample(shape=(300_001,))), ("d5a2dd8bebd4575c", "3295d94d6cab738a")),
        (Dataset("csv", 2, 300_001, Sample(shape=(1,)), random_bits=2), ("ef70145fec644a0d", "e4aec096455ddcd4")),
    ],
)
def test_the_bytes_are_those_of_the_first_release(tmp_path: Path, dataset: Dataset, hashes: tuple[str, str]) -> None:
    kind = dataset.compression if (dataset.format, dataset.compression) == ("npz", "gzip") else dataset.format
    actual = []
    for number in range(2):
        written.write(tmp_path / str(number), dataset, number)
        actual.append(_hash(tmp_path / str(number), kind))
    assert tuple(actual) == hashes
