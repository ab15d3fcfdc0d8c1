"""A site profile: batch system, launcher, nodes, queues and limits of a machine, as described in a YAML file."""

import fnmatch
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import launcher_rules, lustre_layout, shipped
from dlio_hpc.config.container import Container
from dlio_hpc.config.launcher_rules import LauncherKind
from dlio_hpc.config.lustre_layout import Layout
from dlio_hpc.config.scheduler_facts import SchedulerName

Positive = Annotated[int, Meta(ge=1)]
# Prefix of the names under which a local job keeps the variables of a job around it, so that no launcher finds them.
SURROUNDING = "DLIO_HPC_SURROUNDING_"

Remote = Literal["pbs_tmrsh", "ssh"]


# Longest probe in seconds.
_LONGEST_PROBE_S = 600


class Launcher(Struct, frozen=True, forbid_unknown_fields=True):
    """The command that starts the ranks."""

    kind: LauncherKind
    """Kind of launcher, which determines the syntax of its options."""
    command: Annotated[str, Meta(min_length=1)]
    """Name or path of the command. Example: srun"""
    options: tuple[str, ...] = ()
    """Additional options, passed unchanged. Example: [--oversubscribe]"""
    bind: str | None = None
    """CPU binding of ranks, in the launcher's own syntax. Example: cores"""
    mpi: str | None = None
    """Value of srun's --mpi. Example: pmi2"""
    remote: Remote | None = None
    """Command by which hydra starts its proxies on other nodes; null: hydra chooses the command."""

    def __post_init__(self) -> None:
        if self.remote is not None and self.kind != "hydra":
            raise ValueError(f"remote is an option of hydra, not of {self.kind}")
        if self.mpi is not None and self.kind != "srun":
            raise ValueError(f"mpi is an option of srun, not of {self.kind}")
        if self.bind is not None and self.kind == "mpiexec":
            raise ValueError(
                "bind cannot be used with kind=mpiexec, because its syntax depends on the MPI: set kind to hydra or "
                "openmpi, or give the binding in options"
            )


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of a job (nodes, walltime), of a user (jobs) and of a submission (all other keys). null: no limit."""

    nodes: Positive | None = None
    """Maximum number of nodes of a job. Example: 128"""
    walltime: units.Walltime | None = None
    """Maximum walltime of a job. Example: 24:00:00"""
    jobs: Positive | None = None
    """Maximum number of queued and running jobs of a user. Example: 20"""
    node_hours: Annotated[float, Meta(gt=0)] | None = None
    """Maximum node-hours of a submission, if all its jobs use their whole walltimes. Example: 500"""
    bytes_read: units.LargeSize | None = None
    """Maximum bytes that the runs of a submission read. Example: 50 TB"""
    bytes_written: units.LargeSize | None = None
    """Maximum bytes that the runs of a submission write. Example: 20 TB"""
    space: units.LargeSize | None = None
    """Maximum storage space that a submission requires for new datasets and checkpoints. Example: 20 TB"""


class Queue(Struct, frozen=True, forbid_unknown_fields=True):
    """A queue, partition or QOS."""

    nodes: Positive | None = None
    """Maximum number of nodes of a job. Example: 128"""
    walltime: dict[int, units.Walltime] = {}
    """Maximum walltime by number of nodes. The walltime of a key applies to jobs with at least that number of nodes,
    and fewer nodes than the next key. The smallest key is the minimum number of nodes of a job. Example: {1: 1:00:00,
    128: 3:00:00}
    """
    min_walltime: units.Walltime | None = None
    """Minimum walltime of a job. Example: 0:05:00"""
    jobs: Positive | None = None
    """Maximum number of jobs of a user in the queue. Example: 1"""
    options: tuple[str, ...] = ()
    """Options of the batch system that select the queue, if the name of the queue is not sufficient. Example:
    [--qos=debug]
    """

    def __post_init__(self) -> None:
        if any(nodes < 1 for nodes in self.walltime):
            raise ValueError("walltime needs entries such as {1: 1:00:00, 128: 3:00:00}, by minimum number of nodes")
        check_options("options", self.options)

    def longest(self, nodes: int) -> units.Walltime | None:
        """Return the maximum walltime of a job on `nodes` nodes, or None if the profile sets no limit."""
        fitting = [limit for fewest, limit in sorted(self.walltime.items()) if fewest <= nodes]
        return fitting[-1] if fitting else None

    @property
    def fewest_nodes(self) -> int:
        return min(self.walltime, default=1)


class Rates(Struct, frozen=True, forbid_unknown_fields=True):
    """Expected rates of a node. They are used for cost estimates and to divide studies into jobs."""

    read: units.LargeSize = units.LargeSize(10**9)
    """Bytes per second that a node reads."""
    write: units.LargeSize = units.LargeSize(5 * 10**8)
    """Bytes per second that a node writes."""
    launch: units.Seconds = units.Seconds(10)
    """Time to launch the ranks."""

    def __post_init__(self) -> None:
        if self.read < 1 or self.write < 1:
            raise ValueError("read and write must be at least 1 byte per second, such as 1 GB")


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """Profile of a machine."""

    name: str
    """Name of the machine. Example: mycluster"""
    scheduler: SchedulerName
    """Batch system; local: no batch system, jobs run on this computer."""
    launcher: Launcher
    """The command that starts the ranks."""
    ranks_per_node: Positive
    """Number of ranks per node if --ppn is not given. Example: 4"""
    walltime: units.Walltime
    """Walltime of a job if --time is not given. Example: 1:00:00"""
    description: str = ""
    """Short description, shown in lists."""
    hosts: tuple[str, ...] = ()
    """Patterns of host names. On hosts with a matching name, this profile is the default of --site. Example:
    ["login*"]
    """
    cpus: Positive | None = None
    """Number of CPUs of a node that ranks may use. CPUs are hardware threads or cores, whichever the batch system
    counts. Example: 128
    """
    hyperthreads: Positive | None = None
    """Number of hardware threads of a core. Example: 2"""
    depth: Positive | None = None
    """Number of CPUs of each rank, counted like `cpus`; null: `cpus` divided by the ranks per node. Example: 16"""
    warning_time: units.Seconds = units.Seconds(60)
    """Time between the signal that asks a job to end and the end of its walltime."""
    account: str | None = None
    """Account to charge if --account is not given. Example: proj"""
    account_required: bool = False
    """Reject submissions without an account."""
    queue: str | None = None
    """Queue if --queue is not given. Example: debug"""
    queues: dict[str, Queue] = {}
    """Limits of queues, by name of the queue. Example: {debug: {nodes: 2}}"""
    limits: Limits = Limits()
    """Limits of jobs and of submissions."""
    job_options: tuple[str, ...] = ()
    """Options for the batch system, passed unchanged. Example: [--constraint=cpu]"""
    pbs_select: dict[str, str | int] = {}
    """Additional resources in the select statement of PBS. Example: {system: polaris}"""
    data: str | None = None
    """Directory of datasets if --data is not given. Example: /scratch/$USER/dlio"""
    file_system: Annotated[str, Meta(min_length=1)] | None = None
    """Kind of file system that datasets must be on; null: any. A job does not run if its data are on another kind of
    file system, for example because a mount is missing. Example: lustre
    """
    python: str | None = None
    """Python interpreter of the ranks; null: the interpreter that submits the job. Example:
    /shared/dlio-hpc/bin/python3
    """
    stage_environment: str | None = None
    """Directory on a disk or in the memory of each node. The job unpacks the Python environment of the ranks there
    before its runs, and removes it at the end; null: ranks import from the location of `python`. Example: /dev/shm
    """
    container: Container | None = None
    """Container image in which ranks start; null: ranks start on the node itself. Example: {engine: apptainer, image:
    /shared/dlio-hpc.sif}
    """
    setup: tuple[str, ...] = ()
    """Lines of the job script that precede the runs. Example: [module load cray-mpich]"""
    environment: dict[str, str] = {}
    """Environment variables of the job script. Example: {OMP_NUM_THREADS: "1"}"""
    rank_environment: dict[str, str] = {}
    """Environment variables of the ranks only. Example: {MPICH_GPU_SUPPORT_ENABLED: "0"}"""
    preload: tuple[str, ...] = ()
    """Libraries that the ranks preload (LD_PRELOAD). Example: [/opt/lib/libx.so]"""
    darshan: Annotated[str, Meta(min_length=1)] | None = None
    """Path of libdarshan.so, built for the ranks' MPI; null: no Darshan. Example: /opt/darshan/lib/libdarshan.so"""
    layout: Layout | None = None
    """Lustre layout of datasets; null: the file system's default. Example: {stripe_count: 8, stripe_size: 1 MiB}"""
    probe: units.Seconds | None = None
    """Duration of the probe before each measured run: the ranks read the dataset in a plain loop for this time, once
    sequentially and once at random. The rate of the run is compared with the rates of the probe. null: no probe.
    Example: 2 s
    """
    expected_rates: Rates = Rates()
    """Expected rates of a node. They are used for cost estimates and to divide studies into jobs."""

    def __post_init__(self) -> None:
        self._check_environment()
        self._check_libraries()
        if self.probe is not None and not 0 < self.probe <= _LONGEST_PROBE_S:
            raise ValueError(f"probe must be longer than 0 and at most {_LONGEST_PROBE_S} s, or null for no probe")
        if self.stage_environment is not None and not self.stage_environment.startswith("/"):
            raise ValueError("stage_environment must be an absolute path on the nodes, such as /dev/shm")
        if self.stage_environment is not None and self.container is not None:
            raise ValueError(
                "stage_environment copies the Python environment outside of the container, but the ranks import from "
                "the image: set stage_environment or container to null"
            )
        if self.launcher.remote == "pbs_tmrsh" and self.scheduler != "pbs":
            raise ValueError(
                f"launcher.remote=pbs_tmrsh is a command of PBS and needs scheduler=pbs, not {self.scheduler}"
            )
        if self.pbs_select and self.scheduler != "pbs":
            raise ValueError(f"pbs_select is for PBS's select statement and needs scheduler=pbs, not {self.scheduler}")
        check_options("job_options", self.job_options)

    def _check_environment(self) -> None:
        for variable in (*self.environment, *self.rank_environment):
            if not (variable.isascii() and variable.isidentifier()):
                raise ValueError(f"environment: {variable!r} is not a valid name of an environment variable")
        if "LD_PRELOAD" in self.environment or "LD_PRELOAD" in self.rank_environment:
            raise ValueError("LD_PRELOAD: use preload instead, which affects only the ranks")
        if "DARSHAN_ENABLE_NONMPI" in {*self.environment, *self.rank_environment}:
            raise ValueError(
                "if DARSHAN_ENABLE_NONMPI is set, Darshan writes a log for each process instead of one log for the "
                "run; remove the variable"
            )

    def _check_libraries(self) -> None:
        if any(re.search(r"[\s:,]", library) for library in (*self.preload, self.darshan or "")):
            raise ValueError("preload, darshan: the path of a library must not contain blanks, colons or commas")
        if any("libdarshan" in library for library in self.preload):
            raise ValueError(
                "preload must not contain libdarshan.so; give its path in the key darshan, so that its logs are "
                "configured, checked and read"
            )


