"""verdict.json: faults of a run's Darshan log, and its differences from the core and the plan."""

from msgspec import Struct

from dlio_hpc import document
from dlio_hpc.errors import InvalidRun


class Reason(Struct, frozen=True):
    """Fault of the log: its name and a description."""

    name: str
    text: str


class Bytes(Struct, frozen=True):
    """Bytes that all ranks read from the dataset's files, or wrote to them in a run that generates the dataset."""

    darshan: int
    core: int
    planned: int | None


class LogVerdict(Struct, frozen=True):
    """Verdict on the log of a run. log: file name in the run's Darshan folder; None if there is no log, and why_not is
    the reason. bytes: None if nothing is compared, for example because the counters cannot be trusted. differences:
    each makes the run invalid. clock_error_s: largest error of timestamps of the log on the core's clock; None if the
    clocks could not be aligned.
    """

    log: str | None
    why_not: str | None = None
    library: str = ""
    faults: tuple[Reason, ...] = ()
    bytes: Bytes | None = None
    differences: tuple[str, ...] = ()
    clock_error_s: float | None = None
    schema: int = 1


class Probe(Struct, frozen=True):
    """probe.json: result of starting two ranks under libdarshan before the job's runs. why_not: None if it works."""

    library: str
    version: str
    why_not: str | None
    seconds: float


def decode(content: bytes, source: str) -> LogVerdict:
    return document.decode(content, LogVerdict, source, InvalidRun)


def decode_probe(content: bytes, source: str) -> Probe:
    return document.decode(content, Probe, source, InvalidRun)
