"""dlio-hpc darshan: check and analyse Darshan logs of any program."""

import re
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlio_hpc.base.errors import ConfigError, DlioError, InvalidRun
from dlio_hpc.base.units import counted
from dlio_hpc.cli import console
from dlio_hpc.cli.outputs import Outputs, trace_options
from dlio_hpc.cli.verbs import PATH, SETTINGS, argument, option

if TYPE_CHECKING:
    from dlio_hpc.analysis.log.analyze import Examined
    from dlio_hpc.reports.page import Page


def expression(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of an option. Raise a usage error if the value is not a regular expression."""
    try:
        re.compile(value or "")
    except re.error as fault:
        suffix = re.fullmatch(r"[*][.](\w+)", value or "")
        advice = f"; for files that end in .{suffix[1]}, write '[.]{suffix[1]}$'" if suffix else ""
        raise click.BadParameter(f"{value!r} is not a regular expression: {fault}{advice}", ctx, param) from fault
    return value


@click.command(context_settings=SETTINGS)
@argument("logs", nargs=-1, required=True, type=PATH, metavar="LOG|DIR...")
@option(
    "--only",
    metavar="REGEX",
    callback=expression,
    help="Analyse only files whose path matches this regular expression, such as '[.]h5$'.",
)
@option("--merge", is_flag=True, help="Analyse the logs together, as logs of the processes of one program without MPI.")
@option("--summary", is_flag=True, help="Search the folders for logs, and print one table with a row for each program.")
@trace_options
def darshan(logs: tuple[Path, ...], only: str | None, merge: bool, summary: bool, outputs: Outputs) -> int:
    """Check and analyse Darshan logs of any program: completeness, requests, rates, ranks, files. A folder stands for
    the logs in it (*.darshan); with --summary, also for the logs in its subfolders.

    A program without MPI leaves a log for each of its processes. Without --merge, each log has its own report. With
    --summary, logs of a job belong to the same program if they have the same script, or if one of their processes
    started the other.

    Logs of Darshan 3.4 and 3.5 are read with their extended traces (DXT); logs of other versions need pydarshan. Exit
    code 3: a log is incomplete or corrupted.
    """
    if summary:
        if merge or only is not None:
            raise click.UsageError("--summary analyses all files of all programs: leave out --merge and --only")
        return show(logs, outputs)
    from dlio_hpc.darshan import log_files

    paths = log_files.listed(logs)
    examined, code = _merged(paths, only, outputs) if merge else _apart(paths, only, outputs)
    if outputs.as_json:
        from dlio_hpc.documents import logs as documents

        console.print_json(documents.of_logs(examined, paths if merge else None))
    elif outputs.as_csv:
        from dlio_hpc.reports import log_rows

        log_rows.write_csv(chain.from_iterable(map(log_rows.numbers_of_log, examined)), sys.stdout)
    if examined:
        outputs.present(lambda: _report(examined))
        outputs.write_trace(examined)
    faults: list[DlioError | None] = [
        None if log.is_sound else InvalidRun(f"{log.title} is incomplete or corrupted: {log.faults[0]}")
        for log in examined
    ]
    return code or console.exit_code(faults)


def _apart(paths: list[Path], only: str | None, outputs: Outputs) -> "tuple[list[Examined], int]":
    from dlio_hpc.analysis.log import analyze

    return console.for_each(paths, lambda path: analyze.log_file(path, only, outputs.step_s))


def _merged(paths: list[Path], only: str | None, outputs: Outputs) -> "tuple[list[Examined], int]":
    from dlio_hpc.analysis.log import analyze
    from dlio_hpc.darshan import log_reader
    from dlio_hpc.darshan.log import refuse_unmatched

    if len({path.resolve() for path in paths}) < len(paths):
        raise ConfigError("a log is given twice; give the log of each process of the program once")
    logs = [log_reader.load(path) for path in paths]
    refuse_unmatched(logs, only)
    return [analyze.logs_of_program(logs, only, outputs.step_s)], 0


def _report(examined: "list[Examined]") -> "Page":
    from dlio_hpc.reports import log_page

    return log_page.of_logs(examined)


def show(paths: tuple[Path, ...], outputs: Outputs) -> int:
    """Print the table of the programs that wrote the logs, and return the exit code. paths: logs, and folders that are
    searched for logs.
    """
    from dlio_hpc.darshan import log_files
    from dlio_hpc.programs import program_table
    from dlio_hpc.programs.reports import program_table_page

    if outputs.figures is not None or outputs.perfetto is not None or outputs.step_s is not None:
        raise click.UsageError(
            "--summary has no pictures, traces or timelines: give the logs of one program without it"
        )
    logs, faults = log_files.below(paths)
    with console.busy(f"reading {counted(len(logs), 'log')}", quiet=False):
        rows = program_table_page.ordered(list(program_table.rows(logs)))
    copies = len(logs) - sum(len(row.logs) for row in rows)
    if outputs.as_json:
        from dlio_hpc.programs import documents

        console.print_json(documents.of_programs(rows, copies))
    elif outputs.as_csv:
        program_table_page.write_csv(rows, sys.stdout)
    outputs.present(lambda: program_table_page.of_rows(rows, copies))
    incomplete: list[DlioError | None] = [
        InvalidRun(f"{row.logs[0]} is incomplete or corrupted: {row.faults[0]}")
        for row in rows
        if row.trust == "incomplete"
    ]
    return console.exit_code([*faults, *(row.error for row in rows), *incomplete])
