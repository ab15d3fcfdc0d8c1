"""JSON documents about studies and suites."""

from msgspec import UNSET, Struct, UnsetType

from dlio_hpc.analysis.study.best_setting import Finding
from dlio_hpc.analysis.study.file_system_pairs import PairedEffect
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.slowdowns import Fairness, Slowdown
from dlio_hpc.analysis.study.stragglers import Throughput
from dlio_hpc.documents import jobs, judgements
from dlio_hpc.documents.jobs import JobDocument, LackedMeasurement
from dlio_hpc.documents.judgements import AcceptanceResult
from dlio_hpc.documents.versioned import Versioned
from dlio_hpc.plan.study import Point, Study
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.results.metrics import METRICS
from dlio_hpc.verdict.baseline_comparison import Verdict
from dlio_hpc.verdict.suite import SuiteVerdict


class MeasurementDocument(Struct, frozen=True):
    """A measurement of a point. The fields that are not described here are metrics; null: the run does not have the
    metric.
    """

    repeat: int
    """Number of the repeat, counted from 0."""
    job: str
    """Name of the job."""
    run: str
    """Name of the run."""
    started: str
    """Start time of the run, UTC."""
    ended: str
    """End time of the run, UTC."""
    bytes_read: int
    """Bytes of the samples read."""
    storage_bytes_read: int | None
    """Bytes that the kernel fetched from storage for the ranks; null: unknown."""
    samples_per_s: float | None
    read_MBps: float | None
    au: float | None
    au_mlperf: float | None
    wall_s: float | None
    io_time_s: float | None
    wait_p99_s: float | None
    read_p99_s: float | None
    opens_per_s: float | None
    open_p99_s: float | None
    metadata_fraction: float | None
    slowest_rank_ratio: float | None
    checkpoint_write_MBps: float | None
    checkpoint_read_MBps: float | None
    checkpoint_safe_s: float | None
    restore_s: float | None
    restore_gap_s: float | None
    mkdir_per_s: float | None
    create_per_s: float | None
    write_per_s: float | None
    stat_per_s: float | None
    readdir_per_s: float | None
    open_read_close_per_s: float | None
    rename_per_s: float | None
    unlink_per_s: float | None
    rmdir_per_s: float | None
    common_samples_per_s: float | None
    kv_read_MBps: float | None
    kv_write_MBps: float | None
    kv_tokens_per_s: float | None
    kv_read_p99_s: float | None
    kv_write_p99_s: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    ttft_p99_s: float | None
    ttft_load_share: float | None
    kv_hit_share: float | None
    late_share: float | None
    users_in_time: float | None


class PointDocument(Struct, frozen=True):
    """A point of a study."""

    point: int
    """Number of the point."""
    part: str
    """Part of the study to which the point belongs."""
    title: str
    """Title of the point."""
    labels: dict[str, str]
    """Varied keys, with their values as text."""
    nodes: int
    """Number of nodes."""
    ranks_per_node: int
    """Number of ranks per node."""
    is_reference: bool
    """True if the other points of the part are compared with this point."""
    measurements: list[MeasurementDocument]
    """Valid measurements of the point."""


class SideDocument(Struct, frozen=True):
    """One of the two file systems that a study compares."""

    data: str
    """Folder of the datasets on this file system."""
    file_system: str
    """Type and mount point; empty: unknown."""
    nodes: tuple[Throughput, ...]
    """Throughput of each node, slowest first; empty: there are fewer than two nodes, or their throughput is unknown."""
    targets: tuple[Throughput, ...]
    """Throughput of each storage target, slowest first; empty: there are fewer than two targets, or their throughput is
    unknown.
    """


class SuiteVerdictDocument(Struct, frozen=True):
    """Verdict on a suite."""

    summary: str
    """The verdict in one line, which can serve as the subject of a mail."""
    exit_code: int
    """Exit code for the most severe outcome."""
    comparisons: tuple[Verdict, ...]
    """Comparisons with baselines and earlier jobs."""
    acceptance: AcceptanceResult
    """Result of the criteria."""


