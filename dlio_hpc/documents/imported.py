"""JSON documents about workloads of dlio_benchmark that are imported."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from dlio_hpc.base import serialization
from dlio_hpc.config.dlio_benchmark.fact import Fate
from dlio_hpc.config.dlio_benchmark.importing import Imported
from dlio_hpc.documents.versioned import Versioned


class ImportedKey(Struct, frozen=True):
    """Result of the import for a key of dlio_benchmark."""

    key: str
    """Key of dlio_benchmark."""
    outcome: Fate
    """Result of the import for this key."""
    text: str
    """Explanation; may be empty."""
    target: str
    """Key of dlio-hpc that is set; empty: none."""
    value: Any
    """Value of that key."""


class ImportedWorkload(Struct, frozen=True):
    """A workload of dlio_benchmark that was requested to be imported."""

    name: str
    """Name of the file without its suffix."""
    source: str
    """Path of the file."""
    error: str | None
    """Reason why dlio-hpc cannot make its requests; null: the workload was imported."""
    keys: list[ImportedKey]
    """Result for each key."""
    yaml: str | None
    """Text of the workload; null: not imported."""
    file: str | None
    """File that was written; null: none."""


class ImportDocument(Versioned, frozen=True):
    """Workloads of dlio_benchmark that were to be imported."""

    workloads: list[ImportedWorkload]
    """The workloads: one, or all of a folder."""


def of_import(imported: Imported, yaml: str, written: Path | None) -> ImportedWorkload:
    """Return the document of a workload that was imported. yaml: its text. written: file that was written."""
    keys = [
        ImportedKey(fact.key, fact.fate, fact.text, fact.target, serialization.plain(fact.value))
        for fact in imported.facts
    ]
    source = imported.source
    return ImportedWorkload(source.name, str(source.path), None, keys, yaml, None if written is None else str(written))


def of_refusal(path: Path, fault: Exception) -> ImportedWorkload:
    """Return the document of a workload file that cannot be imported."""
    return ImportedWorkload(path.stem, str(path), str(fault), [], None, None)
