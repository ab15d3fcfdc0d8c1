"""One measurement of a point of a study."""

from typing import NamedTuple

from dlio_hpc.analysis.page_cache_check import Outcome
from dlio_hpc.results import Disturbance, Summary
from dlio_hpc.units import seconds_between


class Measured(NamedTuple):
    """point: its number. repeat: how often it was measured before, which is the round that it belongs to. job, run:
    where it was made, and when (UTC, as results have it). cached, origin: share of bytes from memory, and where bytes
    came from, as in Storage. disturbance: other activity during the run.
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
        """From its first barrier to its result."""
        return seconds_between(self.started, self.ended)
