"""Kinds of files and folders that users give to the wrong command, and the right command for each kind."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.files import rundir

_ARCHIVE, _LOG, _PROCESSES = rundir.ARCHIVE_SUFFIX, ".darshan", "processes"
# Folders above a file of a recording, up to the recording.
_DEPTH = 3
_YAML = (".yaml", ".yml")
# Time in the name of a job.
_TIME = re.compile(r"\d{8}-\d{6}")
# Programs that users write, by the end of their names, and how a shell starts them.
_PROGRAMS = {".py": "python", ".sh": "bash"}
# Documents that hold no job, by the ends of their names.
_DOCUMENTS = {
    ".html": "a page (HTML), which a browser shows", ".htm": "a page (HTML), which a browser shows",
    ".pdf": "a PDF document", ".csv": "a table (CSV)", ".json": "a JSON document", ".xml": "an XML document",
    ".txt": "a text file", ".md": "a text file", ".log": "a text file", ".out": "a text file", ".err": "a text file",
    ".svg": "a picture", ".png": "a picture",
}  # fmt: skip


class PathKind(NamedTuple):
    """A kind of path. text: description of the kind, with advice; the fields in braces are filled by _fields(). is_of:
    function that returns whether a path is of this kind.
    """

    text: str
    is_of: Callable[[Path], bool]


def _is_recording(path: Path) -> bool:
    return next((path / _PROCESSES).glob("*/*.jsonl"), None) is not None


def _recording_of(path: Path) -> Path | None:
    """Return the recording that contains the file or folder `path`; None if no recording contains it."""
    return next((folder for folder in path.parents[:_DEPTH] if _is_recording(folder)), None)


def _jobs(path: Path) -> list[Path]:
    """Return the directories of jobs in a folder, sorted by the times in their names, the newest last."""
    files = path.glob(f"*/{rundir.JOB}") if path.is_dir() else ()
    return sorted((file.parent for file in files), key=lambda folder: _TIME.findall(folder.name))


def _fields(path: Path) -> dict[str, object]:
    """Return the values of the fields of a text about a path: the path, the recording that contains the path, the
    newest job in the path, the program that starts the path, and the kind of document.
    """
    return {
        "path": path, "recording": _recording_of(path), "newest": next(reversed(_jobs(path)), None),
        "starter": _PROGRAMS.get(path.suffix), "document": _DOCUMENTS.get(path.suffix),
    }  # fmt: skip


_KINDS = (
    PathKind("a job of dlio-hpc; dlio-hpc report {path} shows it", lambda path: (path / rundir.JOB).is_file()),
    PathKind("a study of dlio-hpc; dlio-hpc report {path} shows it", lambda path: (path / rundir.STUDY).is_file()),
    PathKind("a recording; dlio-hpc characterize {path} derives its workload", _is_recording),
    PathKind("a part of a recording; give the recording: {recording}", lambda path: _recording_of(path) is not None),
    PathKind("the folder of all jobs; give one of them, such as the newest: {newest}; dlio-hpc status --runs {path} "
             "and dlio-hpc history --runs {path} list them", lambda path: bool(_jobs(path))),
    PathKind("a folder of archives; give the archives in it: {path}/*.tar.zst",
             lambda path: path.is_dir() and next(path.glob(f"*{_ARCHIVE}"), None) is not None),
    PathKind("a folder of datasets; dlio-hpc datasets list --data {path} lists them",
             lambda path: path.is_dir() and next(path.glob(rundir.DATASETS), None) is not None),
    PathKind("a dataset; dlio-hpc datasets verify {path} checks it", lambda path: (path / rundir.DATASET).is_file()),
    PathKind("an archive of a job; dlio-hpc report {path} shows it",
             lambda path: path.name.endswith(_ARCHIVE) and path.is_file()),
    PathKind("a Darshan log; dlio-hpc darshan {path} reports on it",
             lambda path: path.suffix == _LOG and path.is_file()),
    PathKind("a program; record a run of it: dlio-hpc record -- {starter} {path}, and derive "
             "its workload with dlio-hpc characterize",
             lambda path: path.suffix in _PROGRAMS and path.is_file()),
    PathKind("a YAML file, such as a workload, which dlio-submit runs",
             lambda path: path.suffix in _YAML and path.is_file()),
    PathKind("{document}", lambda path: path.suffix in _DOCUMENTS and path.is_file()),
)  # fmt: skip


def described(path: Path) -> str | None:
    """Return a description of a path and advice, or None if its kind is unknown."""
    kind = next((kind for kind in _KINDS if kind.is_of(path)), None)
    return None if kind is None else f"{path} is {kind.text.format_map(_fields(path))}"


def refuse_other(path: Path, wanted: str) -> None:
    """Raise ConfigError if the kind of a path is known, and is not the requested kind. wanted: description of the
    requested kind, for the message.
    """
    text = described(path)
    if text is not None:
        raise ConfigError(f"{text}. This command needs {wanted}")
