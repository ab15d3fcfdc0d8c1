"""dlio-hpc darshan: anybody's Darshan logs, judged and read."""

import re
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.picture_options import Pictures, gives_pictures
from dlio_hpc.cli.verbs import PATH, SETTINGS, option
from dlio_hpc.errors import DlioError, InvalidRun

if TYPE_CHECKING:
    from dlio_hpc.analysis.log.analyze import Examined
    from dlio_hpc.report.page import Page


def expression(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A regular expression, as it was given."""
    try:
        re.compile(value or "")
    except re.error as fault:
        raise click.BadParameter(f"{value!r} is no regular expression: {fault}", ctx, param) from fault
    return value


@click.command(context_settings=SETTINGS)
@click.argument("logs", nargs=-1, required=True, type=PATH, metavar="LOG...")
@option("--only", metavar="REGEX", callback=expression, help="Files whose path it is found in: --only '[.]h5$'.")
@gives_pictures
def darshan(
    logs: tuple[Path, ...], only: str | None, as_json: bool, as_csv: bool, step_s: float | None, **options: Any
) -> int:
    """Read Darshan logs of any program: is the log whole, and what was the I/O like?

    Logs of Darshan 3.4 and 3.5 with their extended traces (DXT); those of other versions are read by pydarshan, if it
    is installed. Exit code 3: a log is not whole.
    """
    from dlio_hpc.analysis.log import analyze

    wanted = Pictures(**options)
    examined, code = console.each(logs, lambda path: analyze.log_file(path, only, step_s))
    if as_json:
        console.print_json({"logs": [_document(each) for each in examined]})
    elif as_csv:
        from dlio_hpc.report import iotables

        iotables.write_csv(chain.from_iterable(map(iotables.figures_of_log, examined)), sys.stdout)
    else:
        from dlio_hpc.report import iotables

        for each in examined:
            iotables.show(each, sys.stdout)
    if wanted.any and examined:
        wanted.write(lambda: _page(examined), examined)
    faults: list[DlioError | None] = [
        None if each.is_sound else InvalidRun(f"{each.title} is not whole: {each.faults[0]}") for each in examined
    ]
    return code or console.exit_code(faults)


def _page(examined: "list[Examined]") -> "Page":
    from dlio_hpc.report import pages

    return pages.of_logs(examined)


def _document(examined: Any) -> dict[str, Any]:
    import msgspec

    return {
        "log": str(examined.log.path),
        "whole": examined.is_sound,
        "faults": [{"name": fault.name, "text": fault.text} for fault in examined.faults],
        "job": examined.log.job._asdict(),
        "analysis": msgspec.to_builtins(examined.analysis),
    }
