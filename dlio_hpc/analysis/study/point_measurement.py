"""A single measurement of a point of a study."""

from typing import NamedTuple

from dlio_hpc.analysis.storage_check import Outcome
from dlio_hpc.base.units import seconds_between
from dlio_hpc.results.run_result import Disturbance, Summary


class Measured(NamedTuple):
    """A measurement of a point. point: number of the point. repeat: number of the round in which the measurement was
    made, from 0. job, run: names of the job and the run. started, ended: times in UTC. summary: summary of the run.
    cached: share of the bytes that came from memory; None if it is unknown. origin: whether storage or the cache was
    measured (Storage.outcome). disturbance: other activity on the nodes during the run; None if it was not recorded.
    """

    point: int
    repeat: int
    job: str
    run: str
    started: str
    ended: str
    summary: Summary
    cached: float | None = None
    origin: Outcome = "unknown"
    disturbance: Disturbance | None = None

    @property
    def seconds(self) -> float:
        """Seconds from the start of the run to its result."""
        return seconds_between(self.started, self.ended)
