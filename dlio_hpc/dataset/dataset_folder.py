"""The folder of a dataset: names of its files, its lock, and the fingerprint file that describes its content."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError, InvalidRun, about, of_system
from dlio_hpc.config.dataset_keys import AuxiliaryFile, Dataset
from dlio_hpc.dataset import stored_parts, written_files
from dlio_hpc.dataset.stored_parts import Parts
from dlio_hpc.files import filesystem, rundir, safe_folders

FINGERPRINT_FILE = rundir.DATASET
# Name of a dataset folder, such as npz-8x4x11.7KiB-03c25a44c247. It ends with the fingerprint.
_NAME = re.compile(r"[a-z0-9]+-.+-[0-9a-f]{12}")
# Largest size of a fingerprint file in bytes. The file has some lines for each auxiliary file.
_LONGEST_FINGERPRINT = 1 << 20
# Maximum digits of the number in a file's name.
_MOST_DIGITS = 16


class Fingerprint(Struct, frozen=True):
    """Content of the fingerprint file. complete: whether the dataset is complete; false while it is generated, and
    after an interruption.
    """

    fingerprint: str
    dataset: Dataset
    complete: bool
    schema: Literal[1] = 1


class StoredDataset(NamedTuple):
    """A dataset and its location. folder: path of its folder; for existing files, the folder to which their names are
    relative. fingerprint: fingerprint of its content and its layout.
    """

    folder: str
    descriptor: Dataset
    fingerprint: str


def file_name(dataset: Dataset, number: int) -> str:
    """Return the path of the stored file `number` of a generated dataset, relative to the dataset's folder. The path is
    computed, so no job has to list a folder.
    """
    return paths(StoredDataset("", dataset, ""))(number)


def subfolder(dataset: Dataset, number: int) -> str:
    """Return the path of the folder of the stored file `number`, relative to the dataset's folder. The path is empty
    if the file is in the dataset's folder itself.
    """
    return os.path.dirname(file_name(dataset, number))


def base_names(dataset: Dataset, numbers: range) -> Iterable[str]:
    """Return the names of consecutive stored files, without their folders."""
    parts = stored_parts.of(dataset)
    if parts.number == 1 and not parts.folder:
        return map(f"{{:08}}{parts.names[0]}".format, numbers)
    path = paths(StoredDataset("", dataset, ""))
    return (os.path.basename(path(number)) for number in numbers)


def blocks(dataset: Dataset, first: int, end: int, most: int) -> Iterator[tuple[str, int, int]]:
    """Divide consecutive stored files into blocks of at most `most` files that are in one subfolder. Yield the path of
    the subfolder, relative to the dataset's folder, the number of the first file of the block, and the number after
    its last file. first, end: numbers of the first file, and after the last file.
    """
    parts = stored_parts.of(dataset)
    while first < end:
        container = first // parts.number
        place = container * dataset.leaves // dataset.files
        last = container + 1 if parts.folder else -(-(place + 1) * dataset.files // dataset.leaves)
        after = min(first + most, end, last * parts.number)
        yield subfolder(dataset, first), first, after
        first = after


def subfolder_name(place: int) -> str:
    """Return the name of a subfolder. place: its number among the subfolders of its folder."""
    return f"{place:05}"


def file_path(stored: StoredDataset, number: int) -> str:
    return paths(stored)(number)


def paths(stored: StoredDataset) -> Callable[[int], str]:
    """Return a function that returns the path of the stored file with a given number. The function takes less than a
    microsecond for a generated dataset whose containers are single files, because a rank calls it for each file that
    it reads. It can be pickled.
    """
    dataset, above, parts = stored.descriptor, os.path.join(stored.folder, ""), stored_parts.of(stored.descriptor)
    if dataset.scan is not None:
        name = partial(_existing_path, above, dataset.scan.index)
        return name if parts.number == 1 else partial(_existing_part, name, parts)
    if parts.number == 1 and not parts.folder:
        return _containers(dataset, above, parts.names[0])
    return partial(_part, _containers(dataset, above, f"{parts.folder}/" if parts.folder else ""), parts.names)


def containers(stored: StoredDataset) -> Callable[[int], str]:
    """Return a function that returns the path by which messages name the container with a given number: that of its
    first part. It can be pickled.
    """
    path, number = paths(stored), stored_parts.of(stored.descriptor).number
    return path if number == 1 else partial(_first_part, path, number)


def _containers(dataset: Dataset, above: str, suffix: str) -> Callable[[int], str]:
    """Return a function that returns a path made of a folder, of the number of a container, and of a suffix."""
    if dataset.subfolders is None:
        return partial(_path, above, suffix)
    if len(dataset.subfolders) == 1:
        return partial(_path_in_subfolder, above, suffix, dataset.leaves, dataset.files)
    return partial(_path_in_two_levels, above, suffix, dataset.leaves, dataset.files, dataset.subfolders[1])


def _existing_path(above: str, index: str, number: int) -> str:
    from dlio_hpc.dataset import sample_index  # imports numpy

    return above + sample_index.opened(index).name(number)


def _existing_part(path: Callable[[int], str], parts: Parts, number: int) -> str:
    """Return the path of a part of an existing container. path: function from the number of a container to the path of
    its first part, or of its folder.
    """
    container, part = divmod(number, parts.number)
    if parts.folder:
        return f"{path(container)}/{parts.names[part]}"
    return path(container).removesuffix(parts.names[0]) + parts.names[part]


def _part(path: Callable[[int], str], names: Sequence[str], number: int) -> str:
    container, part = divmod(number, len(names))
    return path(container) + names[part]


def _first_part(path: Callable[[int], str], parts: int, container: int) -> str:
    return path(container * parts)


def _path(above: str, suffix: str, number: int) -> str:
    return f"{above}{number:08}{suffix}"


def _path_in_subfolder(above: str, suffix: str, leaves: int, files: int, number: int) -> str:
    return f"{above}{number * leaves // files:05}/{number:08}{suffix}"


def _path_in_two_levels(above: str, suffix: str, leaves: int, files: int, inner: int, number: int) -> str:
    place = number * leaves // files
    return f"{above}{place // inner:05}/{place % inner:05}/{number:08}{suffix}"


def side_name(side: AuxiliaryFile) -> str:
    """Return the file name of `side`, an auxiliary file that is read by runs. The file is in the dataset's folder."""
    return f"side-{side.name}"


