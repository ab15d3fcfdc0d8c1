"""Check that a dataset has the contents that the generator writes. Run as: python -m dlio_hpc.core.verify_dataset
FOLDER; MPI is not needed.
"""

import argparse
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, structs

from dlio_hpc.base import serialization, worker_processes
from dlio_hpc.base.counted_progress import CountedProgress
from dlio_hpc.base.errors import Incomplete, InfrastructureError, InvalidRun, exit_on_error, of_system
from dlio_hpc.base.units import counted
from dlio_hpc.config.dataset_keys import AuxiliaryFile, Dataset
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.verification_record import VerificationRecord, VerifiedPart
from dlio_hpc.dataset import dataset_folder, dataset_tree
from dlio_hpc.files import safe_folders

# Maximum number of faults that are listed. The fingerprint file of a damaged dataset may name any number of files.
_MOST_FAULTS = 1000
# Largest number of files and of bytes that a process checks at a time.
_PART, _PART_BYTES = 256, 64 << 20
# Number of files that an earlier verification checked and at which a process looks at a time.
_LOOKED = 4096


class DatasetFault(Struct, frozen=True):
    """A fault of a dataset. file: name of the faulty file in the folder; name of the folder if the fault concerns the
    whole dataset.
    """

    file: str
    fault: str


class Findings(Struct, frozen=True):
    """Result of a verification. files: number of files checked. bytes: total size of these files on the file system.
    earlier_files: number of these files that only an interrupted verification checked, because they are unchanged.
    began: time (UTC) at which the first of these files was checked; None if there are none.
    """

    files: int
    bytes: int
    faults: tuple[DatasetFault, ...]
    earlier_files: int = 0
    began: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dlio_hpc.core.verify_dataset", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="dataset folder, with dlio-dataset.json in it")
    parser.add_argument("--quick", action="store_true", help="check only names, number and sizes of files")
    parser.add_argument("--from-start", action="store_true", help="also check files that an interrupted run checked")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print a JSON document to stdout")
    options = parser.parse_args()
    try:
        with exit_on_error():
            _print(options.folder, verify(options.folder, options.quick, options.from_start), options.as_json)
    except KeyboardInterrupt:
        sys.exit(Incomplete.exit_code)


