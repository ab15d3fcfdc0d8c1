"""Batch systems. Each is described by a Scheduler, which is a small set of functions."""

from dlio_hpc.batch.schedulers.cobalt import COBALT
from dlio_hpc.batch.schedulers.flux import FLUX
from dlio_hpc.batch.schedulers.local import LOCAL
from dlio_hpc.batch.schedulers.pbs import PBS
from dlio_hpc.batch.schedulers.scheduler import ENDED, After, JobRef, JobStatus, Scheduler, State
from dlio_hpc.batch.schedulers.slurm import SLURM

SCHEDULERS: dict[str, Scheduler] = {"local": LOCAL, "slurm": SLURM, "pbs": PBS, "cobalt": COBALT, "flux": FLUX}

__all__ = ["ENDED", "SCHEDULERS", "After", "JobRef", "JobStatus", "Scheduler", "State"]
