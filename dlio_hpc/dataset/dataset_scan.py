"""Scan of an existing dataset. The samples of all files are found once and kept in an index in the folder of runs. A
later submission reuses the index if names, sizes and times of changes of all files are the same.
"""

import hashlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.counted_progress import CountedProgress, Report
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import counted, listed
from dlio_hpc.config.dataset_keys import ITEM_BYTES, Chunk, Dataset, Sample, Scan
from dlio_hpc.config.format_facts import FORMATS
from dlio_hpc.dataset import existing_files, file_scans, sample_index, stored_parts, zarr_scan
from dlio_hpc.dataset.existing_files import FileStatus, Listing, Stores
from dlio_hpc.dataset.sample_index import Array, FileFacts, SampleIndex, ScannedFile
from dlio_hpc.files import rundir

# Number of files of which a job checks that they have not changed since the scan.
_CHECKED = 4096
# Nanoseconds.
_SECOND = 10**9
# Number of columns that a message names.
_NAMED = 8

F = TypeVar("F")


class ScanFolders(NamedTuple):
    """Folders that a scan uses. data: data directory, to which the pattern is relative. runs: folder of runs, which
    holds the indexes.
    """

    data: str
    runs: str


def described(dataset: Dataset, place: ScanFolders, report: Report) -> Dataset:
    """Scan an existing dataset if it has no index yet. Return the dataset with the numbers and sizes of its files and
    samples. The index is not written; sample_index.write() does this at submission. report: function that is called
    with lines of progress. Raise ConfigError if no file matches, or if a file does not have the format.
    """
    assert dataset.existing is not None
    listing = _listed(dataset, place.data, report)
    folder = os.path.join(place.runs, rundir.DATASET_INDEXES, _key(dataset, listing))
    if sample_index.exists(folder):
        index = sample_index.opened(folder)
    else:
        started = time.monotonic()
        index = _indexed(folder, listing, dataset, report)
        report(_summary(index, time.monotonic() - started))
    try:
        return _with_scan(dataset, index, _gaps(dataset, index, place.data, report))
    except ValueError as fault:
        raise ConfigError(f"--existing {dataset.existing.glob}: {fault}") from fault


def _gaps(dataset: Dataset, index: SampleIndex, data: str, report: Report) -> int:
    """Return how many files of chunks the stores of a dataset lack; 0 for other formats."""
    if not dataset.facts.is_store:
        return 0
    paths = [os.path.join(data, index.name(number)) for number in range(index.files)]
    return sum(existing_files.in_parallel(zarr_scan.gaps, paths, _progress(report, "counted")))


def _listed(dataset: Dataset, data: str, report: Report) -> Listing:
    """List the files of an existing dataset. The file of a store is that of the metadata of its array. The time of the
    last change of a file is that of the last change of its container. data: data directory.
    """
    existing = dataset.existing
    assert existing is not None
    stores = None
    if dataset.facts.is_store:
        located = partial(zarr_scan.located, array=existing.array)
        stores = Stores(zarr_scan.is_store, located, f"{FORMATS[dataset.format].title} store")
    listing = existing_files.listed(data, existing.glob, _progress(report, "listed"), stores)
    if not dataset.facts.suffixes:
        return listing
    changes = [_status(os.path.join(listing.folder, name), dataset).changed for name in listing.names]
    return listing._replace(changes=np.array(changes, np.int64))


def _status(path: str, dataset: Dataset) -> FileStatus:
    """Return the size of a file, and the time of the last change of its container. Raise ConfigError if a part of the
    container is missing.
    """
    first, *others = map(existing_files.status, stored_parts.names_beside(dataset, path))
    return first._replace(changed=max(first.changed, *(other.changed for other in others)) if others else first.changed)


def _progress(report: Report, what: str, total: int = 0) -> CountedProgress:
    return CountedProgress(report, "existing dataset", f"files {what}", total)


