"""dlio-hpc top."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from dlio_hpc.base import serialization
from dlio_hpc.batch import job_record
from dlio_hpc.batch.job_watch import Watched, watch
from dlio_hpc.batch.live_runs import LiveRun, RunProgress
from dlio_hpc.cli import console
from dlio_hpc.cli.jobs import on_jobs, sound
from dlio_hpc.cli.live_view import LiveView, heading
from dlio_hpc.cli.verbs import SETTINGS, duration, option, parsed
from dlio_hpc.documents.jobs import LiveDocument, LiveJobRun


@click.command(context_settings=SETTINGS)
@on_jobs
@option(
    "--json", "as_json", is_flag=True, help="Print a JSON document on a line for each job, at the interval --every."
)
@option(
    "--every", callback=parsed(duration), metavar="TIME", default="10s", show_default=True,
    help="Time between two lines on a job, with --json or if stdout is not a terminal.",
)  # fmt: skip
def top(jobs: tuple[str, ...], runs: Path, as_json: bool, every: float) -> int:
    """Show each JOB or study while it runs, or all jobs in RUNS that have not ended: the progress of the run, the
    rates, and the shares of the time in which ranks wait for samples, compute, and wait for each other. Ctrl-C ends the
    display; the jobs continue.
    """
    directories, code = sound(jobs, runs)
    live = [directory for directory in directories if not job_record.load(directory).ended]
    if not live and code:
        return code
    if not live:
        console.say(f"no job of {' '.join(jobs) or runs} waits or runs; dlio-hpc status shows the states of the jobs")
        return code
    try:
        if sys.stdout.isatty() and not as_json:
            last = {watched.directory: watched for watched in console.on_screen(watch(live), sys.stdout)}
            for watched in last.values():
                console.show(f"{watched.job.job}  {heading(watched)}")
        else:
            for text in _texts(live, every, as_json):
                print(text, flush=True)
    except KeyboardInterrupt:
        console.say("the jobs continue")
    return code


def _texts(directories: list[Path], every: float, as_json: bool) -> Iterator[str]:
    """Yield lines on the jobs: for each job, a line at the first look, a line at the last look, and a line every
    `every` seconds between.
    """
    view, due = LiveView(is_ascii=True), dict.fromkeys(directories, 0.0)
    for watched in watch(directories):
        view.add(watched)
        if time.monotonic() < due[watched.directory] and not watched.is_final:
            continue
        due[watched.directory] = time.monotonic() + every
        if as_json:
            yield json.dumps(serialization.plain(_document(watched, view.rate(watched))))
        else:
            has_run = watched.live is not None and not watched.job.ended
            yield view.line(watched) if has_run else f"{watched.job.job}: {heading(watched)}"


def _document(watched: Watched, rate: float | None) -> LiveDocument:
    made = None if watched.live is None else _of_run(watched.live, rate)
    return LiveDocument(watched.job.job, watched.job.state, str(watched.directory.absolute()), made)


def _of_run(run: LiveRun, rate: float | None) -> LiveJobRun:
    shared = {name: getattr(run, name) for name in RunProgress.__struct_fields__}
    rank, host = (None, None) if run.slowest is None else (run.slowest.rank, run.slowest.host)
    return LiveJobRun(
        **shared, MBps=_mega(run.mean_rate), MBps_now=_mega(rate), left_s=run.left_s, slowest_rank=rank,
        slowest_host=host,
    )  # fmt: skip


def _mega(rate: float | None) -> float | None:
    return None if rate is None else rate / 1e6