class StudyDocument(Versioned, frozen=True):
    """A study: its measurements, findings and advice."""

    study: str
    """Name of the study."""
    description: str
    """Description of the study."""
    notes: list[str]
    """Notes of all jobs."""
    seed: int
    """Seed of the random order of runs."""
    repeat: int
    """Number of measurements of each point."""
    points: list[PointDocument]
    """The points with their measurements."""
    missing: list[LackedMeasurement]
    """Measurements that are still to be made."""
    broken: list[str]
    """Messages about jobs that cannot be read."""
    findings: tuple[Finding, ...]
    """Results of each part: best settings, scaling, and the effects of parameters."""
    advice: list[str]
    """Lines of advice; a line that begins with blanks continues the previous line."""
    jobs: list[JobDocument]
    """The jobs of the study."""
    effects: tuple[PairedEffect, ...] | UnsetType = UNSET
    """Differences between the two file systems; present only in a study that compares two."""
    stragglers: list[SideDocument] | UnsetType = UNSET
    """The two file systems with the throughput of nodes and targets; present only in a study that compares two."""
    slowdowns: tuple[Slowdown, ...] | UnsetType = UNSET
    """Effects of the loads of mixes on each other; present only in a study with mixes."""
    fairness: tuple[Fairness, ...] | UnsetType = UNSET
    """Fairness among loads with the same workload; present only in a study with mixes."""
    verdict: SuiteVerdictDocument | UnsetType = UNSET
    """Verdict on a suite; present only after `submit --wait` or `wait`, or with --html."""


def of_study(report: StudyReport, verdict: SuiteVerdict | None = None) -> StudyDocument:
    """Return the document of a study. verdict: verdict on a suite; None to leave it out."""
    outcome = report.outcome
    study = outcome.study
    by_point: dict[int, list[Measured]] = {}
    for measurement in outcome.measured:
        by_point.setdefault(measurement.point, []).append(measurement)
    return StudyDocument(
        study=study.study,
        description=study.description,
        notes=outcome.notes,
        seed=study.seed,
        repeat=study.repeat,
        points=[_point(study, point, by_point.get(point.number, [])) for point in study.points],
        missing=jobs.lacked_by(outcome),
        broken=list(outcome.broken),
        findings=report.findings,
        advice=report.advice,
        jobs=[jobs.of_job(job) for job in outcome.jobs],
        effects=report.effects if study.is_ab else UNSET,
        stragglers=[SideDocument(*side) for side in report.sides] if study.is_ab else UNSET,
        slowdowns=report.slowdowns if study.is_mixed else UNSET,
        fairness=report.fairness if study.is_mixed else UNSET,
        verdict=UNSET if verdict is None else _verdict(verdict),
    )


def _point(study: Study, point: Point, measured: list[Measured]) -> PointDocument:
    return PointDocument(
        point=point.number,
        part=point.part,
        title=study.title(point),
        labels=study.labels(point),
        nodes=point.nodes,
        ranks_per_node=point.ranks_per_node,
        is_reference=study.part(point.part).reference == point.number,
        measurements=[_measurement(measurement) for measurement in measured],
    )


def _measurement(measured: Measured) -> MeasurementDocument:
    summary = measured.summary
    return MeasurementDocument(
        repeat=measured.repeat,
        job=measured.job,
        run=measured.run,
        started=measured.started,
        ended=measured.ended,
        bytes_read=summary.bytes_read,
        storage_bytes_read=summary.storage_bytes_read,
        **{name: metric.value(summary) for name, metric in METRICS.items()},
    )


def _verdict(verdict: SuiteVerdict) -> SuiteVerdictDocument:
    return SuiteVerdictDocument(
        verdict.summary, verdict.exit_code, verdict.judgement.verdicts, judgements.of_acceptance(verdict.acceptance)
    )
