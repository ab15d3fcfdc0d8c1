"""A site profile: one machine's batch system, launcher, nodes, queues and limits, as its YAML file says them."""

import fnmatch
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from dlio_hpc import document, units
from dlio_hpc.config import shipped
from dlio_hpc.config.lustre_layout import Layout

Positive = Annotated[int, Meta(ge=1)]
SchedulerName = Literal["local", "slurm", "pbs", "cobalt", "flux"]


Remote = Literal["pbs_tmrsh", "ssh"]


class Launcher(Struct, frozen=True, forbid_unknown_fields=True):
    """How ranks are started: `kind` knows the option names, `command` may be a path, `options` come verbatim.

    `bind`: where ranks may run, in the launcher's own words. `mpi`: srun's --mpi=. `remote`: how hydra starts its
    proxies on the job's other nodes, by pbs_tmrsh(8B) of PBS or by ssh; null: by its own choice.
    """

    kind: Literal["mpiexec", "hydra", "openmpi", "srun", "pals", "aprun", "flux"]
    command: Annotated[str, Meta(min_length=1)]
    options: tuple[str, ...] = ()
    bind: str | None = None
    mpi: str | None = None
    remote: Remote | None = None

    def __post_init__(self) -> None:
        if self.remote is not None and self.kind != "hydra":
            raise ValueError(f"remote is an option of hydra, not of {self.kind}")
        if self.mpi is not None and self.kind != "srun":
            raise ValueError(f"mpi is an option of srun, not of {self.kind}")
        if self.bind is not None and self.kind == "mpiexec":
            raise ValueError("bind has no common spelling: give kind hydra or openmpi, or write it into options")


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """What one job may ask for (`nodes`, `walltime`), how many `jobs` a user may have, and what one submission may
    cost: `node_hours` if its jobs last to their limits, bytes that its runs read (`bytes_read`), write, and take up on
    the file system with datasets (`space`); null: no limit of ours.
    """

    nodes: Positive | None = None
    walltime: units.Walltime | None = None
    jobs: Positive | None = None
    node_hours: Annotated[float, Meta(gt=0)] | None = None
    bytes_read: units.Size | None = None
    bytes_written: units.Size | None = None
    space: units.Size | None = None


