"""Fingerprints of datasets, and the names of their folders."""

import hashlib
from typing import Any

from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.lustre_layout import Layout

# Version of the content that the generator writes. It is part of every fingerprint. Increase it if the generator writes
# different bytes for the same geometry.
_CONTENT = 2


def of(dataset: Dataset, layout: Layout | None = None) -> str:
    """Return the fingerprint of a dataset: twelve hexadecimal digits. Two datasets have the same fingerprint if and
    only if one can replace the other.
    """
    if dataset.scan is not None:
        return dataset.scan.fingerprint
    auxiliary_files = [(side.name, side.file_size) for side in dataset.auxiliary_files if side.access == "read"]
    stored = serialization.plain(structs.replace(dataset, auxiliary_files=()))
    for key in ("compression_ratio", "arrays", "image", "columns", "row_group", "zarr", "subfolders", "documents"):
        if stored[key] is None:
            del stored[key]  # datasets generated before this key existed keep their fingerprints
    del stored["existing"], stored["sample"]["stored_dtype"]
    del stored["blend"]  # an order of reading, which changes no file
    parts = [_CONTENT, stored, auxiliary_files, *([] if layout is None else [_stored_layout(layout)])]
    return hashlib.sha256(serialization.encode(parts)).hexdigest()[:12]


def _stored_layout(layout: Layout) -> dict[str, Any]:
    stored: dict[str, Any] = serialization.plain(layout)
    if stored["directories"] is None:
        del stored["directories"]  # layouts from before this key existed keep their fingerprints
    return stored


def folder_name(dataset: Dataset, layout: Layout | None = None) -> str:
    """Return the name of the dataset's folder: format, geometry and fingerprint, such as
    npz-8x4x11.7KiB-03c25a44c247.
    """
    sample = units.format_size(dataset.sample_bytes).replace(" ", "")
    return f"{dataset.format}-{dataset.files}x{dataset.samples_per_file}x{sample}-{of(dataset, layout)}"
