"""dlio-hpc check: find problems that would make a job fail, before it is submitted."""

import click
from msgspec import structs

from dlio_hpc.base.safe_text import printable
from dlio_hpc.cli import console
from dlio_hpc.cli.plan_options import plan_options
from dlio_hpc.cli.verbs import JSON, SETTINGS, duration, option, parsed
from dlio_hpc.plan import planned
from dlio_hpc.plan.options import Options

_COLOURS = {"ok": "green", "note": "yellow", "fault": "red"}


@click.command(context_settings=SETTINGS)
@plan_options
@option("--launch/--no-launch", default=True, help="Test the launcher in a job with two ranks per node (default).")
@option(
    "--patience", "patience_s", callback=parsed(duration), metavar="TIME", default="2m", show_default=True,
    help="Longest time to wait for the job that tests the launcher.",
)  # fmt: skip
@JSON
def check(options: Options, launch: bool, patience_s: float, as_json: bool) -> int:
    """Look for problems that would make a job fail: file system, layout, space, queue, preloaded libraries, launcher.

    If neither WORKLOAD nor --study nor --suite is given, the job of the workload `demo` is checked.

    Each finding is printed on one line. The exit code is that of the first fault, or 0 if there is no fault.
    """
    from dlio_hpc.batch import preflight

    if options.workload is None and options.study is None and options.suite is None and not options.mix:
        options = structs.replace(options, workload="demo")
    plans = planned.draft(options, console.say).jobs
    findings = []
    for finding in preflight.look(plans, patience_s if launch else None):
        findings.append(finding)
        if not as_json:
            verdict = click.style(f"{finding.verdict:5}", fg=_COLOURS[finding.verdict])
            click.echo(f"{verdict}  {finding.what:12}  {printable(finding.text)}")
    if as_json:
        from dlio_hpc.documents.planned import CheckDocument, CheckFinding

        listed = [CheckFinding(finding.verdict, finding.what, finding.text) for finding in findings]
        console.print_json(CheckDocument(plans[0].site.name, listed))
    return next((finding.exit_code for finding in findings if finding.verdict == "fault"), 0)
