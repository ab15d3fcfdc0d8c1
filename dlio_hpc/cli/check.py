"""dlio-hpc check: what would go wrong, before a job waits for it."""

from typing import Any

import click

from dlio_hpc import units
from dlio_hpc.cli import console
from dlio_hpc.cli.study_options import asks, drafted
from dlio_hpc.cli.verbs import SETTINGS, option, parsed

_COLOURS = {"ok": "green", "note": "yellow", "fault": "red"}


@click.command(context_settings=SETTINGS)
@click.argument("workload_name", metavar="[WORKLOAD]", required=False)
@asks
@option("--launch/--no-launch", default=True, help="Start two ranks, in a job of their own (default).")
@option(
    "--patience", "patience_s", callback=parsed(units.seconds), metavar="TIME", default="2m", show_default=True,
    help="How long that job may wait in its queue.",
)  # fmt: skip
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def check(
    workload_name: str | None, launch: bool, patience_s: float, as_json: bool, **options: Any,
) -> int:  # fmt: skip
    """Look for what would make a job fail: file system, layout, space, queue, preloaded libraries, launcher.

    WORKLOAD is demo unless named, or --study.

    Each finding is a line of its own; the exit code is that of the first fault.
    """
    from dlio_hpc.batch import preflight

    usual = "demo" if options["study_name"] is None else None
    plans = drafted(workload_name or usual, options).jobs
    findings = []
    for finding in preflight.look(plans, patience_s if launch else None):
        findings.append(finding)
        if not as_json:
            verdict = click.style(f"{finding.verdict:5}", fg=_COLOURS[finding.verdict])
            click.echo(f"{verdict}  {finding.what:12}  {finding.text}")
    if as_json:
        console.print_json({"site": plans[0].site.name, "findings": preflight.as_document(findings)})
    return next((finding.exit_code for finding in findings if finding.verdict == "fault"), 0)
