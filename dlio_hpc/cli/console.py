"""Output to the user: results on stdout, everything else on stderr."""

import gc
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from dlio_hpc.base import log_file, serialization
from dlio_hpc.base.errors import DlioError, Incomplete, shortened
from dlio_hpc.base.safe_text import printable
from dlio_hpc.batch import job_record, live_runs
from dlio_hpc.batch.job_watch import Watched, watch
from dlio_hpc.cli import given_runs, usage_faults
from dlio_hpc.cli.live_view import LiveView

S = TypeVar("S")
T = TypeVar("T")
# Seconds between two lines on a run, and between two pictures of the screen.
_LINE_S, _REFRESH_S = 60.0, 0.25


def say(message: str) -> None:
    """Print a message as one line on stderr. Shorten a long message."""
    message = given_runs.completed(message)
    log_file.record("stderr", message)
    print(shortened(message), file=sys.stderr, flush=True)


def show(text: object) -> None:
    """Print a line of a result on stdout, without control characters."""
    print(printable(str(text)))


def is_terminal() -> bool:
    """Return whether results are printed on a terminal."""
    return sys.stdout.isatty()


def printed(show: Callable[[Any], None], has_pager: bool, repeat: Callable[[Any], None] = lambda file: None) -> None:
    """Print a result. show: function that writes the result to a file. has_pager: whether a pager shows a text that is
    longer than the terminal: the program that PAGER names, or less. Unless LESS is set, less keeps colours, does not
    clear the screen, and quits after a text of one screen, as in Git. repeat: function that writes the first sentence
    again, below a long text for which there is no pager.
    """
    if not is_terminal():
        show(sys.stdout)
        return
    file = io.StringIO()
    show(file)
    text = file.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        sys.stdout.write(text)
        return
    if not (has_pager and sys.stdin.isatty()) or os.environ.get("PAGER") in ("", "cat"):
        sys.stdout.write(f"{text}\n")
        repeat(sys.stdout)
        return
    os.environ.setdefault("LESS", "FRX")
    click.echo_via_pager(text.removesuffix("\n"))


def reporter(is_quiet: bool) -> Callable[[str], None]:
    """Return the function say(). If `is_quiet` is True, return a function that prints nothing."""
    return (lambda message: None) if is_quiet else say


def print_json(printed: object) -> None:
    """Print one JSON document on stdout. printed: a struct of dlio_hpc.documents, or plain data."""
    print(json.dumps(serialization.plain(printed), indent=2))


def for_each(items: Iterable[S], action: Callable[[S], T]) -> tuple[list[T], int]:
    """Call `action` for each item. Return the list of results, and an exit code. If `action` raises DlioError for an
    item, print the error; the list then has no result for this item. The exit code is the code of the first such error,
    or 0 if there was no error.
    """
    done: list[T] = []
    code = 0
    for item in items:
        try:
            done.append(action(item))
        except DlioError as fault:
            say(f"dlio-hpc: {usage_faults.with_variable(str(fault), [])}")
            code = code or fault.exit_code
    return done, code


@contextmanager
def busy(activity: str, quiet: bool) -> Iterator[None]:
    """Show a spinner during the `with` block. Show nothing if `quiet` is True, or if stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(activity):
        yield


def wait(directories: list[Path], quiet: bool) -> tuple[list[Path], int]:
    """Watch the jobs until each has ended or can no longer be watched. If stderr is a terminal, show the progress of
    their runs; otherwise, print a line for each change, and a line each minute. If `quiet` is True, show nothing.
    Return two values: the directories of the jobs that have ended, and an exit code. The exit code is 0 if all jobs
    could be watched to their end; otherwise, it is the exit code of the fault that stopped the watch of a job, for the
    first such job. If the user interrupts the wait, raise Incomplete; the jobs continue.
    """
    gc.enable()
    follow = _screen if sys.stderr.isatty() and not quiet else _lines
    try:
        last = follow(directories, quiet)
    except KeyboardInterrupt:
        names = " ".join(map(str, directories))
        raise Incomplete(
            f"stopped watching; the job continues. Watch it: dlio-hpc wait {names}; cancel it: dlio-hpc cancel {names}"
        ) from None
    unwatched = [watched for watched in last.values() if not watched.job.ended]
    for watched in unwatched:
        say(f"dlio-hpc: {watched.fault}")
    codes = [watched.fault.exit_code for watched in unwatched if watched.fault is not None]
    return [directory for directory, watched in last.items() if watched.job.ended], next(iter(codes), 0)


def _lines(directories: list[Path], quiet: bool) -> dict[Path, Watched]:
    last: dict[Path, Watched] = {}
    view, said = LiveView(is_ascii=True), dict.fromkeys(directories, 0.0)
    for watched in watch(directories):
        before = last.get(watched.directory)
        last[watched.directory] = watched
        view.add(watched)
        if quiet:
            continue
        name = watched.job.job
        if before is None or _is_news(watched.job, before.job):
            texts = f"{name}: {watched.job.described()}", watched.job.night_text(), watched.advice
            say("; ".join(filter(None, texts)))
        is_due = time.monotonic() - said[watched.directory] >= _LINE_S
        if watched.progress and (before is None or not before.progress or watched.progress.run != before.progress.run):
            say(f"{name}: {live_runs.place(watched.directory, watched.progress.run)}")
            said[watched.directory] = time.monotonic()
        elif is_due and watched.live is not None and watched.live.done:
            say(view.line(watched))
            said[watched.directory] = time.monotonic()
        if watched.fault and not watched.is_final and (before is None or str(watched.fault) != str(before.fault)):
            say(f"{name}: {watched.fault}; asking again")
    return last


def _is_news(now: job_record.Job, before: job_record.Job) -> bool:
    """Return whether the state of a job, or the reason for its state, has changed."""
    return (len(now.states), now.states[-1].since) != (len(before.states), before.states[-1].since)


def _screen(directories: list[Path], _quiet: bool) -> dict[Path, Watched]:
    last: dict[Path, Watched] = {}
    for watched in on_screen(watch(directories), sys.stderr):
        last[watched.directory] = watched
    return last


def on_screen(jobs: Iterable[Watched], output: TextIO) -> Iterator[Watched]:
    """Show jobs on a terminal while they are watched. Yield each look at a job. At the end, erase what was shown."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from dlio_hpc.reports import terminal

    screen = Console(file=output)
    view, shown = LiveView(terminal.is_ascii_only(output)), 0.0
    last: dict[Path, Watched] = {}
    with Live(console=screen, transient=True, auto_refresh=False) as live:
        for watched in jobs:
            last[watched.directory] = watched
            view.add(watched)
            if watched.is_final or time.monotonic() - shown >= _REFRESH_S:
                shown = time.monotonic()
                lines = view.screen(list(last.values()), screen.width, screen.height)
                live.update(Text("\n".join(lines), no_wrap=True), refresh=True)
            yield watched


def exit_code(faults: Iterable[DlioError | None]) -> int:
    """Print each fault. Return the exit code of the first fault, or 0 if there is no fault."""
    given = [fault for fault in faults if fault is not None]
    for fault in given:
        say(f"dlio-hpc: {fault}")
    return given[0].exit_code if given else 0
