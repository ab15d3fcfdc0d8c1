"""dlio-hpc baseline: accept, list, show, retire."""

import sys
from pathlib import Path

import click
import msgspec

from dlio_hpc.cli import console
from dlio_hpc.cli.archive_options import archive_options
from dlio_hpc.cli.verbs import PATH, SETTINGS, CommandGroup, argument, option
from dlio_hpc.verdict import baselines, selection
from dlio_hpc.verdict.history_entry import together


@click.group(cls=CommandGroup, context_settings=SETTINGS)
def baseline() -> None:
    """Accept, list, show and retire baselines. A baseline holds the valid runs of a job. Later jobs with the same key
    are compared with these runs.

    Key: site, file system, layout, nodes, ranks per node, workload with all its settings, and version of dlio-hpc.
    """


_SIGN = option(
    "--sign", type=PATH, metavar="KEY",
    help="SSH key that signs the decision: a private key, or a public key whose private key is in ssh-agent.",
)  # fmt: skip


@baseline.command()
@argument("job", metavar="JOB")
@archive_options
@option("--message", required=True, metavar="TEXT", help="Reason for the decision, kept with the baseline.")
@_SIGN
@click.option("--force", is_flag=True, help="Accept cached or partly failed runs; the baseline records this.")
def accept(job: str, archive: Path | None, runs: Path, message: str, sign: Path | None, force: bool) -> None:
    """Make JOB (a directory, an archive, a name, or a study) the baseline of each key that it measured. It replaces the
    earlier baselines of these keys; `list --all` still shows replaced baselines.
    """
    jobs = selection.select([job], archive, runs, console.say).jobs
    (entry, *_), folder = together([selected.entry for selected in jobs]), jobs[0].folder
    before = {accepted.group.key: accepted for accepted in baselines.active(_read(folder))}
    for made in baselines.accept(folder, entry, message, force, sign):
        replaced = before.get(made.group.key)
        click.echo(f"{made.id}: {made.group.key.title}" + (f", replaces {replaced.id}" if replaced else ""))
        for warning in made.warnings:
            console.say(f"note: accepted although {warning}")
    for warning in baselines.left_out(entry):
        console.say(f"note: {warning}")
    selection.refresh(folder, console.say)


@baseline.command("list")
@archive_options
@click.option("--all", "everything", is_flag=True, help="List replaced and retired baselines, too.")
@option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_them(archive: Path | None, runs: Path, everything: bool, as_json: bool) -> None:
    """List the active baselines."""
    from dlio_hpc.reports import baseline_rows

    folder = selection.folder(archive, runs)
    decisions = _read(folder)
    kept = [chosen for chosen in baselines.baselines(decisions) if everything or chosen.state == "active"]
    if as_json:
        console.print_json({"baselines": [baseline_rows.as_document(chosen) for chosen in kept]})
    elif kept:
        baseline_rows.show(kept, sys.stdout)
    else:
        console.say(f"no baselines in {folder}; accept one: dlio-hpc baseline accept JOB --message '...'")


@baseline.command()
@argument("name", metavar="BASELINE")
@archive_options
@option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(name: str, archive: Path | None, runs: Path, as_json: bool) -> None:
    """Show a BASELINE, given by its id or its job: key, metrics, state, and by whom, when and why it was accepted."""
    from dlio_hpc.reports import baseline_rows

    folder = selection.folder(archive, runs)
    decisions = _read(folder)
    chosen = baselines.named(baselines.baselines(decisions), name, folder)
    if as_json:
        signed = {"signed_by": decisions.signers.get(chosen.accepted.id)}
        console.print_json(
            baseline_rows.as_document(chosen) | signed | {"group": msgspec.to_builtins(chosen.accepted.group)}
        )
    else:
        for label, text in baseline_rows.facts(chosen, decisions.signers.get(chosen.accepted.id)):
            click.echo(f"{label:16}{text}")


@baseline.command()
@argument("name", metavar="BASELINE")
@archive_options
@option("--message", required=True, metavar="TEXT", help="Reason for the decision, kept with the baseline.")
@_SIGN
def retire(name: str, archive: Path | None, runs: Path, message: str, sign: Path | None) -> None:
    """Retire a BASELINE, given by its id or its job. Its key then has no baseline until another job is accepted. `list
    --all` still shows a retired baseline.
    """
    folder = selection.folder(archive, runs)
    made = baselines.retire(folder, name, message, sign)
    click.echo(f"{made.id}: retired")
    selection.refresh(folder, console.say)


def _read(folder: Path) -> baselines.Decisions:
    """Read the decisions, and print a note for each that does not count."""
    decisions = baselines.read(folder)
    for line in decisions.refused:
        console.say(f"note: {line}")
    return decisions