def _summary(index: SampleIndex, seconds: float) -> str:
    size = units.format_size(int(index.sizes.sum()))
    amount = f"{counted(index.files, 'file')} with {counted(index.samples, 'sample')} ({size})"
    return f"existing dataset: {amount} scanned in {seconds:.1f} s"


def _key(dataset: Dataset, listing: Listing) -> str:
    """Return the name of an index. It depends on all inputs of the scan."""
    existing = dataset.existing
    assert existing is not None
    rows = ("rows",) if existing.rows else ()  # the indexes of earlier versions keep their names
    settings = (sample_index.VERSION, dataset.format, existing.array, existing.sample_bytes, listing.folder, *rows)
    digest = hashlib.sha256(serialization.encode(settings))
    digest.update("\0".join(listing.names).encode(errors="surrogateescape"))
    digest.update(listing.sizes.tobytes() + listing.changes.tobytes())
    return digest.hexdigest()[:24]


def _indexed(folder: str, listing: Listing, dataset: Dataset, report: Report) -> SampleIndex:
    """Scan all files, and return their index, which is kept in memory."""
    files = _of_files(listing, dataset, _progress(report, "scanned", len(listing.names)))
    samples = [file.samples for file in files]
    array = _common_array(listing, files, dataset.facts.is_store)
    return sample_index.made(folder, listing, samples, array, _facts(listing, files))


def _of_files(listing: Listing, dataset: Dataset, progress: CountedProgress) -> list[ScannedFile]:
    """Scan the files, several at the same time."""

    def scan(number: int) -> ScannedFile:
        return file_scans.scan(os.path.join(listing.folder, listing.names[number]), int(listing.sizes[number]), dataset)

    return existing_files.in_parallel(scan, range(len(listing.names)), progress)


def renew(dataset: Dataset, data: str, report: Report) -> None:
    """Check, before more jobs of a study are submitted, that the files of an existing dataset have not changed since
    they were scanned. Raise ConfigError if files have changed. If the index is missing, scan the files again. data:
    data directory.
    """
    existing = dataset.existing
    assert existing is not None
    assert existing.scan is not None
    listing = _listed(dataset, data, report)
    folder = existing.scan.index
    if os.path.basename(folder) != _key(dataset, listing):
        raise ConfigError(
            f"--existing {existing.glob}: files in {data} have changed since the study was submitted, so new "
            "measurements could not be compared with its earlier ones; submit a new study"
        )
    if not sample_index.exists(folder):
        _indexed(folder, listing, dataset, report)


