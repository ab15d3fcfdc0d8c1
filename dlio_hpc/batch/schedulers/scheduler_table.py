"""The table of batch systems."""

from dlio_hpc.batch.schedulers.cobalt import COBALT
from dlio_hpc.batch.schedulers.flux import FLUX
from dlio_hpc.batch.schedulers.local import LOCAL
from dlio_hpc.batch.schedulers.pbs import PBS
from dlio_hpc.batch.schedulers.scheduler import Scheduler
from dlio_hpc.batch.schedulers.slurm import SLURM

# Batch systems in the order of detection. Flux comes first for two reasons: it also runs within allocations of the
# other batch systems, and machines with Flux may have wrappers with the names of Slurm's commands.
SCHEDULERS: dict[str, Scheduler] = {"flux": FLUX, "slurm": SLURM, "pbs": PBS, "cobalt": COBALT, "local": LOCAL}
