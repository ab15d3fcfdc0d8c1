"""dlio-submit: from a workload and a site to a running job."""

import sys
from pathlib import Path
from typing import Any

import click

from dlio_hpc import plan, site, units, workload
from dlio_hpc.cli.verbs import SETTINGS, option

_PATH = click.Path(path_type=Path)


class _Unit(click.ParamType[int]):
    """A value in human units; what the parser does not like is a usage error."""

    def __init__(self, name: str, parse: Any) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return self._parse(value)  # type: ignore[no-any-return]
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


@click.command(context_settings=SETTINGS)
@click.argument("workload_name", metavar="WORKLOAD")
@option("-s", "--site", metavar="NAME|FILE", help="Site profile. Default: the one for this host's name, else local.")
@option("-N", "--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes.")
@option("--ppn", type=click.IntRange(1), metavar="N", help="Ranks a node. Default: the site's.")
@option("-t", "--time", "walltime", type=_Unit("TIME", units.walltime), help="Time limit: 30 (minutes), 30m, 1:30:00.")
@option("-d", "--data", type=_PATH, metavar="DIR", help="Where datasets go: the file system under test.")
@option("-o", "--runs", type=_PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Where jobs' directories go.")
@option("--archive", type=_PATH, metavar="DIR", help="Where archives go. Default: RUNS/archive.")
@option("-S", "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a workload's key: dataset.files=8.")
@option("--repeat", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Measured runs in the job.")
@option("--warmup", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Runs before the measured ones.")
@option("--dataset-size", type=_Unit("SIZE", units.size), help="Shrink the dataset to about this size: fewer files.")
@option("--generate", type=click.Choice(["auto", "only", "never"]), default="auto", show_default=True,
        help="Make the dataset if it is not there; make it and stop; or never.")
@option("--dry-run", is_flag=True, help="Print the job script and the submit command; write nothing, run nothing.")
@option("--wait", is_flag=True, help="Watch the job to its end, collect it and show what it measured.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("-q", "--quiet", is_flag=True, help="No progress and no notes on stderr.")
@click.version_option(package_name="dlio-hpc")
def submit(
    workload_name: str, overrides: tuple[str, ...], site: str | None, dry_run: bool, wait: bool, as_json: bool,
    quiet: bool, nodes: int, ppn: int | None, **options: Any,
) -> int:  # fmt: skip
    """Submit WORKLOAD, a shipped name (dlio-hpc workloads) or a YAML file, as a batch job.

    Returns once the batch system has taken the job; with --wait when it has ended and is archived. Every option is
    also an environment variable: --dataset-size is DLIO_HPC_DATASET_SIZE.
    """
    chosen = _site(site)
    request = plan.Request(nodes=nodes, ranks_per_node=ppn, **options)
    made = plan.make(workload.load(workload_name, overrides), chosen, request)
    if dry_run:
        _show(made, as_json)
        return 0
    return _submit(made, wait, as_json, quiet)


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


def _submit(made: plan.Plan, wait: bool, as_json: bool, quiet: bool) -> int:
    from dlio_hpc.batch import submit as batch
    from dlio_hpc.cli import console
    from dlio_hpc.cli.report import finish, show

    record = batch.submit(made)
    directory = Path(made.directory)
    if not quiet:
        console.say(f"submitted {record.job} to {made.site.name} as {record.batch_id}: {directory}")
    if wait:
        console.wait(directory, quiet)
        return finish([directory], as_json, quiet)
    if as_json:
        show([directory], as_json)
    elif not quiet:
        console.say(f"when it has ended: dlio-hpc collect {directory}")
    return 0
