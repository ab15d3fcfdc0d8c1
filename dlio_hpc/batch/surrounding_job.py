"""Environment variables of a job around the shell that submits or runs a local job.

Launchers and MPI libraries use such variables to detect in which job, and under which process manager, they start. The
shell may be inside srun, in an interactive job, or may have inherited the variables. The mpiexec of a local job then
starts its ranks through srun, reads a node list that does not exist, or its ranks contact another server. A local job
uses only this node. The script of a local job therefore removes these variables. It does so before the lines of
site.setup, which may set them again.
"""

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from dlio_hpc.base.safe_text import printable
from dlio_hpc.batch.shell_quoting import Shell


class Surrounding(NamedTuple):
    """A batch system or process manager. name: its name in messages. marks: variables that exist in its jobs; the first
    one is named in messages. removed: patterns of variables that a local job must not inherit, in addition to `marks`.
    """

    name: str
    marks: tuple[str, ...]
    removed: tuple[str, ...] = ()


# What reads them: hydra, the mpiexec of MPICH 3 to 5 and of Intel MPI (tools/bootstrap/external, mpiexec/), the MPI
# library of MPICH (src/pmi), and Open MPI 4 and 5 with PRRTE (ras, plm, schizo and ess components). Settings of users
# are kept: OMPI_MCA_*, PRTE_MCA_* and PMIX_MCA_* with other names than those that an mpiexec gives its ranks.
_SURROUNDINGS = (
    # The allocation: hydra and Open MPI start their ranks through srun.
    Surrounding(
        "Slurm", ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST"), ("SLURM_*", "SLURMD_*")
    ),
    # The list of nodes: hydra and Open MPI read the file.
    Surrounding("PBS", ("PBS_JOBID", "PBS_NODEFILE", "PBS_ENVIRONMENT")),
    Surrounding("Cobalt", ("COBALT_JOBID", "COBALT_NODEFILE"), ("COBALT_*",)),
    Surrounding("LSF", ("LSB_JOBID", "LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE"), ("LSB_*",)),
    Surrounding("Grid Engine", ("PE_HOSTFILE",)),
    Surrounding("LoadLeveler", ("LOADL_HOSTFILE",)),
    Surrounding("ALPS", ("ALPS_APP_PE", "ALPS_APP_ID", "BASIL_RESERVATION_ID"), ("ALPS_*",)),
    # The instance: MPI libraries of Flux systems ask its broker for the job's ranks.
    Surrounding("Flux", ("FLUX_JOB_ID", "FLUX_URI", "FLUX_ENCLOSING_ID"), ("FLUX_*",)),
    # The rank of a surrounding job: a library that finds it takes part in that job, or refuses two process managers.
    Surrounding("PALS", ("PALS_APID", "PALS_NODEID", "PALS_RANKID"), ("PALS_*",)),
    Surrounding("PMIx", ("PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI*"), ("PMIX_*",)),
    Surrounding("PMI", ("PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "MPIR_CVAR_PMI_VERSION"), ("PMI_*", "PMI2_*")),
    Surrounding(
        "Open MPI",
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_UNIVERSE_SIZE"),
        (
            "OMPI_COMM_WORLD_*", "OMPI_WORLD_*", "OMPI_NUM_APP_CTX", "OMPI_APP_CTX_NUM_PROCS", "OMPI_FIRST_RANKS",
            "OMPI_FILE_LOCATION", "OMPI_COMMAND", "OMPI_ARGV", "OMPI_MCA_orte_*", "OMPI_MCA_ess", "OMPI_MCA_ess_*",
            "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs", "OMPI_MCA_cpu_type", "PRTE_LAUNCHED",
            "PRTE_MCA_ess", "PRTE_MCA_ess_*", "PRTE_MCA_prte_*",
        ),
    ),
    # The launcher, list of nodes or limits that were chosen for another mpiexec.
    Surrounding(
        "hydra",
        ("HYDI_CONTROL_FD", "HYDRA_HOST_FILE", "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "HYDRA_RMK"),
        (
            "HYDI_*", "HYDRA_LAUNCHER_*", "HYDRA_BOOTSTRAP_*", "I_MPI_HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP_*",
            "I_MPI_HYDRA_HOST_FILE", "I_MPI_HYDRA_RMK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPIEXEC_*",
        ),
    ),
)  # fmt: skip
# Where libraries are installed, and settings of users.
_KEPT = ("PMIX_MCA_*", "PMIX_PREFIX", "PMIX_INSTALL_PREFIX")


class Removed(NamedTuple):
    """Variables that the script of a local job removes. pattern: alternatives for a `case` of the shell. name: name of
    the batch system or process manager.
    """

    pattern: Shell
    name: Shell


def removed() -> list[Removed]:
    """Return the variables that the script of a local job removes, with one row per batch system or process manager."""
    return [Removed(Shell("|".join(_patterns(one))), Shell(one.name)) for one in _SURROUNDINGS]


def _patterns(one: Surrounding) -> list[str]:
    wide = [pattern for pattern in one.removed if "*" in pattern]
    marks = [mark for mark in one.marks if not any(fnmatchcase(mark, pattern) for pattern in wide)]
    return [*marks, *one.removed]


def kept() -> Shell:
    """Return the exceptions from removed(): variables that the script keeps, as a pattern for a `case` of the shell."""
    return Shell("|".join(_KEPT))


def note(variables: Mapping[str, str] = os.environ) -> str | None:
    """Return a note for the user on the jobs around this shell that `variables` indicate, or None if there are none."""
    seen_by_name = {one.name: mark for one in _SURROUNDINGS if (mark := _first(one.marks, variables)) is not None}
    if not seen_by_name:
        return None
    listed = [f"{name} ({mark}={_shown(variables[mark])})" for name, mark in seen_by_name.items()]
    systems = f"{', '.join(listed[:-1])} and {listed[-1]}" if len(listed) > 1 else listed[0]
    shown = f"this shell has variables of {systems}, as inside a job"
    return f"{shown}; the local job runs on this node alone and ignores them"


def _first(marks: tuple[str, ...], variables: Mapping[str, str]) -> str | None:
    for mark in marks:
        for name in sorted(variables):
            if fnmatchcase(name, mark):
                return name
    return None


def _shown(value: str) -> str:
    """Return the value of a variable for a message of one line."""
    return printable(" ".join(value.split()))[:60]
