"""Batch systems. Each is described by a Scheduler, which is a small set of functions."""

from dlio_hpc.batch.schedulers.cobalt import COBALT
from dlio_hpc.batch.schedulers.flux import FLUX
from dlio_hpc.batch.schedulers.local import LOCAL
from dlio_hpc.batch.schedulers.pbs import PBS
from dlio_hpc.batch.schedulers.scheduler import ENDED, After, JobRef, JobStatus, Scheduler, State
from dlio_hpc.batch.schedulers.slurm import SLURM

# In the order of detection. Flux is first, because it also runs within allocations of the others, and its machines may
# have wrappers with the names of Slurm's commands.
SCHEDULERS: dict[str, Scheduler] = {"flux": FLUX, "slurm": SLURM, "pbs": PBS, "cobalt": COBALT, "local": LOCAL}

__all__ = ["ENDED", "SCHEDULERS", "After", "JobRef", "JobStatus", "Scheduler", "State"]
