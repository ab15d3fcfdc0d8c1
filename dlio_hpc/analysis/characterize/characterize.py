"""Characterisation of a program: read its Darshan logs and derive a workload."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.analysis.characterize import derive
from dlio_hpc.analysis.characterize.derive import Derived
from dlio_hpc.analysis.log import merged_logs, requests
from dlio_hpc.darshan import log_reader, log_trust
from dlio_hpc.darshan.log import Log, LogFault
from dlio_hpc.errors import ConfigError, InvalidRun

_NOT_WHOLE = ("DXT cut", "counters disagree")


class Character(NamedTuple):
    """Characterisation of one program. log: log of the program, merged from the logs at `paths`. nodes: number of nodes
    of the program; None if it is unknown. derived: workload derived from the log. notes: limitations of the data that
    the user must know about. wanted: function that returns whether a path was analysed.
    """

    log: Log
    paths: list[Path]
    nodes: int | None
    derived: Derived
    notes: list[str]
    wanted: Callable[[str], bool]


def load(paths: Sequence[Path], only: str | None, is_forced: bool) -> Character:
    """Characterise the program that wrote these logs. only: regular expression; files whose paths it does not match are
    left out. is_forced: True to derive a workload even if the program's I/O does not look like training. Raise
    InvalidRun if a log is incomplete or corrupted, and ConfigError if a log is given twice.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a log is given twice; give one log for each process of the program")
    logs = [log_reader.load(path) for path in paths]
    faults = [fault for log in logs for fault in _judged(log)]
    log = merged_logs.merge(logs)

    def wanted(path: str) -> bool:
        return only is None or re.search(only, path) is not None

    trace = log.traced.get("DXT_POSIX")
    is_usable = trace is not None and len(trace.segments) > 0 and _is_whole(faults)
    traced = requests.of_log(log, "DXT_POSIX", wanted, None) if is_usable else None
    hosts = Counter(host for host in traced.hosts if host) if traced is not None else Counter[str]()
    made = derive.derive(log, traced, wanted, is_forced)
    return Character(log, list(paths), len(hosts) or None, made, _notes(faults, made), wanted)


def _judged(log: Log) -> list[LogFault]:
    faults = log_trust.judge(log)
    if not log_trust.has_whole_counters(faults):
        raise InvalidRun(f"{log.path} is incomplete or corrupted, so no workload is derived from it: {faults[0]}")
    return faults


def _is_whole(faults: Sequence[LogFault]) -> bool:
    return log_trust.has_possible(list(faults), "DXT_POSIX") and not any(fault.name in _NOT_WHOLE for fault in faults)


def _notes(faults: Sequence[LogFault], made: Derived) -> list[str]:
    notes = [str(fault) for fault in faults]
    if not made.traced:
        notes.append(
            "derived from counters alone, without a trace (DXT): fewer values are known, and with less confidence"
        )
    return notes