def side_path(stored: StoredDataset, side: AuxiliaryFile) -> str:
    return os.path.join(stored.folder, side_name(side))


def file_count(dataset: Dataset) -> int:
    """Return the number of stored files of the dataset with samples or with what describes samples; 0 for the null
    format, which stores nothing.
    """
    return stored_parts.total(dataset) if dataset.facts.holds_data else 0


def payload(dataset: Dataset) -> int:
    """Return the total size in bytes of all samples and auxiliary files in the dataset's folder, before compression."""
    return dataset.size * dataset.facts.holds_data + sum(side.file_size for side in sides(dataset))


def sides(dataset: Dataset) -> list[AuxiliaryFile]:
    """Return the auxiliary files that runs read. These files are in the dataset's folder. Auxiliary files that runs
    write are elsewhere.
    """
    return [side for side in dataset.auxiliary_files if side.access == "read"]


def names(dataset: Dataset) -> Iterator[str]:
    """Yield the names of all files of a complete dataset, without the fingerprint file."""
    yield from map(side_name, sides(dataset))
    for number in range(file_count(dataset)):
        yield file_name(dataset, number)


def names_of(dataset: Dataset | None) -> Callable[[str, str], bool]:
    """Return a function that checks whether the generator of the dataset writes a file with a given name to a given
    subfolder. The subfolder is given by its path relative to the dataset's folder. dataset: None if the generator was
    stopped before it wrote a sample or an auxiliary file.
    """
    named = {FINGERPRINT_FILE, *map(side_name, sides(dataset) if dataset else ())}
    files = file_count(dataset) if dataset else 0
    path = paths(StoredDataset("", dataset, "")) if dataset else str
    parts = stored_parts.of(dataset) if dataset else Parts(())

    def is_named(folder: str, name: str) -> bool:
        if not folder and (name in named or is_note(name)):
            return True
        numbered = os.path.basename(folder) if parts.folder else name
        stem = numbered.partition(".")[0]
        part = parts.place(name if parts.folder else name[len(stem) :])
        if part is None or not stem.isdecimal() or len(stem) > _MOST_DIGITS:
            return False
        number = int(stem) * parts.number + part
        return number < files and path(number) == (f"{folder}/{name}" if folder else name)

    return is_named


