"""Digest of a workload's settings. Keys that have their defaults are left out, so the digest stays the same when a
later version of dlio-hpc adds keys. Digests of earlier versions are computed again from the workload that is kept with
them.
"""

import functools
import hashlib
from typing import Any

import msgspec
from msgspec import Struct, structs

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.workload import Workload


def of(workload: Workload) -> str:
    """Return the digest of all settings, twelve hexadecimal digits. The description and the source are left out."""
    kept = _without_defaults(structs.replace(placeless(workload), description="", source=""))
    content = msgspec.json.encode(serialization.plain(kept), order="sorted")
    return hashlib.sha256(content).hexdigest()[:12]


def placeless(workload: Workload) -> Workload:
    """Return the workload without the path of the index of an existing dataset and the path of a trace. The paths are
    not properties of the data. Other results of their scans, such as the fingerprint, are kept.
    """
    inference = workload.inference
    if inference is not None and inference.trace is not None and inference.trace.scan is not None:
        trace = structs.replace(inference.trace, file="/")
        workload = structs.replace(workload, inference=structs.replace(inference, trace=trace))
    existing = workload.dataset.existing
    if existing is None or existing.scan is None:
        return workload
    existing = structs.replace(existing, scan=structs.replace(existing.scan, index=""))
    return structs.replace(workload, dataset=structs.replace(workload.dataset, existing=existing))


def carried(workload: Any, digest: str) -> str:
    """Return the digest that this version gives a workload of an earlier version. workload: the workload as decoded
    from JSON; None if it was not kept. digest: digest that the earlier version recorded. It is returned if this version
    does not know the keys of the workload.
    """
    return digest if workload is None else _computed(msgspec.json.encode(workload)) or digest


@functools.lru_cache(1024)
def _computed(content: bytes) -> str | None:
    try:
        return of(serialization.decode(content, Workload, "a workload of an earlier version"))
    except ConfigError:
        return None


def _without_defaults(value: Any) -> Any:
    """Return structs as dicts without the keys that have their defaults, at every level."""
    if isinstance(value, Struct):
        fields = [field for field in structs.fields(value) if getattr(value, field.name) != _default(field)]
        return {field.name: _without_defaults(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {name: _without_defaults(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_defaults(member) for member in value]
    return value


def _default(field: structs.FieldInfo) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default
