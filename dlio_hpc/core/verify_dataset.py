"""Verification of a dataset against the generator: python -m dlio_hpc.core.verify_dataset FOLDER, without MPI."""

import argparse
import os
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from dlio_hpc import document
from dlio_hpc.config.dataset_keys import AuxiliaryFile, Dataset
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.formats import FORMATS
from dlio_hpc.core.progress import Progress
from dlio_hpc.errors import Incomplete, InfrastructureError, InvalidRun, of_system, told
from dlio_hpc.plan import dataset

# Faults of a dataset that are listed; a mark may speak of more files than anybody can look for.
_MOST_FAULTS = 1000


class Fault(Struct, frozen=True):
    """file: its name in the folder; the folder's own where the dataset as a whole is meant."""

    file: str
    fault: str


class Findings(Struct, frozen=True):
    """files, bytes: that were looked at, and have on the file system."""

    files: int
    bytes: int
    faults: tuple[Fault, ...]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dlio_hpc.core.verify_dataset", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a dataset's, with its dlio-dataset.json")
    parser.add_argument("--quick", action="store_true", help="names, number and sizes only")
    parser.add_argument("--json", action="store_true", dest="as_json", help="one JSON document on stdout")
    options = parser.parse_args()
    try:
        with told():
            _tell(options.folder, verify(options.folder, options.quick), options.as_json)
    except KeyboardInterrupt:
        sys.exit(Incomplete.exit_code)


def _tell(folder: Path, found: Findings, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(document.encode(found).decode())
        sys.exit(InvalidRun.exit_code if found.faults else 0)
    for fault in found.faults:
        print(f"{fault.file}: {fault.fault}")
    if found.faults:
        raise InvalidRun(f"{folder}: {len(found.faults)} fault(s); remove it to have it generated again")
    print(f"{folder}: sound")


def verify(folder: Path, quick: bool) -> Findings:
    """Everything that is wrong with the dataset in `folder`; ConfigError when there is none. How far it is goes to
    stderr.
    """
    known = dataset.begun(folder)
    if known is None or not known.complete:
        why = (
            "its generation did not end; the next job that wants it makes it anew, dlio-hpc datasets remove deletes it"
        )
        return Findings(0, 0, (Fault(folder.name, why),))
    faults = [Fault(name, "is no file of the dataset") for name in sorted(dataset.strangers(folder, known.dataset))]
    progress = Progress(folder.name, speaks=True, to=sys.stderr)
    size = number = 0
    total = len(dataset.sides(known.dataset)) + dataset.file_count(known.dataset)
    for number, (name, check) in enumerate(_checks(known.dataset, quick), 1):
        found, fault = _looked_at(os.path.join(folder, name), check)
        size += found
        if fault is not None:
            faults.append(Fault(name, fault))
        if len(faults) >= _MOST_FAULTS:
            faults.append(Fault(folder.name, f"has {_MOST_FAULTS} faults or more: the rest was not looked at"))
            break
        progress.show(number, total, "files", f"{size / 1e6:.0f} MB")
    return Findings(number, size, tuple(faults))


_Check = Callable[[str], str | None]


def _checks(layout: Dataset, quick: bool) -> Iterator[tuple[str, _Check]]:
    """Each file's name, and what finds out about the file at a path."""
    for side in dataset.sides(layout):
        yield dataset.side_name(side), partial(_side_fault, side, quick)
    for number in range(dataset.file_count(layout)):
        yield dataset.file_name(layout, number), partial(_file_fault, layout, number, quick)


def _file_fault(layout: Dataset, number: int, quick: bool, path: str) -> str | None:
    return FORMATS[layout.format].fault(path, layout, number, quick)


def _side_fault(side: AuxiliaryFile, quick: bool, path: str) -> str | None:
    pieces = None if quick else content.pieces(0, side.file_size)
    return file_comparison.of_file(path, side.file_size, pieces, lambda _: None)


def _looked_at(path: str, check: _Check) -> tuple[int, str | None]:
    """Bytes of a file, and what is wrong with it."""
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            return 0, "is no file"
        return status.st_size, check(path)
    except FileNotFoundError:
        return 0, "is missing"
    except PermissionError as fault:
        return 0, f"cannot be read: {fault.strerror or fault}"
    except OSError as fault:
        raise InfrastructureError(f"cannot read {of_system(fault, path)}") from fault


if __name__ == "__main__":
    main()
