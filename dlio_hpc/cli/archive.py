"""dlio-hpc archive: verify, list, extract."""

from pathlib import Path

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import JSON, PATH, SETTINGS, CommandGroup, argument, option
from dlio_hpc.documents.files import (
    ArchiveExtractDocument,
    ArchiveListDocument,
    ArchiveMember,
    ArchiveVerifyDocument,
    ExtractedArchive,
    ListedArchive,
    VerifiedArchive,
)
from dlio_hpc.errors import InvalidRun

_ARCHIVES = argument("archives", nargs=-1, required=True, type=PATH, metavar="ARCHIVE...")


@click.group(cls=CommandGroup, context_settings=SETTINGS)
def archive() -> None:
    """Verify, list and extract the archives of jobs (NAME.tar.zst)."""


@archive.command()
@_ARCHIVES
@JSON
def verify(archives: tuple[Path, ...], as_json: bool) -> int:
    """Check every byte of each ARCHIVE against its checksum and manifest. Exit code 3: an archive is corrupted."""
    from dlio_hpc.files.archive import faults

    checked, code = console.for_each(archives, lambda path: VerifiedArchive(str(path), faults(path)))
    for verified in checked:
        for fault in verified.faults:
            console.say(f"{verified.archive}: {fault}")
        if not verified.faults and not as_json:
            click.echo(f"{verified.archive}: intact")
    if as_json:
        console.print_json(ArchiveVerifyDocument(checked))
    return InvalidRun.exit_code if any(verified.faults for verified in checked) else code


@archive.command("list")
@_ARCHIVES
@JSON
def list_members(archives: tuple[Path, ...], as_json: bool) -> int:
    """List the members of each ARCHIVE with their sizes in bytes."""
    from dlio_hpc.files.archive import entries

    def look(path: Path) -> ListedArchive:
        return ListedArchive(str(path), [ArchiveMember(name, size) for name, size in entries(path)])

    listed, code = console.for_each(archives, look)
    if as_json:
        console.print_json(ArchiveListDocument(listed))
    for member in () if as_json else (member for content in listed for member in content.members):
        click.echo(f"{member.bytes:>12}  {member.name}")
    return code


@archive.command()
@_ARCHIVES
@option("--to", type=PATH, metavar="DIR", default=".", show_default=True, help="Folder to extract into.")
@JSON
def extract(archives: tuple[Path, ...], to: Path, as_json: bool) -> int:
    """Verify each ARCHIVE, then extract the folder of its job. Print the path of the folder."""
    from dlio_hpc.files.archive import extract as unpack

    extracted, code = console.for_each(archives, lambda path: ExtractedArchive(str(path), str(unpack(path, to))))
    if as_json:
        console.print_json(ArchiveExtractDocument(extracted))
    for made in () if as_json else extracted:
        click.echo(made.directory)
    return code
