"""Check that the packages of a job's runs can be imported on every node, before data are generated. One rank per node
tries to import them.
"""

import importlib
import os
from typing import TYPE_CHECKING

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import counted
from dlio_hpc.core import clock, environment
from dlio_hpc.plan.packages import PACKAGES, advice

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def require(comm: "Intracomm", names: tuple[str, ...], nodes: int) -> None:
    """Import the packages on each node, and print on rank 0 that they can be used. Raise ConfigError on rank 0 if an
    import fails on any node. nodes: number of nodes of the job.
    """
    host = environment.host().name
    is_first = comm.allgather(host).index(host) == comm.rank
    mine = [(name, host, _fault(name)) for name in names] if is_first else []
    clock.assemble(comm)
    gathered = comm.gather(mine)
    if gathered is None:
        return
    checks = [check for rank_checks in gathered for check in rank_checks]
    for name in names:
        bad = {host: fault for package, host, fault in checks if package == name and fault is not None}
        if bad:
            worst, fault = next(iter(bad.items()))
            where = worst if len(bad) == 1 else f"{len(bad)} nodes, such as {worst}"
            raise ConfigError(f"{name} cannot be used on {where}: {fault}; {advice(name)}")
    hosts = {node for _, node, _ in checks}
    print(f"{', '.join(names)} can be used on {len(hosts)} of {counted(nodes, 'node')}", flush=True)


def _fault(name: str) -> str | None:
    """Return the reason why the package cannot be used on this node, or None if it can be used."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        module = importlib.import_module(PACKAGES[name].module)
    except ModuleNotFoundError as fault:
        return f"package {fault.name} is not installed"
    except Exception as fault:  # noqa: BLE001 - any error makes the package unusable
        return f"{type(fault).__name__}: {fault}"
    if name == "parallel h5py" and not module.get_config().mpi:
        return f"h5py {module.__version__} was built without MPI"
    return None
