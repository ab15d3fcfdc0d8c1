"""A dataset's folder: its files' names and the fingerprint file that says what lies there."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dlio_hpc import document, filesystem, folders, rundir, units
from dlio_hpc.errors import ConfigError, InfrastructureError, InvalidRun, about, of_system
from dlio_hpc.plan import Run
from dlio_hpc.workload import Dataset, SideFile

FINGERPRINT_FILE = "dlio-dataset.json"
# Such as npz-8x4x11.7KiB-03c25a44c247, which ends with the fingerprint.
_NAME = re.compile(r"[a-z0-9]+-.+-[0-9a-f]{12}")
# Headers and directories of the formats, and the file system's own: room beyond the payload.
_SPARE = 1.02
# Bytes of a fingerprint file, which has some lines for each side file.
_LONGEST_FINGERPRINT = 1 << 20
# Of the number in a file's name.
_MOST_DIGITS = 16


class Fingerprint(Struct, frozen=True):
    """What the folder holds. Not `complete`: its generation has begun and not ended."""

    fingerprint: str
    dataset: Dataset
    complete: bool
    schema: Literal[1] = 1


def file_name(dataset: Dataset, number: int) -> str:
    """Names are computed, no job lists the dataset."""
    return f"{number:08}.{dataset.format}"


def file_path(run: Run, number: int) -> str:
    return os.path.join(run.dataset, file_name(run.workload.dataset, number))


def side_name(side: SideFile) -> str:
    """Of a side file that is read, which lies with the dataset."""
    return f"side-{side.name}"


def side_path(run: Run, side: SideFile) -> str:
    return os.path.join(run.dataset, side_name(side))


def file_count(dataset: Dataset) -> int:
    """Files of samples in the folder."""
    return 0 if dataset.format == "null" else dataset.files


def payload(dataset: Dataset) -> int:
    """Bytes of samples and of side files in the folder, before compression."""
    return dataset.size * (dataset.format != "null") + sum(side.file_size for side in sides(dataset))


def sides(dataset: Dataset) -> list[SideFile]:
    """Those that lie in the folder."""
    return [side for side in dataset.side_files if side.access == "read"]


def names(dataset: Dataset) -> Iterator[str]:
    """Of everything in the folder of a whole dataset, but the fingerprint file, which is written last."""
    yield from map(side_name, sides(dataset))
    for number in range(file_count(dataset)):
        yield file_name(dataset, number)


def strangers(folder: Path, dataset: Dataset | None) -> Iterator[str]:
    """Names in the folder that nobody gave who generates this dataset, and what is no file at all. None: a dataset of
    which nothing is written.
    """
    named = {FINGERPRINT_FILE, *map(side_name, sides(dataset) if dataset else ())}
    with os.scandir(folder) as entries:
        for entry in entries:
            of_dataset = dataset is not None and _is_file_name(dataset, entry.name)
            known = entry.name in named or is_note(entry.name) or of_dataset
            if not known or not entry.is_file(follow_symlinks=False):
                yield entry.name


def is_note(name: str) -> bool:
    """The fingerprint file, or what is left of writing it when that was interrupted."""
    return name == FINGERPRINT_FILE or _is_rest(name)


def _is_rest(name: str) -> bool:
    return rundir.rest_of(name) == FINGERPRINT_FILE


def _is_file_name(dataset: Dataset, name: str) -> bool:
    stem = name.partition(".")[0]
    if not stem.isdecimal() or len(stem) > _MOST_DIGITS:
        return False
    return int(stem) < file_count(dataset) and file_name(dataset, int(stem)) == name


def mark(run: Run, complete: bool) -> None:
    """Write the fingerprint file."""
    with filled(run) as folder:
        write(folders.held(folder), Fingerprint(run.fingerprint, run.workload.dataset, complete))


@contextmanager
def filled(run: Run) -> Iterator[int]:
    """A descriptor of the dataset's folder, for this user to fill. ConfigError where it is a link, or another user's
    and not shared: who made it could have put anything into it.
    """
    with folders.opened(run.dataset) as folder:
        if not folders.is_mine(folder) and not folders.is_shared(folder, Path(run.dataset).parent):
            raise ConfigError(
                f"{run.dataset} is unfinished and belongs to user {folders.owner(folder)}, nothing is written there: "
                "choose another --data, have that user finish or remove it, or share the data directory with your "
                "group (chmod g+ws, umask 002; see README)"
            )
        yield folder


def check_mine(run: Run) -> None:
    """ConfigError where this user must not fill the dataset's folder."""
    with filled(run):
        pass


