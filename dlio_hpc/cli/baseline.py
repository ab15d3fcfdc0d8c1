"""dlio-hpc baseline: accept, list, show, retire."""

import sys
from pathlib import Path

import click

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import console
from dlio_hpc.cli.archive_options import archive_options
from dlio_hpc.cli.verbs import JSON, PATH, SETTINGS, CommandGroup, argument, option
from dlio_hpc.verdict import baselines, judged_jobs
from dlio_hpc.verdict.history_entry import together


@click.group(cls=CommandGroup, context_settings=SETTINGS)
def baseline() -> None:
    """Accept, list, show and retire baselines. A baseline holds the valid runs of a job. Later jobs with the same key
    are compared with these runs.

    The key consists of site, file system, layout, nodes, ranks per node, workload with all its settings, and version of
    dlio-hpc.
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
@click.option(
    "--force", is_flag=True,
    help=("Accept despite cached or failed runs, criteria that are not met, or a regression; the baseline "
        "records these objections."),
)  # fmt: skip
@JSON
def accept(
    job: str, archive: Path | None, runs: Path, message: str, sign: Path | None, force: bool, as_json: bool
) -> None:
    """Make JOB (a directory, an archive, a name, or a study) the baseline of each key that it measured. It replaces the
    earlier baselines of these keys; `list --all` still shows replaced baselines. If JOB is a study of several nights,
    its newest night becomes the baseline.
    """
    from dlio_hpc.verdict import baseline_candidates

    jobs = judged_jobs.select([job], archive, runs, console.say).jobs
    if not jobs:
        raise ConfigError(f"{job} has no job that has ended; see dlio-hpc status")
    nights, folder = together([selected.entry for selected in jobs]), jobs[0].folder
    present = {accepted.group.key: accepted for accepted in baselines.active(_read(folder))}
    accepted = baselines.accept(
        folder, nights[-1], message, force, sign, nights[:-1], judged_jobs.entries(folder, console.say),
        jobs[-1].study,
    )  # fmt: skip
    for made in accepted:
        replaced = present.get(made.group.key)
        if not as_json:
            by = f", which {replaced.who} accepted" if replaced and replaced.who != made.who else ""
            change = f", in place of {replaced.id}{by}" if replaced else ""
            console.show(f"accepted {made.id} as the baseline of {made.group.key.title} in {folder}{change}")
        for warning in made.warnings:
            console.say(f"note: accepted although {warning}")
    left_out = baseline_candidates.left_out(nights)
    for warning in left_out:
        console.say(f"note: {warning}")
    judged_jobs.refresh(folder, console.say)
    if as_json:
        from dlio_hpc.documents import judgements

        before = {key: replaced.id for key, replaced in present.items()}
        console.print_json(judgements.of_made(accepted, before, left_out))


@baseline.command("list")
@archive_options
@click.option("--all", "everything", is_flag=True, help="List replaced and retired baselines, too.")
@JSON
def list_them(archive: Path | None, runs: Path, everything: bool, as_json: bool) -> None:
    """List the active baselines."""
    from dlio_hpc.reports import baseline_rows

    folder = judged_jobs.folder(archive, runs)
    decisions = _read(folder)
    kept = [chosen for chosen in baselines.baselines(decisions) if everything or chosen.state == "active"]
    if as_json:
        from dlio_hpc.documents import judgements

        console.print_json(judgements.BaselineListDocument([judgements.of_baseline(chosen) for chosen in kept]))
    elif kept:
        baseline_rows.show(kept, sys.stdout)
    else:
        console.say(f"no baselines in {folder}; accept one: dlio-hpc baseline accept JOB --message '...'")


@baseline.command()
@argument("name", metavar="BASELINE")
@archive_options
@JSON
def show(name: str, archive: Path | None, runs: Path, as_json: bool) -> None:
    """Show a BASELINE, given by its id or its job: key, metrics and state, and who accepted it, when and why."""
    from dlio_hpc.reports import baseline_rows

    folder = judged_jobs.folder(archive, runs)
    decisions = _read(folder)
    chosen = baselines.named(baselines.baselines(decisions), name, folder)
    if as_json:
        from dlio_hpc.documents import judgements

        console.print_json(judgements.of_shown(chosen, decisions.signers.get(chosen.accepted.id)))
    else:
        for label, text in baseline_rows.facts(chosen, decisions.signers.get(chosen.accepted.id)):
            console.show(f"{label:20} {text}")


@baseline.command()
@argument("name", metavar="BASELINE")
@archive_options
@option("--message", required=True, metavar="TEXT", help="Reason for the decision, kept with the baseline.")
@_SIGN
@JSON
def retire(name: str, archive: Path | None, runs: Path, message: str, sign: Path | None, as_json: bool) -> None:
    """Retire a BASELINE, given by its id or its job. Its key then has no baseline until another job is accepted. `list
    --all` still shows a retired baseline.
    """
    folder = judged_jobs.folder(archive, runs)
    made = baselines.retire(folder, name, message, sign)
    judged_jobs.refresh(folder, console.say)
    if as_json:
        from dlio_hpc.documents.judgements import BaselineRetireDocument

        console.print_json(BaselineRetireDocument(made.id, made.message, made.who, made.when))
    else:
        console.show(f"{made.id}: retired. Its key has no baseline now, until another job is accepted")


def _read(folder: Path) -> baselines.Decisions:
    """Read the decisions, and print a note for each decision that is ignored."""
    decisions = baselines.read(folder)
    for line in decisions.refused:
        console.say(f"note: {line}")
    return decisions
