"""dlio-hpc archive: verify, list, extract, share, prune."""

from pathlib import Path

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import PATH, SETTINGS, CommandGroup, argument, option
from dlio_hpc.errors import InvalidRun

_ARCHIVES = argument("archives", nargs=-1, required=True, type=PATH, metavar="ARCHIVE...")


@click.group(cls=CommandGroup, context_settings=SETTINGS)
def archive() -> None:
    """Verify, list, extract, share and prune the archives of jobs (NAME.tar.zst)."""


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


_FOLDER = argument("folder", type=PATH, metavar="DIR")


@archive.command()
@_FOLDER
@option("--group", required=True, metavar="GROUP", help="Unix group; you must be a member.")
def share(folder: Path, group: str) -> int:
    """Share the archives, the history and the baselines in DIR with a group. DIR is created if it does not exist.

    All members can then collect into DIR, and accept and retire baselines, whatever their umask. Exit code 7: files of
    other users need a command that only they can run; it is printed.
    """
    from dlio_hpc.errors import Incomplete
    from dlio_hpc.files import group_sharing

    sharing = group_sharing.share(folder, group)
    for path in sharing.changed:
        click.echo(f"{path}: shared with {group}")
    for user, command in sharing.others:
        console.say(f"user {user} must run: {command}")
    if not sharing.changed and not sharing.others:
        click.echo(f"{folder}: already shared with {group}")
    console.say(f"note: for other programs that write there: setfacl -R -m d:g:{group}:rwX '{folder}'")
    return Incomplete.exit_code if sharing.others else 0


@archive.command()
@_FOLDER
@option(
    "--keep", required=True, metavar="TIME",
    help="Keep archives of jobs that ended within TIME: a number with d (days), w (weeks) or y (years), such as 180d.",
)  # fmt: skip
@option(
    "--last",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Keep the newest N jobs of each measurement, too.",
)
@option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
@option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def prune(folder: Path, keep: str, last: int, dry_run: bool, as_json: bool) -> None:
    """Remove old archives from DIR. The history keeps the metrics of their jobs, also after --rebuild.

    Archives of active baselines are kept, and archives that cannot be read. The jobs of a study are kept or removed
    together.
    """
    from dlio_hpc import units
    from dlio_hpc.verdict import history, retention, selection

    terms = retention.Retention(_days(keep), last)
    where = selection.folder(folder, folder)
    history.check_writable(where)
    selection.refresh(where, console.say)
    choice = retention.choose(where, terms)
    size = choice.bytes
    if not dry_run:
        retention.remove(where, choice)
    if as_json:
        removed = [str(path) for path, _ in choice.removed]
        console.print_json({"removed": removed, "bytes": size, "kept": choice.kept, "dry_run": dry_run})
        return
    for path, entry in choice.removed:
        click.echo(f"{path}: {'would be ' if dry_run else ''}removed; its job ended {entry.ended}")
    kept = ", ".join(f"{count} {reason}" for reason, count in sorted(choice.kept.items())) or "none"
    freed = f"{'would free' if dry_run else 'freed'} {units.format_size(size)} in {len(choice.removed)} archives"
    click.echo(f"{freed}; kept: {kept}")


_DAYS = {"d": 1, "w": 7, "y": 365}


def _days(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if not number.isdigit() or unit not in _DAYS:
        raise click.UsageError(f"--keep {text}: write a number with d, w or y (days, weeks, years), such as 180d")
    return int(number) * _DAYS[unit]
