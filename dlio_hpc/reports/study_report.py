"""Contents of the report of a study: measurements, findings and advice. The contents can also be written as JSON; the
measurements can also be written as CSV.
"""

import csv
from collections.abc import Iterator
from typing import Any, NamedTuple

from dlio_hpc.analysis.study import best_setting, file_system_pairs, slowdowns
from dlio_hpc.analysis.study.best_setting import Finding
from dlio_hpc.analysis.study.file_system_pairs import PairedEffect
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.slowdowns import Fairness, Slowdown
from dlio_hpc.base.errors import DlioError, Incomplete
from dlio_hpc.records import job_outcome
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.reports import ab_stragglers, advice
from dlio_hpc.reports.ab_stragglers import Arm
from dlio_hpc.results.metrics import METRICS, MetricName

# Fields of the summary that are listed after the metrics of a measurement.
_COUNTS = ("bytes_read", "storage_bytes_read")


class StudyReport(NamedTuple):
    """Contents of the report of a study. advice: lines of advice; a line that begins with blanks continues the previous
    line. effects: differences between the two file systems that the study compares. sides: these file systems. Both are
    empty if the study does not compare file systems. slowdowns, fairness: effects of the loads of mixes on each other.
    """

    outcome: StudyOutcome
    findings: tuple[Finding, ...]
    advice: list[str]
    effects: tuple[PairedEffect, ...] = ()
    sides: tuple[Arm, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    fairness: tuple[Fairness, ...] = ()


def make(outcome: StudyOutcome, metric: MetricName | None = None) -> StudyReport:
    """Return the contents of the report of a study. metric: metric by which points are compared; None selects each
    part's own metric.
    """
    study = outcome.study
    findings = best_setting.findings(study, outcome.measured, metric)
    effects = file_system_pairs.effects(study, outcome.measured, metric)
    return StudyReport(
        outcome, findings, _advice(outcome, findings), effects, ab_stragglers.of_study(study, outcome.jobs),
        slowdowns.of_study(study, outcome.measured), slowdowns.fairness(study, outcome.measured),
    )  # fmt: skip


def _advice(outcome: StudyOutcome, findings: tuple[Finding, ...]) -> list[str]:
    """Return the advice from those parts of the study that did not read from memory. If there is advice, add a line
    that names the parts that read from memory.
    """
    cached = {outcome.study.points[run.point].part for run in outcome.measured if run.origin == "cached"}
    clear = (finding for finding in findings if finding.part not in cached and finding.confounded is None)
    lines = advice.of_study(outcome.study, tuple(clear))
    if not lines or not cached:
        return lines
    parts = ", ".join(sorted(cached))
    return [*lines, f"No advice from {parts}: measurements there are cached (bytes came from memory)."]


def _numbers(measured: Measured) -> dict[str, float | int | None]:
    """Return the metrics and counts of a measurement by name. A value is None if it is unknown."""
    summary = measured.summary
    return {name: metric.value(summary) for name, metric in METRICS.items()} | {
        name: getattr(summary, name) for name in _COUNTS
    }


def write_csv(report: StudyReport, file: Any) -> None:
    """Write one CSV row per measurement."""
    csv.writer(file, lineterminator="\n").writerows(_rows(report))


def _rows(report: StudyReport) -> Iterator[list[object]]:
    """Yield the CSV header, followed by one row per measurement. The cells of keys that the part does not vary are
    empty.
    """
    study = report.outcome.study
    keys = list(dict.fromkeys(axis.key for part in study.parts for axis in part.axes))
    fixed = ["nodes", "ranks_per_node", "repeat", "job", "run", "started", "ended"]
    yield ["study", "part", "point", *keys, *fixed, *METRICS, *_COUNTS]
    for run in report.outcome.measured:
        point = study.points[run.point]
        labels = study.labels(point)
        fields = [point.nodes, point.ranks_per_node, run.repeat, run.job, run.run, run.started, run.ended]
        settings = [labels.get(key) for key in keys]
        yield [study.study, point.part, point.number, *settings, *fields, *_numbers(run).values()]


def fault(report: StudyReport) -> DlioError | None:
    """Return an error that states why measurements are missing, or None if no measurement is missing. If a job that
    should have made a missing measurement has a fault other than Incomplete, the error is the first such fault.
    Otherwise, the error is Incomplete. For a study that only generates datasets, return the first fault of its jobs, or
    None if no job has a fault.
    """
    outcome, missing = report.outcome, report.outcome.missing
    if outcome.study.generate == "only":
        return next(filter(None, map(job_outcome.fault, outcome.jobs)), None)
    if not missing:
        return None
    concerned = {measurement.job for measurement in missing}
    faults = [job_outcome.fault(job) for job in outcome.jobs if job.job.job in concerned]
    first = next((error for error in faults if error is not None and not isinstance(error, Incomplete)), None)
    return first or Incomplete(f"{len(missing)} of {outcome.wanted} measurements of {outcome.study.study} are missing")
