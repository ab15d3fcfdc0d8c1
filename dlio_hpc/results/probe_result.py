"""probe.json: rates of plain reads of a dataset before a measured run (schema 1), in MB/s (1 MB = 1e6 bytes)."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.files import rundir

Pattern = Literal["sequential", "random"]


class ProbeRate(Struct, frozen=True):
    """Rate of all nodes together for one pattern of requests."""

    pattern: Pattern
    """sequential: each thread reads files from begin to end; random: requests at random offsets of random files."""
    tool: str
    """loop: reads by the ranks of dlio-hpc; otherwise the version of fio."""
    request_bytes: int
    """Bytes of a request."""
    bytes_read: int
    """Bytes read."""
    seconds: float
    """Duration of the slowest rank."""
    MBps: float
    """Bytes read divided by seconds."""


class StorageProbe(Struct, frozen=True):
    """Outcome of the probe before a measured run."""

    ended: str
    """Time at which the probe ended, UTC."""
    threads: int
    """Number of threads of all ranks together that read."""
    rates: list[ProbeRate]
    """Rates of each pattern and tool; empty if nothing was measured."""
    why_not: str | None = None
    """Reason why nothing was measured; null: the rates are valid."""
    without_fio: str | None = None
    """Reason why fio measured nothing; null: fio measured the rates."""
    schema: Literal[1] = 1
    """Schema version of this document."""


def decode(content: bytes, source: str) -> StorageProbe:
    """Decode the content of a probe.json. Raise InvalidRun if the content is not valid. source: name of the file, for
    messages.
    """
    probe = serialization.decode(content, StorageProbe, source, InvalidRun)
    serialization.check_moments([probe], ("ended",), source)
    return probe


def write(path: Path, probe: StorageProbe) -> None:
    rundir.write(path, serialization.encode(probe))