class _Hosts(Struct):
    hosts: tuple[str, ...]


def check_options(key: str, options: tuple[str, ...]) -> None:
    """Raise ValueError for an option that spans several lines or does not begin with "-". key: name of the key or
    command-line option that holds the options, for the message.
    """
    for option in options:
        if key == "--job-option" and re.fullmatch(r"\w[\w.-]*", option):
            raise ValueError(
                f"-J {option}: -J is --job-option here, for an option of the batch system, such as --constraint=cpu; "
                f"dlio-hpc names jobs itself; to keep jobs apart, give them their own folder: --runs {option}"
            )
        if not option.startswith("-") or not option.isprintable():
            raise ValueError(
                f"{key}: {option!r} must begin with - and be a single line, such as --constraint=cpu or "
                "-l place=scatter"
            )


def load(name: str, overrides: tuple[str, ...] = ()) -> Site:
    """Read a site profile by its name or path and apply overrides in the form `key=value`. Values are read as YAML."""
    path = shipped.find(shipped.SITES, name)
    data: Any = serialization.read_yaml(path)
    shipped.check_kind(shipped.SITES, path, data)
    for override in overrides:
        serialization.override(data, override)
    profile = serialization.convert_changed(data, Site, str(path), overrides, "site.")
    launcher = profile.launcher
    if fault := launcher_rules.fault(profile.scheduler, launcher.kind, launcher.command):
        raise ConfigError(f"{serialization.place_of(str(path), ('launcher',), overrides, 'site.')}: {fault}")
    if fault := lustre_layout.unfinished(profile.layout):
        raise ConfigError(f"{serialization.place_of(str(path), ('layout',), overrides, 'site.')}: {fault}")
    kind = profile.file_system or ""
    if kind != kind.lower() and not kind.startswith("fuse."):
        place = serialization.place_of(str(path), ("file_system",), overrides, "site.")
        raise ConfigError(f"{place}: file_system: write the kind as the kernel does: {kind.lower()}")
    return profile


