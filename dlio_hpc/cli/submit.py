"""dlio-submit: from a workload and a site to a running job."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from dlio_hpc import __version__, plan
from dlio_hpc.cli.request import PATH, asks, planned
from dlio_hpc.cli.verbs import SETTINGS, option
from dlio_hpc.errors import DlioError


@click.command(context_settings=SETTINGS)
@click.argument("workload_name", metavar="WORKLOAD")
@asks
@option(
    "--after", "parents", multiple=True, type=PATH, metavar="JOB", help="Run when that job, or study, has ended well."
)
@option("--dry-run", is_flag=True, help="Print the job script and the submit command; write nothing, run nothing.")
@option("--wait", is_flag=True, help="Watch the job to its end, collect it and show what it measured.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("--quiet", is_flag=True, help="No progress and no notes on stderr.")
@option("-v", "--verbose", is_flag=True, help="Say what is submitted and how.")
@click.version_option(__version__)
def submit(
    workload_name: str, overrides: tuple[str, ...], site: str | None, nodes: int, ppn: int | None,
    parents: tuple[Path, ...], dry_run: bool, wait: bool, as_json: bool, quiet: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Submit WORKLOAD, a shipped name (dlio-hpc workloads) or a YAML file, as a batch job.

    Returns once the batch system has taken the job; with --wait when it has ended and is archived. Every option is
    also an environment variable: --dataset-size is DLIO_HPC_DATASET_SIZE.
    """
    request = plan.Request(nodes=nodes, ranks_per_node=ppn, **options)
    plans = planned(workload_name, overrides, site, request)
    if dry_run:
        _show(plans, as_json)
        return 0
    from dlio_hpc.cli.jobs import named

    before = [directory for parent in parents for directory in named(str(parent), request.runs)]
    directories = _submit(plans, before, quiet, verbose)
    return _afterwards(directories, wait, as_json, quiet)


def _show(plans: tuple[plan.Plan, ...], as_json: bool) -> None:
    """What would be done, on stdout."""
    from dlio_hpc.batch import jobscript
    from dlio_hpc.batch.schedulers import SCHEDULERS
    from dlio_hpc.batch.shell import comment

    jobs: list[dict[str, Any]] = []
    for number, made in enumerate(plans):
        after = [f"ID-OF-{earlier.job}" for earlier in plans[:number]]
        script, command = jobscript.render(made), SCHEDULERS[made.site.scheduler].command(made, after)
        job = {"job": made.job, "batch_id": None, "state": "planned", "directory": made.directory, "archive": None}
        jobs.append({**job, "runs": [], "script": script, "submit_command": command})
        if not as_json:
            sys.stdout.write(f"{script}\n# Submit command:\n# {comment(command)}\n")
    if as_json:
        from dlio_hpc.cli.console import print_json

        print_json({"study": plans[0].study, "jobs": jobs})


def _submit(plans: tuple[plan.Plan, ...], parents: list[Path], quiet: bool, verbose: bool) -> list[Path]:
    """Each plan handed over, every one after those before it; the jobs' directories."""
    from dlio_hpc.batch import submit as batch
    from dlio_hpc.batch.cancel import cancel
    from dlio_hpc.cli import console

    batch.check(plans)
    after = batch.parents(parents, plans[0])
    directories: list[Path] = []
    for made in plans:
        try:
            submitted = batch.submit(made, after)
        except DlioError:
            for directory in directories:  # what waits for nothing, or for the wrong thing, is of no use
                console.say(f"cancelling {cancel(directory).job}, of the same study")
            raise
        directories.append(Path(made.directory))
        after = [*after, str(submitted.job.batch_id)]
        if verbose:
            console.say(f"submit command: {submitted.job.command}")
        if not quiet:
            for note in (*made.notes, *submitted.notes):
                console.say(f"note: {note}")
            name, place = made.site.name, made.directory
            console.say(f"submitted {submitted.job.job} to {name} as {submitted.job.batch_id}: {place}")
    return directories


def _afterwards(directories: list[Path], wait: bool, as_json: bool, quiet: bool) -> int:
    from dlio_hpc.cli import console
    from dlio_hpc.cli.report import finish, show

    if wait:
        watched, code = console.wait(directories, quiet)
        return (finish(watched, as_json, quiet) if watched else 0) or code
    if as_json:
        show(directories, as_json)
        return 0
    if not quiet:
        jobs = " ".join(shlex.quote(str(directory)) for directory in directories)
        console.say(f"when it has ended: dlio-hpc collect {jobs}")
    return 0
