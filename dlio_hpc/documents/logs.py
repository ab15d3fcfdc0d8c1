"""JSON documents of Darshan logs."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import UNSET, Struct, UnsetType

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.analysis.log.findings import Analysis
from dlio_hpc.darshan.log import LogJob
from dlio_hpc.darshan.log import Name as LogFaultName
from dlio_hpc.documents.versioned import Versioned


class LogFaultDocument(Struct, frozen=True):
    """Reason why a log, or a part of it, cannot be trusted."""

    name: LogFaultName
    """Kind of the fault."""
    text: str
    """Description."""


class LogDocument(Struct, frozen=True):
    """A Darshan log."""

    log: str
    """Path of the log."""
    whole: bool
    """True if the log is complete and its counters can be trusted."""
    faults: list[LogFaultDocument]
    """Faults of the log."""
    job: LogJob
    """Job in which the log was recorded."""
    analysis: Analysis | None
    """I/O of the program; null: the log does not contain it."""
    merged: list[str] | UnsetType = UNSET
    """Paths of all logs of the program; present only with --merge."""


class DarshanDocument(Versioned, frozen=True):
    """Darshan logs."""

    logs: list[LogDocument]
    """The logs; with --merge, a single merged log. A log that cannot be read is absent; stderr has the reason."""


def of_logs(examined: Sequence[Examined], merged: Sequence[Path] | None = None) -> DarshanDocument:
    """Return the document of Darshan logs. merged: paths of the logs that were merged; None without --merge."""
    return DarshanDocument([_log(log, merged) for log in examined])


def _log(examined: Examined, merged: Sequence[Path] | None) -> LogDocument:
    assert examined.log is not None
    return LogDocument(
        log=str(examined.log.path),
        whole=examined.is_sound,
        faults=[LogFaultDocument(fault.name, fault.text) for fault in examined.faults],
        job=examined.log.job,
        analysis=examined.analysis,
        merged=UNSET if merged is None else list(map(str, merged)),
    )
