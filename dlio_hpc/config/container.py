"""The key container of a site profile: the image in which ranks start."""

import os
import re
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

Engine = Literal["apptainer", "singularity", "podman-hpc"]

# Name of an image in the store of Podman-HPC, with registry, tag and digest. Example: registry.example/dlio-hpc:0.1
_NAME = re.compile(r"[A-Za-z0-9][\w.:/@-]*")


class Bind(NamedTuple):
    """A bind: a file or folder of the node that ranks see in the container. source: its path on the node. target: its
    path in the container. is_read_only: whether ranks cannot write to it.
    """

    source: str
    target: str
    is_read_only: bool = False

    @property
    def text(self) -> str:
        """The bind in the syntax that all engines accept, such as /opt:/opt:ro."""
        return f"{self.source}:{self.target}" + (":ro" if self.is_read_only else "")

    def holds(self, path: str, is_written: bool) -> bool:
        """Return whether this bind makes the node's `path` available in the container under the same name. is_written:
        whether ranks write to `path`, so that a read-only bind is not enough.
        """
        if self.source != self.target or (is_written and self.is_read_only):
            return False
        return self.target == "/" or f"{path}/".startswith(f"{self.target}/")


class Container(Struct, frozen=True, forbid_unknown_fields=True):
    """The container image in which ranks start. The launcher and all other steps of a job stay outside."""

    engine: Engine
    """Container engine. Its command must be on PATH on the compute nodes; the lines of `setup` may add it to PATH."""
    image: Annotated[str, Meta(min_length=1)]
    """Image with Python, dlio-hpc and mpi4py. Apptainer and Singularity: absolute path of a SIF file or of a directory.
    Podman-HPC: name and tag. Example: /shared/dlio-hpc.sif
    """
    mpi: Literal["site", "image"] = "image"
    """MPI library of the ranks. image: the MPI library in the image. site: the MPI library of the machine; its
    directories must be in `binds`, and ranks get the LD_LIBRARY_PATH of the job script.
    """
    binds: tuple[str, ...] = ()
    """Files and folders of the nodes that ranks see in the container: PATH, PATH:ro, or
    PATH:PATH_IN_THE_CONTAINER[:ro]. dlio-hpc adds the directories of the job, its data and its checkpoints. Example:
    [/scratch, "/opt/cray:ro"]
    """
    python: Annotated[str, Meta(min_length=1)] = "python3"
    """Python interpreter in the image, as an absolute path or as a name on the PATH of the image. Example:
    /opt/dlio-hpc/bin/python3
    """
    options: tuple[str, ...] = ()
    """Additional options of `apptainer exec` or `podman-hpc run`, passed unchanged. Example: [--nv]"""

    def __post_init__(self) -> None:
        if self.engine == "podman-hpc" and not _NAME.fullmatch(self.image):
            raise ValueError(
                f"image: {self.image!r} is not the name of an image of Podman-HPC; "
                "`podman-hpc images` lists names, such as dlio-hpc:0.1"
            )
        if self.engine != "podman-hpc" and not os.path.isabs(self.image):
            raise ValueError(
                f"image: {self.image!r} must be the absolute path of a SIF file or of an image directory; "
                f"`{self.engine} pull` makes a SIF file of an image in a registry"
            )
        for option in self.options:
            if not option.startswith("-") or not option.isprintable():
                raise ValueError(
                    f"options: {option!r} must begin with - and be a single line; write an option and its "
                    "value as one entry, such as --env=NAME=VALUE"
                )
        parsed = [parse_bind(text) for text in self.binds]
        if self.mpi == "site" and not parsed and not self.options:
            raise ValueError(
                "mpi=site needs the directories of the site's MPI in binds, such as /opt/cray:ro, or an "
                "option of the engine that binds them; for the MPI in the image, set mpi=image"
            )


def parse_bind(text: str) -> Bind:
    """Return the bind that an entry of the key binds describes. Raise ValueError if it is invalid."""
    source, *rest = text.split(":")
    is_read_only = rest[-1:] == ["ro"]
    if rest[-1:] in (["ro"], ["rw"]):
        rest.pop()
    target = rest.pop() if rest else source
    if rest or not all(map(_is_bindable, (source, target))):
        raise ValueError(
            f"binds: {text!r} must have the form PATH, PATH:ro or PATH:PATH_IN_THE_CONTAINER[:ro], with "
            "absolute paths without commas"
        )
    return Bind(os.path.normpath(source), os.path.normpath(target), is_read_only)


def why_unbindable(path: str) -> str | None:
    """Return the reason why engines cannot bind a path, or None if they can bind it."""
    if _is_bindable(path):
        return None
    return "container engines separate paths by colons and commas, so a path cannot contain them"


def _is_bindable(path: str) -> bool:
    return os.path.isabs(path) and path.isprintable() and not set(path) & {":", ","}
