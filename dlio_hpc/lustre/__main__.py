"""Set the layout of a dataset before the dataset is generated, or read the layout back afterwards. job.sh runs: python
-m dlio_hpc.lustre PLAN.json before|after.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from dlio_hpc.base import units
from dlio_hpc.base.command import CommandMissing, Unanswered
from dlio_hpc.base.errors import InfrastructureError, InvalidRun, exit_on_error
from dlio_hpc.config import lustre_layout
from dlio_hpc.dataset import dataset_folder, stored_parts
from dlio_hpc.files import filesystem, rundir
from dlio_hpc.lustre import layout_record, lfs, readback
from dlio_hpc.lustre.layout_record import Record
from dlio_hpc.plan.plan import Plan, Run, load

# Largest number of files whose layout is read back. Each file takes a request to the metadata server.
_MOST_FILES = 64


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dlio_hpc.lustre", description=__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN.json")
    parser.add_argument("when", choices=["before", "after"], help="set the layout, or read it back from the files")
    parser.add_argument(
        "--run",
        type=int,
        metavar="N",
        help="number of a run that uses the dataset; default: use the first dataset of the plan",
    )
    options = parser.parse_args()
    with exit_on_error():
        plan, _ = load(options.plan)
        run = plan.datasets[0] if options.run is None else plan.runs[options.run]
        if (why := filesystem.unexpected(Path(run.dataset), plan.site.file_system)) is not None:
            raise InfrastructureError(why)
        (before if options.when == "before" else after)(options.plan.resolve().parent, plan, run)


def before(directory: Path, plan: Plan, run: Run) -> None:
    """Record the layout that the dataset's folder has now. If the run generates the dataset and no file of the dataset
    exists yet, set the requested layout on the folder and read it back. Raise InvalidRun if the layout read back
    differs from the requested one.
    """
    record, name = _record(run), _name(plan, run, rundir.BEFORE)
    if not record.file_system.is_lustre:
        print(f"layout: {run.dataset} is on {record.file_system.kind}, not Lustre: no layout is set")
        layout_record.write(directory, name, record)
        return
    record = _with_folder(record, run)
    layout_record.write(directory, name, record)
    if record.asked is None:
        print(f"layout: none requested; {run.dataset} keeps the layout that it has")
    elif run.kind == "generate" and dataset_folder.is_unwritten(run.stored):
        if faults := _set(record, run, record.asked):
            _refuse(directory, _name(plan, run, rundir.AFTER), replace(record, faults=faults))
        print(f"layout: {lustre_layout.describe(record.asked)} on {run.dataset}")


def _record(run: Run) -> Record:
    """Return a new record for a run's dataset. It has the file system and the requested layout, but no actual layout
    yet.
    """
    return Record(units.utc_now(), os.uname().nodename, run.dataset, filesystem.of(Path(run.dataset)), run.layout)


def _name(plan: Plan, run: Run, when: str) -> str:
    return rundir.layout_name(when, [planned.dataset for planned in plan.datasets].index(run.dataset))


def _refuse(directory: Path, name: str, record: Record) -> None:
    layout_record.write(directory, name, record)
    raise InvalidRun(f"the layout is not the requested one: {'; '.join(record.faults)}")


def _with_folder(record: Record, run: Run) -> Record:
    """Return the record with two additions: the version of lfs, and the layout that new files get in the dataset's
    folder. If the folder does not exist, the layout of its nearest existing parent folder is taken. If a layout of
    directories is requested and the folder exists, its layout on the metadata targets is added.
    """
    try:
        client = lfs.version()
        folder = lfs.folder_layout(filesystem.existing(Path(run.dataset)))
    except CommandMissing as fault:
        if record.asked is None:
            return record  # no layout to set, so lfs is not needed
        raise InfrastructureError(
            f"{fault}, so no layout can be set; make lfs available in the site's setup, or request no layout: "
            "-S site.layout=null"
        ) from fault
    record = replace(record, lfs=".".join(map(str, client)), directory=folder)
    if record.asked is None or record.asked.directories is None or not os.path.isdir(run.dataset):
        return record
    layout, default = lfs.directory_layout(run.dataset), lfs.default_directory_layout(run.dataset)
    return replace(record, folder=layout, new_subfolders=default)


def _set(record: Record, run: Run, asked: lustre_layout.Layout) -> tuple[str, ...]:
    """Create the dataset's folder and set its layout. Return the differences between the layout that is read back and
    the requested one. Raise ConfigError if the folder belongs to another user.
    """
    folder = Path(run.dataset)
    is_old = folder.exists()
    lfs.check_version(asked, lfs.version())
    _check_pools(record, asked)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lfs.make_folder(folder, asked)
        folder.mkdir(exist_ok=True)
    except OSError as fault:
        raise InfrastructureError(f"cannot use {folder}: {fault.strerror}; choose another --data") from fault
    dataset_folder.check_mine(run.stored)
    lfs.set_layout(folder, asked)
    faults = tuple(_folder_faults(_with_folder(record, run), asked))
    if faults and is_old and asked.directories is not None:
        faults += ("the folder existed before the job, and an existing folder keeps its MDTs: remove it",)
    return faults


def _check_pools(record: Record, asked: lustre_layout.Layout) -> None:
    """Raise ConfigError if a requested pool does not exist. A Lustre client of version 2.15 would accept its name
    without an error.
    """
    for pool in filter(None, lustre_layout.pools(asked)):
        lfs.pool_size(record.file_system.fsname, pool)


def _available(record: Record, asked: lustre_layout.Layout) -> int | None:
    """Return the number of targets on which the requested layout can place stripes: the targets of the pool that the
    layout names or, without a pool, all targets of the file system. Return None if the number is unknown, or if the
    components are in different pools.
    """
    pools = lustre_layout.pools(asked)
    if len(pools) > 1:
        return None
    (pool,) = pools
    return _targets(record, "OST") if pool is None else lfs.pool_size(record.file_system.fsname, pool)


def _mdts(record: Record) -> int | None:
    """Return the number of metadata targets of the file system. Return None if it is unknown."""
    return _targets(record, "MDT")


def _targets(record: Record, kind: Literal["OST", "MDT"]) -> int | None:
    try:
        targets = lfs.targets(Path(record.path).parent, kind)
        return None if any(target.flags == lfs.DOWN for target in targets) else len(targets)
    except Unanswered:
        return None


def after(directory: Path, plan: Plan, run: Run) -> None:
    """Read the layout back from the dataset's folder and files, and record it. Raise InvalidRun if it is not the
    requested layout.
    """
    record, name = _record(run), _name(plan, run, rundir.AFTER)
    if record.file_system.is_lustre:
        record = _with_files(_with_folder(record, run), run)
    if record.faults:
        _refuse(directory, name, record)
    layout_record.write(directory, name, record)


def _with_files(record: Record, run: Run) -> Record:
    """Return the record with two additions: the layouts of at most 64 files, and the differences of the layouts from
    the requested one. If lfs was not available, return the record unchanged.
    """
    if record.lfs is None:
        return record
    files = stored_parts.total(run.workload.dataset)
    step = -(-files // _MOST_FILES)
    paths = [
        path for number in range(0, files, step) if os.path.exists(path := dataset_folder.file_path(run.stored, number))
    ]
    layouts = {path: lfs.file_layout(path) for path in paths}
    parts = list(layouts.values())
    asked = record.asked
    subfolders = _subfolders(run, paths) if asked is not None and asked.directories is not None else {}
    return replace(
        record,
        files=files,
        looked_at=len(paths),
        layouts=layout_record.kinds(parts),
        stripes=layout_record.stripes(parts),
        targets=layout_record.targets(layouts),
        subfolders=layout_record.folder_kinds(list(subfolders.values())),
        faults=tuple(_faults(record, asked, layouts, subfolders)) if asked else (),
    )


def _subfolders(run: Run, paths: Sequence[str]) -> dict[str, lfs.DirectoryLayout]:
    """Return the layouts of all folders between the dataset's folder and the files at `paths`."""
    relative = [Path(path).relative_to(run.dataset) for path in paths]
    folders = dict.fromkeys(str(folder) for path in relative for folder in path.parents[:-1])
    return {folder: lfs.directory_layout(Path(run.dataset, folder)) for folder in folders}


