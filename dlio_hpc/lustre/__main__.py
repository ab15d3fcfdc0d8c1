"""What job.sh runs around the generation of a dataset: python -m dlio_hpc.lustre PLAN.json before|after."""

import argparse
import os
from pathlib import Path

from msgspec.structs import replace

from dlio_hpc import units
from dlio_hpc.command import Missing, Unanswered
from dlio_hpc.config import lustre_layout
from dlio_hpc.errors import InfrastructureError, InvalidRun, told
from dlio_hpc.files import filesystem, rundir
from dlio_hpc.lustre import layout_record, lfs, readback
from dlio_hpc.lustre.layout_record import Record
from dlio_hpc.plan import dataset
from dlio_hpc.plan.plan import Plan, Run, load

# Files that are read back: every one costs a request to the metadata server.
_LOOKED_AT = 64


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dlio_hpc.lustre", description=__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN.json")
    parser.add_argument("when", choices=["before", "after"], help="set the layout, or read it back from the files")
    parser.add_argument("--run", type=int, metavar="N", help="of whose dataset; default: the first that has one")
    options = parser.parse_args()
    with told():
        plan, _ = load(options.plan)
        run = plan.datasets[0] if options.run is None else plan.runs[options.run]
        (before if options.when == "before" else after)(options.plan.resolve().parent, plan, run)


def before(directory: Path, plan: Plan, run: Run) -> None:
    """Record what is there, set what is asked for on a dataset that is still to be written, and read that back."""
    seen, name = _seen(run), _name(plan, run, rundir.BEFORE)
    if not seen.file_system.is_lustre:
        print(f"layout: {run.dataset} is on {seen.file_system.kind}, not Lustre: nothing is set")
        layout_record.write(directory, name, seen)
        return
    seen = _with_folder(seen, run)
    layout_record.write(directory, name, seen)
    if seen.asked is None:
        print(f"layout: left alone on {run.dataset}")
    elif run.kind == "generate" and dataset.is_unwritten(run):
        if faults := _set(seen, run, seen.asked):
            _refuse(directory, _name(plan, run, rundir.AFTER), replace(seen, faults=faults))
        print(f"layout: {lustre_layout.describe(seen.asked)} on {run.dataset}")


def _seen(run: Run) -> Record:
    return Record(units.utc_now(), os.uname().nodename, run.dataset, filesystem.of(Path(run.dataset)), run.layout)


def _name(plan: Plan, run: Run, when: str) -> str:
    return rundir.layout_name(when, [each.dataset for each in plan.datasets].index(run.dataset))


def _refuse(directory: Path, name: str, seen: Record) -> None:
    layout_record.write(directory, name, seen)
    raise InvalidRun(f"the layout is not as asked: {'; '.join(seen.faults)}")


def _with_folder(seen: Record, run: Run) -> Record:
    """With what new files in the folder would get, or in the one above while it is not there."""
    try:
        client = lfs.version()
        folder = lfs.folder_layout(filesystem.existing(Path(run.dataset)))
    except Missing as fault:
        if seen.asked is None:
            return seen  # nothing depends on it
        raise InfrastructureError(
            f"{fault}, so that no layout can be set; add it to the site's setup, or leave the layout alone: "
            "-S site.layout=null"
        ) from fault
    return replace(seen, lfs=".".join(map(str, client)), directory=folder)


def _set(seen: Record, run: Run, asked: lustre_layout.Layout) -> tuple[str, ...]:
    """Set the layout; differences from what was asked. ConfigError where the folder is another user's."""
    folder = Path(run.dataset)
    lfs.check_version(asked, lfs.version())
    _check_pools(seen, asked)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise InfrastructureError(f"cannot use {folder}: {fault.strerror}; choose another --data") from fault
    dataset.check_mine(run)
    lfs.set_layout(folder, asked)
    there = lfs.folder_layout(folder)
    return tuple(
        f"{folder}: {words}" for words in readback.differences(asked, there, _available(seen, asked), is_file=False)
    )


def _check_pools(seen: Record, asked: lustre_layout.Layout) -> None:
    """A client of 2.15 takes the name of a pool that does not exist without a word."""
    for pool in filter(None, lustre_layout.pools(asked)):
        lfs.pool_size(seen.file_system.fsname, pool)


def _available(seen: Record, asked: lustre_layout.Layout) -> int | None:
    """Targets that a stripe on every target needs: of the pool, else of the file system; None where parts differ."""
    pools = lustre_layout.pools(asked)
    if len(pools) > 1:
        return None
    (pool,) = pools
    if pool is not None:
        return lfs.pool_size(seen.file_system.fsname, pool)
    try:
        targets = lfs.targets(Path(seen.path).parent)
        return None if any(target.flags == lfs.DOWN for target in targets) else len(targets)
    except Unanswered:
        return None


def after(directory: Path, plan: Plan, run: Run) -> None:
    """Read the layout back from the folder and its files, and record it; InvalidRun when it is not as asked."""
    seen, name = _seen(run), _name(plan, run, rundir.AFTER)
    if seen.file_system.is_lustre:
        seen = _with_files(_with_folder(seen, run), run)
    if seen.faults:
        _refuse(directory, name, seen)
    layout_record.write(directory, name, seen)


def _with_files(seen: Record, run: Run) -> Record:
    if seen.lfs is None:
        return seen
    files = run.workload.dataset.files
    step = -(-files // _LOOKED_AT)
    paths = [path for number in range(0, files, step) if os.path.exists(path := dataset.file_path(run, number))]
    found = {path: lfs.file_layout(path) for path in paths}
    parts = list(found.values())
    return replace(
        seen,
        files=files,
        looked_at=len(paths),
        layouts=layout_record.kinds(parts),
        stripes=layout_record.stripes(parts),
        targets=layout_record.targets(found),
        faults=tuple(_faults(seen, found)) if seen.asked else (),
    )


def _faults(seen: Record, found: dict[str, lfs.Found]) -> list[str]:
    asked = seen.asked
    assert asked is not None
    available = _available(seen, asked)
    told = []
    if seen.directory is not None:
        words = readback.differences(asked, seen.directory, available, is_file=False)
        told += [f"{seen.path}: {one}" for one in words]
    wrong = {path: words for path, parts in found.items()
             if (words := readback.differences(asked, parts, available, is_file=True))}  # fmt: skip
    if wrong:
        path, words = next(iter(wrong.items()))
        told.append(f"{len(wrong)} of {len(found)} files, such as {path}: {'; '.join(words)}")
    return told


if __name__ == "__main__":
    main()
