"""The archive of the Python environment of the ranks. A job unpacks it on each of its nodes, so that thousands of ranks
do not import from the shared file system at the same time (key stage_environment of a site profile).
"""

import hashlib
import os
import sys
import sysconfig
import tarfile
from pathlib import Path

from dlio_hpc.base.command import ask
from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.files import rundir

# Folders that belong to the system. An interpreter there has no environment of its own.
_SYSTEM = {Path("/"), Path("/usr"), Path("/usr/local")}
# Folders of the standard library that are left out: packages of the base interpreter, and tests.
_LEFT_OUT = {"site-packages", "dist-packages", "test"}
_ASK = "import sys, sysconfig; print(sys.prefix, sysconfig.get_path('stdlib'), sep='\\n')"
_PACKAGE = Path(__file__).resolve().parents[1]


def provide(python: str, folder: Path) -> Path:
    """Return the archive of the environment of the interpreter `python`. Create it unless `folder` has one with the
    current contents of the environment. The archive holds the environment, this package in the folder package and,
    unless it is part of the environment, the standard library in the folder stdlib.

    Raise ConfigError if the environment cannot be moved. Raise InfrastructureError if the archive cannot be written.
    """
    sources = _sources(python)
    try:
        path = folder / f"{_fingerprint(sources)}.tar"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _pack(sources, path)
    except OSError as fault:
        raise InfrastructureError(
            f"site.stage_environment: cannot archive the environment of {python}: {of_system(fault, folder)}"
        ) from fault
    return path


def _sources(python: str) -> dict[str, Path]:
    """Return the folders to archive, by their names in the archive. Raise ConfigError if the interpreter does not run
    here, or if it is not in the folder bin of a virtual or conda environment.
    """
    prefix, library = Path(sys.prefix), Path(sysconfig.get_path("stdlib"))
    if python != sys.executable:
        answer = ask(python, "-c", _ASK)
        if answer.code or len(answer.lines) != 2:
            raise ConfigError(f"site.stage_environment: {python} does not run here: {answer.text}")
        prefix, library = map(Path, answer.lines)
    if prefix in _SYSTEM or Path(python).parent != prefix / "bin":
        raise ConfigError(
            f"site.stage_environment: {python} is not in a virtual or conda environment; its environment is "
            f"{prefix}. Set site.python to an interpreter in the folder bin of a virtual or conda environment"
        )
    # Links are resolved, because tarfile stores a folder that is a link without its contents.
    sources = {".": prefix.resolve(), f"package/{_PACKAGE.name}": _PACKAGE}
    return sources if library.is_relative_to(prefix) else {**sources, "stdlib": library.resolve()}


def _fingerprint(sources: dict[str, Path]) -> str:
    """Return 16 hexadecimal digits that change if a file changes its size or time. Byte code is ignored, because Python
    may write it at any time.
    """
    digest = hashlib.sha256()
    for name, root in sources.items():
        for folder, below, files in os.walk(root):
            left_out = _LEFT_OUT if (name, folder) == ("stdlib", str(root)) else set()
            below[:] = sorted(set(below) - left_out - {"__pycache__"})
            for path in (Path(folder, file) for file in sorted(files)):
                facts = path.lstat()
                digest.update(os.fsencode(f"{path}\0{facts.st_mode}\0{facts.st_size}\0{facts.st_mtime_ns}\n"))
    return digest.hexdigest()[:16]


def _pack(sources: dict[str, Path], path: Path) -> None:
    """Write the archive. It has a temporary name until it is complete."""
    hidden = path.with_name(rundir.temporary_name(path.name))
    left_out = {f"stdlib/{name}" for name in _LEFT_OUT}
    try:
        with tarfile.open(hidden, "w") as tar:
            for name, root in sources.items():
                tar.add(root, name, filter=lambda member: None if member.name in left_out else member)
        hidden.rename(path)
    finally:
        hidden.unlink(missing_ok=True)
