"""Folders in which users and facilities keep their own files: site_profiles/, workloads/, studies/, suites/, criteria/
and defaults.yaml. These files take precedence over the shipped files.
"""

import os
from pathlib import Path

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.files import user_folders

VARIABLE = "DLIO_HPC_SITE_PATH"
# What a folder of the variable has: folders for each kind of file, and default values of options.
_SEARCHED = ("site_profiles", "workloads", "studies", "suites", "criteria", "reference", "defaults.yaml")
_SYSTEM = Path("/etc/dlio-hpc")


def _refuse_loose(folder: Path) -> None:
    """Raise ConfigError if YAML files are in a folder of the variable itself, where nothing searches for them."""
    content = {path.name for path in folder.glob("*")}
    loose = sorted(name for name in content if name.endswith(".yaml"))
    if loose and not content.intersection(_SEARCHED):
        raise ConfigError(
            f"{VARIABLE}: {folder} has {loose[0]} itself, but none of the folders that are searched; move site "
            f"profiles to {folder}/site_profiles, workloads to {folder}/workloads"
        )


def refuse_other_suffix(path: Path) -> None:
    """Raise ConfigError if there is no file at `path`, but one with the suffix .yml, which is not searched for."""
    other = path.with_suffix(".yml")
    if other.is_file() and not path.exists():
        raise ConfigError(f"{other}: files are searched for with the suffix .yaml; rename it to {path.name}")


def folders() -> list[Path]:
    """Return the existing folders that are searched for files: first the folder of the user, then the folders in
    DLIO_HPC_SITE_PATH in their order, then the folder of the system. Of several files with the same name, the first is
    used. Raise ConfigError if a folder in DLIO_HPC_SITE_PATH does not exist, or if a folder has defaults.yml and not
    defaults.yaml.
    """
    named = [
        Path(os.path.abspath(os.path.expanduser(part)))
        for part in os.environ.get(VARIABLE, "").split(os.pathsep)
        if part
    ]
    for folder in named:
        if not folder.is_dir():
            raise ConfigError(f"{VARIABLE}: {folder} is not a directory here; correct the variable, or unset it")
        _refuse_loose(folder)
    user = user_folders.of_user("XDG_CONFIG_HOME", ".config")
    listed = [*([] if user is None else [user]), *named, _SYSTEM]
    known = [folder for folder in listed if os.path.isdir(folder)]  # False without permission
    for folder in known:
        refuse_other_suffix(folder / "defaults.yaml")
    return known