def write(folder: Path, found: Fingerprint) -> None:
    rundir.write(folder / FINGERPRINT_FILE, document.encode(found))


@contextmanager
def owned(run: Run) -> Iterator[None]:
    """One job at a time generates a dataset; another waits here. Where there are no locks, the last one wins."""

    def say() -> None:
        print(f"waiting for another job that generates {run.dataset}", flush=True)

    while True:
        try:
            folders.make(run.dataset)
            os.listdir(run.dataset)
            lock = lock_file(Path(run.dataset))
            _touch(lock, run)
        except OSError as fault:
            raise InfrastructureError(f"cannot use {of_system(fault, run.dataset)}; choose another --data") from fault
        with rundir.locked_file(lock, say) as is_there:
            if is_there:  # else the dataset was removed while this job waited
                yield
                return


def _touch(lock: Path, run: Run) -> None:
    """Made, if need be; another user's dataset that is whole can be read by who may not write there."""
    try:
        make_lock(lock)
    except PermissionError:
        if not is_complete(run):
            raise


def make_lock(lock: Path) -> None:
    """The file, where it is not there yet; ConfigError where a link or a pipe lies in its place."""
    with folders.opened(lock.parent.resolve()) as folder, about(lock):
        os.close(folders.created(folder, lock.name))


def is_owned(folder: Path) -> bool:
    """Does a job generate the dataset just now?"""
    lock = lock_file(folder)
    if not lock.exists():
        return False
    with rundir.locked_now(lock) as is_mine:
        return not is_mine


def lock_file(folder: Path) -> Path:
    """Beside the folder, which holds the dataset alone."""
    return folder.with_name(f".{folder.name}.lock")


def begin(run: Run) -> None:
    """An empty or unfinished folder, marked so; ConfigError when there is no room for the dataset."""
    known = read(Path(run.dataset)) is not None
    try:
        if not known:  # the rest of an interrupted generation finds its room by trying
            check_space([run], Path(run.dataset))
        mark(run, complete=False)
    except OSError as fault:
        raise InfrastructureError(f"cannot write {of_system(fault, run.dataset)}; choose another --data") from fault


def is_unwritten(run: Run) -> bool:
    """Is there still nothing of the dataset that stays: no folder, an empty one, or an unfinished generation?"""
    found = read(Path(run.dataset))
    return not _holds_anything(Path(run.dataset)) if found is None else not found.complete


def writes(run: Run) -> bool:
    """Return whether the run writes into the folder that contains its dataset's folder."""
    if run.kind == "generate":
        return is_unwritten(run)
    sides_written = any(side.access == "write" for side in run.workload.dataset.side_files)
    return run.workload.checkpoint is not None or sides_written


def is_complete(run: Run) -> bool:
    """Does the dataset that `run` needs lie there whole? False: it may be generated.

    ConfigError when something else lies in its place, or another user's that is not whole; InvalidRun when files of a
    whole dataset are gone.
    """
    folder = Path(run.dataset)
    found = read(folder)
    if found is None:
        if _holds_anything(folder):
            raise ConfigError(
                f"{folder} holds files but no {FINGERPRINT_FILE}; choose another --data or move them away"
            )
        if os.path.lexists(folder):
            check_mine(run)
        return False
    if found.fingerprint != run.fingerprint:
        differences = "; ".join(_differences(found.dataset, run.workload.dataset)) or "made by another version"
        raise ConfigError(
            f"the dataset in {folder} does not fit: {differences}. Choose another --data, or remove that folder"
        )
    if found.complete:
        for path in _known_paths(run):
            if not filesystem.is_there(path):
                raise InvalidRun(f"{path} is missing; remove the folder {folder} to have it made anew")
    else:
        check_mine(run)
    return found.complete


