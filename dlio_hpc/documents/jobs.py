"""JSON documents about jobs: plans, states, archives and measurements."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from dlio_hpc.analysis.log.findings import Analysis
from dlio_hpc.batch.live_runs import RunProgress
from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.darshan.verdict_file import LogVerdict
from dlio_hpc.documents.versioned import Versioned
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Kind
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.results.probe_result import StorageProbe
from dlio_hpc.results.run_result import Result, RunError


class RunDocument(Struct, frozen=True):
    """A run of a job that has a result or an error."""

    name: str
    """Name of the run, such as 01-measure."""
    kind: Kind
    """Kind of the run."""
    result: Result | None
    """Content of result.json of the run; null: the run has no result."""
    error: RunError | UnsetType = UNSET
    """First fault that ended the run; absent: the run has no such fault."""
    darshan: LogVerdict | UnsetType = UNSET
    """Verdict on the Darshan log of the run; absent: the run was made without Darshan, or its log was not checked."""
    probe: StorageProbe | UnsetType = UNSET
    """Rates that the probe measured with plain reads before the run; absent: there was no probe."""
    analysis: Analysis | UnsetType = UNSET
    """I/O of the run, analysed from its Darshan log or its timeline. Only `report` of a job has this field."""


class JobDocument(Struct, frozen=True):
    """A job and its runs."""

    job: str
    """Name of the job."""
    batch_id: str | None
    """Id that the batch system gave the job; null: not submitted."""
    state: State
    """State of the job."""
    directory: str | None
    """Directory of the job; null: the job was read from its archive."""
    archive: str | None
    """Path of the archive; null: the job was not collected."""
    notes: list[str]
    """Notes of the plan, words of the batch system at the submission, and lines of site.setup that failed."""
    runs: list[RunDocument]
    """Runs that have a result or an error, in the order of the plan."""
    stderr: list[str] | UnsetType = UNSET
    """Last lines of job.err. Absent unless the job ended before all its runs had results."""
    stdout: list[str] | UnsetType = UNSET
    """Last lines of job.out. Absent unless the job ended before all its runs had results, and job.err is empty."""


class JobsDocument(Versioned, frozen=True):
    """Jobs with their measurements."""

    study: str | None
    """Name of the study of the first job; null: there are no jobs."""
    jobs: list[JobDocument]
    """The jobs."""


class LiveJobRun(RunProgress, frozen=True):
    """A run in progress, according to the states that its ranks last wrote."""

    MBps: float | None
    """Rate since the first step or file, in MB/s; null: nothing was read or written yet."""
    MBps_now: float | None
    """Rate during the last seconds, in MB/s; null: not known yet."""
    left_s: float | None
    """Estimated seconds until the end of the run; null: not known yet."""
    slowest_rank: int | None
    """Rank that the other ranks wait for; null: they wait for no single rank."""
    slowest_host: str | None
    """Node of this rank."""


class LiveDocument(Versioned, frozen=True):
    """A job that runs. `top` prints one such document per line."""

    job: str
    """Name of the job."""
    state: State
    """Newest known state of the job."""
    directory: str
    """Directory of the job."""
    run: LiveJobRun | None
    """The current run; null: there is none, or its ranks have not written a state."""


class JobState(Struct, frozen=True):
    """State of a job."""

    job: str
    """Name of the job."""
    batch_id: str | None
    """Id that the batch system gave the job; null: not submitted."""
    state: State
    """Newest known state of the job."""
    since: str
    """Time at which the job was first observed in this state, UTC."""
    text: str
    """Reason that the batch system gives for the state; may be empty."""
    directory: str
    """Directory of the job."""
    text_since: str
    """Time (UTC) since which `text` applies."""
    advice: str
    """What the user can do about a job that waits or makes no progress; empty: nothing is needed."""
    cluster: str
    """Slurm cluster to which the job was submitted; empty: the cluster of the login node."""
    night: int
    """Night of the study that the job belongs to, counted from 1."""
    nights: int
    """Number of nights of the study."""
    begins: str
    """Earliest start time of the job (UTC); empty: none was set."""


class StatusDocument(Versioned, frozen=True):
    """States of jobs."""

    jobs: list[JobState]
    """The jobs."""


CancelOutcome = Literal["cancelling", "never_submitted", "already_ended"]


class CancelledJob(Struct, frozen=True):
    """A job whose cancellation was requested."""

    job: str
    """Name of the job."""
    batch_id: str | None
    """Id that the batch system gave the job; null: not submitted."""
    outcome: CancelOutcome
    """cancelling: the batch system was asked to end the job; never_submitted: the job was only marked as cancelled."""
    state: State
    """State of the job."""


class CancelDocument(Versioned, frozen=True):
    """Jobs whose cancellation was requested."""

    jobs: list[CancelledJob]
    """The jobs, the last one first."""


class CollectedJob(Struct, frozen=True):
    """A job whose archiving was requested."""

    job: str
    """Name of the job."""
    state: State
    """State of the job."""
    archive: str | None
    """Path of the archive; null: the job has not ended."""
    is_new: bool
    """True if the command wrote the archive; false if the archive existed before, or if the job has not ended."""
    notes: list[str]
    """Notes on the archive and the history."""


class LackedMeasurement(Struct, frozen=True):
    """A measurement that a study lacks."""

    point: int
    """Number of the point."""
    repeat: int
    """Number of the repeat, counted from 0."""
    title: str
    """Title of the point."""
    job: str | None
    """Newest job that should have made the measurement; null: no such job was submitted."""
    why: str
    """Reason why the measurement is missing."""
    is_live: bool
    """True if the job is still queued or running."""


class CollectedStudy(Struct, frozen=True):
    """A study whose jobs are to be archived."""

    study: str
    """Name of the study."""
    wanted: int
    """Number of all measurements, both made and missing."""
    missing: list[LackedMeasurement]
    """Measurements that are missing."""
    broken: list[str]
    """Messages about jobs that cannot be read."""
    resume: str | None
    """Command that submits the missing measurements; null: no measurement is missing, or all missing ones are queued or
    running.
    """


class CollectDocument(Versioned, frozen=True):
    """Jobs and studies whose archiving was requested."""

    jobs: list[CollectedJob]
    """The jobs. A job that could not be archived is absent; stderr has the reason."""
    studies: list[CollectedStudy]
    """The studies."""


def of_job(outcome: JobOutcome, analyses: Mapping[str, Analysis] | None = None) -> JobDocument:
    """Return the document of a job. analyses: I/O of runs, by the name of the run."""
    return JobDocument(
        job=outcome.job.job,
        batch_id=outcome.job.batch_id,
        state=outcome.job.state,
        directory=str(outcome.directory) if outcome.directory else None,
        archive=str(outcome.archive) if outcome.archive else None,
        notes=job_outcome.notes(outcome),
        runs=[
            RunDocument(
                run.name, run.run.kind, run.result, run.error or UNSET, run.verdict or UNSET, run.probe or UNSET,
                (analyses or {}).get(run.name, UNSET),
            )
            for run in outcome.runs
            if run.result or run.error
        ],
        stderr=_tail(outcome, rundir.STDERR),
        stdout=_tail(outcome, rundir.STDOUT),
    )  # fmt: skip


def _tail(outcome: JobOutcome, file: str) -> list[str] | UnsetType:
    """Return the last lines of a job that was cut short, if they are lines of `file`. Otherwise, return UNSET."""
    tail = outcome.tail if job_outcome.is_cut_short(outcome) else None
    return UNSET if tail is None or tail.file != file else list(tail.lines)


def of_jobs(outcomes: Sequence[JobOutcome], analyses: Sequence[Mapping[str, Analysis]] = ()) -> JobsDocument:
    """Return the document of several jobs. analyses: for each job, the I/O of its runs by name; empty if unknown."""
    known = [*analyses, *[{}] * (len(outcomes) - len(analyses))]
    jobs = [of_job(outcome, of_runs) for outcome, of_runs in zip(outcomes, known, strict=True)]
    return JobsDocument(study=outcomes[0].plan.study if outcomes else None, jobs=jobs)


def lacked_by(outcome: StudyOutcome) -> list[LackedMeasurement]:
    """Return the measurements that a study lacks."""
    study = outcome.study
    return [
        LackedMeasurement(
            missing.unit.point, missing.unit.repeat, study.title(study.points[missing.unit.point]), missing.job,
            missing.why, missing.is_live,
        )
        for missing in outcome.missing
    ]  # fmt: skip