class Queue(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue, partition or QOS. walltime: the longest job from so many nodes on; its first entry is the fewest nodes.

    `options`: how the batch system is asked for it, where that is not simply by its name.
    """

    nodes: Positive | None = None
    walltime: dict[int, units.Walltime] = {}
    min_walltime: units.Walltime | None = None
    jobs: Positive | None = None
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(nodes < 1 for nodes in self.walltime):
            raise ValueError("walltime has entries such as {1: 1:00:00, 128: 3:00:00}, from so many nodes on")
        check_options("options", self.options)

    def longest(self, nodes: int) -> units.Walltime | None:
        """For a job of `nodes`; None: no limit of ours."""
        fitting = [limit for fewest, limit in sorted(self.walltime.items()) if fewest <= nodes]
        return fitting[-1] if fitting else None

    @property
    def fewest_nodes(self) -> int:
        return min(self.walltime, default=1)


class Rates(Struct, frozen=True, forbid_unknown_fields=True):
    """What one node is expected to `read` and `write` in a second, and what starting its ranks takes (`launch`). From
    these come estimates alone: what a study costs, and how many of its runs fit into a job.
    """

    read: units.Size = units.Size(10**9)
    write: units.Size = units.Size(5 * 10**8)
    launch: units.Seconds = units.Seconds(10)

    def __post_init__(self) -> None:
        if self.read < 1 or self.write < 1:
            raise ValueError("read and write are bytes a second, such as 1 GB")


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """One machine. `cpus`: hardware threads of a node that ranks may use, `hyperthreads` of them a core.
    `depth`: hardware threads a rank; null: its share of the cpus. `warning_time`: time before its limit at which a job
    is told to end. `environment` is the script's, `rank_environment` and the `preload` libraries the ranks' alone.
    `darshan`: libdarshan.so, built for the ranks' MPI; null: there is none.
    `job_options`: verbatim to the batch system. `pbs_select`: more of PBS's select. `data`: where datasets go without
    --data. `python` null: the interpreter that submits. `layout` null: left alone.
    """

    name: str
    scheduler: SchedulerName
    launcher: Launcher
    ranks_per_node: Positive
    walltime: units.Walltime
    description: str = ""
    hosts: tuple[str, ...] = ()
    cpus: Positive | None = None
    hyperthreads: Positive | None = None
    depth: Positive | None = None
    warning_time: units.Seconds = units.Seconds(60)
    account: str | None = None
    account_required: bool = False
    queue: str | None = None
    queues: dict[str, Queue] = {}
    limits: Limits = Limits()
    job_options: tuple[str, ...] = ()
    pbs_select: dict[str, str | int] = {}
    data: str | None = None
    python: str | None = None
    setup: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    rank_environment: dict[str, str] = {}
    preload: tuple[str, ...] = ()
    darshan: Annotated[str, Meta(min_length=1)] | None = None
    layout: Layout | None = None
    expected_rates: Rates = Rates()

    def __post_init__(self) -> None:
        for variable in (*self.environment, *self.rank_environment):
            if not (variable.isascii() and variable.isidentifier()):
                raise ValueError(f"environment: {variable!r} is no name of an environment variable")
        if "LD_PRELOAD" in self.environment or "LD_PRELOAD" in self.rank_environment:
            raise ValueError("LD_PRELOAD is what preload is for: it reaches the ranks alone")
        if any(re.search(r"[\s:,]", library) for library in (*self.preload, self.darshan or "")):
            raise ValueError("preload, darshan: a path of a library holds no blank, colon or comma")
        if any("libdarshan" in library for library in self.preload):
            raise ValueError("preload: libdarshan.so goes into darshan, so that its logs are set up, judged and read")
        if "DARSHAN_ENABLE_NONMPI" in {*self.environment, *self.rank_environment}:
            raise ValueError("DARSHAN_ENABLE_NONMPI makes a log a process and none of the run; leave it out")
        if self.launcher.remote == "pbs_tmrsh" and self.scheduler != "pbs":
            raise ValueError(f"launcher.remote: pbs_tmrsh is a command of PBS; scheduler {self.scheduler} has none")
        if self.pbs_select and self.scheduler != "pbs":
            raise ValueError(f"pbs_select is for PBS's select; scheduler {self.scheduler} has none")
        check_options("job_options", self.job_options)


class _Hosts(Struct):
    hosts: tuple[str, ...]


def check_options(key: str, options: tuple[str, ...]) -> None:
    """ValueError for text that would leave the line that it is printed on."""
    for option in options:
        if not option.startswith("-") or not option.isprintable():
            raise ValueError(
                f"{key}: {option!r} is no option on one line, such as --constraint=cpu or -l place=scatter"
            )


def load(name: str, overrides: tuple[str, ...] = ()) -> Site:
    """The profile `name` with `key=value` overrides (values read as YAML) laid over it."""
    path = shipped.find(shipped.SITES, name)
    data: Any = document.read_yaml(path)
    for override in overrides:
        document.override(data, override)
    return document.convert(data, Site, f"{path} with -S site." if overrides else str(path))


def here() -> str:
    """The site whose host patterns match this host's name, a facility's own before the shipped ones, else local."""
    host = os.uname().nodename
    for name, path in shipped.files(shipped.SITES).items():
        text = document.read_text(path)
        line = re.search(r"^hosts:.*\S", text, re.MULTILINE)  # the whole profile takes long to read
        patterns = document.convert(document.parse_yaml(line[0], str(path)), _Hosts, str(path)).hosts if line else ()
        if any(fnmatch.fnmatch(host, pattern) for pattern in patterns):
            return name
    return "local"


def depth(site: Site, ranks_per_node: int) -> int | None:
    """Hardware threads a rank; None where the site does not say what a node has."""
    if site.depth is not None:
        return site.depth
    return None if site.cpus is None else max(site.cpus // ranks_per_node, 1)


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
    for folder in (Path(python).parent, Path(__file__).resolve().parents[2] / "bin"):
        if (folder / name).is_file():
            return str(folder / name)
    return shutil.which(name) or name
