"""Files as applications write them, with the libraries that applications use."""

import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from msgspec import structs
from PIL import Image

from dlio_hpc.config.workload import Draft, Workload
from dlio_hpc.core.formats.tfrecord import head, masked_crc
from dlio_hpc.dataset import dataset_scan, sample_index

# Keys of readers with which each format can be read.
WAYS: tuple[dict[str, Any], ...] = (
    {"direct": True},
    {"engine": "io_uring"},
    {"load": "memory", "shuffle": {"files": True}},
    {"transfer_size": "512"},
    {"transfer_size": "1 MiB", "batch_size": 7},
    {"mode": "framework", "transfer_size": "64"},
    {"keep_open": True},
)
# Numbers of records of the files that the tests write: different ones, and none.
COUNTS = (5, 9, 0, 3, 12, 1, 7)


def images(folder: Path, count: int = 11) -> list[bytes]:
    """Write JPEG and PNG files in two folders. Return their contents in the order of their names."""
    contents = {}
    rng = np.random.default_rng(1)
    for number in range(count):
        pixels = rng.integers(0, 255, (20 + 3 * number, 30, 3), dtype=np.uint8)
        name = f"class{number % 2}/{number:02}.{'png' if number % 3 else 'jpg'}"
        memory = io.BytesIO()
        Image.fromarray(pixels).save(memory, "PNG" if number % 3 else "JPEG")
        contents[name] = memory.getvalue()
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[name])
    return [contents[name] for name in sorted(contents)]


def payloads(counts: tuple[int, ...] = COUNTS, sizes: tuple[int, int] = (1, 3000)) -> list[list[bytes]]:
    """Return random records for each file."""
    rng = np.random.default_rng(2)
    return [[rng.bytes(int(rng.integers(*sizes, endpoint=True))) for _ in range(count)] for count in counts]


def records(folder: Path, files: list[list[bytes]], pack: Callable[[bytes], bytes] = bytes) -> list[bytes]:
    """Write TFRecord files. Return all records. pack: function that compresses the contents of a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, payload in enumerate(files):
        content = b"".join(head(len(one)) + one + struct.pack("<I", masked_crc(one)) for one in payload)
        (folder / f"part-{number:02}.tfrecord").write_bytes(pack(content))
    return [record for file in files for record in file]


def shards(folder: Path, counts: tuple[int, ...] = COUNTS, form: int = tarfile.PAX_FORMAT) -> list[bytes]:
    """Write tar files whose samples have one to three files of different sizes, with a folder and a file without an
    extension between them. Return the bytes of all samples. form: one of the formats of tarfile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    contents = []
    for number, count in enumerate(counts):
        with tarfile.open(folder / f"{number:05}.tar", "w", format=form) as archive:
            for name in ("train", "train/README", *(f"train/{number:05}{within:04}" for within in range(count))):
                entry = tarfile.TarInfo(name)
                entry.type = tarfile.DIRTYPE if name == "train" else tarfile.REGTYPE
                if name.startswith("train/0"):
                    contents.append(_sample(archive, entry, rng))
                else:
                    archive.addfile(entry)
    return contents


def tokens(folder: Path, lengths: list[list[int]], dtype: str = "uint16") -> list[bytes]:
    """Write files of tokens and their indexes. Return the bytes of all sequences. lengths: tokens of each sequence of
    each file. Two sequences form a document.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(6)
    codes = {"uint8": 1, "int32": 4, "int64": 5, "uint16": 8}
    contents = []
    for number, of_file in enumerate(lengths):
        item = np.dtype(dtype).itemsize
        ends = np.cumsum(of_file, dtype=np.int64) * item
        arrays = (
            np.array(of_file, "<i4"), np.array([0, *ends[:-1]][: len(of_file)], "<i8"),
            np.array([*range(0, len(of_file), 2), len(of_file)], "<i8"),
        )  # fmt: skip
        header = struct.pack("<9sQBQQ", b"MMIDIDX", 1, codes[dtype], len(of_file), len(arrays[2]))
        data = rng.bytes(sum(of_file) * item)
        (folder / f"{number}.bin").write_bytes(data)
        (folder / f"{number}.idx").write_bytes(header + b"".join(array.tobytes() for array in arrays))
        contents += [data[end - length * item : end] for end, length in zip(ends.tolist(), of_file, strict=True)]
    return contents


def _sample(archive: tarfile.TarFile, entry: tarfile.TarInfo, rng: np.random.Generator) -> bytes:
    """Add a sample of one to three files to an archive. Return its bytes."""
    parts: list[bytes] = []
    base = entry.name
    for extension in ("jpg", "json", "seg.png")[: rng.integers(1, 4)]:
        parts.append(rng.bytes(int(rng.integers(not parts, 3000))))
        entry.name, entry.size = f"{base}.{extension}", len(parts[-1])
        archive.addfile(entry, io.BytesIO(parts[-1]))
    return b"".join(parts)


def arrays(folder: Path, kind: str, counts: tuple[int, ...] = (5, 9, 3, 12), **keys: Any) -> list[bytes]:
    """Write files with an array `images` and an array of labels. Return the bytes of all samples. keys: arguments of
    create_dataset().
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    samples = []
    for number, count in enumerate(counts):
        values = rng.normal(size=(count, 6, 25)).astype("float32")
        samples += [value.tobytes() for value in values]
        path = folder / f"{number}.{kind}"
        if kind == "npz":
            (np.savez_compressed if keys else np.savez)(path, images=values, labels=np.arange(count))
        else:
            with h5py.File(path, "w") as file:
                file.create_dataset("train/images", data=values, **keys)
                file["labels"] = np.arange(count)
    return samples


