"""JSON documents about jobs that are not submitted: scripts, findings of the preflight, costs."""

from typing import Literal

from msgspec import Struct

from dlio_hpc.documents.detection_plans import DetectionDocument
from dlio_hpc.documents.versioned import Versioned
from dlio_hpc.plan.cost import JobCost


class PlannedJobDocument(Struct, frozen=True):
    """A job that --dry-run would submit."""

    job: str
    """Name of the job."""
    directory: str
    """Directory that the job would have."""
    notes: list[str]
    """Notes of the plan."""
    script: str
    """Text of the job script."""
    submit_command: str
    """Command that would submit the script."""
    state: Literal["planned"] = "planned"
    """State of the job; always `planned`."""
    batch_id: None = None
    """Always null."""
    archive: None = None
    """Always null."""
    runs: tuple[()] = ()
    """Always empty."""


class DryRunDocument(Versioned, frozen=True):
    """Jobs that --dry-run would submit."""

    study: str
    """Name of the study."""
    jobs: list[PlannedJobDocument]
    """The jobs, in the order of submission."""


class CheckFinding(Struct, frozen=True):
    """A finding of the preflight."""

    verdict: Literal["ok", "note", "fault"]
    """fault: the job would fail, or its results would be useless."""
    what: str
    """Subject of the check."""
    text: str
    """Result, with advice."""


class CheckDocument(Versioned, frozen=True):
    """Findings of the preflight."""

    site: str
    """Name of the site."""
    findings: list[CheckFinding]
    """The findings, in the order of the checks."""


class TotalCost(Struct, frozen=True):
    """Sum of the costs of all jobs."""

    nodes: int
    """Number of nodes of the largest job."""
    runs: int
    """Number of runs."""
    expected_s: float
    """Expected duration of all jobs if they run one after the other, in seconds."""
    node_hours: float
    """Expected node-hours."""
    limit_node_hours: float
    """Node-hours if each job runs until its time limit."""
    bytes_read: int
    """Bytes read."""
    bytes_written: int
    """Bytes written."""
    space: int
    """Bytes of storage that the jobs need for new datasets and checkpoints."""
    files: int
    """Number of files of the new datasets."""


class EstimateDocument(Versioned, frozen=True):
    """Expected cost of a submission."""

    study: str
    """Name of the study."""
    points: int
    """Number of points of the study."""
    notes: list[str]
    """Notes of the plans."""
    jobs: list[JobCost]
    """Cost of each job."""
    total: TotalCost
    """Cost of all jobs."""
    detection: DetectionDocument | None = None
    """Plan of a campaign that detects a drop; null without --detect."""


class DatasizeDocument(Versioned, frozen=True):
    """Smallest dataset that MLPerf Storage allows for a workload."""

    workload: str
    """Name of the workload."""
    nodes: int
    """Number of nodes."""
    ranks_per_node: int
    """Number of ranks per node."""
    for_steps: int
    """Number of samples that 500 steps per epoch need."""
    for_memory: int
    """Number of samples that have five times the size of the memory of all nodes."""
    samples: int
    """Number of samples of the dataset, which meets both conditions."""
    files: int
    """Number of files."""
    samples_per_file: int
    """Number of samples per file."""
    bytes: int
    """Bytes of the samples before compression."""
