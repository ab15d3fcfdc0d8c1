"""dlio-hpc sites and dlio-hpc workloads: what is shipped, and what a file says."""

from pathlib import Path

import click

from dlio_hpc import document, shipped, site, units, workload
from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import SETTINGS, option


@click.command(context_settings=SETTINGS)
@click.argument("name", required=False, metavar="[NAME|FILE]")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def sites(name: str | None, as_json: bool) -> None:
    """List the site profiles, or show one as it is written."""
    if name is not None:
        _show(site.load(name), shipped.find(shipped.SITES, name), as_json)
        return
    profiles = [site.load(known) for known in shipped.names(shipped.SITES)]
    if as_json:
        listed = [{"name": p.name, "scheduler": p.scheduler, "description": p.description} for p in profiles]
        console.print_json({"sites": listed})
        return
    here = site.here()
    for profile in profiles:
        mark = "*" if profile.name == here else " "
        click.echo(f"{mark} {profile.name:12} {profile.scheduler:8} {profile.description}")
    click.echo("* used here without --site")


@click.command(context_settings=SETTINGS)
@click.argument("name", required=False, metavar="[NAME|FILE]")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def workloads(name: str | None, as_json: bool) -> None:
    """List the workloads, or show one as it is written."""
    if name is not None:
        _show(workload.load(name), shipped.find(shipped.WORKLOADS, name), as_json)
        return
    known = [workload.load(shipped) for shipped in shipped.names(shipped.WORKLOADS)]
    if as_json:
        listed = [
            {"name": w.name, "format": w.dataset.format, "dataset_bytes": w.dataset.size, "description": w.description}
            for w in known
        ]
        console.print_json({"workloads": listed})
        return
    for one in known:
        size = "-" if one.dataset.format == "null" else units.format_size(one.dataset.size)
        click.echo(f"{one.name:18} {one.dataset.format:9} {size:>10}  {one.description}")


def _show(value: object, path: Path, as_json: bool) -> None:
    """A profile or workload as its file has it, comments and all; as JSON with the defaults filled in."""
    click.echo(document.encode(value).decode() if as_json else path.read_text(encoding="utf-8"), nl=False)
