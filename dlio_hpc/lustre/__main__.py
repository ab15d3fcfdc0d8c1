"""What job.sh runs around the generation of a dataset: python -m dlio_hpc.lustre PLAN.json before|after."""

import argparse
import os
from pathlib import Path

from msgspec.structs import replace

from dlio_hpc import dataset, document, filesystem, layout, rundir, units
from dlio_hpc.command import Missing, Unanswered
from dlio_hpc.errors import InfrastructureError, InvalidRun, told
from dlio_hpc.lustre import lfs, readback, record
from dlio_hpc.lustre.record import Record
from dlio_hpc.plan import Plan, Run

# Files that are read back: every one costs a request to the metadata server.
_LOOKED_AT = 64


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dlio_hpc.lustre", description=__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN.json")
    parser.add_argument("when", choices=["before", "after"], help="set the layout, or read it back from the files")
    options = parser.parse_args()
    with told():
        plan = document.decode(options.plan.read_bytes(), Plan, str(options.plan))
        (before if options.when == "before" else after)(options.plan.resolve().parent, plan)


def before(directory: Path, plan: Plan) -> None:
    """Record what is there, set what is asked for on a dataset that is still to be written, and read that back."""
    run, asked = plan.runs[0], plan.site.layout
    seen = _seen(plan, run)
    if not seen.file_system.is_lustre:
        print(f"layout: {run.dataset} is on {seen.file_system.kind}, not Lustre: nothing is set")
        record.write(directory, rundir.BEFORE, seen)
        return
    seen = _with_folder(seen, run)
    record.write(directory, rundir.BEFORE, seen)
    if asked is None:
        print(f"layout: left alone on {run.dataset}")
    elif run.kind == "generate" and dataset.is_unwritten(run):
        _set(directory, seen, Path(run.dataset), asked)
        print(f"layout: {layout.describe(asked)} on {run.dataset}")


def _seen(plan: Plan, run: Run) -> Record:
    place = Path(run.dataset)
    return Record(units.utc_now(), os.uname().nodename, run.dataset, filesystem.of(place), plan.site.layout)


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


def _set(directory: Path, seen: Record, folder: Path, asked: layout.Layout) -> None:
    lfs.check_version(asked, lfs.version())
    _check_pools(seen, asked)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise InfrastructureError(f"cannot use {folder}: {fault.strerror}; choose another --data") from fault
    lfs.set_layout(folder, asked)
    there = lfs.folder_layout(folder)
    found = readback.differences(asked, there, _available(seen, asked), is_file=False)
    if found:
        faults = tuple(f"{folder}: {words}" for words in found)
        record.write(directory, rundir.AFTER, replace(seen, directory=there, faults=faults))
        raise InvalidRun(f"the layout is not as asked: {'; '.join(faults)}")


def _check_pools(seen: Record, asked: layout.Layout) -> None:
    """A client of 2.15 takes the name of a pool that does not exist without a word."""
    for pool in filter(None, layout.pools(asked)):
        lfs.pool_size(seen.file_system.fsname, pool)


def _available(seen: Record, asked: layout.Layout) -> int | None:
    """Targets that a stripe on every target needs: of the pool, else of the file system; None where parts differ."""
    pools = layout.pools(asked)
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


def after(directory: Path, plan: Plan) -> None:
    """Read the layout back from the folder and its files, and record it; InvalidRun when it is not as asked."""
    run = plan.runs[0]
    seen = _seen(plan, run)
    if seen.file_system.is_lustre:
        seen = _with_files(_with_folder(seen, run), run)
    record.write(directory, rundir.AFTER, seen)
    if seen.faults:
        raise InvalidRun(f"the layout is not as asked: {'; '.join(seen.faults)}")


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
        layouts=record.kinds(parts),
        stripes=record.stripes(parts),
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
