"""Folders of a user's own files, as the XDG Base Directory Specification names them."""

import os
from pathlib import Path


def of_user(variable: str, below_home: str) -> Path | None:
    """Return the folder "dlio-hpc" in the folder that the environment variable names, or otherwise in `below_home` in
    the user's home. Return None if the path is not absolute, because the user has no home (a container in which the
    user has no name).
    """
    folder = os.environ.get(variable) or os.path.expanduser(f"~/{below_home}")
    return Path(folder, "dlio-hpc") if os.path.isabs(folder) else None