def _print(folder: Path, findings: Findings, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(serialization.encode(findings).decode())
        sys.exit(InvalidRun.exit_code if findings.faults else 0)
    for fault in findings.faults:
        print(f"{fault.file}: {fault.fault}")
    if findings.faults:
        remedy = (
            "first check that all servers of the file system answer. If the faults remain, dlio-hpc datasets remove "
            "deletes the dataset, and the next job that needs it generates it again"
        )
        raise InvalidRun(f"{folder}: {counted(len(findings.faults), 'fault')}; {remedy}")
    print(f"{folder}: intact")


def verify(folder: Path, quick: bool, from_start: bool = False) -> Findings:
    """Check the dataset in `folder` and return its faults. quick: check only the names, the number and the sizes of
    files. Files that an interrupted verification checked during the last day are checked again only if they changed
    since the dataset was generated. from_start: check all files. Raise ConfigError if `folder` is not a dataset folder.
    Progress is printed on stderr.
    """
    known = dataset_folder.begun(folder)
    if known is None or not known.complete:
        fault = (
            "its generation did not complete; the next job that needs the dataset writes the missing files. To delete "
            "the dataset, use dlio-hpc datasets remove"
        )
        return Findings(0, 0, (DatasetFault(folder.name, fault),))
    with safe_folders.opened(folder) as root:
        foreign = sorted(dataset_tree.strangers(root, known.dataset))
    checked = _contents(folder, known.dataset, quick, from_start)
    foreign_faults = tuple(DatasetFault(name, "does not belong to the dataset") for name in foreign)
    return structs.replace(checked, faults=(*foreign_faults, *checked.faults))


def _contents(folder: Path, layout: Dataset, quick: bool, from_start: bool) -> Findings:
    """Check all files of a dataset, except those that an interrupted verification checked and that are unchanged."""
    say = partial(print, file=sys.stderr, flush=True)
    sides, files = len(dataset_folder.sides(layout)), dataset_folder.file_count(layout)
    record = VerificationRecord(folder, quick)
    part_before = None if from_start else record.load(sides + files)
    earlier = _Earlier() if part_before is None else _looked_at(folder, layout, part_before, say)
    checked_before = 0 if part_before is None else part_before.files
    number, size = earlier.files, earlier.bytes
    step = max(1, min(_PART, _PART_BYTES // max(1, layout.bytes_of(layout.samples_per_file))))
    others = (range(begin, min(begin + step, files)) for begin in range(checked_before - sides, files, step))
    changed = (earlier.changed[at : at + step] for at in range(0, len(earlier.changed), step))
    parts: Iterable[Sequence[int]] = itertools.chain(changed, others)
    faults: list[DatasetFault] = []
    progress = CountedProgress(say, folder.name, "files", sides + files, number)
    for part in worker_processes.mapped(partial(_part, folder, layout, quick), parts, worker_processes.count(files)):
        size, number = size + part.bytes, number + part.files
        faults += part.faults
        if len(faults) >= _MOST_FAULTS:
            faults.append(DatasetFault(folder.name, f"has {_MOST_FAULTS} faults or more: the rest was not checked"))
            break
        if not faults and number > checked_before:
            record.save(number, size)
        progress(number, f"{size / 1e6:,.0f} MB")
    record.clear()
    began = part_before.since if part_before and earlier.files else None
    return Findings(number, size, tuple(faults), earlier.files, began)


class _Earlier(NamedTuple):
    """Files that an interrupted verification checked. files, bytes: number and total size of those that are unchanged
    since. changed: numbers of the others, as for _check().
    """

    files: int = 0
    bytes: int = 0
    changed: tuple[int, ...] = ()


def _looked_at(folder: Path, layout: Dataset, part: VerifiedPart, say: Callable[[str], None]) -> _Earlier:
    """Look at the files that an interrupted verification checked, and report how many are unchanged."""
    first = -len(dataset_folder.sides(layout))
    ranges = (range(at, min(at + _LOOKED, first + part.files)) for at in range(first, first + part.files, _LOOKED))
    look = partial(_look, folder, layout, part.generated_ns)
    progress = CountedProgress(say, folder.name, "files looked at", part.files)
    files = size = 0
    changed: list[int] = []
    for looked in worker_processes.mapped(look, ranges, worker_processes.count(part.files)):
        files, size = files + looked.files, size + looked.bytes
        changed += looked.changed
        progress(files + len(changed))
    also = f"; {len(changed):,} of them changed since the dataset was generated, and are checked again"
    say(
        f"{folder.name}: an interrupted verification that began at {part.since} checked "
        f"{counted(part.files, 'file')}{also if changed else ''}; the others are checked now; "
        "--from-start checks all files"
    )
    return _Earlier(files, size, tuple(changed))


def _look(folder: Path, layout: Dataset, generated_ns: int, numbers: range) -> _Earlier:
    """Look at some files without opening them. A file that cannot be looked at is a changed file."""
    files = size = 0
    changed = []
    for number in numbers:
        try:
            status = os.lstat(os.path.join(folder, _name(layout, number)))
        except OSError:
            changed.append(number)
            continue
        if stat.S_ISREG(status.st_mode) and max(status.st_mtime_ns, status.st_ctime_ns) < generated_ns:
            files, size = files + 1, size + status.st_size
        else:
            changed.append(number)
    return _Earlier(files, size, tuple(changed))


def _part(folder: Path, layout: Dataset, quick: bool, numbers: Sequence[int]) -> Findings:
    """Check some files. numbers: numbers of sample files; negative numbers are auxiliary files."""
    faults: list[DatasetFault] = []
    size = 0
    for number in numbers:
        name, check = _check(layout, number, quick)
        file_bytes, fault = _checked(os.path.join(folder, name), check)
        size += file_bytes
        if fault is not None:
            faults.append(DatasetFault(name, fault))
    return Findings(len(numbers), size, tuple(faults))


_Check = Callable[[str], str | None]


def _check(layout: Dataset, number: int, quick: bool) -> tuple[str, _Check]:
    """Return the name of a file of the dataset, and a function that checks the file. The function takes the path of the
    file. It returns the fault of the file, or None if there is no fault. number: number of the sample file; a negative
    number is an auxiliary file.
    """
    if number < 0:
        return _name(layout, number), partial(_side_fault, dataset_folder.sides(layout)[number], quick)
    return _name(layout, number), partial(_file_fault, layout, number, quick)


def _name(layout: Dataset, number: int) -> str:
    """Return the name of a file of the dataset. number: as for _check()."""
    if number < 0:
        return dataset_folder.side_name(dataset_folder.sides(layout)[number])
    return dataset_folder.file_name(layout, number)


def _file_fault(layout: Dataset, number: int, quick: bool, path: str) -> str | None:
    return FORMATS[layout.format].fault(path, layout, number, quick)


def _side_fault(side: AuxiliaryFile, quick: bool, path: str) -> str | None:
    pieces = None if quick else content.pieces(0, side.file_size)
    return file_comparison.of_file(path, side.file_size, pieces, lambda _: None)


def _checked(path: str, check: _Check) -> tuple[int, str | None]:
    """Check the file at `path`. Return its size in bytes, and its fault or None."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return 0, "is not a regular file"
        return status.st_size, check(path)
    except FileNotFoundError:
        return 0, "is missing"
    except PermissionError as fault:
        return 0, f"cannot be read: {fault.strerror or fault}"
    except OSError as fault:
        raise InfrastructureError(f"cannot read {of_system(fault, path)}") from fault


if __name__ == "__main__":
    main()
