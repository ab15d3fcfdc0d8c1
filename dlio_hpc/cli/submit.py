"""dlio-submit: from a workload and a site to a running job."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dlio_hpc import __version__, plan, site, units, workload
from dlio_hpc.cli.verbs import SETTINGS, option

_PATH = click.Path(path_type=Path)


class _Lines(click.types.StringParamType):
    """Text that may hold blanks; in the environment variable, one value a line."""

    envvar_list_splitter = "\n"


def _unit(parse: Callable[[str], int]) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """A callback for values in human units; what the parser does not like is a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
        try:
            return None if value is None else parse(value)
        except ValueError as fault:
            raise click.BadParameter(str(fault), ctx, param) from fault

    return callback


@click.command(context_settings=SETTINGS)
@click.argument("workload_name", metavar="WORKLOAD")
@option("-s", "--site", metavar="NAME|FILE", help="Site profile. Default: the one for this host's name, else local.")
@option("-N", "--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes.")
@option("--ppn", type=click.IntRange(1), metavar="N", help="Ranks a node. Default: the site's.")
@option("-A", "--account", help="Account or project to charge.")
@option("-q", "--queue", help="Queue or partition.")
@option(
    "-t",
    "--time",
    "walltime",
    metavar="TIME",
    callback=_unit(units.walltime),
    help="Limit: 30 (minutes), 30m, 1:30:00.",
)
@option(
    "-J",
    "--job-option",
    "job_options",
    multiple=True,
    type=_Lines(),
    metavar="OPT",
    help="Verbatim to the batch system.",
)
@option("-d", "--data", type=_PATH, metavar="DIR", help="Where datasets go: the file system under test.")
@option("-o", "--runs", type=_PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Jobs' directories.")
@option("--archive", type=_PATH, metavar="DIR", help="Where archives go. Default: RUNS/archive.")
@option(
    "-S",
    "--set",
    "overrides",
    multiple=True,
    type=_Lines(),
    metavar="KEY=VALUE",
    help="Override a key: dataset.files=8.",
)
@option("--repeat", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Measured runs.")
@option("--warmup", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Runs before those.")
@option(
    "--dataset-size",
    metavar="SIZE",
    callback=_unit(units.size),
    help="Shrink the dataset to about this size: fewer files.",
)
@option(
    "--generate",
    type=click.Choice(["auto", "only", "never"]),
    default="auto",
    show_default=True,
    help="Make the dataset if it is not there; make it and stop; or never.",
)
@option("--dry-run", is_flag=True, help="Print the job script and the submit command; write nothing, run nothing.")
@option("--wait", is_flag=True, help="Watch the job to its end, collect it and show what it measured.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("--quiet", is_flag=True, help="No progress and no notes on stderr.")
@option("-v", "--verbose", is_flag=True, help="Say what is submitted and how.")
@click.version_option(__version__)
def submit(
    workload_name: str, overrides: tuple[str, ...], site: str | None, nodes: int, ppn: int | None, dry_run: bool,
    wait: bool, as_json: bool, quiet: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Submit WORKLOAD, a shipped name (dlio-hpc workloads) or a YAML file, as a batch job.

    Returns once the batch system has taken the job; with --wait when it has ended and is archived. Every option is
    also an environment variable: --dataset-size is DLIO_HPC_DATASET_SIZE.
    """
    request = plan.Request(nodes=nodes, ranks_per_node=ppn, **options)
    made = plan.make(workload.load(workload_name, overrides), _site(site), request)
    if dry_run:
        _show(made, as_json)
        return 0
    return _submit(made, wait, as_json, quiet, verbose)


def _site(name: str | None) -> site.Site:
    return site.load(name) if name else site.here()


def _show(made: plan.Plan, as_json: bool) -> None:
    """What would be done, on stdout."""
    from dlio_hpc.batch import jobscript
    from dlio_hpc.batch.schedulers import SCHEDULERS

    script, command = jobscript.render(made), SCHEDULERS[made.site.scheduler].command(made)
    if not as_json:
        sys.stdout.write(f"{script}\n# Submit command:\n# {jobscript.comment(command)}\n")
        return
    from dlio_hpc.cli.console import print_json

    job = {"job": made.job, "batch_id": None, "state": "planned", "directory": made.directory, "archive": None}
    print_json({"study": made.study, "jobs": [{**job, "runs": [], "script": script, "submit_command": command}]})


def _submit(made: plan.Plan, wait: bool, as_json: bool, quiet: bool, verbose: bool) -> int:
    from dlio_hpc.batch import submit as batch
    from dlio_hpc.cli import console
    from dlio_hpc.cli.report import finish, show

    submitted = batch.submit(made)
    directory = Path(made.directory)
    if verbose:
        console.say(f"submit command: {submitted.job.command}")
    if not quiet:
        for note in (*made.notes, *submitted.notes):
            console.say(f"note: {note}")
        console.say(f"submitted {submitted.job.job} to {made.site.name} as {submitted.job.batch_id}: {directory}")
    if wait:
        console.wait(directory, quiet)
        return finish([directory], as_json, quiet)
    if as_json:
        return show([directory], as_json)
    if not quiet:
        console.say(f"when it has ended: dlio-hpc collect {shlex.quote(str(directory))}")
    return 0
