"""The interface to a batch system, and the names of job states."""

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


class JobRef(NamedTuple):
    """A submitted job: its batch id and its directory."""

    batch_id: str
    directory: Path


class After(NamedTuple):
    """Dependencies of a job, as batch ids. well: jobs that must succeed before it starts. over: jobs that must end
    before it starts, with or without success.
    """

    well: tuple[str, ...] = ()
    over: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.well, *self.over)


class JobStatus(NamedTuple):
    """State of a job as the batch system reports it. words: name of the state in the batch system, such as TIMEOUT or
    "Exit_status -29". never: whether the job waits for a condition that can never be met.
    """

    state: State
    words: str = ""
    never: bool = False


class Scheduler(NamedTuple):
    """A batch system. The functions from `submit` to `probe` contact it; they raise InfrastructureError if it does not
    answer.

    program: name of the command that submits a job.
    directive: function that formats a value for an option line at the head of a script.
    request: function that returns the values that the template prints in addition to the plan.
    command: function that returns the command line of submit(), for users to read.
    submit: function that submits a job and returns its batch id. It raises ConfigError if the job is rejected.
    states: function that returns the states of jobs, by batch id, without jobs that the batch system does not know.
    cancel: function that asks the batch system to end a job.
    find: function that returns the batch id of the job with a given name, or None.
    queues: function that returns, for each of the user's jobs, the names of its queues.
    probe: function that checks, without submitting, that the batch system would accept a plan and its script, and
    returns a text for the user. It raises ConfigError if the batch system would not.
    is_queue: whether jobs wait in queues, are charged to accounts, and may end for reasons that only the batch system
    knows.
    job_variable: environment variable that the batch system sets in its jobs only; empty if there is none. A script
    that runs without it was started by hand and has no time limit.
    """

    program: str
    directive: Callable[[str], Shell]
    request: Callable[[Plan], dict[str, Any]]
    command: Callable[[Plan, After], str]
    submit: Callable[[Plan, After], str]
    states: Callable[[Sequence[JobRef]], dict[str, JobStatus]]
    cancel: Callable[[str], None]
    find: Callable[[str], str | None]
    queues: Callable[[], list[tuple[str, ...]]]
    probe: Callable[[Plan, Path], str]
    is_queue: bool = True
    job_variable: str = ""
