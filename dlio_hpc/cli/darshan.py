"""dlio-hpc darshan: check and analyse Darshan logs of any program."""

import re
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.outputs import Outputs, trace_options
from dlio_hpc.cli.verbs import PATH, SETTINGS, option
from dlio_hpc.errors import DlioError, InvalidRun

if TYPE_CHECKING:
    from dlio_hpc.analysis.log.analyze import Examined
    from dlio_hpc.reports.document import Document


def expression(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of an option. Raise a usage error if the value is not a regular expression."""
    try:
        re.compile(value or "")
    except re.error as fault:
        raise click.BadParameter(f"{value!r} is not a regular expression: {fault}", ctx, param) from fault
    return value


@click.command(context_settings=SETTINGS)
@click.argument("logs", nargs=-1, required=True, type=PATH, metavar="LOG...")
@option("--only", metavar="REGEX", callback=expression, help="Analyse only files whose path matches: --only '[.]h5$'.")
@trace_options
def darshan(logs: tuple[Path, ...], only: str | None, outputs: Outputs) -> int:
    """Check and analyse Darshan logs of any program: completeness, requests, rates, ranks, files.

    Logs of Darshan 3.4 and 3.5 are read with their extended traces (DXT); logs of other versions need pydarshan. Exit
    code 3: a log is incomplete or corrupted.
    """
    from dlio_hpc.analysis.log import analyze

    examined, code = console.for_each(logs, lambda path: analyze.log_file(path, only, outputs.step_s))
    if outputs.as_json:
        console.print_json({"logs": [_document(log) for log in examined]})
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


def _report(examined: "list[Examined]") -> "Document":
    from dlio_hpc.reports import log_document

    return log_document.of_logs(examined)


def _document(examined: Any) -> dict[str, Any]:
    import msgspec

    return {
        "log": str(examined.log.path),
        "whole": examined.is_sound,
        "faults": [{"name": fault.name, "text": fault.text} for fault in examined.faults],
        "job": examined.log.job._asdict(),
        "analysis": msgspec.to_builtins(examined.analysis),
    }
