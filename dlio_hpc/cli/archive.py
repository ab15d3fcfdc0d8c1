"""dlio-hpc archive: verify, list, extract, share, prune."""

import shlex
from pathlib import Path

import click

from dlio_hpc.base import own_commands
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import counted
from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import FOLDER, JSON, PATH, SETTINGS, CommandGroup, argument, option
from dlio_hpc.documents.files import (
    ArchiveExtractDocument,
    ArchiveListDocument,
    ArchiveMember,
    ArchivePruneDocument,
    ArchiveShareDocument,
    ArchiveVerifyDocument,
    ExtractedArchive,
    ForeignFile,
    ListedArchive,
    VerifiedArchive,
)
from dlio_hpc.files.rundir import ARCHIVE_SUFFIX

_RUNS = Path(own_commands.USUAL)
_ARCHIVES = argument("archives", nargs=-1, required=True, type=PATH, metavar="ARCHIVE...")


@click.group(cls=CommandGroup, context_settings=SETTINGS)
def archive() -> None:
    """Verify, list, extract, share and prune the archives of jobs (NAME.tar.zst)."""


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
        if verified.faults:
            console.say(_remedy(Path(verified.archive)))
        if not verified.faults and not as_json:
            console.show(f"{verified.archive}: intact")
    if as_json:
        console.print_json(ArchiveVerifyDocument(checked))
    return InvalidRun.exit_code if any(verified.faults for verified in checked) else code


def _remedy(archive: Path) -> str:
    """Return what to do about a corrupted archive: there may be another copy, or the directory of its job."""
    job = archive.name.removesuffix(ARCHIVE_SUFFIX)
    kept = _RUNS / "archive" / archive.name
    if kept.is_file() and not kept.samefile(archive):
        return f"Another copy of this archive: {kept}"
    runs = (archive.absolute().parents[1], _RUNS)
    if (directory := next((path / job for path in runs if (path / job).is_dir()), None)) is not None:
        moved = shlex.join(["mv", str(archive), f"{archive}.bad"])
        return f"To archive the job again: {moved} && {shlex.join(['dlio-hpc', 'collect', str(directory)])}"
    return f"Copy {archive.name} again from the folder where the job was archived; do not use the results of this copy"


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
        console.show(f"{member.bytes:>12}  {member.name}")
    return code


@archive.command()
@_ARCHIVES
@option("--to", type=FOLDER, metavar="DIR", default=".", show_default=True, help="Folder to extract into.")
@JSON
def extract(archives: tuple[Path, ...], to: Path, as_json: bool) -> int:
    """Verify each ARCHIVE, then extract the folder of its job. Print the path of the folder."""
    from dlio_hpc.files.archive import extract as unpack

    _check(archives)
    extracted, code = console.for_each(archives, lambda path: ExtractedArchive(str(path), str(unpack(path, to))))
    if as_json:
        console.print_json(ArchiveExtractDocument(extracted))
    for made in () if as_json else extracted:
        console.show(made.directory)
    return code


def _check(archives: tuple[Path, ...]) -> None:
    """Raise ConfigError if one of the paths is no archive, before any archive is extracted. The last path may be meant
    as the folder to extract into.
    """
    from dlio_hpc.files.archive import refuse_other

    is_target = not archives[-1].name.endswith(ARCHIVE_SUFFIX) and not archives[-1].is_file()
    if archives[1:] and is_target:
        what = "is a folder" if archives[-1].is_dir() else "does not exist"
        target = shlex.quote(str(archives[-1]))
        raise ConfigError(f"{archives[-1]} {what}, and nothing is extracted; to extract into a folder: --to {target}")
    for path in archives:
        refuse_other(path)


_FOLDER = argument("folder", type=FOLDER, metavar="DIR")


@archive.command()
@_FOLDER
@option("--group", required=True, metavar="GROUP", help="Unix group; you must be a member.")
@JSON
def share(folder: Path, group: str, as_json: bool) -> int:
    """Share the archives, the history and the baselines in DIR with a group. DIR is created if it does not exist.

    All members can then collect into DIR, and accept and retire baselines, regardless of their umask. No link is
    followed, except for links above DIR that you or root made. Exit code 7: some files were left unchanged. These are
    files of other users, for which the command that the owner must run is printed, and links and files with several
    links, which are listed.
    """
    from dlio_hpc.base.errors import Incomplete
    from dlio_hpc.dataset import folder_kinds
    from dlio_hpc.files import group_sharing

    folder_kinds.refuse_other(folder, "archives", "")
    sharing = group_sharing.share(folder, group)
    if as_json:
        others = [ForeignFile(user, command) for user, command in sharing.others]
        console.print_json(ArchiveShareDocument(list(map(str, sharing.changed)), others, list(sharing.refused)))
    for path in () if as_json else sharing.changed:
        console.show(f"{path}: shared with {group}")
    for user, command in sharing.others:
        console.say(f"user {user} must run: {command}")
    for line in sharing.refused:
        console.say(f"dlio-hpc: {line}")
    if sharing == group_sharing.UNCHANGED and not as_json:
        console.show(f"{folder}: already shared with {group}")
    console.say(f"note: if other programs write to this folder: setfacl -R -m d:g:{group}:rwX '{folder}'")
    return Incomplete.exit_code if sharing.others or sharing.refused else 0


@archive.command()
@_FOLDER
@option(
    "--keep", required=True, metavar="TIME",
    help=("Keep archives of jobs that ended less than TIME ago: a number with d (days), w (weeks) or y "
        "(years), such as 180d."),
)  # fmt: skip
@option(
    "--last", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Keep the newest N jobs of each measurement, too.",
)  # fmt: skip
@option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
@JSON
def prune(folder: Path, keep: str, last: int, dry_run: bool, as_json: bool) -> None:
    """Remove old archives from DIR. The history keeps the metrics of their jobs, also after --rebuild.

    Archives of active baselines, and archives that cannot be read, are kept. The jobs of a study are kept or removed
    together.
    """
    from dlio_hpc.base import units
    from dlio_hpc.dataset import folder_kinds
    from dlio_hpc.verdict import history, judged_jobs, retention

    terms = retention.Retention(_days(keep), last)
    where = folder
    folder_kinds.refuse_other(where, "archives", "", needed=True)
    history.check_writable(where)
    judged_jobs.refresh(where, console.say)
    choice = retention.choose(where, terms)
    size = choice.bytes
    if not dry_run:
        retention.remove(where, choice)
    if as_json:
        console.print_json(ArchivePruneDocument([str(path) for path, _ in choice.removed], size, choice.kept, dry_run))
        return
    for path, entry in choice.removed:
        console.show(f"{path}: {'would be ' if dry_run else ''}removed; its job ended {entry.ended}")
    kept = ", ".join(f"{count} {reason}" for reason, count in sorted(choice.kept.items())) or "none"
    freed = f"{'would free' if dry_run else 'freed'} {units.format_size(size)} in"
    console.show(f"{freed} {counted(len(choice.removed), 'archive')}; kept: {kept}")


_DAYS = {"d": 1, "w": 7, "y": 365}


def _days(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in _DAYS:
        raise click.UsageError(f"--keep {text}: give a number followed by d, w or y (days, weeks, years), such as 180d")
    return int(number) * _DAYS[unit]
