"""Outputs of commands that report: terminal, JSON or CSV, HTML page, pictures, trace, JUnit XML. No option that names
an output file overwrites a result.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import JSON, PATH, PathType, option, parsed
from dlio_hpc.files import rundir

if TYPE_CHECKING:
    from dlio_hpc.analysis.log.analyze import Examined
    from dlio_hpc.reports.page import Page
    from dlio_hpc.verdict.junit import Case


class _OutputType(PathType):
    """Type of options that name a file to write. A file of a job or of the archives is no such file: it may hold the
    only copy of a result.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name = os.path.basename(value)
        if (name in rundir.RECORDS or name.endswith((".tar.zst", ".darshan"))) and os.path.lexists(value):
            self.fail(f"{value} is a file of dlio-hpc or of Darshan, which is not written over", param, ctx)
        return super().convert(value, param, ctx)


# A file to write, which may exist.
OUTPUT = _OutputType(path_type=Path, readable=False)


class Outputs(NamedTuple):
    """Outputs that the user requests. html, perfetto: paths of the files to write; None to write none. figures: folder
    for pictures; None to write none. step_s: length in seconds of a step of the timeline in JSON and CSV; None for a
    timeline of 200 steps.
    """

    html: Path | None = None
    figures: Path | None = None
    perfetto: Path | None = None
    step_s: float | None = None
    as_json: bool = False
    as_csv: bool = False

    @property
    def has_files(self) -> bool:
        """Whether the user requests a page, pictures or a trace."""
        return self.html is not None or self.figures is not None or self.perfetto is not None

    def present(self, make: "Callable[[], Page]", has_pager: bool = False) -> None:
        """Call `make`, and output the page that it returns: print it, and write the HTML file and the pictures that the
        user requests. If JSON or CSV is printed, the page is not printed. If there is nothing to print or write,
        `make` is not called. has_pager: whether a page that is longer than the terminal is shown by a pager.
        """
        is_printed = not (self.as_json or self.as_csv)
        if not is_printed and self.html is None and self.figures is None:
            return
        page = make()
        if is_printed:
            from dlio_hpc.reports import terminal

            console.printed(
                lambda file: terminal.show(page, file, sys.stdout), has_pager,
                lambda file: terminal.show_banner(page.banner, terminal.console(file)),
            )  # fmt: skip
        self.write(page)

    def write(self, page: "Page") -> None:
        """Write a page as HTML if the user requests it, and its pictures if the user requests them. Print the
        paths on stderr.
        """
        self.write_page(page)
        if self.figures is not None:
            from dlio_hpc.reports import pictures

            with written(self.figures):
                folders = pictures.save(page, self.figures)
            for folder in folders:
                console.say(f"figures: {folder}")
            if not folders:
                console.say("figures: none, because there are no measurements to draw")

    def write_page(self, page: "Page") -> None:
        """Write a page as HTML if the user requests it, and print its path on stderr."""
        if self.html is not None:
            from dlio_hpc.reports import html_page

            with written(self.html):
                rundir.write(self.html, html_page.render(page).encode("utf-8"))
            console.say(f"report: {self.html}")

    def write_trace(self, examined: "Sequence[Examined]") -> None:
        """If the user requests a trace, write the trace of these runs or logs for Perfetto, and print its path on
        stderr.
        """
        if self.perfetto is not None:
            from dlio_hpc.reports import perfetto

            with written(self.perfetto):
                events = perfetto.write(self.perfetto, examined)
            console.say(f"trace: {self.perfetto}, {events} events")


def _step(text: str) -> float:
    seconds = units.seconds(text)
    if seconds <= 0:
        raise ValueError("a step must be longer than 0 s: 1s, 100 ms")
    return float(seconds)


_PAGE = (
    option("--html", type=OUTPUT, metavar="FILE", help="Write the report as one HTML file with all pictures."),
    option("--figures", type=PATH, metavar="DIR", help="Write the pictures as SVG and PNG files."),
    JSON,
)
_TRACE = (
    option("--perfetto", type=OUTPUT, metavar="FILE",
           help="Write a trace for ui.perfetto.dev or chrome://tracing (.json[.gz])."),
    option("--step", "step_s", metavar="TIME", callback=parsed(_step),
           help="Step of the timeline in --json and --csv. Default: 200 steps."),
    option("--csv", "as_csv", is_flag=True, help="Print all numbers as CSV, one per row."),
)  # fmt: skip


def page_options(function: Any) -> Any:
    """Add the options --html, --figures and --json to a command. The command gets their values as its parameter
    `outputs`.
    """
    return _with_options(function, _PAGE)


def trace_options(function: Any) -> Any:
    """Add the options of page_options() to a command, and the options --perfetto, --step and --csv, which are for
    reports on individual runs. The command gets their values as its parameter `outputs`.
    """
    return _with_options(function, (*_PAGE, *_TRACE))


def _with_options(function: Any, options: Sequence[Any]) -> Any:
    @wraps(function)
    def command(**parameters: Any) -> Any:
        given = {name: parameters.pop(name) for name in Outputs._fields if name in parameters}
        return function(**parameters, outputs=Outputs(**given))

    for add in reversed(options):
        command = add(command)
    return command


def write_junit(path: Path, suite: str, cases: "Sequence[Case]", quiet: bool = False) -> None:
    """Write test cases as a JUnit XML file. suite: name of the test suite. Unless `quiet` is True, print the path on
    stderr.
    """
    from dlio_hpc.verdict import junit

    with written(path):
        rundir.write(path, junit.document(suite, cases))
    if not quiet:
        console.say(f"junit: {path}")


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Create the folder that contains `path`, then run the `with` block, which writes to `path`. If either fails, raise
    InfrastructureError with the name of `path`, or ConfigError if the path cannot be that of a file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (IsADirectoryError, NotADirectoryError, FileExistsError) as fault:
        raise ConfigError(f"cannot write {path}: {fault.strerror}; give the name of a file") from fault
    except OSError as fault:
        raise InfrastructureError(f"cannot write {path}: {fault.strerror or fault}") from fault
