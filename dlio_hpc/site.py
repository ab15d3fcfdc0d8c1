"""A site profile: one machine's batch system, launcher, nodes and limits, as its YAML file says them."""

import fnmatch
import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from dlio_hpc import document, shipped, units

Positive = Annotated[int, Meta(ge=1)]


class Launcher(Struct, frozen=True, forbid_unknown_fields=True):
    """How ranks are started: `kind` knows the option names, `command` may be a path, `options` come verbatim."""

    kind: Literal["mpiexec"]
    command: Annotated[str, Meta(min_length=1)]
    options: tuple[str, ...] = ()


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one job may ask for; null: no limit of ours."""

    nodes: Positive | None = None
    walltime: units.Walltime | None = None


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """One machine. `python` null: the interpreter that submits. `data`: where datasets go without --data."""

    name: str
    scheduler: Literal["local"]
    launcher: Launcher
    ranks_per_node: Positive
    walltime: units.Walltime
    data: str | None = None
    description: str = ""
    hosts: tuple[str, ...] = ()
    limits: Limits = Limits()
    python: str | None = None
    setup: tuple[str, ...] = ()
    environment: dict[str, str] = {}

    def __post_init__(self) -> None:
        for variable in self.environment:
            if not (variable.isascii() and variable.isidentifier()):
                raise ValueError(f"environment: {variable!r} is no name of an environment variable")


def load(name: str) -> Site:
    path = shipped.find(shipped.SITES, name)
    return document.convert(document.read_yaml(path), Site, str(path))


def here() -> Site:
    """The shipped site whose host patterns match this host's name, else `local`."""
    host = os.uname().nodename
    for site in map(load, shipped.names(shipped.SITES)):
        if any(fnmatch.fnmatch(host, pattern) for pattern in site.hosts):
            return site
    return load("local")


def resolved(site: Site) -> Site:
    """The site with the interpreter and, where jobs run on this very computer, the launcher's path written out."""
    python = site.python or sys.executable
    if site.scheduler != "local":
        return structs.replace(site, python=python)  # what the job finds there is decided by its setup lines
    command = _locate(site.launcher.command, python)
    return structs.replace(site, python=python, launcher=structs.replace(site.launcher, command=command))


def _locate(name: str, python: str) -> str:
    """A bare command name as a path: beside the interpreter (a virtual environment's own mpiexec), beside this
    package (pip install --target), else on PATH; the bare name where it is in none of them.
    """
    if "/" in name:
        return name
    for folder in (Path(python).parent, Path(__file__).resolve().parents[1] / "bin"):
        if (folder / name).is_file():
            return str(folder / name)
    return shutil.which(name) or name
