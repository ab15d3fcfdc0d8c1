"""A dataset's folder: its files' names and the fingerprint file that says what lies there."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dlio_hpc import document, rundir, units
from dlio_hpc.errors import ConfigError, InfrastructureError, InvalidRun
from dlio_hpc.plan import Run
from dlio_hpc.workload import Dataset, SideFile

FINGERPRINT_FILE = "dlio-dataset.json"
# Headers and directories of the formats, and the file system's own: room beyond the payload.
_SPARE = 1.02


class Fingerprint(Struct, frozen=True):
    """What the folder holds. Not `complete`: its generation has begun and not ended."""

    fingerprint: str
    dataset: Dataset
    complete: bool
    schema: int = 1


def file_path(run: Run, number: int) -> str:
    """Names are computed, nobody lists the dataset."""
    return os.path.join(run.dataset, f"{number:08}.{run.workload.dataset.format}")


def side_path(run: Run, side: SideFile) -> str:
    """Where a side file that is read lies."""
    return os.path.join(run.dataset, f"side-{side.name}")


def mark(run: Run, complete: bool) -> None:
    """Write the fingerprint file."""
    content = Fingerprint(run.fingerprint, run.workload.dataset, complete)
    rundir.write(Path(run.dataset, FINGERPRINT_FILE), document.encode(content))


@contextmanager
def owned(run: Run) -> Iterator[None]:
    """One job at a time generates a dataset; another waits here. Where there are no locks, the last one wins."""

    def say() -> None:
        print(f"waiting for another job that generates {run.dataset}", flush=True)

    try:
        os.makedirs(run.dataset, exist_ok=True)
        os.listdir(run.dataset)
        lock = lock_file(Path(run.dataset))
        lock.touch()
    except OSError as fault:
        raise InfrastructureError(f"cannot use {run.dataset}: {fault.strerror}; choose another --data") from fault
    with rundir.locked_file(lock, say):
        yield


def lock_file(folder: Path) -> Path:
    """Beside the folder, which holds the dataset alone."""
    return folder.with_name(f".{folder.name}.lock")


def begin(run: Run) -> None:
    """An empty or unfinished folder, marked so; ConfigError when there is no room for the dataset."""
    known = _fingerprint(Path(run.dataset)) is not None
    try:
        if not known:  # the rest of an interrupted generation finds its room by trying
            check_space([run], Path(run.dataset))
        mark(run, complete=False)
    except OSError as fault:
        raise InfrastructureError(f"cannot write to {run.dataset}: {fault.strerror}; choose another --data") from fault


def is_unwritten(run: Run) -> bool:
    """Is there still nothing of the dataset that stays: no folder, an empty one, or an unfinished generation?"""
    found = _fingerprint(Path(run.dataset))
    return not _holds_anything(Path(run.dataset)) if found is None else not found.complete


def is_complete(run: Run) -> bool:
    """Does the dataset that `run` needs lie there whole? False: it may be generated.

    ConfigError when something else lies in its place, InvalidRun when files of a whole dataset are gone.
    """
    folder = Path(run.dataset)
    found = _fingerprint(folder)
    if found is None:
        if _holds_anything(folder):
            raise ConfigError(
                f"{folder} holds files but no {FINGERPRINT_FILE}; choose another --data or move them away"
            )
        return False
    if found.fingerprint != run.fingerprint:
        differences = "; ".join(_differences(found.dataset, run.workload.dataset)) or "made by another version"
        raise ConfigError(
            f"the dataset in {folder} does not fit: {differences}. Choose another --data, or remove that folder"
        )
    if found.complete:
        for path in _known_paths(run):
            if not os.path.exists(path):
                raise InvalidRun(f"{path} is missing; remove the folder {folder} to have it made anew")
    return found.complete


def _holds_anything(folder: Path) -> bool:
    try:
        return folder.exists() and any(folder.iterdir())
    except OSError as fault:
        raise ConfigError(f"cannot look into {folder}: {fault.strerror}; choose another --data") from fault


def _known_paths(run: Run) -> list[str]:
    """First and last file, and those beside them."""
    dataset = run.workload.dataset
    numbers = [] if dataset.format == "null" else sorted({0, dataset.files - 1})
    sides = [side_path(run, side) for side in dataset.side_files if side.access == "read"]
    return [*(file_path(run, number) for number in numbers), *sides]


def require(run: Run) -> None:
    """The dataset lies there whole, or ConfigError says what lies there instead."""
    if not run.workload.dataset.is_stored or is_complete(run):
        return
    folder = Path(run.dataset)
    if _fingerprint(folder) is not None:
        raise ConfigError(f"the generation of {folder} was not finished; run it again with --generate auto")
    others = sorted(path.parent.name for path in folder.parent.glob(f"*/{FINGERPRINT_FILE}"))
    there = f"there are: {', '.join(others)}" if others else "there is none"
    raise ConfigError(f"no dataset {folder.name} in {folder.parent} ({there}); generate it with --generate auto")


def needs(run: Run) -> tuple[float, int]:
    """Bytes and files that the dataset is still to take; none when it lies there whole."""
    dataset = run.workload.dataset
    if not dataset.is_stored or not is_unwritten(run):
        return 0, 0
    return dataset.size * _SPARE, dataset.files + len(dataset.side_files) + 1


def needs_of_all(runs: Sequence[Run]) -> tuple[float, int]:
    """Of the datasets of several runs together."""
    sizes, files = zip(*map(needs, runs), strict=True) if runs else ((), ())
    return sum(sizes), sum(files)


def check_space(runs: Sequence[Run], folder: Path) -> str:
    """What the datasets need and what is free on the file system of `folder`; ConfigError when there is no room."""
    wanted, files = needs_of_all(runs)
    there = os.statvfs(folder)
    free = there.f_bavail * there.f_frsize
    told = f"{units.format_size(wanted)} needed, {units.format_size(free)} free"
    if free < wanted:
        raise ConfigError(
            f"the dataset needs {units.format_size(wanted)}, {folder} has {units.format_size(free)} free; choose "
            "another --data or a smaller --dataset-size"
        )
    if not there.f_files:
        return told  # a file system without a fixed number of inodes
    if there.f_favail < files:
        raise ConfigError(
            f"the dataset needs {files} files, {folder} has {there.f_favail} inodes left; choose another --data or a "
            "smaller --dataset-size"
        )
    return f"{told}, {files} files of {there.f_favail} inodes"


def _fingerprint(folder: Path) -> Fingerprint | None:
    try:
        content = (folder / FINGERPRINT_FILE).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise ConfigError(f"cannot read {folder / FINGERPRINT_FILE}: {fault.strerror}") from fault
    return document.decode(content, Fingerprint, str(folder / FINGERPRINT_FILE))


def _differences(found: Dataset, wanted: Dataset) -> list[str]:
    there, here = _flat(msgspec.to_builtins(found)), _flat(msgspec.to_builtins(wanted))
    return [
        f"{key} is {there.get(key)} there and {here[key]} in the plan" for key in here if here[key] != there.get(key)
    ]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
