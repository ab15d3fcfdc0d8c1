"""Characterisation of a program: read its Darshan logs and derive a workload."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.analysis.log import merged_program, requests
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import counted, format_size
from dlio_hpc.darshan import log_faults, log_reader
from dlio_hpc.darshan.log import Log, LogFault, refuse_unmatched
from dlio_hpc.programs.characterize import derive
from dlio_hpc.programs.characterize.derive import Derived
from dlio_hpc.programs.files import file_roles
from dlio_hpc.programs.step_check import StepProfile

_NOT_WHOLE = ("DXT cut", "counters disagree")
# A workload that reads at least this share of the program's bytes, and at most its inverse, reads about as many.
_SAME = 0.9
# Smallest share of the bytes of a dataset, through STDIO or from files of the program itself, that is worth a note.
_LITTLE = 0.01

# Files that the recorder of dlio-hpc writes (recorder/recording.py), which are none of the program.
_OF_RECORDER = re.compile(r"/processes/[^/]+/\d+-\d{16,}\.jsonl$")


class Character(NamedTuple):
    """Characterisation of one program. log: log of the program, merged from the logs at `paths`. nodes: number of nodes
    of the program; None if it is unknown. derived: workload derived from the log. notes: limitations of the data that
    the user must know about. wanted: function that returns whether a path was analysed. is_recording: whether the
    program was recorded; `log` then contains only data on the job. steps: steps of the recorded program; None if the
    program was not recorded, or reads without a loader.
    """

    log: Log
    paths: list[Path]
    nodes: int | None
    derived: Derived
    notes: list[str]
    wanted: Callable[[str], bool]
    is_recording: bool = False
    steps: StepProfile | None = None

    @property
    def has_requests(self) -> bool:
        """Whether the character was derived from a log, which shows requests."""
        return bool(self.log.counted)


def load(paths: Sequence[Path], only: str | None, is_forced: bool, reads_content: bool = False) -> Character:
    """Characterise the program that wrote these logs. only: regular expression; files whose paths it does not match are
    left out. is_forced: True to derive a workload even if the program's I/O does not show that it trains.
    reads_content: True to read the beginning of a few files of the dataset, if this machine has them. Raise InvalidRun
    if a log is incomplete or corrupted, and ConfigError if a log is given twice.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a log is given twice; give one log for each process of the program")
    return of_logs([log_reader.load(path) for path in paths], paths, only, is_forced, reads_content)


def of_logs(
    logs: Sequence[Log], paths: Sequence[Path], only: str | None, is_forced: bool, reads_content: bool = False
) -> Character:
    """Characterise the program that wrote these logs. The logs have already been read. See load()."""
    faults = [fault for log in logs for fault in _judged(log)]
    log = merged_program.merge(logs)

    refuse_unmatched(logs, only)

    def wanted(path: str) -> bool:
        return _OF_RECORDER.search(path) is None and (only is None or re.search(only, path) is not None)

    trace = log.traced.get("DXT_POSIX")
    is_usable = trace is not None and len(trace.segments) > 0 and _is_whole(faults)
    traced = requests.of_log(log, "DXT_POSIX", wanted, None) if is_usable else None
    hosts = Counter(host for host in traced.hosts if host) if traced is not None else Counter[str]()
    made = derive.derive(log, traced, wanted, is_forced, reads_content, only is not None)
    notes = [*_notes(faults, made), *missing(made, log.job.ranks)]
    return Character(log, list(paths), len(hosts) or None, made, notes, wanted)


def missing(made: Derived, ranks: int) -> list[str]:
    """Return a note if the workload reads far more, or far fewer, bytes of its dataset than the program read of its
    own.
    """
    read = sum(file.bytes_read for file in file_roles.of(made.roles, "dataset"))
    if not made.keys or not read:
        return []
    planned = derive.amount(made.keys, ranks)
    if _SAME <= planned / read <= 1 / _SAME:
        return []
    amounts = f"{format_size(planned)} of samples; the program read {format_size(read)} of the dataset"
    return [f"this workload reads {planned / read:.2f} times the bytes of the program: {amounts}"]


def _judged(log: Log) -> list[LogFault]:
    faults = log_faults.judge(log)
    if not log_faults.has_whole_counters(faults):
        raise InvalidRun(f"{log.path} is incomplete or corrupted, so no workload is derived from it: {faults[0]}")
    return faults


def _is_whole(faults: Sequence[LogFault]) -> bool:
    return log_faults.has_possible(list(faults), "DXT_POSIX") and not any(fault.name in _NOT_WHOLE for fault in faults)


def _notes(faults: Sequence[LogFault], made: Derived) -> list[str]:
    data = file_roles.of(made.roles, "dataset")
    read, buffered = (sum(getattr(file, name) for file in data) for name in ("bytes_read", "buffered_read"))
    share = f"{format_size(buffered)} of {format_size(read)}"
    notes = [str(fault) for fault in faults]
    if not made.traced:
        notes.append(
            "derived from counters alone, without a trace (DXT): fewer values are known, and with less confidence"
        )
    if buffered > _LITTLE * read:
        rest = "; values derived from requests describe only the traced reads" if made.traced else ""
        notes.append(f"{share} of the dataset were read through STDIO, which is not traced{rest}")
    return [*notes, *_of_shards(made), *_of_own_files(made)]


def _of_shards(made: Derived) -> list[str]:
    """Return a note if the dataset is tar files, whose members a log does not show."""
    if not made.keys or made.keys["dataset.format"].value != "tar":
        return []
    shards = [file for file in file_roles.of(made.roles, "dataset") if file.reads]
    request = sum(file.bytes_read for file in shards) // max(sum(file.reads for file in shards), 1)
    return [
        f"{counted(len(shards), 'tar file')} of the dataset are read in requests of {request:,} bytes on average "
        "(tarfile reads 10,240). A log does not show their members, so the sizes of samples are assumed. If you have "
        "the files, --existing reads them member by member"
    ]


def _of_own_files(made: Derived) -> list[str]:
    """Return a note on the files that the program itself wrote before it read them."""
    own = [role for role in made.roles if role.is_own and role.file.bytes_read]
    data = file_roles.of(made.roles, "dataset")
    kept = sum(role.role == "dataset" for role in own)
    if kept:
        return [f"the program itself wrote {kept:,} of the {len(data):,} files of its dataset before it read them"]
    read = sum(role.file.bytes_read for role in own)
    if read <= _LITTLE * sum(file.bytes_read for file in data):
        return []
    return [
        f"{counted(len(own), 'file')}, such as {own[0].file.path}, are left out, because the program itself wrote "
        "them before "
        f"it read them ({format_size(read)}); --only selects them"
    ]
