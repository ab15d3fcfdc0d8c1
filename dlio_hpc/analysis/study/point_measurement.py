"""One measurement of a point of a study."""

from typing import NamedTuple

from dlio_hpc.analysis.page_cache_check import Outcome
from dlio_hpc.results.run_result import Disturbance, Summary
from dlio_hpc.units import seconds_between


class Measured(NamedTuple):
    """Measurement of a point. point: its number. repeat: number of its earlier measurements, which is its round. job,
    run: names of job and run. started, ended: UTC, in the format of results. cached, origin: share of bytes from memory
    and outcome, as in Storage. disturbance: other activity during the run; None if not recorded.
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
        """Seconds from its first barrier to its result."""
        return seconds_between(self.started, self.ended)
