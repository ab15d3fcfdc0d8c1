"""Search for the workload files of dlio_benchmark: in its installed package, or in a folder that the user names."""

import os
from pathlib import Path

from dlio_hpc.base.errors import ConfigError, name_hint

# Prefix of the name of a workload of dlio_benchmark, as in dlio:unet3d_h100.
PREFIX = "dlio:"
VARIABLE = "DLIO_HPC_DLIO_CONFIGS"


def is_name(name: str) -> bool:
    return name.startswith(PREFIX)


def find(name: str) -> Path:
    """Return the path of a workload file of dlio_benchmark. name: dlio:NAME, or dlio:FILE. Raise ConfigError for an
    unknown name; the message lists the known names.
    """
    stem = name.removeprefix(PREFIX)
    if "/" in stem or stem.endswith((".yaml", ".yml")):
        return Path(stem)
    place = _folder(name)
    known = files(place)
    if stem not in known:
        hint = name_hint(stem, known)
        raise ConfigError(f"no workload {stem!r} in {place}; {hint}give one of: {', '.join(known)}")
    return known[stem]


def files(folder: Path) -> dict[str, Path]:
    """Return the paths of the workload files in a folder, or in its subfolder workload/, by name."""
    inner = folder / "workload"
    return {path.stem: path for path in sorted((inner if inner.is_dir() else folder).glob("*.yaml"))}


def _folder(name: str = f"{PREFIX}NAME") -> Path:
    """Return the folder that DLIO_HPC_DLIO_CONFIGS names or, if it is not set, the folder in the installed package.
    Raise ConfigError if there is none. name: name that the user gave, for the message.
    """
    named = os.path.expanduser(os.environ.get(VARIABLE, ""))
    if named:
        if not Path(named).is_dir():
            raise ConfigError(f"{VARIABLE}: {named} is not a directory here; correct the variable, or unset it")
        return Path(named)
    from importlib.util import find_spec  # finds the package without importing it

    package = find_spec("dlio_benchmark")
    for place in (package and package.submodule_search_locations) or ():
        if (folder := Path(place, "configs", "workload")).is_dir():
            return folder
    raise ConfigError(
        f"{name} needs the workload files of dlio_benchmark, which is not installed here: install it, set "
        f"{VARIABLE} to the folder of its workload files, or give a file: {PREFIX}./unet3d_h100.yaml"
    )