def check_data(site: Site, name: str, overrides: tuple[str, ...] = ()) -> None:
    """Raise ConfigError if the site profile puts datasets into a folder with a variable that is not set in its name.
    name, overrides: as in load().
    """
    if lacking := re.findall(r"\$\{?\w+\}?", os.path.expandvars(site.data or "")):
        place = serialization.place_of(str(shipped.find(shipped.SITES, name)), ("data",), overrides, "site.")
        unset = f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not set in this environment"
        raise ConfigError(f"{place}: data is {site.data}, but {unset}; set it, or use --data")


def here() -> str:
    """Return the name of the site profile whose host patterns match this host, or "local" if no profile matches.
    Profiles of the user and the facility are tried before shipped profiles.
    """
    host = os.uname().nodename
    for name, path in shipped.files(shipped.SITES).items():
        text = serialization.read_text(path)
        line = re.search(r"^hosts:.*\S", text, re.MULTILINE)  # parsing whole profiles is slow
        patterns = (
            serialization.convert(serialization.parse_yaml(line[0], str(path)), _Hosts, str(path)).hosts if line else ()
        )
        if any(fnmatch.fnmatch(host, pattern) for pattern in patterns):
            return name
    return "local"


def depth(site: Site, ranks_per_node: int) -> int | None:
    """Return the number of CPUs per rank, or None if the site sets neither depth nor cpus."""
    if site.depth is not None:
        return site.depth
    return None if site.cpus is None else max(site.cpus // ranks_per_node, 1)


def resolved(site: Site) -> Site:
    """Return the site profile with the path of the interpreter filled in. If jobs run on this computer, the path of the
    launcher is filled in, too.
    """
    python = site.python or sys.executable
    if site.scheduler != "local":
        return structs.replace(site, python=python)  # the job finds its launcher with the PATH of its own setup lines
    command = _locate(site.launcher.command, python)
    return structs.replace(site, python=python, launcher=structs.replace(site.launcher, command=command))


def _locate(name: str, python: str) -> str:
    """Return the path of a command. A name without a folder is looked up in three places: next to the interpreter (such
    as a virtual environment's mpiexec), next to this package (pip install --target), and on PATH. If the command is not
    found, return its name.
    """
    if "/" in name:
        return name
    for folder in (Path(python).parent, Path(__file__).resolve().parents[2] / "bin"):
        if (folder / name).is_file():
            return str(folder / name)
    return shutil.which(name) or name
