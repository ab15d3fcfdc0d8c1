"""One run, or anybody's Darshan log, looked at as a whole: judged, summed up, and made ready for pictures."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.analysis.log import picture_data
from dlio_hpc.analysis.log.findings import Analysis
from dlio_hpc.analysis.log.requests import Requests, of_log
from dlio_hpc.analysis.log.summary import summarise
from dlio_hpc.analysis.log.view import View
from dlio_hpc.darshan import clock_alignment, log_reader, log_trust
from dlio_hpc.darshan.log import Fault, Log
from dlio_hpc.plan import dataset
from dlio_hpc.plan.plan import Run
from dlio_hpc.units import format_size


class Examined(NamedTuple):
    """log, analysis: None where there is no log that could be read. requests: of its trace, on the clock of timeline,
    the bytes of the run's timeline.h5; that is None for logs of others. view None: nothing was recorded.
    """

    title: str
    log: Log | None
    faults: list[Fault]
    analysis: Analysis | None
    requests: Requests | None
    timeline: bytes | None
    view: View | None

    @property
    def is_sound(self) -> bool:
        """May the figures be used? What a trace lacks is told, and only leaves gaps."""
        return self.log is None or log_trust.has_whole_counters(self.faults)


class _Subject(NamedTuple):
    """A log that was judged. wanted: the paths that count. notes: what is to be said beside its faults."""

    title: str
    log: Log
    faults: list[Fault]
    wanted: Callable[[str], bool]
    notes: list[str]
    timeline: bytes | None


def log_file(path: Path, only: str | None = None, step_s: float | None = None) -> Examined:
    """Anybody's log. only: a regular expression; files whose path it is not found in are left out."""
    found = log_reader.load(path)
    examined = files_of(found, path.name, _matching(only), step_s)
    if examined.view is not None or examined.analysis is None:
        return examined
    heat = [] if only else [found.heat[name] for name in ("POSIX", "STDIO") if name in found.heat]
    notes = [str(fault) for fault in examined.faults]
    return examined._replace(view=picture_data.of_counters(path.name, notes, examined.analysis, heat))


def files_of(found: Log, title: str, wanted: Callable[[str], bool], step_s: float | None = None) -> Examined:
    """A log's `wanted` paths alone."""
    return _examined(_Subject(title, found, log_trust.judge(found), wanted, [], None), None, step_s)


def run(
    made: Run, title: str, path: Path | None, expected: log_trust.Expected, timeline: bytes | None,
    step_s: float | None = None, notes: tuple[str, ...] = (),
) -> Examined:  # fmt: skip
    """A run of ours, from its log and its timeline.h5, each of which may be missing."""
    subject = None
    if path is not None:
        found = log_reader.load(path)
        subject = _Subject(title, found, log_trust.judge(found, expected), _data_of(made), list(notes), timeline)
    if timeline is None:
        return _examined(subject, None, step_s) if subject else Examined(title, None, [], None, None, None, None)
    with timeline_reader.opened(timeline) as record:
        if subject is None:
            view = picture_data.of_core(title, list(notes), record)
            return Examined(title, None, [], None, None, timeline, view)
        examined = _examined(subject, record, step_s)
        if examined.view is None:
            view = picture_data.of_core(title, [*notes, *map(str, examined.faults)], record)
            examined = examined._replace(view=view)
        return examined


def _examined(subject: _Subject, record: timeline_reader.Recorded | None, step_s: float | None) -> Examined:
    """Without a view where there is no trace to draw from, or none that could be laid on the record's clock."""
    title, found, faults = subject.title, subject.log, subject.faults
    if not _is_possible(found, faults):
        return Examined(title, found, faults, None, None, subject.timeline, None)
    aligned = clock_alignment.align(found, record.marks) if record else None
    requests = _requests(found, faults, subject.wanted, aligned)
    computing = None
    if record is not None and aligned is not None:
        computing = timeline_reader.computing_of_all(record)
    analysis = summarise(found, _whole(requests, faults), subject.wanted, computing, step_s)
    if requests is None or (record is not None and aligned is None):
        return Examined(title, found, faults, analysis, None, subject.timeline, None)
    said = [*subject.notes, *map(str, faults), *_untraced(analysis)]
    is_cut = any(fault.name == "DXT cut" for fault in faults)
    source = f"Darshan's trace (DXT{', cut: a part of the requests' if is_cut else ''})" + (
        " and the core's steps" if record else ""
    )
    view = picture_data.of_trace(title, source, said, analysis, requests, record)
    return Examined(title, found, faults, analysis, requests, subject.timeline, view)


def _requests(
    found: Log, faults: list[Fault], wanted: Callable[[str], bool], aligned: clock_alignment.Alignment | None
) -> Requests | None:
    """None where there is no trace, or it says other things than the counters. One that is cut is used, and named."""
    trace = found.traced.get("DXT_POSIX")
    if trace is None or not len(trace.segments) or any(fault.name == "counters disagree" for fault in faults):
        return None
    if not log_trust.has_possible(faults, "DXT_POSIX"):
        return None
    return of_log(found, "DXT_POSIX", wanted, None if aligned is None else aligned.offset_s)


def _whole(requests: Requests | None, faults: list[Fault]) -> Requests | None:
    """Figures of a part would pass for those of all: a trace that is cut is for pictures, which say so."""
    return None if any(fault.name == "DXT cut" for fault in faults) else requests


def _untraced(analysis: Analysis) -> list[str]:
    if not analysis.untraced_bytes:
        return []
    size = format_size(analysis.untraced_bytes)
    return [f"{size} went through STDIO, which leaves no trace: they are in no time, rate or picture"]


def _is_possible(found: Log, faults: list[Fault]) -> bool:
    """Can figures be made of its counters at all?"""
    return all(log_trust.has_possible(faults, what) for what in ("a job", *found.counted))


def _matching(only: str | None) -> Callable[[str], bool]:
    if only is None:
        return lambda path: True
    expression = re.compile(only)
    return lambda path: expression.search(path) is not None


def _data_of(made: Run) -> Callable[[str], bool]:
    """Not the marker of the clocks, nor what says which dataset lies there, which is written under a temporary name."""

    def is_data(path: str) -> bool:
        folder, name = os.path.split(path)
        return folder == made.outputs or (folder == made.dataset and not dataset.is_note(name))

    return is_data
