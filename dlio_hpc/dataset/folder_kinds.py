"""Kinds of folders: folders of jobs, of archives and of datasets. This module detects that a user gave a folder of the
wrong kind.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.dataset.dataset_folder import FINGERPRINT_FILE
from dlio_hpc.files import rundir

FolderKind = Literal["jobs", "archives", "datasets"]


class _Signs(NamedTuple):
    """Signs by which a folder of a kind is recognised. patterns: glob patterns; such a folder contains a match of at
    least one. usual: default path of such a folder. others: paths where such a folder is looked for if the user gave a
    folder of another kind. They are relative to the given folder.
    """

    patterns: tuple[str, ...]
    usual: str
    others: tuple[str, ...]


_KINDS: dict[FolderKind, _Signs] = {
    "jobs": _Signs((rundir.JOBS, f"[!.]*/{rundir.STUDY}"), "dlio-runs", ("..",)),
    "archives": _Signs((f"*{rundir.ARCHIVE_SUFFIX}",), "dlio-runs/archive", ("archive", "../archive", "..")),
    "datasets": _Signs((rundir.DATASETS,), "dlio-data", ("..",)),
}
# Folders that are themselves a job, a study or a dataset, by the file that shows it.
_MEMBERS = {rundir.JOB: "a job", rundir.STUDY: "a study", FINGERPRINT_FILE: "a dataset"}


def refuse_other(folder: Path, wanted: FolderKind, option: str, needed: bool = False) -> None:
    """Raise ConfigError if `folder`, which is to be read, is of another kind than `wanted`. option: option with which
    the user gave the folder. needed: whether an empty folder and a folder of unknown kind are refused, too. A folder
    that cannot be listed is not refused: the error is reported when the folder is read.
    """
    try:
        is_wanted = _contains(folder, wanted)
    except OSError:
        return
    what = described(folder)
    if is_wanted or what == f"a folder of {wanted}":
        return
    right = next((path for path in _candidates(folder, wanted) if holds(path, wanted)), None)
    if what is None and not needed and right != folder / "archive":
        return
    fault = f"has no {wanted}" if what is None else f"is {what}"
    place = f": {right}" if right is not None else f", such as {_KINDS[wanted].usual}"
    with_option = f" with {option}" if option else ""
    raise ConfigError(f"{folder} {fault}; give the folder of {wanted}{with_option}{place}")


def _candidates(folder: Path, wanted: FolderKind) -> list[Path]:
    signs = _KINDS[wanted]
    nearby = [folder.parent / other[3:] if other.startswith("..") else folder / other for other in signs.others]
    return [*nearby, Path(signs.usual)]


def refuse_target(folder: Path, wanted: FolderKind, option: str) -> None:
    """Raise ConfigError if `folder` is not suitable for new jobs, archives or datasets. It is not suitable if it is a
    job, a study or a dataset, is inside a dataset, or is a folder of another kind than `wanted`. option: option with
    which the user gave the folder.
    """
    try:
        absolute = Path(os.path.abspath(folder))
    except FileNotFoundError:
        return  # the working directory is gone, which is reported where the path is used
    outer = next((path for path in (absolute, *absolute.parents) if _is_dataset(path)), None)
    if outer is None and holds(absolute, wanted):
        return
    what = described(absolute) if outer is None else "a dataset" if outer == absolute else f"in the dataset {outer}"
    if what is None:
        return
    parent = (outer or absolute).parent
    usual = (parent if outer is None and member(absolute) is None else parent.parent) / _KINDS[wanted].usual
    if (outer is not None and wanted == "datasets") or holds(parent, wanted):
        raise ConfigError(f"{option} {folder} is {what}; give the folder of {wanted}: {parent}")
    raise ConfigError(f"{option} {folder} is {what}; give a folder outside of it, such as {usual}")


def _is_dataset(folder: Path) -> bool:
    return os.path.isfile(folder / FINGERPRINT_FILE)


def described(folder: Path) -> str | None:
    """Return what a folder is, such as "a dataset" or "a folder of jobs"; None if this is unknown."""
    kind = next((kind for kind in _KINDS if holds(folder, kind)), None)
    return member(folder) or (None if kind is None else f"a folder of {kind}")


def member(folder: Path) -> str | None:
    """Return "a job", "a study" or "a dataset" if the folder is one; otherwise None."""
    return next((what for name, what in _MEMBERS.items() if os.path.isfile(folder / name)), None)


def holds(folder: Path, kind: FolderKind) -> bool:
    """Return whether the contents of a folder show that it is of this kind. Return False if the folder cannot be
    listed.
    """
    with suppress(OSError):
        return _contains(folder, kind)
    return False


def _contains(folder: Path, kind: FolderKind) -> bool:
    """Return whether the contents of a folder show that it is of this kind. Raise OSError if the folder cannot be
    listed. From Python 3.13 on, glob does not report this error, so the folder is listed first.
    """
    if os.path.isdir(folder):
        os.listdir(folder)
    return any(next(folder.glob(pattern), None) is not None for pattern in _KINDS[kind].patterns)


def some(folder: Path) -> list[str]:
    """Return the sorted names of the datasets in a folder."""
    with suppress(OSError):
        return sorted(path.parent.name for path in folder.glob(_KINDS["datasets"].patterns[0]))
    return []
