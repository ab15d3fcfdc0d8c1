"""Scan of an existing file that holds named arrays: npz and HDF5. The first axis of an array is the index of the
sample.
"""

import errno
import math
import os
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dataset_keys import ITEM_BYTES
from dlio_hpc.dataset.sample_index import Array, FileSamples, ScannedFile

# Errors of zipfile and numpy for a file that is not an npz file, or is corrupted.
_BAD_NPZ = (zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, ValueError, KeyError, EOFError,
            SyntaxError, RuntimeError, NotImplementedError)  # fmt: skip
# Versions of the header of npy files that numpy.load reads.
_NPY_VERSIONS = ((1, 0), (2, 0), (3, 0))
# Errors of h5py for a corrupted file.
_BAD_HDF5 = (RuntimeError, ValueError, KeyError, TypeError, AttributeError)
_SUFFIX = ".npy"
# Size of a local header in a ZIP file, without the name and the extra field.
_LOCAL_HEADER = 30
# Maximum number of samples in a file. The header of a damaged file may state any number.
_MOST_SAMPLES = 10**8
# Filters of HDF5 (H5Zpublic.h), and of h5py, by their numbers.
_COMPRESSIONS = {1: "gzip", 32000: "lzf"}
_FILTERS = {2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", **_COMPRESSIONS}


def npz(path: str, size: int, name: str | None) -> ScannedFile:
    """Scan an array of an npz file. name: name of the array; None for the only array of the file. size: size of the
    file in bytes.
    """
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            members = {
                info.filename.removesuffix(_SUFFIX): info
                for info in archive.infolist()
                if info.filename.endswith(_SUFFIX)
            }
            member = members[_chosen(path, name, list(members))]
            with archive.open(member) as stream:
                shape, is_fortran, dtype = _header(stream)
                header = stream.tell()
            file.seek(member.header_offset)
            lengths = struct.unpack("<2H", file.read(_LOCAL_HEADER)[-4:])
    except (*_BAD_NPZ, OSError) as fault:
        if isinstance(fault, OSError) and fault.errno != errno.EINVAL:  # a wrong offset
            raise
        raise ConfigError(
            f"{path} is not an npz file that can be read, or is corrupted: {_line(fault)}; set dataset.format to the "
            "format of the files, or choose another pattern"
        ) from fault
    _check_numpy_array(path, shape, is_fortran, dtype)
    is_stored = member.compress_type == zipfile.ZIP_STORED
    begin = member.header_offset + _LOCAL_HEADER + sum(lengths) + header if is_stored else 0
    form = Array(shape[1:], type_name(dtype), None, *(("none",) if is_stored else ("gzip", "they are compressed")))
    return ScannedFile(samples(path, size if is_stored else None, begin, shape, dtype), form)


def npy(path: str, size: int, rows: bool) -> ScannedFile:
    """Scan an npy file. size: size of the file in bytes. rows: whether the first axis of the array counts samples;
    False: the array is one sample.
    """
    try:
        with open(path, "rb") as file:
            shape, is_fortran, dtype = _header(file)
            begin = file.tell()
    except _BAD_NPZ as fault:
        raise ConfigError(
            f"{path} is not an npy file that can be read, or is corrupted: {_line(fault)}; set dataset.format to the "
            "format of the files, or choose another pattern"
        ) from fault
    if not rows:
        shape, is_fortran = (1, *(shape or (1,))), False
    _check_numpy_array(path, shape, is_fortran, dtype)
    return ScannedFile(samples(path, size, begin, shape, dtype), Array(shape[1:], type_name(dtype)))


def _check_numpy_array(path: str, shape: Sequence[int], is_fortran: bool, dtype: Any) -> None:
    if dtype.hasobject:
        raise ConfigError(f"{path}: the array holds Python objects, which have no fixed size; store numbers")
    check_array(path, shape, dtype)
    if is_fortran:
        raise ConfigError(f"{path}: the array is in Fortran order, so its samples are scattered; store it in C order")


def _header(stream: Any) -> tuple[tuple[int, ...], bool, Any]:
    """Read the header of an array. Return the shape of the array, whether the array is in Fortran order, and its
    type.
    """
    from numpy.lib import format as npy

    version = npy.read_magic(stream)
    if version not in _NPY_VERSIONS:
        raise ValueError(f"version {version} of the header is not known")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError(f"the shape {shape} is not valid")
    if dtype.subdtype is not None:
        raise ValueError(f"a value is an array itself: {dtype}")
    return shape, is_fortran, dtype


def hdf5(path: str, size: int, name: str | None) -> ScannedFile:
    """Scan an HDF5 dataset of a file. name: name of the HDF5 dataset; None for the only one in the file. size: size of
    the file in bytes.
    """
    import h5py

    if not h5py.is_hdf5(path):
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))  # is_hdf5() is false for a file that cannot be read, too
        raise ConfigError(
            f"{path} is not an HDF5 file; set dataset.format to the format of the files, or choose another pattern"
        )
    try:
        with h5py.File(path, "r") as file:
            stored = file[_chosen(path, name, _names(file))]
            if not isinstance(stored, h5py.Dataset):
                raise ConfigError(f"{path}: {name} is a group; name a dataset in it with dataset.existing.array")
            _check_storage(path, stored)
            shape, dtype = stored.shape, stored.dtype
            check_array(path, shape, dtype)
            offset = stored.id.get_offset()
            within = size if offset is not None else None
            return ScannedFile(samples(path, within, offset or 0, shape, dtype), _form(stored))
    except (*_BAD_HDF5, OSError) as fault:
        if getattr(fault, "errno", None):
            raise
        raise ConfigError(f"{path} is corrupted: {_line(fault)}; choose a pattern that leaves it out") from fault


