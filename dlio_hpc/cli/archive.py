"""dlio-hpc archive: verify, list, extract."""

from pathlib import Path

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import PATH, SETTINGS, CommandGroup, argument, option
from dlio_hpc.errors import InvalidRun

_ARCHIVES = argument("archives", nargs=-1, required=True, type=PATH, metavar="ARCHIVE...")


@click.group(cls=CommandGroup, context_settings=SETTINGS)
def archive() -> None:
    """Verify, list and extract the archives of jobs (NAME.tar.zst)."""


@archive.command()
@_ARCHIVES
def verify(archives: tuple[Path, ...]) -> int:
    """Check every byte of each ARCHIVE against its checksum and manifest. Exit code 3: an archive is corrupted."""
    from dlio_hpc.files.archive import faults

    checked, code = console.for_each(archives, lambda path: (path, faults(path)))
    for path, problems in checked:
        for fault in problems:
            console.say(f"{path}: {fault}")
        if not problems:
            click.echo(f"{path}: intact")
    return InvalidRun.exit_code if any(problems for _, problems in checked) else code


@archive.command("list")
@_ARCHIVES
def list_members(archives: tuple[Path, ...]) -> None:
    """List the members of each ARCHIVE with their sizes in bytes."""
    from dlio_hpc.files.archive import entries

    for path in archives:
        for name, size in entries(path):
            click.echo(f"{size:>12}  {name}")


@archive.command()
@_ARCHIVES
@option("--to", type=PATH, metavar="DIR", default=".", show_default=True, help="Folder to extract into.")
def extract(archives: tuple[Path, ...], to: Path) -> None:
    """Verify each ARCHIVE, then extract the folder of its job. Print the path of the folder."""
    from dlio_hpc.files.archive import extract as unpack

    for path in archives:
        click.echo(str(unpack(path, to)))
