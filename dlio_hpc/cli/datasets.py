"""dlio-hpc datasets: list, verify, remove."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, InfrastructureError, InvalidRun, Unexpected, name_hint, unreadable
from dlio_hpc.base.units import counted, listed
from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import JSON, PATH, RUNS, SETTINGS, CommandGroup, argument, option
from dlio_hpc.config import shipped, site
from dlio_hpc.dataset import dataset_folder, dataset_removal, folder_kinds
from dlio_hpc.dataset.dataset_folder import FINGERPRINT_FILE, Fingerprint
from dlio_hpc.documents.files import (
    DatasetsDocument,
    DatasetsRemoveDocument,
    DatasetState,
    DatasetsVerifyDocument,
    FileFault,
    ListedDataset,
    RemovedDataset,
    VerifiedDataset,
)
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan

_DATA = option("-d", "--data", type=PATH, metavar="DIR", help="Folder of datasets. Default: the site's.")
_SITE = option(
    "-s", "--site", "site_name", metavar="NAME|FILE", help="Site profile. Default: the profile for this host's name."
)
# Characters in a line of the table. The column of names is as wide as the other columns permit.
_WIDTH = 100


class _StoredDataset(NamedTuple):
    """A dataset folder. known: contents of its fingerprint file; None if the generation was killed before it wrote this
    file. made: time of the last change of the fingerprint file or, if there is none, of the folder, in the format of
    utc_now().
    """

    folder: Path
    known: Fingerprint | None
    state: DatasetState
    made: str


@click.group(cls=CommandGroup, context_settings=SETTINGS)
def datasets() -> None:
    """List, verify and remove the datasets in the data directory."""


@datasets.command("list")
@_DATA
@_SITE
@JSON
def list_datasets(data: Path | None, site_name: str | None, as_json: bool) -> int:
    """List the datasets with format, size and state."""
    where = _directory(data, site_name)
    stored, code = console.for_each(_folders(where) if data is None else _all_folders(where), _look)
    if as_json:
        console.print_json(DatasetsDocument(str(where), [_listed(entry) for entry in stored]))
    elif stored:
        console.show(_table(where, stored))
    elif not code:
        console.show(f"no datasets in {where}" + ("" if where.exists() else ", which does not exist"))
    return code


@datasets.command()
@argument("names", nargs=-1, metavar="[NAME|DIR]...")
@_DATA
@_SITE
@option("--quick", is_flag=True, help="Check names, number and sizes of files; do not read contents.")
@option("--from-start", is_flag=True, help="Also check the files that an interrupted verification checked.")
@JSON
def verify(
    names: tuple[str, ...], data: Path | None, site_name: str | None, quick: bool, from_start: bool, as_json: bool
) -> int:
    """Check that the files of each dataset (default: all datasets) have the contents that dlio-hpc generates. Exit code
    3: a dataset is incomplete or corrupted, or a job is generating it.

    A verification that was interrupted is continued for a day. The output states how many files it checked.
    """
    where = None if names else _directory(data, site_name)
    folders = _named(names, data, site_name) if where is None else _all_folders(where)
    if not folders:
        raise ConfigError(f"no datasets in {where}, so nothing was verified")
    checked, code = console.for_each(folders, lambda folder: _verified(folder, quick, from_start))
    if as_json:
        console.print_json(DatasetsVerifyDocument(checked))
    else:
        for entry in checked:
            for fault in entry.faults:
                place = entry.name if fault.file == entry.name else f"{entry.name}/{fault.file}"
                console.show(f"{place}: {fault.fault}")
            if entry.faults and entry.files:
                console.show(
                    f"{entry.name}: to generate it again, remove it (dlio-hpc datasets remove "
                    f"{shlex.quote(entry.path)}), and submit the workload"
                )
            if not entry.faults:
                checked_part = "; only names and sizes checked" if quick else ""
                if entry.began is not None:
                    checked_part += (
                        f"; {entry.earlier_files:,} of them by an interrupted verification that began at {entry.began}"
                    )
                amount = f"{counted(entry.files, 'file')}, {units.format_size(entry.bytes)}"
                console.show(f"{entry.name}: intact ({amount}{checked_part})")
    return InvalidRun.exit_code if any(entry.faults for entry in checked) else code


def _verified(folder: Path, quick: bool, from_start: bool) -> VerifiedDataset:
    """Verify a dataset in a separate process, and return the findings."""
    _require(folder)
    stored = _look(folder)
    if stored.state == "generating":
        fault = FileFault(folder.name, "a job is generating it; verify it when that job has ended")
        return VerifiedDataset(folder.name, str(folder), 0, 0, (fault,))
    options = [*["--quick"] * quick, *["--from-start"] * from_start]
    command = [sys.executable, "-m", "dlio_hpc.core.verify_dataset", str(folder), "--json", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if done.returncode == Unexpected.exit_code:
        raise Unexpected(f"{folder} could not be verified; see the messages above")
    if done.returncode not in {0, InvalidRun.exit_code} or not done.stdout:
        raise InfrastructureError(f"{folder} could not be verified; see the messages above")
    findings = {"name": folder.name, "path": str(folder), **json.loads(done.stdout)}
    return serialization.convert(findings, VerifiedDataset, str(folder))


@datasets.command()
@argument("names", nargs=-1, metavar="[NAME|DIR]...")
@_DATA
@_SITE
@option("--unfinished", is_flag=True, help="Remove all datasets whose generation did not complete.")
@option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
@click.option("--force", is_flag=True, help="Also remove datasets that a job reads or will read.")
@option(
    "-o", "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True,
    help="Folder of jobs, which may wait or run and need the datasets.",
)  # fmt: skip
@JSON
def remove(
    names: tuple[str, ...], data: Path | None, site_name: str | None, unfinished: bool, dry_run: bool, force: bool,
    runs: Path, as_json: bool,
) -> int:  # fmt: skip
    """Remove datasets: the files that dlio-hpc generated, then the folder.

    Nothing is removed if one of the datasets contains other files, is being generated, is being read by a job, or is
    needed by a job in RUNS that waits or runs. Jobs that wait in other folders of jobs are not known.
    """
    if names and unfinished:
        raise click.UsageError("give the names of datasets, or --unfinished, and not both")
    if not names and not unfinished:
        raise click.UsageError("give the names of datasets (dlio-hpc datasets list), or --unfinished")
    code = 0
    if unfinished:
        looked, code = console.for_each(_folders(_directory(data, site_name)), _look)
        folders = [entry.folder for entry in looked if entry.state == "unfinished" and not entry.folder.is_symlink()]
        if not folders and not code and not as_json:
            console.show("no unfinished datasets")
    else:
        folders = list(dict.fromkeys(_named(names, data, site_name)))
    for folder in folders:
        _require(folder)
    for folder in folders if len(folders) > 1 else ():  # remove() checks its folder itself
        dataset_removal.check(folder)
    if not force:
        _refuse_needed(folders, runs)
    say = (lambda line: None) if as_json else console.show
    removed, failed = console.for_each(folders, lambda folder: _removed(folder, dry_run, force, say))
    if as_json:
        console.print_json(DatasetsRemoveDocument(removed, dry_run))
    return failed or code


def _refuse_needed(folders: list[Path], runs: Path) -> None:
    """Raise ConfigError if a job reads one of these datasets, or if a job in `runs` that has not ended will read it. An
    unfinished dataset is not refused, because a job that needs it generates it again.
    """
    whole = [folder for folder in folders if (known := dataset_folder.begun(folder)) is not None and known.complete]
    jobs = _needing_jobs(runs) if whole else {}
    for folder in whole:
        job = jobs.get(os.path.realpath(folder))
        if job is not None:
            raise ConfigError(
                f"{job} needs the dataset {folder}; wait for the end of the job, or cancel it (dlio-hpc cancel); "
                "--force removes the dataset nevertheless"
            )
        if dataset_folder.is_being_read(folder):
            raise dataset_removal.being_read(folder)


def _needing_jobs(runs: Path) -> dict[str, str]:
    """Return a job in `runs` that has not ended, with its state, by the path of each dataset that the job uses."""
    from dlio_hpc.batch import job_record, job_state

    directories = sorted(file.parent for file in runs.glob(rundir.JOBS))
    records, _ = console.for_each(directories, lambda directory: (directory, job_record.load(directory)))
    needing: dict[str, str] = {}
    looks = job_state.refresh_all([directory for directory, record in records if not record.ended])
    live = [look for look in looks if not look.job.ended]
    planned, _ = console.for_each(live, lambda look: (look, job_record.load_plan(look.directory).runs))
    for look, runs_of_job in planned:
        for run in runs_of_job:
            for part in (run, run.evaluation or run):
                needing[os.path.realpath(part.dataset)] = f"job {look.job.job} ({look.job.state})"
    return needing


def _removed(folder: Path, is_dry_run: bool, force: bool, say: Callable[[str], None]) -> RemovedDataset:
    """Remove a dataset, and print how much space was freed or would be freed."""
    count, size = dataset_removal.check(folder)[:2] if is_dry_run else dataset_removal.remove(folder, force)
    say(f"{folder}: {'would free' if is_dry_run else 'freed'} {units.format_size(size)} in {counted(count, 'file')}")
    return RemovedDataset(str(folder), count, size)


def _directory(data: Path | None, site_name: str | None) -> Path:
    """Return the data directory that dlio-submit would use."""
    name = site_name or site.here()
    machine = site.load(name)
    if data is None:
        site.check_data(machine, name)
    where = Path(plan.data_directory(machine, data))
    folder_kinds.refuse_other(where, "datasets", "--data")
    return where


def _folders(where: Path) -> list[Path]:
    """Return the dataset folders in `where`, sorted. A dataset folder has a fingerprint file, complete or partly
    written. Return an empty list if `where` does not exist.
    """
    try:
        return sorted(path for path in where.iterdir() if _is_marked(path) or dataset_folder.is_debris(path))
    except FileNotFoundError:
        return []
    except OSError as fault:
        raise unreadable(fault, where, advice="; name another with --data") from fault


def _all_folders(where: Path) -> list[Path]:
    """Return the dataset folders in `where`. Raise ConfigError if `where` does not exist, because then nothing would be
    verified.
    """
    if not where.exists():
        raise ConfigError(f"no datasets in {where}, which does not exist; name the folder of datasets with --data")
    return _folders(where)


def _is_marked(folder: Path) -> bool:
    """Return whether the folder has a fingerprint file. Also return True if this user has no permission to look into
    the folder.
    """
    try:
        os.lstat(folder / FINGERPRINT_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except PermissionError:
        return folder.is_dir()
    return True


def _named(names: tuple[str, ...], data: Path | None, site_name: str | None) -> list[Path]:
    """Return the paths of the named datasets. A name with a slash is a path; other names are in the data directory."""
    below = [name for name in names if "/" not in name]
    where = _directory(data, site_name) if below else Path()
    folders = [Path(os.path.abspath(name)) if "/" in name else where / name for name in names]
    for name, folder in zip(names, folders, strict=True):
        _refuse_folder(Path(name) if not folder.exists() else folder)
    return folders


def _refuse_folder(folder: Path) -> None:
    """Raise ConfigError if the folder is known, and is not a dataset."""
    what = folder_kinds.described(folder)
    if what is None or what == "a dataset":
        return
    names = folder_kinds.some(folder)
    advice = f"give a dataset in it, such as {folder / names[0]}" if names else "give the name of a dataset"
    where = f" -d {folder}" if names else ""
    raise ConfigError(f"{folder} is {what}; {advice}; dlio-hpc datasets list{where} lists the datasets")


def _require(folder: Path) -> None:
    """Raise ConfigError if there is no folder of this name."""
    if folder.is_file():
        raise ConfigError(f"{folder} is a file; give the name or the folder of a dataset; see dlio-hpc datasets list")
    if not os.path.lexists(folder):
        where, names = folder.parent, folder_kinds.some(folder.parent)
        begun = [name for name in names if name.startswith(folder.name)]
        hint = f"did you mean {begun[0]!r}? " if begun else name_hint(folder.name, names)
        if folder.name in shipped.names(shipped.WORKLOADS):
            some = f"the datasets in {where} are {listed(names)}" if names else f"{where} has no datasets"
            hint = f"{folder.name!r} is a workload, and {some}; "
        raise ConfigError(f"no dataset {folder.name} in {where}; {hint}dlio-hpc datasets list -d {where} lists them")


def _look(folder: Path) -> _StoredDataset:
    """Return the state of the dataset in a folder. Raise ConfigError if the folder is not a dataset folder, and
    InfrastructureError if this user has no permission to read it.
    """
    known = dataset_folder.begun(folder)
    state: DatasetState = "complete" if known is not None and known.complete else "unfinished"
    if state == "unfinished" and dataset_folder.is_owned(folder):
        state = "generating"
    dated = folder if known is None else folder / FINGERPRINT_FILE
    try:
        made = units.utc(dated.stat().st_mtime)
    except OSError as fault:
        raise unreadable(fault, dated) from fault
    return _StoredDataset(folder, known, state, made)


def _listed(stored: _StoredDataset) -> ListedDataset:
    listed = ListedDataset(stored.folder.name, str(stored.folder), stored.state, stored.made)
    if stored.known is None:
        return listed
    layout = stored.known.dataset
    return structs.replace(
        listed,
        format=layout.format,
        compression=layout.compression,
        files=dataset_folder.file_count(layout),
        samples_per_file=layout.samples_per_file,
        bytes=dataset_folder.payload(layout),
        fingerprint=stored.known.fingerprint,
    )


def _table(where: Path, stored: list[_StoredDataset]) -> str:
    rows = [("format", "files x samples", "size", "state", "made (UTC)"), *map(_cells, stored)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = _WIDTH - sum(widths) - len(widths)
    name_width = min(room, max(len(entry.folder.name) for entry in stored))
    lines = [f"datasets in {where}:", ""]
    for name, row in zip(["name", *(entry.folder.name for entry in stored)], rows, strict=True):
        if len(name) > name_width:
            lines.append(name)
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[2] = cells[2].strip().rjust(widths[2])
        lines.append(f"{'' if len(name) > name_width else name:{name_width}} {' '.join(cells)}".rstrip())
    lines += ["", "size: samples and auxiliary files, before compression; samples: number per file"]
    if any(entry.state == "unfinished" for entry in stored):
        lines.append("unfinished: a job that needs it completes it; dlio-hpc datasets remove --unfinished removes it")
    if any(entry.state == "generating" for entry in stored):
        lines.append("generating: a job is writing the dataset")
    return "\n".join(lines)


def _cells(stored: _StoredDataset) -> tuple[str, ...]:
    made = stored.made[:16].replace("T", " ")
    if stored.known is None:
        return "-", "-", "-", stored.state, made
    layout = stored.known.dataset
    files = f"{layout.files} x {layout.samples_per_file}" if layout.facts.holds_data else "-"
    packed = "" if layout.compression == "none" else f" {layout.compression}"
    return (
        layout.format + packed,
        files,
        units.format_size(dataset_folder.payload(stored.known.dataset)),
        stored.state,
        made,
    )