def _names(file: Any) -> list[str]:
    """Return the names of all HDF5 datasets in a file."""
    import h5py

    names: list[str] = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def _form(stored: Any) -> Array:
    """Return the form of an HDF5 dataset."""
    properties = stored.id.get_create_plist()
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    compression = next((_COMPRESSIONS[code] for code in filters if code in _COMPRESSIONS), "none")
    sample, chunk = tuple(stored.shape[1:]), stored.chunks
    obstacle = _obstacle(stored, filters)
    if chunk is not None:
        chunk = (chunk[0], *map(min, chunk[1:], sample))
    return Array(sample, type_name(stored.dtype), chunk, compression, obstacle)


def _obstacle(stored: Any, filters: list[int]) -> str:
    """Return the reason why only the HDF5 library can read the data of an HDF5 dataset; empty if they can also be read
    at their offsets. For example, a chunk that was never written has no storage in the file: the library returns the
    fill value for it. filters: numbers of the filters of the dataset.
    """
    import h5py

    others = [_FILTERS.get(code, str(code)) for code in filters if code not in _COMPRESSIONS]
    if others:
        return f"they have the HDF5 filter {' and '.join(others)}"
    if stored.chunks is None:
        if stored.id.get_create_plist().get_layout() == h5py.h5d.COMPACT:
            return "they are in the header of the HDF5 file (layout compact)"
        return "" if stored.id.get_offset() is not None else "they were never written"
    if stored.id.get_num_chunks() != math.prod(-(-n // c) for n, c in zip(stored.shape, stored.chunks, strict=True)):
        return "chunks of them were never written"
    fits = all(map(int.__le__, stored.chunks[1:], stored.shape[1:]))
    return "" if fits else "their chunks reach beyond a sample"


def _check_storage(path: str, stored: Any) -> None:
    """Raise ConfigError if the data of an HDF5 dataset are not in its file, or if its values have no fixed size."""
    import h5py

    elsewhere = [source.file_name for source in stored.virtual_sources()] if stored.is_virtual else []
    kind = "virtual" if stored.is_virtual else "external"
    elsewhere += [name for name, *_ in stored.external or ()]
    if elsewhere:
        raise ConfigError(
            f"{path}: {stored.name} is {kind}: its data are in other files ({', '.join(sorted(set(elsewhere))[:3])}), "
            "and HDF5 returns fill values for files that are missing. Choose a pattern that matches the files with the "
            "data"
        )
    if stored.shape is None:
        raise ConfigError(f"{path}: {stored.name} is empty: it has a type, but no values (a null dataspace)")
    if stored.dtype.hasobject:
        values = "references" if h5py.check_ref_dtype(stored.dtype) else "values of varying size"
        raise ConfigError(
            f"{path}: {stored.name} holds {values} ({_hdf5_type(stored)}); only arrays of values of a fixed size can "
            "be read. Choose another array with dataset.existing.array"
        )


def _hdf5_type(stored: Any) -> str:
    """Return what the values of an HDF5 dataset without a fixed size are."""
    import h5py

    if h5py.check_ref_dtype(stored.dtype):
        return "of objects or regions"
    if h5py.check_string_dtype(stored.dtype):
        return "strings"
    return "sequences" if h5py.check_vlen_dtype(stored.dtype) else "in a compound type"


def type_name(dtype: Any) -> str:
    """Return the name that the key dataset.sample.dtype has for a type, or NumPy's string for the type."""
    name: str = dtype.name if dtype.name in ITEM_BYTES and dtype.isnative else dtype.str
    return name


def _chosen(path: str, name: str | None, names: Sequence[str]) -> str:
    """Return the name of the array to read. Raise ConfigError if the file has no array `name`. If `name` is None, raise
    ConfigError unless the file has exactly one array.
    """
    listing = ", ".join(names[:10]) or "none"
    if name is not None:
        if name.strip("/") not in names:
            raise ConfigError(f"{path} has no array {name} (it has: {listing}); set dataset.existing.array")
        return name.strip("/")
    if len(names) != 1:
        raise ConfigError(
            f"{path} does not hold exactly one array (it holds: {listing}); name the one to read with -S "
            "dataset.existing.array=NAME"
        )
    return names[0]


def check_array(path: str, shape: Sequence[int], dtype: Any) -> None:
    """Raise ConfigError if an array holds no samples: its first axis counts them, and needs another axis."""
    if not dtype.itemsize:
        raise ConfigError(f"{path}: the values of the array have no bytes (type {dtype.str}); choose another array")
    if not shape or min(shape[1:], default=0) < 1 or shape[0] < 0:
        raise ConfigError(
            f"{path}: the array has the shape {list(shape)}, but needs a first axis that counts samples and at least "
            "one other axis; choose another array with dataset.existing.array"
        )


def samples(path: str, end: int | None, begin: int, shape: Sequence[int], dtype: Any) -> FileSamples:
    """Return the samples of an array. begin: offset of the first sample. end: size of the file, beyond which the array
    must not reach; None if the samples do not follow each other in the file.
    """
    size = math.prod(shape[1:]) * dtype.itemsize
    if end is not None and begin + shape[0] * size > end:
        raise ConfigError(
            f"{path} is truncated: its array ends at byte {begin + shape[0] * size}, but the file has {end} bytes"
        )
    if shape[0] > _MOST_SAMPLES or size >= 2**63:
        raise ConfigError(
            f"{path}: the array has the shape {list(shape)}; at most {_MOST_SAMPLES} samples in a file can be read"
        )
    return FileSamples(begin, np.full(shape[0], size, np.int64))


def _line(fault: Exception) -> str:
    return re.sub(r"\s+", " ", str(fault)) or type(fault).__name__