def typed(folder: Path, kind: str, dtype: np.dtype[Any], **keys: Any) -> list[bytes]:
    """Write files with one array `x` of any type. Return the bytes of all samples. keys: arguments of
    create_dataset().
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(4)
    shape = (6, 25)
    samples = []
    for number, count in enumerate((5, 9, 3)):
        data = rng.integers(1, 2 if dtype.kind in "bU" else 127, (count, 6, 25 * dtype.itemsize), np.uint8)
        if dtype.kind == "U":
            data.reshape(-1, 4)[:, 1:] = 0  # characters have codes below 0x110000
        samples += [value.tobytes() for value in data]
        if kind == "npz":
            np.savez(folder / f"{number}.npz", x=data.view(dtype))
            continue
        if kind == "npy":
            np.save(folder / f"{number}.npy", data.view(dtype))
            continue
        with h5py.File(folder / f"{number}.hdf5", "w") as file:
            array = file.create_dataset("x", (count, *shape), dtype, **keys)
            array.id.write(h5py.h5s.ALL, h5py.h5s.ALL, data, array.id.get_type())
    return samples


def zarr_stores(folder: Path, are_apart: bool) -> None:
    """Make stores of the same samples: one with shards, and one without some chunks; or if they are not `are_apart`, a
    group of version 2 with two arrays.
    """
    import zarr

    values = np.random.default_rng(1).integers(0, 9, (7, 9, 11), "<i4")
    keys = {"shape": values.shape, "dtype": "<i4"}
    if are_apart:
        zarr.create_array(folder / "b.zarr", chunks=(1, 4, 5), shards=(2, 8, 10), **keys)[:] = values
        zarr.create_array(folder / "c.zarr", chunks=(1, 9, 5), **keys)[2:4] = values[2:4]
        return
    zarr.open_group(folder / "a.zarr", mode="w", zarr_format=2)
    for name in ("temperature", "wind"):
        zarr.create_array(folder / "a.zarr" / name, chunks=(2, 4, 5), zarr_format=2, **keys)[:] = values


def unscanned(kind: str, glob: str, existing: dict[str, Any] | None = None, **reader: Any) -> Workload:
    data = {
        "name": "w",
        "dataset": {"format": kind, "files": 1, "samples_per_file": 1, "sample": {"bytes": 1},
                    "existing": {"glob": glob, **(existing or {})}},
        "reader": reader,
    }  # fmt: skip
    return Draft(data, "test").with_settings({})


def scanned(data: Path, runs: Path, made: Workload, is_kept: bool = True) -> Workload:
    """Scan the dataset of a workload, as a submission does. is_kept: whether to write the index."""
    place = dataset_scan.ScanFolders(str(data), str(runs))
    described = dataset_scan.described(made.dataset, place, lambda _: None)
    assert described.scan is not None
    if is_kept:
        sample_index.write(described.scan.index)
        forget()
    return structs.replace(made, dataset=described)


def forget() -> None:
    """Forget the indices that this process holds, as a new process does."""
    sample_index._unwritten.clear()
    sample_index.opened.cache_clear()


def tables(folder: Path, groups: tuple[int, ...] = (2, 3, 1, 4), rows: int = 40) -> None:
    """Write Parquet files with dictionaries, nested columns, nulls and compression, as applications have them. groups:
    number of row groups of each file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    for number, count in enumerate(groups):
        of_file = range(number * 1000, number * 1000 + count * rows)
        table = pa.table(
            {
                "id": pa.array(of_file),
                "name": pa.array([f"name {row % 7}" for row in of_file]),
                "image": pa.array([rng.bytes(int(rng.integers(500, 900))) for _ in of_file]),
                "box": pa.array([{"label": row % 3, "corners": [float(row), 1.5]} for row in of_file]),
                "tokens": pa.array([None if row % 11 == 0 else [row] * (row % 5) for row in of_file]),
                "größe": pa.array([float(row) for row in of_file]),
            }
        )
        codec = {"image": "snappy", "id": "zstd"}
        names = ["id", "name", "image", "box.label", "box.corners.list.element", "tokens.list.element", "größe"]
        compression = {name: codec.get(name, "none") for name in names}
        pq.write_table(table, folder / f"{number:08}.parquet", row_group_size=rows, compression=compression)
