"""Report of many Darshan logs: a table with a row for each program."""

from collections.abc import Sequence
from typing import Any

from dlio_hpc.base.safe_text import single_line
from dlio_hpc.base.units import format_size
from dlio_hpc.programs.program_table import ProgramRow, Trust
from dlio_hpc.reports import csv_table
from dlio_hpc.reports.banner import Banner, State, gravest
from dlio_hpc.reports.page import Lines, Page, Section, Style, Table

_HEADER = ("program, job", "ranks", "time", "read", "wrote", "MB/s", "request", "trust", "training")
_LEGEND = (
    "ranks: ranks or processes. read, wrote, request: bytes, K = 1024. MB/s: bytes read, divided by the time with "
    "reads in flight; without a trace, by the mean time of a rank in reads. request: the most frequent size. trust: "
    "good, or the first fault. training: whether the reads look like reads of a training program."
)
_NAMES: dict[Trust, str] = {
    "good": "good", "part": "without a complete trace", "incomplete": "incomplete", "unreadable": "unreadable",
}  # fmt: skip
_STATES: dict[Trust, State] = {
    "good": "good", "part": "inconclusive", "incomplete": "bad", "unreadable": "bad",
}  # fmt: skip
_STYLES: dict[Trust, Style] = {"good": "", "part": "", "incomplete": "red", "unreadable": "red"}
# Maximum number of characters of a program's name, and of logs that are named.
_LETTERS, _NAMED = 13, 20


def ordered(rows: Sequence[ProgramRow]) -> list[ProgramRow]:
    """Return the rows by the bytes moved, most bytes first. Programs that cannot be read come last."""
    return sorted(rows, key=lambda row: (row.trust == "unreadable", -row.moved, row.logs))


def banner_of(rows: Sequence[ProgramRow], copies: int) -> Banner:
    """Return the banner with the numbers of programs by trust, and the number of programs whose reads look like
    training. copies: number of logs that are copies of other logs.
    """
    counts = {trust: sum(row.trust == trust for row in rows) for trust in _NAMES}
    logs = sum(len(row.logs) for row in rows) + copies
    trusts = ", ".join(f"{count} {_NAMES[trust]}" for trust, count in counts.items() if count)
    left_out = f" ({copies} {'copy' if copies == 1 else 'copies'} of other logs)" if copies else ""
    training = sum(row.training == "yes" for row in rows)
    return Banner(
        gravest([Banner(_state(row), "") for row in rows]).state if rows else "not measured",
        f"{_number(len(rows), 'program')} from {_number(logs, 'log')}{left_out}: {trusts or 'none'}; {training} "
        f"{'looks' if training == 1 else 'look'} like training.",
    )


def _state(row: ProgramRow) -> State:
    """Return the state of a row. If a log has no traces, which Darshan records only on request, the state is that its
    counters are complete.
    """
    return "good" if row.trust == "part" and set(row.faults) == {"DXT missing"} else _STATES[row.trust]


def _number(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def of_rows(rows: Sequence[ProgramRow], copies: int) -> Page:
    """Return the report. rows: in the order of the table."""
    failed = [f"{row.logs[0]}: {row.error}" for row in rows if row.error is not None]
    more = [f"and {len(failed) - _NAMED} more"] if len(failed) > _NAMED else []
    table = Table("", _HEADER, [_cells(row) for row in rows], [_STYLES[row.trust] for row in rows], _LEGEND)
    return Page(
        title="Programs, by the bytes that they moved",
        subtitle="",
        banner=banner_of(rows, copies),
        facts=[],
        sections=[Section("", [table, Lines([*failed[:_NAMED], *more], "red", is_detail=True)])],
    )


def _cells(row: ProgramRow) -> list[str]:
    name = single_line(row.name or (row.logs[0].name if row.error is not None else row.command)) or "-"
    shown = name if len(name) <= _LETTERS else f"{name[: _LETTERS - 3]}..."
    return [
        shown if row.job is None else f"{shown} {row.job}",
        "-" if row.processes is None else str(row.processes),
        _time(row.seconds),
        _size(row.bytes_read),
        _size(row.bytes_written),
        "-" if row.read_MBps is None else _digits(row.read_MBps),
        _size(row.usual_request),
        row.faults[0] if row.faults else "good",
        row.training,
    ]


def _size(count: int | None) -> str:
    """Return a size with two digits and a letter, so that the table fits into 80 columns."""
    if count is None:
        return "-"
    number, unit = format_size(count).split()
    return f"{_digits(float(number))}{unit[0].replace('B', '')}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{_digits(seconds)} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _digits(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def write_csv(rows: Sequence[ProgramRow], file: Any) -> None:
    """Write a CSV header, followed by a row for each program. The column `logs` has the number of logs, and the column
    `log` has the path of the first log.
    """
    names = [name for name in ProgramRow._fields if name not in ("logs", "faults", "error")]
    header = [*names, "faults", "error", "logs", "log"]
    cells = (
        [*(getattr(row, name) for name in names), "; ".join(row.faults), _error(row) or "", len(row.logs), row.logs[0]]
        for row in rows
    )
    csv_table.write([header, *cells], file)


def _error(row: ProgramRow) -> str | None:
    return None if row.error is None else str(row.error)
