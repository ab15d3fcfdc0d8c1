"""Report of Darshan logs, which may be of any program. The report of a job uses parts of this report for the Darshan
logs of its runs.
"""

import time
from collections.abc import Iterable, Sequence

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.analysis.log.findings import Analysis
from dlio_hpc.base.units import format_seconds
from dlio_hpc.reports import bottleneck, log_banner, log_rows
from dlio_hpc.reports.page import Block, Facts, Lines, Page, Picture, Pictures, Section, Table

# Stems of the pictures that the page shows beside the sentence on the bottleneck.
LEAD = ("heat_map", "costs")
# Maximum numbers of rows of slowest ranks and of busiest files, on a terminal and on the page.
_SHOWN, _MOST = 5, 10
_LEGEND = "MB/s: bytes divided by the time with requests in flight. MB/s per request: median over requests."


def of_logs(examined: Sequence[Examined]) -> Page:
    """Return the report of Darshan logs."""
    sound = [log for log in examined if log.is_sound]
    opening = log_banner.of_logs(examined)
    answers = [bottleneck.of_log(log.title, log.analysis) for log in sound if log.analysis is not None]
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
        lines.append(Lines(["This log is incomplete: do not use its numbers."], "red"))
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
        title = f"{len(analysis.files)} file(s){busiest}, in {folder or 'several places'}"
        tables.append(Table(title, log_rows.FILES, log_rows.busiest(analysis, _MOST), most=_SHOWN))
    return tables
