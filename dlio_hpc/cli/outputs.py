"""Outputs of commands that report: terminal, JSON or CSV, HTML page, pictures, trace, JUnit XML. No option that names
an output file can overwrite a result.
"""

import itertools
import os
import re
import shutil
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
from dlio_hpc.cli.verbs import JSON, FolderType, PathType, option, parsed
from dlio_hpc.files import rundir

if TYPE_CHECKING:
    from dlio_hpc.analysis.log.analyze import Examined
    from dlio_hpc.reports.page import Page
    from dlio_hpc.verdict.junit import Case


class _OutputType(PathType):
    """Type of options that name a file to write. Files of jobs and archives are refused, because they may hold the only
    copy of a result. suffixes: suffixes that the name may have; empty if every name is possible. is_folder_allowed:
    whether the option may also name a folder.
    """

    def __init__(self, *suffixes: str, is_folder_allowed: bool = False) -> None:
        super().__init__(path_type=Path, readable=False, writable=True)
        self.suffixes, self.is_folder_allowed = suffixes, is_folder_allowed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name = os.path.basename(value)
        if (name in rundir.RECORDS or name.endswith((rundir.ARCHIVE_SUFFIX, ".darshan"))) and os.path.lexists(value):
            self.fail(f"{value} is a file of dlio-hpc or of Darshan, which is not overwritten", param, ctx)
        if os.path.isdir(value) and not self.is_folder_allowed:
            self.fail(f"cannot write {value}: Is a directory; give the name of a file", param, ctx)
        if self.suffixes and not name.endswith(self.suffixes) and not _is_device(value):
            self.fail(f"{value} does not end in {' or '.join(self.suffixes)}; give such a name", param, ctx)
        if ctx is not None and param is not None and str(value) != "-" and not _is_device(value):
            other = ctx.meta.setdefault(_WRITTEN, {}).setdefault(os.path.realpath(value), param)
            if other is not param:
                self.fail(f"{value} is also the file of {other.opts[-1]}; give two files", param, ctx)
        return super().convert(value, param, ctx)


# Key of click's context for the options that name a file to write, by its path.
_WRITTEN = "dlio_hpc.outputs"


def _is_device(path: str) -> bool:
    """Return whether a path names a pipe or a device, such as /dev/stdout."""
    return os.path.exists(path) and not os.path.isfile(path)


class _PageType(_OutputType):
    """Type of options that name an HTML page to write. Names of files of other kinds are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        stem, suffix = os.path.splitext(value)
        if suffix.lower() in _OTHER_KINDS:
            self.fail(f"the page is HTML, and {value} is the name of another kind; give {stem}.html", param, ctx)
        return path


# Ends of the names of files that are no page.
_OTHER_KINDS = (".pdf", ".png", ".svg", ".jpg", ".jpeg", ".json", ".csv", ".xml", ".txt", ".md", ".yaml", ".yml")


class _PicturesType(FolderType):
    """Type of the option that names a folder for pictures. The name of a picture or a page is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        stem, suffix = os.path.splitext(value)
        if suffix in _OF_FILES:
            self.fail(f"{value} is the name of a file; give a folder for the pictures, such as {stem}", param, ctx)
        return super().convert(value, param, ctx)


# Ends of the names of pictures and pages.
_OF_FILES = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".html", ".htm")
# A file to write, which may exist; a file or a folder; a folder for pictures.
OUTPUT, OUTPUT_OR_FOLDER, PAGE = _OutputType(), _OutputType(is_folder_allowed=True), _PageType()
_PICTURES = _PicturesType(path_type=Path, readable=False)


