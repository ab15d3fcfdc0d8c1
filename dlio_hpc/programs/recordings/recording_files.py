"""Files of a recording, one per process. The recorder, programs/recorder, defines the content of their lines."""

import io
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import counted, format_size
from dlio_hpc.programs.recorder.recording import PROCESSES, VERSION
from dlio_hpc.programs.recordings import recorded_events
from dlio_hpc.programs.recordings.recorded_events import Seconds

# Largest size of a file: what the recorder writes at most, and an event.
_MOST = 16 << 20
# Largest recording: that of some forty processes whose files are full. An event takes up to 300 B of memory.
_MOST_IN_ALL, _MOST_EVENTS = 512 << 20, 8_000_000
# Kinds of events that nothing is derived from, and kinds whose events hold the same values again and again.
_UNUSED, _ALIKE = frozenset({"fetch"}), frozenset({"step", "open"})


class Process(Struct, frozen=True):
    """First line of a file, which describes a process of the program."""

    format: str
    version: int
    host: str
    process: int
    parent: int
    begun: Seconds
    python: str
    script: str
    is_anonymous: bool
    rank: tuple[int, int, str] | None = None
    job: str | None = None


class Event(NamedTuple):
    """Event of a process. time: seconds since 1970. kind, values: as written by the recorder."""

    time: float
    kind: str
    values: tuple[Any, ...]


class ProcessRecording(NamedTuple):
    """Recording of a process. files: path by number. has_end: whether the process ended by itself and was not killed.
    faults: what is missing from the recording.
    """

    path: Path
    process: Process
    events: list[Event]
    files: dict[int, str]
    has_end: bool
    faults: list[str]


def is_recording(path: Path) -> bool:
    """Return whether `path` is the folder of a recording."""
    return (path / PROCESSES).is_dir()


def listed(folder: Path) -> list[Path]:
    """Return the files of all processes of a recording. Raise ConfigError if it has none."""
    paths = sorted((folder / PROCESSES).glob("*/*.jsonl"))
    if not paths:
        raise ConfigError(
            f"{folder} has no recorded process: the program ran no Python of version 3.8 or newer, or ran it with -I, "
            "-E or -S, or with another PYTHONPATH"
        )
    return paths


def load(folder: Path) -> list[ProcessRecording]:
    """Return all processes of a recording, sorted by their start. Raise ConfigError if there are none. Raise InvalidRun
    if this version cannot read the first line of a file, or if the recording is too large.
    """
    made: list[ProcessRecording] = []
    size = events = 0
    for path in listed(folder):
        made.append(_load(path))
        size += path.stat().st_size
        events += len(made[-1].events)
        if size > _MOST_IN_ALL or events > _MOST_EVENTS:
            raise InvalidRun(
                f"{folder} is too large: this version of dlio-hpc reads at most {format_size(_MOST_IN_ALL)} and "
                f"{_MOST_EVENTS:,} events; record fewer ranks, or a shorter run"
            )
    return sorted(made, key=lambda recording: recording.process.begun)


def _content(path: Path) -> bytes:
    """Return the content of a file. Raise InvalidRun if it cannot be from the recorder: a pipe, a folder, a link, or a
    file that is too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as fault:
        raise InvalidRun(f"{path} is not a recording of a process: {fault.strerror}") from fault
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST:
            why = f"it is not a file, or is larger than {format_size(_MOST)}"
            raise InvalidRun(f"{path} is not a recording of a process: {why}")
        with open(descriptor, "rb", closefd=False) as file:  # open() takes no folder
            return file.read(_MOST)
    finally:
        os.close(descriptor)


def _load(path: Path) -> ProcessRecording:
    lines = io.BytesIO(_content(path))
    try:
        process = msgspec.json.decode(lines.readline(), type=Process)
    except (ValueError, RecursionError) as fault:
        raise InvalidRun(f"{path} is not a recording of a process: {fault}") from fault
    if process.version != VERSION:
        raise InvalidRun(
            f"{path} was recorded in version {process.version} of the format; this version of dlio-hpc reads {VERSION}"
        )
    events: list[Event] = []
    files: dict[int, str] = {}
    alike: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    torn = 0
    for line in filter(bytes.strip, lines):
        event = recorded_events.decoded(line, files)
        if event is None:
            torn += 1
            continue
        time, kind, values = event
        if kind == "file":
            files[values[0]] = values[1]
        if kind in _ALIKE:
            values = alike.setdefault(values, values)
        if kind not in _UNUSED:
            events.append(Event(process.begun + time, kind, values))
    return ProcessRecording(
        path, process, events, files, any(event.kind == "end" for event in events), list(_faults(events, torn))
    )


def _faults(events: Sequence[Event], torn: int) -> Iterator[str]:
    if torn:
        yield (
            f"{counted(torn, 'torn line')}: a process was killed while it wrote, or the file is not from the recorder"
        )
    for event in events:
        if event.kind == "fault":
            yield f"not recorded: {event.values[0]} ({event.values[1]})"
        elif event.kind == "unseen":
            yield f"not recorded: {event.values[1]}"
    kinds = sorted({kind for event in events if event.kind == "counts" for kind in event.values[0]})
    if kinds:
        yield f"the recording was full: {', '.join(kinds)} were only counted from then on"
