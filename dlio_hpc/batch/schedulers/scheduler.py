"""What a batch system is to us: a handful of functions, and the words for a job's states."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dlio_hpc.batch.shell_quoting import Shell
from dlio_hpc.plan.plan import Plan

State = Literal[
    "planned", "submitted", "queued", "running", "completed", "failed", "timeout", "cancelled", "node_fail",
    "out_of_memory", "lost",
]  # fmt: skip
ENDED: frozenset[State] = frozenset(
    {"completed", "failed", "timeout", "cancelled", "node_fail", "out_of_memory", "lost"}
)


class Known(NamedTuple):
    """A job that was handed to a batch system, and where its files lie."""

    batch_id: str
    directory: Path


class After(NamedTuple):
    """Batch ids of the jobs that one waits for: that they end well, or that they end, whatever comes of them."""

    well: tuple[str, ...] = ()
    over: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.well, *self.over)


class Sight(NamedTuple):
    """A job's state as the batch system tells it, and its own words for it: TIMEOUT, Exit_status -29. never: it waits
    for what it will not get.
    """

    state: State
    words: str = ""
    never: bool = False


class Scheduler(NamedTuple):
    """One batch system. All but the first four talk to it; they raise InfrastructureError when it does not answer.

    program: the command that submits.
    directive: a value as it is written on a line of options at the head of a script.
    request: what its template prints beyond the plan.
    command: what submit() runs, as a person would type it.
    submit: the batch id of a job just handed over; ConfigError when it is refused.
    states: of the jobs that it knows, by batch id; one that is not there has been forgotten, or was never known.
    cancel: asks it to end a job. find: the batch id of a job of that name. queues: names of the queues
    that each of the user's jobs is in.
    probe: whether it would take this plan with this script, without submitting: words for a person, ConfigError if not.
    is_queue: jobs wait in queues, are charged to accounts, and end for reasons that only the batch system knows.
    job_variable: the environment variable that it sets in its jobs alone; "": none. A script that is run by hand has no
    time limit to heed.
    """

    program: str
    directive: Callable[[str], Shell]
    request: Callable[[Plan], dict[str, Any]]
    command: Callable[[Plan, After], str]
    submit: Callable[[Plan, After], str]
    states: Callable[[Sequence[Known]], dict[str, Sight]]
    cancel: Callable[[str], None]
    find: Callable[[str], str | None]
    queues: Callable[[], list[tuple[str, ...]]]
    probe: Callable[[Plan, Path], str]
    is_queue: bool = True
    job_variable: str = ""
