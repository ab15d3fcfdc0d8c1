"""Analysis of one run, or of any Darshan log: check the log, summarise it, and prepare the data for figures."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.analysis.log import io_load, logs_by_program, merged_program, picture_data
from dlio_hpc.analysis.log.findings import Analysis
from dlio_hpc.analysis.log.requests import Requests, of_log
from dlio_hpc.analysis.log.summary import summarise
from dlio_hpc.analysis.log.view import View
from dlio_hpc.base.units import format_size
from dlio_hpc.darshan import clock_alignment, log_faults, log_reader, run_logs
from dlio_hpc.darshan.log import Log, LogFault, refuse_unmatched
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.plan.plan import Run

_WORKERS = (
    "Darshan's clocks in worker processes are not aligned with the run: pictures are drawn from the benchmark's own "
    "timeline"
)


class Examined(NamedTuple):
    """Analysis of a run or a log. log: the log; None if there is none. faults: faults of the log. analysis: metrics of
    the log; None if there is no log, or if its counters have impossible values. requests: requests of the log's trace,
    on the clock of timeline.h5 if there is one; None if the trace cannot be used. timeline: content of the run's
    timeline.h5; None if there is none, as for other programs. view: data for figures; None if there are no data to
    draw.
    """

    title: str
    log: Log | None
    faults: list[LogFault]
    analysis: Analysis | None
    requests: Requests | None
    timeline: bytes | None
    view: View | None

    @property
    def is_sound(self) -> bool:
        """Whether the metrics can be used. Faults of the trace alone do not prevent this: they are reported, and values
        that need the trace are missing.
        """
        return self.log is None or log_faults.has_whole_counters(self.faults)


class _Subject(NamedTuple):
    """A log that has been checked. wanted: function that returns whether a path is analysed. notes: notes to report in
    addition to the faults of the log. timeline: content of the run's timeline.h5; None if there is none.
    """

    title: str
    log: Log
    faults: list[LogFault]
    wanted: Callable[[str], bool]
    notes: list[str]
    timeline: bytes | None


def log_file(path: Path, only: str | None = None, step_s: float | None = None) -> Examined:
    """Read and analyse the Darshan log of any program. only: regular expression; files whose path it does not match are
    left out. step_s: length of a step of the timeline in seconds; None for 200 steps.
    """
    logs = [log_reader.load(path)]
    refuse_unmatched(logs, only)
    return logs_of_program(logs, only, step_s)


def logs_of_program(logs: Sequence[Log], only: str | None = None, step_s: float | None = None) -> Examined:
    """Analyse the logs of the processes of one program as one log. The other parameters are as for log_file(). Raise
    ConfigError if there are several logs and one of them is from a program with MPI.
    """
    title = logs[0].path.name
    if len(logs) > 1:
        title = f"{logs_by_program.short_name(logs[0].job.program) or title} ({len(logs)} logs)"
    log, faults = merged_program.merge(logs), [fault for log in logs for fault in _judged(log, len(logs) > 1)]
    notes = [*logs_by_program.merging_notes([log.job for log in logs]), *_coarse_times(log)]
    examined = _examined(_Subject(title, log, faults, _matching(only), notes, None), None, step_s)
    if examined.view is not None or examined.analysis is None:
        return examined
    heat = [] if only else [log.heat[name] for name in ("POSIX", "STDIO") if name in log.heat]
    notes += [str(fault) for fault in examined.faults]
    return examined._replace(view=picture_data.of_counters(title, notes, examined.analysis, heat))


def _judged(log: Log, is_named: bool) -> list[LogFault]:
    """Return the faults of a log. is_named: whether each fault ends with the name of the log."""
    faults = log_faults.judge(log)
    return [fault._replace(text=f"{fault.text} ({log.path.name})") for fault in faults] if is_named else faults


def files_of(log: Log, title: str, wanted: Callable[[str], bool], step_s: float | None = None) -> Examined:
    """Check a log, and analyse the files for whose paths `wanted` returns true."""
    return _examined(_Subject(title, log, log_faults.judge(log), wanted, [], None), None, step_s)


def run(
    made: Run, title: str, path: Path | None, expected: log_faults.Expected, timeline: bytes | None,
    step_s: float | None = None, notes: tuple[str, ...] = (),
) -> Examined:  # fmt: skip
    """Analyse a run of dlio-hpc from its Darshan log and its timeline.h5. path: path of the log; None if there is none.
    expected: facts that the log must agree with. timeline: content of timeline.h5; None if there is none.
    """
    subject = None
    if path is not None:
        log = run_logs.load(path)
        subject = _Subject(title, log, log_faults.judge(log, expected), _data_of(made), list(notes), timeline)
    if timeline is None:
        return _examined(subject, None, step_s) if subject else Examined(title, None, [], None, None, None, None)
    with timeline_reader.opened(timeline) as record:
        if subject is None:
            view = picture_data.of_core(title, list(notes), record)
            return Examined(title, None, [], None, None, timeline, view)
        examined = _examined(subject, record, step_s)
        if examined.view is None:
            if examined.log is not None and examined.log.workers:
                notes = (*notes, _WORKERS)
            view = picture_data.of_core(title, [*notes, *map(str, examined.faults)], record)
            examined = examined._replace(view=view)
        return examined


def _examined(subject: _Subject, record: timeline_reader.Recorded | None, step_s: float | None) -> Examined:
    """Return the analysis of a checked log. record: the run's timeline.h5; None if there is none. In the result, `view`
    is None if the log has no usable trace, or if the clock of the trace cannot be aligned with the clock of `record`.
    """
    title, log, faults = subject.title, subject.log, subject.faults
    if not _is_possible(log, faults):
        return Examined(title, log, faults, None, None, subject.timeline, None)
    aligned = clock_alignment.align(log, record.marks) if record else None
    requests = _requests(log, faults, subject.wanted, aligned)
    computing = None
    if record is not None and aligned is not None:
        computing = timeline_reader.computing_of_all(record)
    analysis = summarise(log, _whole(requests, faults), subject.wanted, computing, step_s)
    if requests is None or (record is not None and aligned is None):
        return Examined(title, log, faults, analysis, None, subject.timeline, None)
    notes = [*subject.notes, *map(str, faults), *_untraced(analysis)]
    is_cut = any(fault.name == "DXT cut" for fault in faults)
    source = f"Darshan's trace (DXT{', truncated: part of the requests' if is_cut else ''})" + (
        " and the steps of the run" if record else ""
    )
    view = picture_data.of_trace(title, source, notes, analysis, requests, record)
    return Examined(title, log, faults, analysis, requests, subject.timeline, view)


def _requests(
    log: Log, faults: list[LogFault], wanted: Callable[[str], bool], aligned: clock_alignment.Alignment | None
) -> Requests | None:
    """Return the requests of the trace. Return None if there is no trace, or if the trace is garbled or contradicts the
    counters. A truncated trace is used, and the view says so.
    """
    trace = log.traced.get("DXT_POSIX")
    if trace is None or not len(trace.segments) or any(fault.name == "counters disagree" for fault in faults):
        return None
    if not log_faults.has_possible(faults, "DXT_POSIX"):
        return None
    return of_log(log, "DXT_POSIX", wanted, None if aligned is None else aligned.offset_s)


def _whole(requests: Requests | None, faults: list[LogFault]) -> Requests | None:
    """Return `requests`, or None if the trace is truncated, because metrics of a part of the requests would be mistaken
    for metrics of all requests. Figures of a truncated trace are labelled as such.
    """
    return None if any(fault.name == "DXT cut" for fault in faults) else requests


def _coarse_times(log: Log) -> list[str]:
    """Return a list with a note if the run time is a number of whole seconds, and an empty list otherwise."""
    if not io_load.clock_s(log):
        return []
    return [
        f"the log has start and end in whole seconds, as logs before format {log_reader.VERSION} do: the run time is "
        f"{max(log.job.seconds - 1, 0):.0f} to {max(log.job.seconds, 0) + 1:.0f} s"
    ]


def _untraced(analysis: Analysis) -> list[str]:
    if not analysis.untraced_bytes:
        return []
    size = format_size(analysis.untraced_bytes)
    return [
        f"{size} were transferred through STDIO, which is not traced: rates, request sizes and figures do not include "
        "them"
    ]


def _is_possible(log: Log, faults: list[LogFault]) -> bool:
    """Return whether metrics can be computed from the counters of the log."""
    return all(log_faults.has_possible(faults, subject) for subject in ("a job", *log.counted))


def _data_of(made: Run) -> Callable[[str], bool]:
    """Return a function that takes a path and returns whether the file is data of the run: a file of the run's dataset
    or one of its outputs. Three files do not count as data: the marker file for clock alignment, the note that
    describes the dataset, and the temporary file of that note.
    """

    def is_data(path: str) -> bool:
        folder, name = os.path.split(path)
        if made.workload.dataset.existing is not None and not path.startswith(f"{os.path.dirname(made.outputs)}/"):
            return path.startswith(f"{made.dataset}/")
        return path.startswith(f"{made.outputs}/") or (folder == made.dataset and not dataset_folder.is_note(name))

    return is_data


def _matching(only: str | None) -> Callable[[str], bool]:
    if only is None:
        return lambda path: True
    expression = re.compile(only)
    return lambda path: expression.search(path) is not None
