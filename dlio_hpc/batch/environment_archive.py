"""The archive of the Python environment of the ranks. A job unpacks it on each of its nodes, so that thousands of ranks
do not import from the shared file system at the same time (key stage_environment of a site profile).
"""

import hashlib
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from dlio_hpc.command import ask
from dlio_hpc.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.files import rundir

# Folders that belong to the system. An interpreter there has no environment of its own.
_SYSTEM = {Path("/"), Path("/usr"), Path("/usr/local")}
_PACKAGE = Path(__file__).resolve().parents[1]


def provide(python: str, folder: Path) -> Path:
    """Return the archive of the environment of the interpreter `python`. If `folder` has none for the present contents
    of the environment, make it. The archive holds the environment and, in the folder package, this package.

    Raise ConfigError if the environment cannot be moved. Raise InfrastructureError if the archive cannot be written.
    """
    prefix = _prefix(python)
    try:
        path = folder / f"{_fingerprint(prefix)}.tar"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _pack(prefix, path)
    except OSError as fault:
        raise InfrastructureError(
            f"site.stage_environment: cannot archive the environment {prefix}: {of_system(fault, folder)}"
        ) from fault
    return path


def _prefix(python: str) -> Path:
    """Return the folder of the environment of an interpreter. Raise ConfigError if the interpreter does not run here,
    or if it does not lie in the folder bin of an environment of its own.
    """
    prefix = Path(sys.prefix)
    if python != sys.executable:
        answer = ask(python, "-c", "import sys; print(sys.prefix)")
        if answer.code:
            raise ConfigError(f"site.stage_environment: {python} does not run here: {answer.text}")
        prefix = Path(answer.out)
    if prefix in _SYSTEM or Path(python).parent != prefix / "bin":
        raise ConfigError(
            f"site.stage_environment: {python} does not lie in an environment that can be copied; its environment is "
            f"{prefix}. Set site.python to an interpreter in the folder bin of a virtual or conda environment"
        )
    return prefix


def _fingerprint(prefix: Path) -> str:
    """Return 16 letters that change if a file of the environment or of this package changes its size or time."""
    digest = hashlib.sha256()
    for root in (prefix, _PACKAGE):
        for path in _files(root):
            facts = path.lstat()
            digest.update(os.fsencode(f"{path}\0{facts.st_mode}\0{facts.st_size}\0{facts.st_mtime_ns}\n"))
    return digest.hexdigest()[:16]


def _files(root: Path) -> Iterator[Path]:
    """Yield all files below a folder in a fixed order. Byte code is left out, because Python writes it at any time."""
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if name != "__pycache__")
        yield from (Path(folder, name) for name in sorted(names))


def _pack(prefix: Path, path: Path) -> None:
    """Write the archive. It has a temporary name until it is complete."""
    hidden = path.with_name(rundir.temporary_name(path.name))
    try:
        with tarfile.open(hidden, "w") as tar:
            tar.add(prefix, ".")
            tar.add(_PACKAGE, f"package/{_PACKAGE.name}")
        hidden.rename(path)
    finally:
        hidden.unlink(missing_ok=True)
