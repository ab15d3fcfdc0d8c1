"""Formats of which files of bytes are special kinds: images, NumPy arrays, tar archives, files of tokens with an index,
and Zarr stores, whose chunks are files.

Requests for such files are derived as those for raw files. The name or the content of the files then says which format
they have, and the sizes of samples are converted to this format.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from dlio_hpc.base.units import counted
from dlio_hpc.config.dataset_keys import TAR_BLOCK
from dlio_hpc.config.format_facts import FORMATS, FormatName
from dlio_hpc.dataset import file_signatures
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue, weaker

Keys = dict[str, DerivedValue]
# Formats by the endings of names.
_ENDINGS: dict[str, FormatName] = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png", ".npy": "npy", ".tar": "tar"}
# Name of a chunk of a Zarr array below the folder of the array: 0.0.1, 0/0/1, c/0/0/1 or c.0.0.1.
_CHUNK = re.compile(r"(.+?)/(?:c[/.])?\d+(?:[/.]\d+)*$")
_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
# Share of the files that have the ending.
_MOST = 0.9
# Bytes of the header of a .npy file of version 1, unless the array has a type of many fields.
_NPY_HEADER = 128
# Sizes in bytes of the buffer of a file that Python's open() chooses.
_OPENED = (4096, 8192)
# Bytes by which the data of a member of a tar file are padded, on average.
_TAR_PADDING = TAR_BLOCK // 2


class NamedFormat(NamedTuple):
    """Format of the files of a dataset. name: value of `dataset.format`. evidence: what shows the format. stores:
    number of arrays whose chunks the files are; 0 if they are no chunks.
    """

    name: FormatName
    evidence: str
    stores: int = 0


def of_names(paths: Sequence[str], others: Collection[str] = ()) -> NamedFormat | None:
    """Return the format that the names of nearly all files show; None if they show none of these formats. others: paths
    of the other files that the program read, among which are metadata and indexes.
    """
    if (form := _by_others(paths, others)) is not None:
        return form
    endings = Counter(os.path.splitext(path)[1].lower() for path in paths)
    formats = Counter({name: sum(endings[end] for end in ends) for name, ends in _by_format()})
    name, count = formats.most_common(1)[0]
    if not paths or count < _MOST * len(paths):
        return None
    shown = " or ".join(end for end, kind in _ENDINGS.items() if kind == name and endings[end])
    return NamedFormat(name, f"{count:,} of {counted(len(paths), 'file')} end in {shown}")


def _by_others(paths: Sequence[str], others: Collection[str]) -> NamedFormat | None:
    """Return the format that files show by the metadata or the indexes beside them; None if there are none."""
    indexed = sum(path.endswith(".bin") and f"{path[:-4]}.idx" in others for path in paths)
    if paths and indexed >= _MOST * len(paths):
        return NamedFormat("indexed", f"an index with the ending .idx was read beside {counted(indexed, '.bin file')}")
    arrays = Counter(match[1] for path in paths if (match := _CHUNK.match(path)))
    described = [array for array in arrays if any(f"{array}/{name}" in others for name in _METADATA)]
    count = sum(arrays[array] for array in described)
    if not paths or count < _MOST * len(paths):
        return None
    evidence = f"{count:,} of {counted(len(paths), 'file')} are chunks of {counted(len(described), 'array')} of Zarr"
    return NamedFormat("zarr", f"{evidence}, whose metadata were read", len(described))


def is_part(path: str, name: str) -> bool:
    """Return whether a file belongs to a dataset of a format although it holds no samples. name: name of the format."""
    metadata = os.path.basename(path) in _METADATA
    return metadata if name == "zarr" else name == "indexed" and path.endswith(".idx")


def _by_format() -> Iterable[tuple[FormatName, list[str]]]:
    for name in _FITTING:
        yield name, [end for end, kind in _ENDINGS.items() if kind == name]


def compression(keys: Mapping[str, DerivedValue], paths: Sequence[str]) -> Keys:
    """Return the key `dataset.compression` if the names of nearly all files say that they are compressed as a whole.
    Otherwise, return an empty dict. keys: derived keys of a workload. paths: paths of the files.
    """
    count = sum(path.lower().endswith(".gz") for path in paths)
    mixes = keys["reader.shuffle.files"].value and keys["reader.shuffle.samples"].value
    if keys["dataset.format"].value != "tfrecord" or count < _MOST * len(paths) or mixes:
        return {}
    return {"dataset.compression": DerivedValue("gzip", "high", f"{count:,} of {len(paths):,} files end in .gz")}


def of_head(path: str, head: bytes) -> NamedFormat | None:
    """Return the format that the beginning of a file shows; None if it shows none of these formats. head: at least the
    first 512 bytes, or the whole file.
    """
    begun = file_signatures.format_of(head)
    name = next((name for name in _FITTING if name == begun), None)
    return None if name is None else NamedFormat(name, f"the file {path} begins like a file of {FORMATS[name].title}")


def fitted(keys: Mapping[str, DerivedValue], form: NamedFormat | None, file_size: int, is_mapped: bool = False) -> Keys:
    """Return the keys that change if raw files have a special format. The result is empty if they do not, or if the
    workload could not have the format. keys: derived keys of a workload. file_size: usual size of a file in bytes.
    is_mapped: whether the program maps the files into memory.
    """
    if form is None or keys["dataset.format"].value != "raw" or (is_mapped and not FORMATS[form.name].maps):
        return {}
    changed = _of_store(keys, form.stores) if form.stores else _FITTING[form.name](keys, file_size)
    if changed is None:
        return {}
    if is_mapped:
        mapped = DerivedValue(True, "recorded", "the program maps the files")
        changed |= {"reader.mapped": mapped, "reader.mode": mapped._replace(value="framework")}
        changed |= _without_request_size(keys, "the kernel")
    known = keys["dataset.format"]
    sure: Confidence = "recorded" if known.confidence == "recorded" else "high"
    named = DerivedValue(form.name, sure, form.evidence)
    return {"dataset.format": named} | changed


def withdraw(keys: Keys) -> None:
    """Remove keys that no workload of the format can have."""
    if "dataset.format" in keys and keys["dataset.format"].value in ("zarr", "indexed"):
        for key in ("reader.reopen", "reader.interleave", "reader.shuffle.block"):
            keys.pop(key, None)
    if "dataset.format" in keys and keys["dataset.format"].value == "zarr":
        keys.pop("dataset.sample.stdev", None)


def _of_image(name: FormatName, keys: Mapping[str, DerivedValue]) -> Keys | None:
    """Return the changed keys of a dataset of images. A file is a sample."""
    size = keys["dataset.sample.bytes"]
    if keys["dataset.samples_per_file"].value != 1 or size.value < FORMATS[name].least:
        return None
    made = {"reader.mode": _by_library(keys["reader.mode"], "libraries that decode images read whole files")}
    if "compute.time" in keys and keys["compute.time"].value:
        time = keys["compute.time"]
        made["compute.time"] = time._replace(
            evidence=f"{time.evidence}; may include the time of decoding, which the workload adds"
        )
    return made | _without_request_size(keys, "Pillow")


def _of_npy(keys: Mapping[str, DerivedValue], file_size: int) -> Keys | None:
    """Return the changed keys of a dataset of .npy files. numpy.load reads the array of a file. A program that reads
    rows of a larger array makes requests of its own, after the header.
    """
    size, count = keys["dataset.sample.bytes"], keys["dataset.samples_per_file"]
    header = f"; the header of a .npy file has {_NPY_HEADER} B"
    if count.value > 1:
        rows = max(1, (file_size - _NPY_HEADER) // size.value)
        return {"dataset.samples_per_file": count._replace(value=rows, evidence=count.evidence + header)}
    mode = {"reader.mode": _by_library(keys["reader.mode"], "numpy.load reads whole arrays")}
    mode |= _without_request_size(keys, "NumPy")
    if not _NPY_HEADER < size.value == file_size and "dataset.sample.stdev" not in keys:
        return mode  # the size is that of the array
    if size.value <= _NPY_HEADER:
        return None
    return mode | {
        "dataset.sample.bytes": size._replace(value=size.value - _NPY_HEADER, evidence=size.evidence + header)
    }


def _of_tar(keys: Mapping[str, DerivedValue], file_size: int) -> Keys | None:
    """Return the changed keys of a dataset of tar files. Each sample has one member; the log does not show whether it
    has more. Archives that are read front to back are read as webdataset does.
    """
    count, size = keys["dataset.samples_per_file"], keys["dataset.sample.bytes"]
    record = file_size // count.value
    if record <= TAR_BLOCK + _TAR_PADDING:
        return None
    evidence = f"; a sample has a header of {TAR_BLOCK} B and padding, and is assumed to be one member"
    changed = {
        "dataset.sample.bytes": DerivedValue(
            record - TAR_BLOCK - _TAR_PADDING, weaker(size.confidence, "medium"), size.evidence + evidence
        )
    }
    if keys["reader.shuffle.samples"].value or keys.get("reader.reopen"):
        return changed
    streamed = "archives are read from their beginning to their end"
    changed["reader.mode"] = DerivedValue("framework", weaker(keys["reader.mode"].confidence, "medium"), streamed)
    request = keys.get("reader.transfer_size")
    return changed | (_without_request_size(keys, "open()") if request and request.value in _OPENED else {})


def _of_tokens(keys: Mapping[str, DerivedValue], _: int) -> Keys | None:
    """Return the changed keys of files of tokens. A program that opens the file for each sequence reads like
    Megatron-LM without maps, which is framework mode.
    """
    if keys["dataset.samples_per_file"].value == 1 or keys["dataset.sample.bytes"].value < 2:
        return None
    reopened = keys.get("reader.reopen")
    if reopened is None or not reopened.value:
        return {}
    mode = DerivedValue("framework", "medium", f"as Megatron-LM reads without maps: {reopened.evidence}")
    return {"reader.mode": mode, "reader.reopen": reopened._replace(value=False)} | _without_request_size(keys, "NumPy")


def _of_store(keys: Mapping[str, DerivedValue], stores: int) -> Keys | None:
    """Return the changed keys of chunks of Zarr arrays. Each chunk is a file, and each is treated as one sample or, if
    its samples are known, as several. stores: number of arrays.
    """
    files, count, size = (keys[key] for key in ("dataset.files", "dataset.samples_per_file", "dataset.sample.bytes"))
    per_store = max(1, files.value * count.value // stores)
    evidence = f"{files.value:,} chunks of {counted(stores, 'array')}"
    doubt = "" if count.value > 1 else "; a chunk is treated as a sample"
    order = keys["reader.shuffle.files"]
    changed = {
        "dataset.files": files._replace(value=stores, evidence=evidence),
        "dataset.samples_per_file": DerivedValue(per_store, weaker(count.confidence, "low"), evidence + doubt),
        "dataset.sample.bytes": size.at_most("low", "the size of a chunk in its file" if doubt else ""),
        "reader.shuffle.samples": order._replace(evidence=f"order of chunks: {order.evidence}").at_most("medium"),
        "reader.shuffle.files": order if stores > 1 else DerivedValue(False, "unknown", "a single array has no order"),
        "reader.mode": _by_library(keys["reader.mode"], "zarr-python reads whole chunks"),
    }
    if doubt:
        changed["reader.batch_size"] = keys["reader.batch_size"].at_most("low", doubt.strip("; "))
    if count.value > 1:
        changed["dataset.chunk"] = DerivedValue(size.value * count.value, size.confidence, f"files of {evidence}")
    return changed | _without_request_size(keys, "zarr-python")


def _by_library(mode: DerivedValue, evidence: str) -> DerivedValue:
    """Return `reader.mode` for files that a library reads. A recorded mode stays as it is."""
    if mode.confidence == "recorded" or mode.value == "framework":
        return mode
    return DerivedValue("framework", "medium", evidence)


def _without_request_size(keys: Mapping[str, DerivedValue], library: str) -> Keys:
    size = keys.get("reader.transfer_size")
    if size is None or size.value is None:
        return {}
    chosen = f"{library} chooses the request size: {size.evidence}"
    return {"reader.transfer_size": size._replace(value=None, evidence=chosen)}


_FITTING: dict[FormatName, Callable[[Mapping[str, DerivedValue], int], Keys | None]] = {
    "jpeg": lambda keys, _: _of_image("jpeg", keys),
    "png": lambda keys, _: _of_image("png", keys),
    "npy": _of_npy,
    "tar": _of_tar,
    "indexed": _of_tokens,
}
