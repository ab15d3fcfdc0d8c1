"""verdict.json: what a run's Darshan log is worth, and whether it says the same as the core and the plan."""

from msgspec import Struct

from dlio_hpc import document
from dlio_hpc.errors import InvalidRun


class Reason(Struct, frozen=True):
    """A fault of the log, by its name."""

    name: str
    text: str


class Bytes(Struct, frozen=True):
    """Read from the dataset's files, or, of a run that generates, written to them, by all ranks."""

    darshan: int
    core: int
    planned: int | None


class Verdict(Struct, frozen=True):
    """`log`: its file in the run's Darshan folder; None: there is none, and why_not says why. `bytes` None: nothing to
    compare, since the log does not hold. `differences`: each makes the run invalid. `clock_error_s`: how far instants
    of the log may be off the core's, None where they could not be brought together.
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
    """probe.json: two ranks under libdarshan, before the job's runs. `why_not` None: it works."""

    library: str
    version: str
    why_not: str | None
    seconds: float


def decode(content: bytes, source: str) -> Verdict:
    return document.decode(content, Verdict, source, InvalidRun)


def decode_probe(content: bytes, source: str) -> Probe:
    return document.decode(content, Probe, source, InvalidRun)
