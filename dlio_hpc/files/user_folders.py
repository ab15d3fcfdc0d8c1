"""Folders of a user's own files, as the XDG Base Directory Specification names them."""

import os
from pathlib import Path


def of_user(variable: str, below_home: str) -> Path | None:
    """Return the folder "dlio-hpc" in the folder that the environment variable names. If the variable is not set,
    return the folder "dlio-hpc" in the folder `below_home` of the user's home. Return None if the path is not absolute:
    a user without a name, as in a container, has no home.
    """
    folder = os.environ.get(variable) or os.path.expanduser(f"~/{below_home}")
    return Path(folder, "dlio-hpc") if os.path.isabs(folder) else None
