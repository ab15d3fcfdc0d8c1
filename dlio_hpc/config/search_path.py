"""Folders in which users and facilities keep their own files: site_profiles/, workloads/, studies/, suites/, criteria/
and defaults.yaml. These files take precedence over the shipped files.
"""

import os
from pathlib import Path

from dlio_hpc.errors import ConfigError

VARIABLE = "DLIO_HPC_SITE_PATH"
_SYSTEM = Path("/etc/dlio-hpc")


def folders() -> list[Path]:
    """Return the existing folders that are searched for files: first the user's, then those of DLIO_HPC_SITE_PATH in
    order, then the system's. The first folder that has a file of the wanted name is used. Raise ConfigError if a folder
    in DLIO_HPC_SITE_PATH does not exist.
    """
    named = [Path(os.path.abspath(part)) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    for folder in named:
        if not folder.is_dir():
            raise ConfigError(f"{VARIABLE}: {folder} is not a directory here; correct the variable, or unset it")
    return [folder for folder in (_user(), *named, _SYSTEM) if os.path.isdir(folder)]  # False without permission


def _user() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home, "dlio-hpc")
