"""The interface to a batch system, and the names of job states."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dlio_hpc.batch.schedulers.detection import DetectedSystem
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
    """Dependencies of a job, as batch ids. well: jobs that must succeed before the job starts. over: jobs that must
    end, with or without success, before the job starts.
    """

    well: tuple[str, ...] = ()
    over: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.well, *self.over)


class JobStatus(NamedTuple):
    """State of a job as the batch system reports it. text: name of the state in the batch system, such as TIMEOUT or
    "Exit_status -29". never: whether the job waits for a condition that can never be met. suspended: whether the job
    has started and stands still.
    """

    state: State
    text: str = ""
    never: bool = False
    suspended: bool = False


class Scheduler(NamedTuple):
    """A batch system. The functions from `submit` to `probe` contact the batch system; they raise InfrastructureError
    if it does not answer.

    program: the command that submits jobs.
    directive: formats a value for an option line at the head of a job script.
    request: returns the values that the template of the job script prints in addition to the plan.
    command: returns the command line of submit(), for a person to read.
    submit: submits a job and returns its batch id; raises ConfigError if the job is rejected.
    states: returns the states of jobs, by batch id; jobs that the batch system does not know are missing.
    cancel: asks the batch system to end a job.
    find: returns the batch id of the job with a given name, or None if the batch system knows no such job.
    queues: returns, for each of the user's jobs, the names of its queues.
    probe: checks, without submitting, whether the batch system would accept a plan with its script, and returns a
    message for the user; raises ConfigError if the batch system would reject them.
    detect: detects the batch system on a login node, for a new site profile; returns None if it does not run there.
    is_queue: whether jobs wait in queues, are charged to accounts, and may end for reasons that only the batch system
    knows.
    job_variable: an environment variable that the batch system sets only in its jobs; empty if there is none. A job
    script that is run by hand, without this variable, has no time limit.
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
    detect: Callable[[], DetectedSystem | None]
    is_queue: bool = True
    job_variable: str = ""
