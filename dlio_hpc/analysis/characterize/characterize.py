"""Anybody's Darshan logs, to the workload that their program was."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.analysis.characterize import derive
from dlio_hpc.analysis.characterize.derive import Derived
from dlio_hpc.analysis.log import merged_logs, requests
from dlio_hpc.darshan import log_reader, log_trust
from dlio_hpc.darshan.log import Fault, Log
from dlio_hpc.errors import ConfigError, InvalidRun

_NOT_WHOLE = ("DXT cut", "counters disagree")


class Character(NamedTuple):
    """What was found of one program. notes: what is to be known before believing it."""

    log: Log
    paths: list[Path]
    nodes: int | None
    derived: Derived
    notes: list[str]
    wanted: Callable[[str], bool]


def load(paths: Sequence[Path], only: str | None, is_forced: bool) -> Character:
    """only: a regular expression; files whose path it is not found in are left out. is_forced: a workload whatever
    speaks against it. InvalidRun when a log is not whole, ConfigError when one is given twice.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a log is given twice; each of them is taken for another process of the program")
    logs = [log_reader.load(path) for path in paths]
    faults = [fault for log in logs for fault in _judged(log)]
    log = merged_logs.merge(logs)

    def wanted(path: str) -> bool:
        return only is None or re.search(only, path) is not None

    trace = log.traced.get("DXT_POSIX")
    is_usable = trace is not None and len(trace.segments) > 0 and _is_whole(faults)
    found = requests.of_log(log, "DXT_POSIX", wanted, None) if is_usable else None
    hosts = Counter(host for host in found.hosts if host) if found is not None else Counter[str]()
    made = derive.derive(log, found, wanted, is_forced)
    return Character(log, list(paths), len(hosts) or None, made, _notes(faults, made), wanted)


def _judged(log: Log) -> list[Fault]:
    faults = log_trust.judge(log)
    if not log_trust.has_whole_counters(faults):
        raise InvalidRun(f"{log.path} is not whole, and no workload is derived from it: {faults[0]}")
    return faults


def _is_whole(faults: Sequence[Fault]) -> bool:
    return log_trust.has_possible(list(faults), "DXT_POSIX") and not any(fault.name in _NOT_WHOLE for fault in faults)


def _notes(faults: Sequence[Fault], made: Derived) -> list[str]:
    notes = [str(fault) for fault in faults]
    if not made.traced:
        notes.append("by counters alone, without a trace (DXT): less is known, and less surely")
    return notes
