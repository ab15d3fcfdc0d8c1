"""File verdict.json: faults of a run's Darshan log, and differences of the log from the run's own counts and from the
plan.
"""

from msgspec import Struct

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import InvalidRun


class Reason(Struct, frozen=True):
    """Fault of a log: name and description."""

    name: str
    text: str


class Bytes(Struct, frozen=True):
    """Bytes that all ranks read from the dataset's files. If the run generates the dataset, bytes that all ranks wrote
    to these files. darshan: bytes that Darshan recorded. core: bytes that the ranks counted themselves. planned: bytes
    according to the plan; None if the plan does not determine them.
    """

    darshan: int
    core: int
    planned: int | None


class LogVerdict(Struct, frozen=True):
    """Verdict on the log of a run. log: name of the log in the run's Darshan folder; None if there is no log. why_not:
    reason why there is no log; None if there is a log. library: version of libdarshan. bytes: None if nothing was
    compared, for example because the counters cannot be trusted. differences: one message for each difference between
    the bytes that Darshan recorded and the bytes that the ranks counted or that were planned; each difference makes the
    run invalid. clock_error_s: largest error in seconds of the log's timestamps after conversion to the clock of
    timeline.h5; None if the clocks could not be aligned. workers: number of logs of worker processes that belong to
    the log.
    """

    log: str | None
    why_not: str | None = None
    library: str = ""
    faults: tuple[Reason, ...] = ()
    bytes: Bytes | None = None
    differences: tuple[str, ...] = ()
    clock_error_s: float | None = None
    workers: int = 0
    schema: int = 1


class Probe(Struct, frozen=True):
    """File probe.json: result of a trial start of ranks under libdarshan before the runs of a job. library: path of
    libdarshan. version: version of libdarshan; "" if it is unknown. why_not: reason why libdarshan is not used; None if
    it works. seconds: duration of the trial.
    """

    library: str
    version: str
    why_not: str | None
    seconds: float


def decode(content: bytes, source: str) -> LogVerdict:
    return serialization.decode(content, LogVerdict, source, InvalidRun)


def decode_probe(content: bytes, source: str) -> Probe:
    return serialization.decode(content, Probe, source, InvalidRun)