class Outputs(NamedTuple):
    """Outputs that the user requests. html, perfetto: paths of the files to write; None to write none. figures: folder
    for pictures; None to write none. step_s: length of a step of the timeline in JSON and CSV, in seconds; None to
    divide the timeline into 200 steps.
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
        """Output the page that `make` returns: print the page, and write the HTML file and the pictures that the user
        requests. If JSON or CSV is printed, the page is not printed. If there is nothing to print or write, `make` is
        not called. has_pager: whether a page that is longer than the terminal is shown by a pager.
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

            with written(self.html, is_marked=True):
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
    option("--html", type=PAGE, metavar="FILE", help="Write the report as one HTML file with all pictures."),
    option("--figures", type=_PICTURES, metavar="DIR", help="Write the pictures as SVG and PNG files."),
    JSON,
)
_TRACE = (
    option("--perfetto", type=_OutputType(".json", ".json.gz"), metavar="FILE",
           help="Write a trace for ui.perfetto.dev or chrome://tracing (.json[.gz])."),
    option("--step", "step_s", metavar="TIME", callback=parsed(_step),
           help="Step of the timeline in --json and --csv. Default: 200 steps."),
    option("--csv", "as_csv", is_flag=True, help="Print all numbers as CSV, one number per row."),
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
        refuse_inputs()
        given = {name: parameters.pop(name) for name in Outputs._fields if name in parameters}
        outputs = Outputs(**given)
        if outputs.as_json and outputs.as_csv:
            raise click.UsageError("--json and --csv exclude each other; give one of them")
        if outputs.step_s is not None and not outputs.as_json and not outputs.as_csv:
            raise click.UsageError("--step has an effect only with --json or --csv")
        return function(**parameters, outputs=outputs)

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
def written(path: Path, is_marked: bool = False) -> Iterator[None]:
    """Create the folder that contains `path`, then run the `with` block, which writes to `path`. If this fails, raise
    InfrastructureError with the name of `path`, or ConfigError if no file can have this path. is_marked: whether the
    new content names dlio-hpc. If it does, raise ConfigError if a file at `path` does not name dlio-hpc: it may be a
    file of a dataset, or a page of the user.
    """
    if is_marked and _is_foreign(path):
        raise ConfigError(f"{path} was not written by dlio-hpc, so it is not replaced; move it, or give another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except (IsADirectoryError, NotADirectoryError, FileExistsError) as fault:
        blocking = next((parent for parent in path.parents if parent.is_file()), None)
        advice = "give the name of a file" if blocking is None else f"{blocking} is a file; give a folder in its place"
        raise ConfigError(f"cannot write {path}: {fault.strerror}; {advice}") from fault
    except OSError as fault:
        raise InfrastructureError(f"cannot write {path}: {fault.strerror or fault}") from fault


def write_workload(path: Path, content: str) -> None:
    """Write the YAML file of a workload, and print its path on stderr. If there is a file with another content, which
    the user may have edited, make a copy of it first.
    """
    with written(path, is_marked=True):
        copy = _copied(path, content.encode("utf-8"))
        path.write_text(content, encoding="utf-8")
    console.say(f"wrote {path}" + ("" if copy is None else f"; {copy} is a copy of the earlier file"))


def _copied(path: Path, content: bytes) -> Path | None:
    """Copy a file to a new name next to it, unless the file is empty or has this content. Return the path of the copy;
    None if there is none. The standard output may be a file, too: it is not copied.
    """
    if os.path.abspath(path).startswith(("/dev/", "/proc/")) or not path.is_file():
        return None
    earlier = path.read_bytes()
    if earlier in (b"", content):
        return None
    names = (Path(f"{path}~{number or ''}") for number in itertools.count())
    copy = next(name for name in names if not name.exists() or name.read_bytes() == earlier)
    shutil.copy2(path, copy)
    return copy


# The name of dlio-hpc in the files that it writes, and bytes at each end of a file that are searched.
_NAME, _SEARCHED = re.compile(rb"dlio[-_]hpc|dlio-submit"), 1 << 16


def _is_foreign(path: Path) -> bool:
    """Return whether `path` is a file that has content and does not name dlio-hpc."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return False
        with path.open("rb") as file:
            start = file.read(_SEARCHED)
            file.seek(max(0, path.stat().st_size - _SEARCHED))
            return _NAME.search(start + file.read()) is None
    except OSError:
        return False


def refuse_inputs() -> None:
    """Raise a usage error if an option of the command names a file to write, and another option or an argument names
    the same file.
    """
    context = click.get_current_context()
    outputs = [param for param in context.command.params if isinstance(param.type, _OutputType)]
    inputs = [param for param in context.command.params if param not in outputs]
    for output in outputs:
        target = context.params.get(str(output.name))
        for path in (path for param in inputs for path in _paths(context.params.get(str(param.name)))):
            if target is not None and _are_same(target, path):
                raise click.UsageError(
                    f"{output.opts[-1]} {target} is also the input file, which is not overwritten; give another "
                    "file", context
                )  # fmt: skip


def _paths(value: object) -> list[str | Path]:
    """Return the texts and paths in the value of an option or argument."""
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [item for item in values if isinstance(item, (str, Path))]


def _are_same(target: Path, path: str | Path) -> bool:
    try:
        return target.is_file() and os.path.samefile(target, path)
    except OSError:
        return False