def is_container_folder(dataset: Dataset, folder: str, name: str) -> bool:
    """Return whether a subfolder is the folder of a container. folder: path of the folder that holds it, relative to
    the dataset's folder. name: name of the subfolder.
    """
    suffix, stem = stored_parts.of(dataset).folder, name.partition(".")[0]
    if not suffix or not stem.isdecimal() or len(stem) > _MOST_DIGITS or int(stem) >= dataset.files:
        return False
    return _containers(dataset, "", suffix)(int(stem)) == (f"{folder}/{name}" if folder else name)


def foreign_in(dataset: Dataset, subfolder: str, names: Sequence[str]) -> frozenset[str]:
    """Return the names that are not names of stored files of a subfolder of the lowest level. subfolder: its path
    relative to the dataset's folder. names: names in this subfolder.
    """
    parts, above = stored_parts.of(dataset), subfolder.split("/")
    if parts.folder:
        is_container = len(above) > len(dataset.subfolders or ())
        return frozenset(name for name in names if not is_container or parts.place(name) is None)
    place = 0
    for count, name in zip(dataset.subfolders or (), above, strict=True):
        place = place * count + int(name)
    first, after = (-(-edge * dataset.files // dataset.leaves) for edge in (place, place + 1))
    suffix = parts.names[0]
    if not names or (parts.number == 1 and _are_between(names, f"{first:08}{suffix}", f"{after - 1:08}{suffix}")):
        return frozenset()
    return frozenset(names).difference(f"{number:08}{name}" for number in range(first, after) for name in parts.names)


def _are_between(names: Sequence[str], lowest: str, highest: str) -> bool:
    """Return whether all names are names of sample files with numbers of eight digits from `lowest` to `highest`. This
    takes a third of the time of comparing them with all these names.
    """
    is_regular = re.compile(rf"[0-9]{{8}}{re.escape(lowest[8:])}").fullmatch
    return all(map(is_regular, (lowest, highest, *names))) and lowest <= min(names) and max(names) <= highest


def is_note(name: str) -> bool:
    """Return whether `name` is the name of the fingerprint file, of a temporary file left behind by an interrupted
    write of the fingerprint file, or of a record of written files.
    """
    return name == FINGERPRINT_FILE or _is_rest(name) or written_files.is_record(name)


def _is_rest(name: str) -> bool:
    return rundir.rest_of(name) == FINGERPRINT_FILE


def mark(stored: StoredDataset, complete: bool) -> None:
    """Write the fingerprint file of the dataset. complete: whether all files of the dataset are written."""
    with filled(stored) as folder:
        write(safe_folders.held(folder), Fingerprint(stored.fingerprint, stored.descriptor, complete))


@contextmanager
def filled(stored: StoredDataset) -> Iterator[int]:
    """Open the dataset's folder for writing, and yield its descriptor. Raise ConfigError if the folder is a link. Also
    raise ConfigError if the folder belongs to another user and is not shared, because that user could have placed any
    file in it, or if another folder is mounted in it.
    """
    with safe_folders.opened(stored.folder) as folder:
        if not safe_folders.is_mine(folder) and not safe_folders.is_shared(folder, Path(stored.folder).parent):
            raise ConfigError(
                f"the dataset in {stored.folder} is unfinished and belongs to user {safe_folders.owner(folder)}, so "
                "dlio-hpc does not write to it. Choose another --data, ask that user to finish or remove the dataset, "
                "or ask the owner of the data directory to share this directory with your group (chmod g+ws, umask 002)"
            )
        if mounted := sorted(filesystem.mounts_in(Path(stored.folder))):
            raise ConfigError(
                f"{os.path.join(stored.folder, mounted[0])} is a mount point in an unfinished dataset, so dlio-hpc "
                "does not write to the dataset. Unmount it, or choose another --data"
            )
        yield folder


def check_mine(stored: StoredDataset) -> None:
    """Raise ConfigError if this user must not write into the folder of the dataset."""
    with filled(stored):
        pass


def write(folder: Path, content: Fingerprint) -> None:
    rundir.write(folder / FINGERPRINT_FILE, serialization.encode(content))


@contextmanager
def owned(stored: StoredDataset) -> Iterator[None]:
    """Create the dataset's folder and hold its lock, so that only one job at a time generates the dataset. Other jobs
    print a message and wait. On a file system without locks, all these jobs generate the dataset. A file then keeps the
    contents that were written last. Raise InfrastructureError if the folder cannot be used.
    """

    def report() -> None:
        print(f"waiting for another job that generates {stored.folder}", flush=True)

    while True:
        try:
            safe_folders.make(stored.folder)
            os.listdir(stored.folder)
            lock = lock_file(Path(stored.folder))
            _touch(lock, stored)
        except OSError as fault:
            raise InfrastructureError(f"cannot use {of_system(fault, stored.folder)}; choose another --data") from fault
        with rundir.locked_file(lock, report) as is_there:
            if is_there:  # otherwise the dataset was removed while this job waited
                yield
                return


def _touch(lock: Path, stored: StoredDataset) -> None:
    """Create the lock file if it does not exist. If this user may not create it but the dataset is complete, raise no
    error, because the dataset is then only read.
    """
    try:
        make_lock(lock)
    except PermissionError:
        if not is_complete(stored):
            raise


def make_lock(lock: Path) -> None:
    """Create the lock file if it does not exist. Raise ConfigError if a link or a pipe is at the path of the lock
    file.
    """
    with safe_folders.opened(lock.parent.resolve()) as folder, about(lock):
        os.close(safe_folders.created(folder, lock.name))


def is_owned(folder: Path) -> bool:
    """Return whether a job is generating the dataset at this moment."""
    lock = lock_file(folder)
    if not lock.exists():
        return False
    with rundir.locked_now(lock) as is_mine:
        return not is_mine


def being_read(folder: str) -> AbstractContextManager[None]:
    """Hold a shared lock on the fingerprint file of a dataset while a job reads the dataset. Every reader may open this
    file, also in a dataset of another user, and jobs that generate the dataset lock another file.
    """
    return rundir.shared(Path(folder) / FINGERPRINT_FILE)


def is_being_read(folder: Path) -> bool:
    """Return whether a job on this node, or on any node if locks reach all nodes, is reading the dataset."""
    if not (folder / FINGERPRINT_FILE).is_file():
        return False
    with rundir.locked_now(folder / FINGERPRINT_FILE) as is_mine:
        return not is_mine


def lock_file(folder: Path) -> Path:
    """Return the path of the lock file of a dataset. It is next to `folder`, because `folder` holds only
    the dataset.
    """
    return folder.with_name(f".{folder.name}.lock")


def is_unwritten(stored: StoredDataset) -> bool:
    """Return True if the dataset is still to be generated: its folder is missing or empty, or its generation is
    unfinished. Return False if the dataset is complete, or if the folder holds other files.
    """
    fingerprint = read(Path(stored.folder))
    return not _holds_anything(Path(stored.folder)) if fingerprint is None else not fingerprint.complete


def is_complete(stored: StoredDataset) -> bool:
    """Return True if the dataset is complete. Return False if the dataset is missing or unfinished; a run may then
    generate the dataset. Raise ConfigError if the folder holds another dataset, other files, or an unfinished dataset
    of another user. Raise InvalidRun if a dataset that is marked as complete lacks its first or last sample file or an
    auxiliary file.
    """
    folder = Path(stored.folder)
    known = read(folder)
    if known is None:
        if _holds_anything(folder):
            raise ConfigError(
                f"{folder} holds files but no {FINGERPRINT_FILE}, so it is not a dataset folder; choose another "
                "--data, or move the files away"
            )
        if os.path.lexists(folder):
            check_mine(stored)
        return False
    if known.fingerprint != stored.fingerprint:
        differences = "; ".join(_differences(known.dataset, stored.descriptor)) or "generated by another version"
        raise ConfigError(
            f"the dataset in {folder} is not the one that this workload needs: {differences}. Choose another --data, "
            "or remove that folder"
        )
    if known.complete:
        for path in _known_paths(stored):
            if not filesystem.is_there(path):
                raise InvalidRun(
                    f"{path} is missing. A server or a mount may be down: check the other files with dlio-hpc datasets "
                    f"verify {folder}, which says what to do"
                )
    else:
        check_mine(stored)
    return known.complete


def _holds_anything(folder: Path) -> bool:
    """Return whether the folder exists and is not empty. Temporary files are ignored if an interrupted first write of
    the fingerprint file left them.
    """
    try:
        return folder.exists() and not all(_is_rest(path.name) for path in folder.iterdir())
    except OSError as fault:
        raise InfrastructureError(f"cannot list {of_system(fault, folder)}; choose another --data") from fault


def _known_paths(stored: StoredDataset) -> list[str]:
    """Return the paths of the files whose existence is checked if the dataset is marked as complete: the first
    and the last sample file, and the auxiliary files in the dataset's folder.
    """
    dataset = stored.descriptor
    numbers = sorted({0, file_count(dataset) - 1}) if file_count(dataset) else []
    return [*(file_path(stored, number) for number in numbers), *(side_path(stored, side) for side in sides(dataset))]


def require(stored: StoredDataset) -> None:
    """Raise ConfigError unless the dataset exists and is complete. The message lists the datasets that exist.
    Raise InvalidRun if an existing dataset has changed since it was scanned.
    """
    if stored.descriptor.existing is not None:
        from dlio_hpc.dataset import dataset_scan  # imports numpy

        dataset_scan.check_unchanged(stored.folder, stored.descriptor)
        return
    if not stored.descriptor.is_stored or is_complete(stored):
        return
    folder = Path(stored.folder)
    if read(folder) is not None:
        raise ConfigError(f"the dataset in {folder} is unfinished; complete it with --generate auto")
    existing_names = sorted(path.parent.name for path in folder.parent.glob(rundir.DATASETS))
    absent = "none exists" if folder.parent.exists() else "the folder does not exist"
    listing = f"existing: {', '.join(existing_names)}" if existing_names else absent
    raise ConfigError(f"no dataset {folder.name} in {folder.parent} ({listing}); generate it with --generate auto")


def existing(folder: Path, called: Path | None = None) -> Fingerprint:
    """Read the fingerprint file of a dataset folder. Raise ConfigError if the folder has no valid fingerprint file.
    called: path of the folder for messages; None to show `folder` in messages.
    """
    known = read(folder, called)
    if known is None:
        raise ConfigError(
            f"{called or folder} holds no {FINGERPRINT_FILE}: it is not a dataset folder; see dlio-hpc datasets list"
        )
    return known


def begun(folder: Path, inside: Path | None = None) -> Fingerprint | None:
    """Read the fingerprint file of a dataset folder. Return None if the folder is debris of an interrupted
    generation, as is_debris() defines it. Raise ConfigError if `folder` is not a dataset folder. inside:
    path of the same folder through its open descriptor; None if the folder is not open.
    """
    if is_debris(folder, inside):
        return None
    return existing(inside or folder, folder)


def is_debris(folder: Path, inside: Path | None = None) -> bool:
    """Return True if the folder holds only temporary files, because the write of its fingerprint file was interrupted.
    Also return True if the folder is empty and has the name of a dataset. inside: path of the same folder through its
    open descriptor; None if the folder is not open.
    """
    try:
        names = os.listdir(inside or folder)
    except OSError:
        return False
    return all(map(_is_rest, names)) if names else _NAME.fullmatch(folder.name) is not None


def read(folder: Path, called: Path | None = None) -> Fingerprint | None:
    """Read the fingerprint file of a folder. Return None if the folder has no fingerprint file. Raise ConfigError if
    the file is not valid. called: path of the folder for messages; None to show `folder` in messages.
    """
    called = called or folder
    try:
        content = safe_folders.content(folder / FINGERPRINT_FILE, _LONGEST_FINGERPRINT)
    except FileNotFoundError:
        return None
    except OSError as fault:
        note = called / FINGERPRINT_FILE
        raise InfrastructureError(f"cannot use {of_system(fault, note)}; choose another --data") from fault
    return serialization.decode(content, Fingerprint, str(called / FINGERPRINT_FILE))


def _differences(stored: Dataset, wanted: Dataset) -> list[str]:
    old, new = _flat(msgspec.to_builtins(stored)), _flat(msgspec.to_builtins(wanted))
    return [
        f"{key} is {old.get(key)} in the dataset and {new[key]} in the plan" for key in new if new[key] != old.get(key)
    ]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