def check_unchanged(data: str, dataset: Dataset) -> None:
    """Check in a job that files of an existing dataset have not changed since they were scanned. At most 4096 files,
    evenly spaced, are checked; all files are checked at submission. Times are compared in seconds, because the mounts
    of a file system on other nodes may round them. Raise InvalidRun if a file is missing or has changed.
    """
    index = sample_index.of(dataset)
    assert index is not None
    numbers = np.unique(np.linspace(0, index.files - 1, min(index.files, _CHECKED)).astype(np.int64))
    for number in numbers.tolist():
        path = os.path.join(data, index.name(number))
        try:
            now = _status(path, dataset)
        except ConfigError as fault:
            raise InvalidRun(
                f"{fault}; the file existed when the dataset was scanned: submit the workload again"
            ) from fault
        if (now.size, now.changed // _SECOND) != (index.sizes[number], index.changes[number] // _SECOND):
            raise InvalidRun(
                f"{path} has changed since the dataset was scanned; submit the workload again, which scans it again"
            )


def _common_array(listing: Listing, files: list[ScannedFile], are_stores: bool) -> Array | None:
    """Return the form of the array in the files. If chunks or filters differ between files, only the library can read
    them, unless they are stores: readers take the chunks of each store from its metadata. Raise ConfigError if the
    samples differ in shape or type.
    """
    first = files[0].array
    if first is None:
        return None
    forms = {file.array for file in files if file.array is not None}
    if len({(form.shape, form.dtype) for form in forms}) > 1:
        name, other = next(
            (name, file.array)
            for name, file in zip(listing.names, files, strict=True)
            if file.array is not None and file.array[:2] != first[:2]
        )
        raise ConfigError(
            f"{os.path.join(listing.folder, name)} holds samples of {other.dtype} of shape {list(other.shape)}, but "
            f"{listing.names[0]} holds samples of {first.dtype} of shape {list(first.shape)}; choose a pattern that "
            "matches only files with the same samples"
        )
    if len(forms) == 1:
        return first
    differing = "" if are_stores else "their chunks differ between files"
    obstacle = min((form.obstacle for form in forms if form.obstacle), default=differing)
    return first._replace(obstacle=obstacle)


def _facts(listing: Listing, files: list[ScannedFile]) -> FileFacts:
    """Return the compression and the columns of the files. Raise ConfigError if they differ between files, because
    readers take one compression and the same columns for all of them.
    """
    compressions = {name: file.compression for name, file in zip(listing.names, files, strict=True) if file.compression}
    packing = _common(listing, compressions, "compression", str) or "none"
    columns = {
        name: tuple(column for column, _ in file.columns)
        for name, file in zip(listing.names, files, strict=True)
        if file.columns
    }
    names = _common(listing, columns, "columns", partial(listed, most=_NAMED)) or ()
    sizes = np.sum([[size for _, size in file.columns] for file in files if file.columns], axis=0).tolist()
    return FileFacts(packing, tuple(zip(names, sizes, strict=True)) if names else ())


def _common(listing: Listing, of_files: dict[str, F], what: str, text: Callable[[F], str]) -> F | None:
    """Return the fact that all files have in common; None if there are no files. of_files: the fact by file."""
    first = next(iter(of_files), None)
    for name, fact in of_files.items():
        if first is not None and fact != of_files[first]:
            raise ConfigError(
                f"{os.path.join(listing.folder, name)} has the {what} {text(fact)}, but {first} has "
                f"{text(of_files[first])}; choose a pattern that matches only files with the same {what}"
            )
    return None if first is None else of_files[first]


def _key_of(dtype: str) -> str:
    """Return the key of `sample` that holds a type."""
    return "dtype" if dtype in ITEM_BYTES else "stored_dtype"


def _with_scan(dataset: Dataset, index: SampleIndex, gaps: int) -> Dataset:
    """Return the dataset with the keys that describe the scanned files. gaps: number of files of chunks that are
    missing. Raise ValueError if the keys of the dataset do
    not allow these files.
    """
    counts, array = np.diff(index.starts), index.array
    if not index.samples:
        raise ValueError("the files hold no samples")
    assert dataset.existing is not None
    scan = Scan(
        fingerprint=sample_index.fingerprint(index, dataset.format),
        index=index.folder,
        samples=index.samples,
        bytes=units.Size(index.total),
        largest=units.Size(index.largest),
        largest_file=units.Size(int(index.sizes.max())),
        counts_vary=bool((counts != counts[0]).any()),
        sizes_vary=index.ends is not None or len(index.facts.columns) > 1,
        needs_library=array is not None and bool(array.obstacle),
        obstacle="" if array is None else array.obstacle,
        columns={name: units.Size(size) for name, size in index.facts.columns},
        gaps=gaps,
    )
    sample = Sample(bytes=units.Size(max(1, round(index.total / index.samples))))
    most, chunk = int(counts.max()), None
    if array is not None:
        sample = msgspec.convert({"shape": array.shape, _key_of(array.dtype): array.dtype}, Sample)
        # A chunk may be larger than the array of a file, if the array can grow.
        chunk = None if array.chunk is None else Chunk(shape=(min(array.chunk[0], most), *array.chunk[1:]))
    return structs.replace(
        dataset,
        files=index.files,
        samples_per_file=most,
        sample=sample,
        arrays=None,
        chunk=chunk,
        documents=None,
        zarr=None,
        columns=None,
        row_group=None,
        compression=index.compression,
        level=None,
        random_bits=8,
        compression_ratio=None,
        existing=structs.replace(dataset.existing, scan=scan),
    )
