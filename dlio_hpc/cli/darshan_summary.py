"""dlio-hpc darshan --summary: one table for many Darshan logs."""

import sys
from pathlib import Path

import click

from dlio_hpc.base.errors import DlioError, InvalidRun
from dlio_hpc.cli import console
from dlio_hpc.cli.outputs import Outputs


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
    with console.busy(f"reading {len(logs):,} logs", quiet=False):
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
