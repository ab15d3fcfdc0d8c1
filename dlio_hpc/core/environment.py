"""environment.json: the software and the nodes of a job, recorded on the nodes."""

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from dlio_hpc import __version__
from dlio_hpc.base import serialization
from dlio_hpc.base.redaction import SECRETS
from dlio_hpc.config.scheduler_facts import SchedulerName
from dlio_hpc.config.site import SURROUNDING
from dlio_hpc.core import procfs
from dlio_hpc.core.merge import Host
from dlio_hpc.files import filesystem, rundir

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Prefixes of environment variables that are recorded, because they affect the ranks. Other variables are not recorded,
# because they may hold secrets.
_VARIABLES = (
    "DARSHAN_", "DLIO_HPC_", "FI_", "HYDRA_", "LD_LIBRARY_PATH", "LD_PRELOAD", "MPICH_", "MPIR_", "OMPI_", "OMP_",
    "OPENBLAS_", "PALS_", "PMI", "PYTHONPATH", "ROMIO_", "UCX_",
    *(f"{scheduler.upper()}_" for scheduler in get_args(SchedulerName)),
)  # fmt: skip


def host() -> Host:
    """Return the name and the boot id of this rank's node."""
    name = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    return Host(name, procfs.text("/proc/sys/kernel/random/boot_id") or name)


def versions() -> dict[str, str]:
    """Return the versions of the software that affects the results."""
    import h5py
    import mpi4py
    import numpy as np
    from mpi4py import MPI

    used = [module for module in ("tensorflow", "keras", "torch", "pandas", "zarr") if module in sys.modules]
    return {module: str(sys.modules[module].__version__) for module in used} | {
        "dlio_hpc": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
        "mpi4py": mpi4py.__version__,
        "mpi": MPI.Get_library_version().strip("\0 \n").splitlines()[0],
    }


class NodeMemory(NamedTuple):
    """Memory of all nodes together, in bytes. limit: memory that the job may use. physical: memory that the nodes have.
    Other jobs and services may use it, too, and may have filled its page cache.
    """

    limit: int
    physical: int


def write(comm: "Intracomm", directory: Path) -> None:
    """Collect facts about all nodes, and write environment.json on rank 0."""
    nodes = {node["host"]: node for node in comm.gather(_node()) or []}
    if comm.rank == 0:
        variables = _variables()
        content = {
            "versions": versions(),
            "executable": sys.executable,
            "results_on": filesystem.of(directory).text,
            "nodes": list(nodes.values()),
            "variables": variables,
        }
        rundir.write(directory / rundir.ENVIRONMENT, serialization.encode(content))


def memory(comm: "Intracomm") -> NodeMemory | None:
    """Return the memory of the nodes on rank 0, and None on other ranks."""
    nodes = dict(comm.gather((host().name, (procfs.memory(), procfs.physical_memory()))) or [])
    return NodeMemory(*map(sum, zip(*nodes.values(), strict=True))) if nodes else None


def _variables() -> dict[str, str]:
    """Return the environment variables to record, by name: the variables of the ranks, and the variables of an
    enclosing job, which the ranks do not see.
    """
    hidden = {
        name.removeprefix(SURROUNDING): value for name, value in os.environ.items() if name.startswith(SURROUNDING)
    }
    shown = {name: value for name, value in os.environ.items() if not name.startswith(SURROUNDING)}
    return {name: value for name, value in sorted((hidden | shown).items()) if _is_wanted(name)}


def _is_wanted(variable: str) -> bool:
    return variable.startswith(_VARIABLES) and not any(word in variable for word in SECRETS)


def _node() -> dict[str, Any]:
    model = [
        line.partition(":")[2].strip() for line in procfs.text("/proc/cpuinfo").splitlines() if "model name" in line
    ]
    return {
        "host": host().name,
        "kernel": platform.release(),
        "cpu": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": procfs.memory(),
        "physical_bytes": procfs.physical_memory(),
    }
