"""Folders of a user's own files, as the XDG Base Directory Specification names them, and home folders in paths."""

import os
import re
from pathlib import Path

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.files import safe_folders


def of_user(variable: str, below_home: str) -> Path | None:
    """Return the folder "dlio-hpc" in the folder that the environment variable names. If the variable is not set,
    return the folder "dlio-hpc" in the folder `below_home` of the user's home. Return None if the path is not absolute:
    a user without a name, as in a container, has no home.
    """
    folder = os.environ.get(variable) or os.path.expanduser(f"~/{below_home}")
    return Path(folder, "dlio-hpc") if os.path.isabs(folder) else None


def private_cache() -> Path | None:
    """Return the user's cache folder, which is created if it does not exist. Return None if the user has no folder that
    only they can write to, or if a link of another user leads to the folder.
    """
    folder = of_user("XDG_CACHE_HOME", ".cache")
    if folder is None:
        return None
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        descriptor = safe_folders.walked(folder)
    except (OSError, ConfigError):
        return None
    status = os.fstat(descriptor)
    safe_folders.close(descriptor)
    return folder if status.st_uid == os.getuid() and not status.st_mode & 0o022 else None


# "~" or "~USER" at the beginning of a path, which may follow the mark of a workload of dlio_benchmark.
_HOME = re.compile(r"(?P<mark>dlio:)?(?P<path>~[^/]*(/.*)?)", re.DOTALL)


def expanded(text: str) -> str:
    """Return a path in which "~" or "~USER" at the beginning is replaced by the home folder of the user. Raise
    ValueError if this folder is not known.
    """
    parts = _HOME.fullmatch(text)
    if parts is None:
        return text
    path = os.path.expanduser(parts["path"])
    if path.startswith("~"):
        name = path.partition("/")[0]
        raise ValueError(f"{text}: the home folder {name} is not known; for a file or folder of this name: ./{path}")
    return f"{parts['mark'] or ''}{path}"
