"""Stragglers (slow nodes and slow storage targets) in a study that compares two file systems. They are detected from
the timelines and Darshan logs of the runs.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.analysis.study import stragglers
from dlio_hpc.analysis.study.stragglers import Throughput
from dlio_hpc.base.errors import DlioError
from dlio_hpc.darshan import run_logs
from dlio_hpc.plan.study import Study
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunFiles


class Arm(NamedTuple):
    """One of the two file systems that a study compares. folder: directory of its datasets. file_system: type and mount
    point; empty if unknown. nodes: throughput of each node, slowest first. targets: throughput of each storage target,
    slowest first. Each of these lists is empty if there are fewer than two items to compare, or if read times are
    unknown.
    """

    folder: str
    file_system: str
    nodes: tuple[Throughput, ...]
    targets: tuple[Throughput, ...]


class _Rates(NamedTuple):
    """Read rates of one run in MB/s, by node and by storage target. folder: directory of the dataset that the
    run read.
    """

    folder: str
    nodes: dict[str, float]
    targets: dict[str, float]


def of_study(study: Study, jobs: list[JobOutcome]) -> tuple[Arm, ...]:
    """Return the two file systems that the study compares, or an empty tuple if the study does not compare file
    systems.
    """
    if not study.is_ab:
        return ()
    runs = [rates for job in jobs for rates in _of_job(study, job)]
    return tuple(
        Arm(
            folder,
            _file_system(jobs, folder),
            stragglers.members([rates.nodes for rates in runs if rates.folder == folder]),
            stragglers.members([rates.targets for rates in runs if rates.folder == folder]),
        )
        for folder in study.folders
    )


def _file_system(jobs: list[JobOutcome], folder: str) -> str:
    layouts = (layout for job in jobs for layout in job.layouts)
    return next((layout.file_system.text for layout in layouts if os.path.dirname(layout.path) == folder), "")


def _of_job(study: Study, job: JobOutcome) -> Iterator[_Rates]:
    place = job.directory or job.archive
    if place is None:
        return
    with job_outcome.evidence(place, job) as recorded:
        for evidence in recorded:
            if evidence.run.run.point is not None and job_outcome.run_fault(job, evidence.run) is None:
                folder = study.points[evidence.run.run.point].data or study.data
                yield _Rates(folder, _nodes(evidence), _targets(job, evidence))


def _nodes(evidence: RunFiles) -> dict[str, float]:
    if evidence.timeline is None:
        return {}
    with timeline_reader.opened(evidence.timeline) as file:
        return stragglers.by_node(file)


def _targets(job: JobOutcome, evidence: RunFiles) -> dict[str, float]:
    """Return the read rate of each storage target in MB/s. Return an empty dict if the layout of the files is unknown,
    or if Darshan's log contains no read times.
    """
    layout = next((layout for layout in job.layouts if layout.path == evidence.run.run.dataset), None)
    if layout is None or not layout.targets or evidence.log is None:
        return {}
    try:
        return stragglers.by_target(run_logs.load(evidence.log, trace=False), layout.targets)
    except DlioError:
        return {}
