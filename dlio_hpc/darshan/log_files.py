"""Darshan logs in folders."""

import os
from collections.abc import Iterable
from pathlib import Path

from dlio_hpc.base.errors import ConfigError, DlioError, unreadable
from dlio_hpc.files import path_kinds

SUFFIX = ".darshan"


def of_folder(folder: Path) -> list[Path]:
    """Return the logs that are directly in a folder; logs in its subfolders are not included. Return an empty list if
    the folder has no logs. Raise DlioError if the folder cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file())
    except OSError as fault:
        raise unreadable(fault, folder) from fault


def listed(paths: Iterable[Path]) -> list[Path]:
    """Return `paths`, in which each folder is replaced by the logs that are directly in this folder. Raise ConfigError
    for a folder without logs.
    """
    logs: list[Path] = []
    for path in paths:
        if not path.is_dir():
            logs.append(path)
            continue
        inside = of_folder(path)
        if not inside:
            path_kinds.refuse_other(path, "Darshan logs (*.darshan) or, for dlio-hpc characterize, a recording")
            raise ConfigError(
                f"{path} is neither a recording nor a folder with Darshan logs (*{SUFFIX}); dlio-hpc record "
                "makes a recording, and dlio-hpc darshan --summary also searches subfolders"
            )
        logs += inside
    return logs


def below(paths: Iterable[Path]) -> tuple[list[Path], list[DlioError]]:
    """Return `paths` without duplicates, in which each folder is replaced by all logs in this folder and in its
    subfolders. Also return a fault for each folder that cannot be read. Raise ConfigError if there are no logs and no
    faults.
    """
    logs: dict[str, Path] = {}
    faults: list[DlioError] = []
    paths = list(paths)
    for path in paths:
        for log in _walked(path, faults) if path.is_dir() else [path]:
            logs.setdefault(os.path.realpath(log), log)
    if not logs and not faults:
        raise ConfigError(f"no logs (*{SUFFIX}) found in {', '.join(map(str, paths))} or in subfolders")
    return list(logs.values()), faults


def _walked(folder: Path, faults: list[DlioError]) -> Iterable[Path]:
    def complain(fault: OSError) -> None:
        faults.append(unreadable(fault, folder))

    for place, folders, names in os.walk(folder, onerror=complain):
        folders.sort()
        yield from (Path(place, name) for name in sorted(names) if name.endswith(SUFFIX))
