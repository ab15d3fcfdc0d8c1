"""Detection of the batch system, the launcher and the file systems of this machine on a login node, for a new site
profile.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import jinja2

from dlio_hpc import __version__
from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch.launchers import LAUNCHERS
from dlio_hpc.batch.schedulers.detection import DetectedLauncher, DetectedSystem, try_ask
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.config import shipped
from dlio_hpc.files import filesystem

_SHARED = {"lustre", "gpfs", "beegfs", "ceph", "nfs", "nfs4", "wekafs", "panfs", "fuse.daos"}


def profile(name: str) -> str:
    """Return the text of a commented site profile for this machine. Raise ConfigError if `name` is not a valid site
    name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ConfigError(f"{name!r} is not a valid site name; use letters, digits, ., - and _")
    (scheduler, system), library = batch(), mpi_library()
    launch = launcher(scheduler, system, library)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped.root() / "templates"), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["yaml"] = json.dumps
    return environment.get_template("site.yaml.j2").render(
        name=name,
        version=__version__,
        host=os.uname().nodename,
        date=units.utc_now()[:10],
        description=f"{system.version}, {launch.kind}",
        facts=[
            f"Batch system: {system.version}.",
            f"Launcher: {launch.why}.",
            f"MPI of {sys.executable}: {library}.",
            *_clusters(system),
        ],
        scheduler=scheduler,
        batch_system=system.version,
        queues_from=system.queues_from,
        cpus_from=system.cpus_from,
        why=launch.why,
        launcher=launch.kind,
        launchers=" | ".join(LAUNCHERS),
        command=launch.command,
        mpi=launch.mpi,
        mpis=launch.mpis,
        remote=system.remote,
        cpus=system.cpus,
        queue=system.queue,
        queues=system.queues,
        most_nodes=1 if scheduler == "local" else None,
        job_options=system.job_options,
        places=places(),
        darshan=darshan(),
    )


def _clusters(system: DetectedSystem) -> list[str]:
    """Return a line about the clusters, if there are several."""
    if len(system.clusters) < 2:
        return []
    option = "--clusters=NAME"
    return [f"Clusters: {', '.join(system.clusters)}. To submit to another one, add {option} to job_options."]


def batch() -> tuple[str, DetectedSystem]:
    """Return the name of this machine's batch system, and its detected properties. The name is "local" if this machine
    has no batch system.
    """
    # The last one, local, is always detected.
    return next((name, system) for name, scheduler in SCHEDULERS.items() if (system := scheduler.detect()) is not None)


def mpi_library() -> str:
    """Return the first line of the version text of the MPI library that this Python interpreter loads, or "mpi4py does
    not load".
    """
    program = "from mpi4py import MPI; print(MPI.Get_library_version())"
    answer = try_ask(sys.executable, "-c", program)
    if answer is None or answer.code or not answer.out:
        return "mpi4py does not load"
    return " ".join(answer.lines[0].strip("\0").split())


def launcher(scheduler: str, system: DetectedSystem, library: str) -> DetectedLauncher:
    """Return the batch system's own launcher. If the batch system has no launcher, return mpiexec: the one next to the
    Python interpreter or, failing that, the one on PATH. The output of mpiexec --version tells which MPI implementation
    it belongs to.
    """
    if system.launcher is not None:
        return system.launcher(library)
    single = scheduler == "local"
    for name in (Path(sys.executable).with_name("mpiexec"), Path("mpiexec")):
        answer = try_ask(str(name), "--version")
        if answer is not None and (kind := _mpiexec(answer.out + answer.err)):
            command = name.name if single else str(name)  # a batch job may have a different PATH
            return DetectedLauncher("mpiexec" if single else kind, command, f"{name} is {kind}'s")
    return DetectedLauncher("mpiexec" if single else "hydra", "mpiexec", "no mpiexec was found")


def _mpiexec(version: str) -> str | None:
    for mark, kind in (("HYDRA", "hydra"), ("Intel(R) MPI", "hydra"), ("Open MPI", "openmpi"), ("OpenRTE", "openmpi"),
                        ("PALS", "pals"), ("pals", "pals")):  # fmt: skip
        if mark in version:
            return kind
    return None


def places() -> list[str]:
    """Return a line for each shared file system that is mounted on this node: its mount point, type and source."""
    return [f"{mount}: {kind} from {source}" for mount, kind, source, _, _ in filesystem.mounts() if kind in _SHARED]


def darshan() -> str | None:
    """Return the path of libdarshan.so, or None if it is not found. The search covers the folders in environment
    variables such as DARSHAN_DIR, which environment modules set, and the installation that darshan-config belongs to.
    """
    folders = [Path(os.environ[name]) for name in os.environ if re.fullmatch(r"\w*DARSHAN\w*(DIR|ROOT|PREFIX)", name)]
    if tool := shutil.which("darshan-config"):
        folders.append(Path(tool).resolve().parents[1])
    for folder in folders:
        if (library := folder / "lib" / "libdarshan.so").is_file():
            return str(library)
    return None
