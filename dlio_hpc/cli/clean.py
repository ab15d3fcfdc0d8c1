"""dlio-hpc clean: remove the remains of killed commands."""

import os
from pathlib import Path

import click

from dlio_hpc.base.errors import ConfigError, DlioError
from dlio_hpc.batch import abandoned_files
from dlio_hpc.cli import console
from dlio_hpc.cli.archive_options import archive_options
from dlio_hpc.cli.verbs import JSON, SETTINGS, option
from dlio_hpc.dataset import folder_kinds
from dlio_hpc.documents.files import CleanDocument, RemainsDocument


@click.command(context_settings=SETTINGS)
@archive_options
@option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
@JSON
def clean(archive: Path | None, runs: Path, dry_run: bool, as_json: bool) -> int:
    """Remove the remains of killed commands in RUNS and in the folder of archives: partial files, and directories of
    jobs that never started. Also remove the checkpoints and files that the runs of killed jobs left in data folders
    (outputs-JOB), unless such a folder contains other files. Datasets and results are never removed.
    """
    if not runs.exists():
        raise ConfigError(f"{runs} does not exist; give the folder of jobs with --runs")
    if not os.access(runs, os.R_OK | os.X_OK):
        raise ConfigError(f"cannot read {runs}; give the folder of jobs with --runs")
    folder_kinds.refuse_other(runs, "jobs", "--runs")
    if archive is not None:
        folder_kinds.refuse_other(archive, "archives", "--archive")
    unknown: list[DlioError] = []
    left = [
        *abandoned_files.rests(runs),
        *abandoned_files.never_started(runs, unknown),
        *abandoned_files.rests(archive or runs / "archive"),
        *abandoned_files.outputs(runs, unknown),
    ]
    for fault in unknown:
        console.say(f"dlio-hpc: {fault}")

    def remove(remains: abandoned_files.Debris) -> RemainsDocument:
        abandoned_files.check(remains)
        if not dry_run:
            abandoned_files.remove(remains)
        if not as_json:
            console.show(f"{'would remove' if dry_run else 'removed'} {remains.path}: {remains.what}")
        return RemainsDocument(str(remains.path), remains.what)

    removed, code = console.for_each(left, remove)
    if as_json:
        console.print_json(CleanDocument(removed, dry_run, [str(fault) for fault in unknown]))
    elif not left:
        console.show("nothing to remove" if not unknown else "nothing to remove of the jobs whose state is known")
    return code or (unknown[0].exit_code if unknown else 0)
