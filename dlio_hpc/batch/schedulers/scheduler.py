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
    """A submitted job. batch_id: its batch id; empty if it is not known. directory: its directory. name: its name,
    which no other job has. A batch system that has lost its state gives the same batch ids again, so the id alone does
    not identify a job. cluster: the cluster of Slurm that has the job; empty for the cluster of the login node. While
    the batch id is not known, it may be a list of clusters, separated by commas.
    """

    batch_id: str
    directory: Path
    name: str
    cluster: str = ""


class AcceptedJob(NamedTuple):
    """The batch system's answer to a submission. cluster: as in JobRef. remarks: what the batch system and the filters
    of the site printed in addition to the batch id.
    """

    batch_id: str
    cluster: str = ""
    remarks: str = ""


class After(NamedTuple):
    """Dependencies of a job, as batch ids. well: jobs that must succeed before this job starts. over: jobs that must
    end before this job starts, whether they succeed or fail.
    """

    well: tuple[str, ...] = ()
    over: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.well, *self.over)


class JobStatus(NamedTuple):
    """State of a job as the batch system reports it. text: name of the state in the batch system, such as TIMEOUT or
    "Exit_status -29". never: whether the job waits for a condition that can never be met. suspended: whether the job
    has started and stands still. advice: what the user can do about a job that waits or stands still; empty if the job
    needs nothing. stuck: whether the job has failed, but the batch system keeps it forever, so that other jobs wait for
    its end.
    """

    state: State
    text: str = ""
    never: bool = False
    suspended: bool = False
    advice: str = ""
    stuck: bool = False


def is_unknown(status: JobStatus | None) -> bool:
    """Return whether the batch system does not know a job: it did not report the job, or reported it as lost. status:
    the reported state; None if there is none.
    """
    return status is None or status.state == "lost"


class Row(NamedTuple):
    """A row of a batch system's answer. directory: folder in which the job runs; empty if it is not known."""

    batch_id: str
    name: str
    status: JobStatus
    directory: str = ""


class Scheduler(NamedTuple):
    """A batch system. The functions from `submit` to `probe` contact the batch system; they raise InfrastructureError
    if it does not answer.

    program: the command that submits jobs.
    directive: formats a value for an option line at the head of a job script.
    request: returns the values that the template of the job script prints in addition to the plan.
    command: returns the command line of submit(), for a person to read.
    submit: submits a job and returns its batch id; raises ConfigError if the job is rejected.
    states: returns the states of jobs, all of one cluster. Jobs that the batch system does not know are missing; jobs
    whose batch id now belongs to another job are lost.
    cancel: asks the batch system to end a job.
    find: returns a job with its batch id, found by its name; None if the batch system knows no such job.
    queues: returns, for each of the user's jobs on the given cluster, the names of its queues.
    probe: checks, without submitting, whether the batch system would accept a plan with its script, and returns a
    message for the user; raises ConfigError if the batch system would reject them.
    detect: detects the batch system on a login node, for a new site profile; returns None if it does not run there.
    is_queue: whether jobs wait in queues, are charged to accounts, and may end for reasons that only the batch system
    knows.
    unprobed: what `probe` cannot check, because the batch system checks it only at submission.
    cluster: returns the clusters that a plan may be submitted to, separated by commas; empty for the cluster of the
    login node.
    home: returns the name of the instance of the batch system that answers here, such as the cluster of this node;
    empty if it is not known, or if the batch ids contain it. A job is not lost if another instance does not know it.
    job_variable: an environment variable that the batch system sets only in its jobs; empty if there is none. A job
    script that is run by hand, without this variable, has no time limit.
    """

    program: str
    directive: Callable[[str], Shell]
    request: Callable[[Plan], dict[str, Any]]
    command: Callable[[Plan, After], str]
    submit: Callable[[Plan, After], AcceptedJob]
    states: Callable[[Sequence[JobRef]], dict[JobRef, JobStatus]]
    cancel: Callable[[JobRef], None]
    find: Callable[[JobRef], JobRef | None]
    queues: Callable[[str], list[tuple[str, ...]]]
    probe: Callable[[Plan, Path], str]
    detect: Callable[[], DetectedSystem | None]
    is_queue: bool = True
    unprobed: str = ""
    cluster: Callable[[Plan], str] = lambda _plan: ""
    home: Callable[[], str] = lambda: ""
    job_variable: str = ""
