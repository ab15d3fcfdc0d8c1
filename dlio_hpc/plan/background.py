"""Background loads of known strength: the rate that a study file asks for, as settings of a shipped workload."""

import math
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError

Rate = Annotated[float, Meta(gt=0)]
# Time between two bursts of a rank in seconds, and its length if a burst has the smallest size.
_EVERY_S = 0.05
# Steps of the shipped workloads, and samples of the dataset of background_read.
_STEPS, _SAMPLES = 200, 65536
# Bytes of a block that is written or read.
_BLOCK = 4096


class Background(Struct, frozen=True, forbid_unknown_fields=True):
    """Strength of a background load; give one of the keys. The ranks of the load make this rate together, in a burst
    every 50 ms, whatever the storage does. The run is invalid if the storage does not hold the rate.
    """

    write_MBps: Rate | None = None
    """MB/s (1 MB = 1e6 bytes) that are written and synced. Example: 200"""
    read_iops: Rate | None = None
    """Random reads of 4 KiB with O_DIRECT in a second. Example: 1000"""
    metadata_per_s: Rate | None = None
    """Files that are created or removed in a second. Example: 500"""

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        serialization.refuse((len(given) != 1, f"give exactly one of: {', '.join(self.__struct_fields__)}"))


class _Kind(NamedTuple):
    """A background load. workload: name of the shipped workload. unit: amount in a unit of the rate. least: smallest
    amount of a burst of a rank. key: key of the workload that sets this amount.
    """

    workload: str
    unit: float
    least: int
    key: str


_KINDS = {
    "write_MBps": _Kind("background_write", 1e6, _BLOCK, "checkpoint.model_bytes"),
    "read_iops": _Kind("background_read", 1, 1, "reader.batch_size"),
    "metadata_per_s": _Kind("background_metadata", 1, 10, "metadata.files"),
}


def workload(wanted: Background, ranks: int) -> tuple[str, dict[str, Any]]:
    """Return the name of the workload, and its settings, for a background load on some ranks. Raise ConfigError if the
    dataset is too small for the rate.
    """
    name, rate = next((name, rate) for name in _KINDS if (rate := getattr(wanted, name)) is not None)
    kind = _KINDS[name]
    of_rank = rate * kind.unit / ranks
    burst = max(1, math.ceil(of_rank * _EVERY_S / kind.least)) * kind.least
    settings = {kind.key: burst, "compute.interval": burst / of_rank}
    if name == "read_iops":
        if burst * ranks > _SAMPLES:
            raise ConfigError(f"background: read_iops={rate:g} is too high; at most {_SAMPLES / _EVERY_S:,.0f}")
        settings["train.epochs"] = math.ceil(_STEPS * burst * ranks / _SAMPLES)
    return kind.workload, settings
