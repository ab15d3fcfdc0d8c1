"""Report of Darshan logs, which may be of any program. The report of a job uses parts of this report for the Darshan
logs of its runs.
"""

import time
from collections.abc import Iterable, Sequence

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.analysis.log.findings import Analysis
from dlio_hpc.base.units import counted, format_seconds, format_size
from dlio_hpc.reports import banner, bottleneck, log_advice, log_rows
from dlio_hpc.reports.banner import Banner
from dlio_hpc.reports.page import Block, Facts, Lines, Page, Picture, Pictures, Section, Table

# Stems of the pictures that the page shows beside the sentence on the bottleneck.
LEAD = ("heat_map", "costs")
# Maximum numbers of rows of slowest ranks and of busiest files, on a terminal and on the page.
_SHOWN, _MOST = 5, 10
_LEGEND = "MB/s: bytes divided by the time with requests in flight. MB/s per request: median over requests."
# Bytes that are missing from the trace are named if they are more than this share of the bytes in it.
_NOTABLE = 0.01


def of_logs(examined: Sequence[Examined]) -> Page:
    """Return the report of Darshan logs."""
    sound = [log for log in examined if log.is_sound]
    opening = banner_of_logs(examined)
    analyses = [(log.title, log.analysis) for log in sound if log.analysis is not None]
    answers = [bottleneck.of_log(title, analysis) for title, analysis in analyses]
    if len(examined) == 1:
        answers += [sentence for _, analysis in analyses for sentence in log_advice.of_log(analysis)]
    return Page(
        title=examined[0].title if len(examined) == 1 else f"{len(examined)} Darshan logs",
        subtitle=" · ".join(dict.fromkeys(log.analysis.program for log in examined if log.analysis)),
        banner=opening,
        answers=bottleneck.shortened([answer for answer in answers if answer not in opening.text]),
        facts=[_facts(log) for log in examined if log.log is not None],
        sections=[Section(log.title if len(examined) > 1 else "I/O", blocks(log)) for log in examined],
        lead=LEAD if len(sound) == len(examined) else (),
    )


def _facts(examined: Examined) -> Facts:
    assert examined.log is not None
    job = examined.log.job
    rows = [
        ("program", job.program),
        ("ranks", str(job.ranks)),
        ("started", _date(job.started)),
        ("took", format_seconds(job.seconds)),
        ("job", str(job.id)),
        ("Darshan", f"{job.library or 'unknown version'}, log format {examined.log.version}"),
        ("modules", ", ".join(examined.log.modules)),
    ]
    return Facts(examined.title, rows)


def _date(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def blocks(examined: Examined) -> list[Block]:
    """Return the notes, tables and pictures for a Darshan log or for a run of dlio-hpc."""
    notes = examined.view.notes if examined.view else [str(fault) for fault in examined.faults]
    lines: list[Block] = [Lines([f"Note: {note}" for note in notes], "yellow" if examined.is_sound else "red")]
    if not examined.is_sound:
        lines.append(Lines(["This log is incomplete; do not use its numbers."], "red"))
    if examined.analysis is not None:
        lines += _tables(examined.analysis)
    if examined.view is not None:
        lines.append(Pictures(examined.title, lambda: _draw(examined)))
    return lines


def _draw(examined: Examined) -> Iterable[Picture]:
    from dlio_hpc.reports.figures import run_panels

    assert examined.view is not None
    return run_panels.draw(examined.view)


def _tables(analysis: Analysis) -> list[Block]:
    kinds = [(name, kind) for name, kind in (("reads", analysis.read), ("writes", analysis.write)) if kind]
    columns = [log_rows.operation_row(kind) for _, kind in kinds]
    names = ["", *(name for name, _ in kinds)]
    operations = [[label, *cells] for label, *cells in zip(log_rows.OPERATION, *columns, strict=True)]
    sizes = [
        [log_rows.size_words(size), *(str(kind.histogram.get(size, 0)) for _, kind in kinds)]
        for size in log_rows.size_names(analysis)
    ]
    tables: list[Block] = [Facts("", log_rows.facts(analysis))]
    if kinds:
        tables += [
            Table("", names, operations, legend=_LEGEND),
            Table("Sizes of requests", ["bytes", *names[1:]], sizes),
        ]
    if len(analysis.by_rank) > 1:
        tables.append(Table("Slowest ranks", log_rows.RANKS, log_rows.slowest(analysis, _MOST), most=_SHOWN))
    if len(analysis.by_node) > 1:
        tables.append(Table("Slowest nodes", log_rows.NODES, log_rows.slowest_nodes(analysis, _MOST), most=_SHOWN))
    if analysis.files:
        folder = log_rows.common_folder(analysis)
        busiest = f", the busiest {_MOST}" if len(analysis.files) > _MOST else ""
        title = f"{counted(len(analysis.files), 'file')}{busiest}, in {folder or 'several places'}"
        tables.append(Table(title, log_rows.FILES, log_rows.busiest(analysis, _MOST), most=_SHOWN))
    return tables


def banner_of_logs(examined: Sequence[Examined]) -> Banner:
    """Return the banner with the worst state among the banners of these logs. If several have this state, return the
    first.
    """
    return banner.gravest(list(map(_of_log, examined)))


def _of_log(examined: Examined) -> Banner:
    if not examined.is_sound:
        return Banner("bad", f"{examined.title} is incomplete: {examined.faults[0]}. Do not use its numbers.")
    if not _lacks_traces_alone(examined):
        gaps = "; ".join(map(str, examined.faults))
        return Banner("inconclusive", f"{examined.title}: counters are complete, but other parts are not: {gaps}.")
    analysis = examined.analysis
    if analysis is None or not analysis.bytes_read + analysis.bytes_written:
        return Banner("not measured", f"{examined.title} records no bytes read or written.")
    is_traced = examined.requests is not None
    trace = "counters and trace are" if is_traced else "counters are"
    without = "" if is_traced else "; there is no trace (DXT), so only sums of times are known"
    if is_traced and analysis.untraced_bytes > _NOTABLE * (analysis.bytes_read + analysis.bytes_written):
        without = f"; {format_size(analysis.untraced_bytes)} through STDIO are in the counters alone"
    if bottleneck.may_bind(analysis):
        return Banner("good", f"{bottleneck.of_log(examined.title, analysis)} Its {trace} complete{without}.")
    return Banner("good", f"{examined.title}: {trace} complete{without}.")


def _lacks_traces_alone(examined: Examined) -> bool:
    """Return whether the only fault of the log is that traces were not recorded. Darshan records traces only on
    request. If the log's table has a trace, and the trace is empty, then the trace was recorded and lost.
    """
    modules = examined.log.modules if examined.log is not None else {}
    tracers = [fault.text.rsplit("the trace ", 1)[-1].split()[0] for fault in examined.faults]
    missing = [fault.name == "DXT missing" for fault in examined.faults]
    return all(missing) and not any(tracer in modules for tracer in tracers)
