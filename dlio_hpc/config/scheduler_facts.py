"""Facts about each batch system, one row per batch system. Checks of plans and reports are derived from them."""

from typing import Literal, NamedTuple

SchedulerName = Literal["local", "slurm", "pbs", "cobalt", "flux"]


class SchedulerFacts(NamedTuple):
    """Facts about a batch system. title: name in a sentence. version: command line that prints its version; empty if
    there is none. has_begin_time: whether a job can be submitted with an earliest start time. knows_success: whether a
    job can depend on the success of a second job that itself depends on other jobs.
    """

    title: str
    version: tuple[str, ...]
    has_begin_time: bool = False
    knows_success: bool = False


SCHEDULERS: dict[SchedulerName, SchedulerFacts] = {
    "local": SchedulerFacts("no batch system", (), has_begin_time=True, knows_success=True),
    "slurm": SchedulerFacts("Slurm", ("sbatch", "--version"), has_begin_time=True, knows_success=True),
    "pbs": SchedulerFacts("PBS", ("qsub", "--version"), has_begin_time=True, knows_success=True),
    # The options of its qsub (1.0.33) have no begin time.
    "cobalt": SchedulerFacts("Cobalt", ("qsub", "--version")),
    "flux": SchedulerFacts("Flux", ("flux", "--version"), has_begin_time=True, knows_success=True),
}