def _faults(
    record: Record,
    asked: lustre_layout.Layout,
    layouts: dict[str, lfs.LayoutComponents],
    subfolders: dict[str, lfs.DirectoryLayout],
) -> Iterator[str]:
    """Yield how the layouts of the folder, of its subfolders and of the files differ from the requested layout."""
    yield from _folder_faults(record, asked)
    available = _available(record, asked)
    files = {path: readback.differences(asked, parts, available, is_file=True) for path, parts in layouts.items()}
    yield from _example(files, "files")
    if (wanted := asked.directories) is not None:
        mdts = _mdts(record)
        folders = {
            folder: readback.directory_differences(wanted, layout, mdts)
            for folder, layout in subfolders.items()
            if wanted.inherit == -1 or len(Path(folder).parts) <= wanted.inherit
        }
        yield from _example(folders, "subfolders")


def _example(differences: dict[str, list[str]], noun: str) -> Iterator[str]:
    """Yield a message if some of the files or subfolders have differences. differences: by path."""
    if wrong := [path for path, messages in differences.items() if messages]:
        yield f"{len(wrong)} of {len(differences)} {noun}, such as {wrong[0]}: {'; '.join(differences[wrong[0]])}"


def _folder_faults(record: Record, asked: lustre_layout.Layout) -> Iterator[str]:
    """Yield how the layout of the dataset's folder, and the layouts that new files and new subfolders get in it, differ
    from the requested layout.
    """
    differences: list[str] = []
    if record.directory is not None:
        differences += readback.differences(asked, record.directory, _available(record, asked), is_file=False)
    if asked.directories is not None and record.folder is not None:
        differences += readback.directory_differences(asked.directories, record.folder, _mdts(record))
    if asked.directories is not None and asked.directories.inherit and record.new_subfolders is not None:
        differences += readback.directory_differences(asked.directories, record.new_subfolders, _mdts(record))
    yield from (f"{record.path}: {difference}" for difference in differences)


if __name__ == "__main__":
    main()
