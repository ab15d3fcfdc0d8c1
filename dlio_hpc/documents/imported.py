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
    """Key of dlio-hpc that the import sets; empty: no key is set."""
    value: Any
    """Value of the key `target`."""


class ImportedWorkload(Struct, frozen=True):
    """A workload of dlio_benchmark that was, or could not be, imported."""

    name: str
    """Name of the file without its suffix."""
    source: str
    """Path of the file."""
    error: str | None
    """Reason why dlio-hpc cannot make the requests of the workload; null: the workload was imported."""
    keys: list[ImportedKey]
    """Result for each key."""
    yaml: str | None
    """Text of the imported workload as YAML; null: not imported."""
    file: str | None
    """Path of the file that was written; null: no file was written."""


class ImportDocument(Versioned, frozen=True):
    """Results of importing workloads of dlio_benchmark."""

    workloads: list[ImportedWorkload]
    """The workloads: the requested one, or all workloads of the requested folder."""


def of_import(imported: Imported, yaml: str, written: Path | None) -> ImportedWorkload:
    """Return the document of a workload that was imported. yaml: text of the imported workload. written: path of the
    file that was written; None if none was written.
    """
    keys = [
        ImportedKey(fact.key, fact.fate, fact.text, fact.target, serialization.plain(fact.value))
        for fact in imported.facts
    ]
    source = imported.source
    return ImportedWorkload(source.name, str(source.path), None, keys, yaml, None if written is None else str(written))


def of_refusal(path: Path, fault: Exception) -> ImportedWorkload:
    """Return the document of a workload file that cannot be imported."""
    return ImportedWorkload(path.stem, str(path), str(fault), [], None, None)