def _holds_anything(folder: Path) -> bool:
    """Does the folder hold more than what is left of a first note that was interrupted?"""
    try:
        return folder.exists() and not all(_is_rest(path.name) for path in folder.iterdir())
    except OSError as fault:
        raise InfrastructureError(f"cannot look into {of_system(fault, folder)}; choose another --data") from fault


def _known_paths(run: Run) -> list[str]:
    """First and last file, and those beside them."""
    dataset = run.workload.dataset
    numbers = [] if dataset.format == "null" else sorted({0, dataset.files - 1})
    return [*(file_path(run, number) for number in numbers), *(side_path(run, side) for side in sides(dataset))]


def require(run: Run) -> None:
    """The dataset lies there whole, or ConfigError says what lies there instead."""
    if not run.workload.dataset.is_stored or is_complete(run):
        return
    folder = Path(run.dataset)
    if read(folder) is not None:
        raise ConfigError(f"the generation of {folder} was not finished; run it again with --generate auto")
    others = sorted(path.parent.name for path in folder.parent.glob(f"*/{FINGERPRINT_FILE}"))
    there = f"there are: {', '.join(others)}" if others else "there is none"
    raise ConfigError(f"no dataset {folder.name} in {folder.parent} ({there}); generate it with --generate auto")


def needs(run: Run) -> tuple[float, int]:
    """Bytes and files that the dataset is still to take; none when it lies there whole."""
    dataset = run.workload.dataset
    if not dataset.is_stored or not is_unwritten(run):
        return 0, 0
    return payload(dataset) * _SPARE, file_count(dataset) + len(sides(dataset)) + 1


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


def existing(folder: Path, called: Path | None = None) -> Fingerprint:
    """The fingerprint in a dataset's folder; ConfigError where it is none. called: the folder in messages."""
    known = read(folder, called)
    if known is None:
        raise ConfigError(
            f"{called or folder} holds no {FINGERPRINT_FILE}: it is no dataset's folder; see dlio-hpc datasets list"
        )
    return known


def begun(folder: Path, inside: Path | None = None) -> Fingerprint | None:
    """The fingerprint in a dataset's folder; None where its generation was killed before it said so, and nothing but
    that attempt lies there. ConfigError where it is none. inside: the same folder by its descriptor, where it is open.
    """
    if is_debris(folder, inside):
        return None
    return existing(inside or folder, folder)


def is_debris(folder: Path, inside: Path | None = None) -> bool:
    """Does nothing lie in the folder but an attempt to write the fingerprint file? An empty folder counts where it has
    the name of a dataset. inside: the same folder by its descriptor, where it is open.
    """
    try:
        names = os.listdir(inside or folder)
    except OSError:
        return False
    return all(map(_is_rest, names)) if names else _NAME.fullmatch(folder.name) is not None


def read(folder: Path, called: Path | None = None) -> Fingerprint | None:
    """The content of a folder's fingerprint file, None where there is none; ConfigError when it says nothing to us.
    called: the folder in messages.
    """
    called = called or folder
    try:
        content = folders.content(folder / FINGERPRINT_FILE, _LONGEST_FINGERPRINT)
    except FileNotFoundError:
        return None
    except OSError as fault:
        note = called / FINGERPRINT_FILE
        raise InfrastructureError(f"cannot use {of_system(fault, note)}; choose another --data") from fault
    return document.decode(content, Fingerprint, str(called / FINGERPRINT_FILE))


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
