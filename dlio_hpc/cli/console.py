"""Words to the person at the terminal: results on stdout, everything else on stderr."""

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dlio_hpc.batch import job
from dlio_hpc.batch.watch import Progress, watch
from dlio_hpc.errors import DlioError, Incomplete

T = TypeVar("T")


def say(message: str) -> None:
    """A line for people, on stderr."""
    print(message, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """Exactly one JSON document, on stdout."""
    print(json.dumps(document, indent=2))


def each(paths: Iterable[Path], action: Callable[[Path], T]) -> tuple[list[T], int]:
    """What `action` gave for each path, and the code of the first that failed; a failure is told and stops no other."""
    done: list[T] = []
    code = 0
    for path in paths:
        try:
            done.append(action(path))
        except DlioError as fault:
            say(f"dlio-hpc: {fault}")
            code = code or fault.exit_code
    return done, code


@contextmanager
def busy(what: str, quiet: bool) -> Iterator[None]:
    """A spinner while the block runs, where stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def wait(directory: Path, quiet: bool) -> job.Job:
    """Watch the job until it has ended: a live bar where stderr is a terminal, a line a state elsewhere.

    An interrupt ends the watching, never the job.
    """
    gc.enable()
    try:
        return _bar(directory) if sys.stderr.isatty() and not quiet else _lines(directory, quiet)
    except KeyboardInterrupt:
        raise Incomplete(
            f"no longer watching; the job goes on. Later: dlio-hpc wait {directory}, or dlio-hpc cancel {directory}"
        ) from None


def _lines(directory: Path, quiet: bool) -> job.Job:
    state, run = "", ""
    for record, progress in watch(directory):
        if not quiet and record.state != state:
            say(f"{record.job}: {record.state}")
        if not quiet and progress and progress.run != run:
            say(f"{record.job}: {progress.run}, {progress.total} {progress.unit}")
        state, run = record.state, progress.run if progress else ""
    return record


def _bar(directory: Path) -> job.Job:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rest]}"),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("waiting", total=None, rest="")
        run = ""
        for record, progress in watch(directory):
            if progress is None or record.ended:
                bar.update(task, description=f"{record.job} {record.state}")
                continue
            if progress.run != run:
                bar.reset(task)
                run = progress.run
            _advance(bar, task, progress)
    return record


def _advance(bar: Any, task: Any, progress: Progress) -> None:
    bar.update(
        task,
        description=progress.run,
        completed=progress.done,
        total=progress.total,
        rest=f"{progress.unit} {progress.rest}",
    )


def exit_code(faults: Iterable[DlioError | None]) -> int:
    """0, or the code of the first fault; each fault is said."""
    found = [fault for fault in faults if fault is not None]
    for fault in found:
        say(f"dlio-hpc: {fault}")
    return found[0].exit_code if found else 0
