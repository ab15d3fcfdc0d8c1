"""dlio-hpc doctor: collect the facts about an installation that a maintainer needs."""

from pathlib import Path

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import JSON, PATH, SETTINGS, option


@click.command(context_settings=SETTINGS)
@option(
    "-s", "--site", metavar="NAME|FILE", help="Site profile. Default: the profile for this host's name, else local."
)
@option("-d", "--data", type=PATH, metavar="DIR", help="Folder for datasets: the file system under test.")
@option("-o", "--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Folder of jobs.")
@JSON
def doctor(site: str | None, data: Path | None, runs: Path, as_json: bool) -> None:
    """Print the facts that a maintainer needs to help you: versions, MPI, site, file systems, and recent errors.

    Secrets are left out: for accounts, and for variables such as DLIO_HPC_TOKEN, the output says only that they are
    set. Read the output before you send it. To find problems of a site, use dlio-hpc check.
    """
    from dlio_hpc.reports import installation_report

    parts = list(installation_report.sections(site, data, runs))
    if as_json:
        console.print_json({title: dict(facts) for title, facts in parts})
        return
    for title, facts in parts:
        click.secho(title, bold=True)
        for name, text in facts or [("none", "")]:
            console.show(f"  {name:<22} {text}".rstrip())
    for fault in dict.fromkeys(
        text for _, facts in parts for name, text in facts if name == installation_report.UNKNOWN
    ):
        console.say(f"dlio-hpc: {fault}")
