"""dlio-hpc baseline: accept, list, show, retire."""

import sys
from pathlib import Path

import click
import msgspec

from dlio_hpc.cli import console
from dlio_hpc.cli.archive_options import archive_options
from dlio_hpc.cli.verbs import SETTINGS, Group, option
from dlio_hpc.verdict import baselines, selection
from dlio_hpc.verdict.history_entry import together


@click.group(cls=Group, context_settings=SETTINGS)
def baseline() -> None:
    """What jobs are compared with: a job's good runs, accepted as the reference of their key.

    A key is site, file system, layout, nodes, ranks per node, workload with all its settings, and version of dlio-hpc.
    """


@baseline.command()
@click.argument("job", metavar="JOB")
@archive_options
@option("--message", required=True, metavar="TEXT", help="Why this job is a good reference; kept with the decision.")
@click.option("--force", is_flag=True, help="Accept what is cached or went wrong in part; that is recorded.")
def accept(job: str, archive: Path | None, runs: Path, message: str, force: bool) -> None:
    """Make JOB (a directory, an archive, a name, or a study) the baseline of each key that it measured. It replaces the
    one before it, which is kept.
    """
    jobs = selection.select([job], archive, runs, console.say).jobs
    (entry, *_), folder = together([each.entry for each in jobs]), jobs[0].folder
    before = {each.group.key: each for each in baselines.active(baselines.read(folder))}
    for made in baselines.accept(folder, entry, message, force):
        replaced = before.get(made.group.key)
        click.echo(f"{made.id}: {made.group.key.title}" + (f", replaces {replaced.id}" if replaced else ""))
        for words in made.warnings:
            console.say(f"note: accepted although {words}")
    for words in baselines.left_out(entry):
        console.say(f"note: {words}")
    selection.refresh(folder, console.say)


@baseline.command("list")
@archive_options
@click.option("--all", "everything", is_flag=True, help="Those that were replaced or retired, too.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def list_them(archive: Path | None, runs: Path, everything: bool, as_json: bool) -> None:
    """List the baselines that hold, a line each."""
    from dlio_hpc.report import baseline_rows

    folder = selection.folder(archive, runs)
    kept = [one for one in baselines.baselines(baselines.read(folder)) if everything or one.state == "active"]
    if as_json:
        console.print_json({"baselines": [baseline_rows.as_document(one) for one in kept]})
    elif kept:
        baseline_rows.show(kept, sys.stdout)
    else:
        console.say(f"no baselines in {folder}; accept one: dlio-hpc baseline accept JOB --message '...'")


@baseline.command()
@click.argument("name", metavar="BASELINE")
@archive_options
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def show(name: str, archive: Path | None, runs: Path, as_json: bool) -> None:
    """Show a BASELINE, by its id or its job: key, figures, who accepted it, when, why, and whether it still holds."""
    from dlio_hpc.report import baseline_rows

    folder = selection.folder(archive, runs)
    one = baselines.named(baselines.baselines(baselines.read(folder)), name, folder)
    if as_json:
        console.print_json(baseline_rows.as_document(one) | {"group": msgspec.to_builtins(one.accepted.group)})
    else:
        for label, text in baseline_rows.facts(one):
            click.echo(f"{label:16}{text}")


@baseline.command()
@click.argument("name", metavar="BASELINE")
@archive_options
@option("--message", required=True, metavar="TEXT", help="Why it holds no longer; kept with the decision.")
def retire(name: str, archive: Path | None, runs: Path, message: str) -> None:
    """End a BASELINE: its key has none until another job is accepted. It stays in the list of --all."""
    folder = selection.folder(archive, runs)
    made = baselines.retire(folder, name, message)
    click.echo(f"{made.id}: retired")
    selection.refresh(folder, console.say)
