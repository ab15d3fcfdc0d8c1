"""Stragglers of a study that compares two file systems, from what its runs recorded at length."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.analysis.study import stragglers
from dlio_hpc.analysis.study.stragglers import Member
from dlio_hpc.darshan import log_reader
from dlio_hpc.errors import DlioError
from dlio_hpc.plan.study import Study
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import Evidence, JobOutcome


class Side(NamedTuple):
    """A file system, in words as far as it is known. nodes, targets: the slowest first; empty where there are no two,
    or nobody knows.
    """

    folder: str
    file_system: str
    nodes: tuple[Member, ...]
    targets: tuple[Member, ...]


class _Rates(NamedTuple):
    folder: str
    nodes: dict[str, float]
    targets: dict[str, float]


def of_study(study: Study, jobs: list[JobOutcome]) -> tuple[Side, ...]:
    """Both sides; nothing where no file systems are compared."""
    if not study.is_ab:
        return ()
    seen = [rates for job in jobs for rates in _of_job(study, job)]
    return tuple(
        Side(
            folder,
            _file_system(jobs, folder),
            stragglers.members([rates.nodes for rates in seen if rates.folder == folder]),
            stragglers.members([rates.targets for rates in seen if rates.folder == folder]),
        )
        for folder in study.folders
    )


def _file_system(jobs: list[JobOutcome], folder: str) -> str:
    layouts = (layout for job in jobs for layout in job.layouts)
    return next((each.file_system.words for each in layouts if os.path.dirname(each.path) == folder), "")


def _of_job(study: Study, job: JobOutcome) -> Iterator[_Rates]:
    place = job.directory or job.archive
    if place is None:
        return
    with job_outcome.evidence(place, job) as found:
        for each in found:
            if each.run.run.point is not None and job_outcome.run_fault(job, each.run) is None:
                folder = study.points[each.run.run.point].data or study.data
                yield _Rates(folder, _nodes(each), _targets(job, each))


def _nodes(each: Evidence) -> dict[str, float]:
    if each.timeline is None:
        return {}
    with timeline_reader.opened(each.timeline) as file:
        return stragglers.by_node(file)


def _targets(job: JobOutcome, each: Evidence) -> dict[str, float]:
    """Where the layout of its files is known, and Darshan saw how long each of them took."""
    layout = next((layout for layout in job.layouts if layout.path == each.run.run.dataset), None)
    if layout is None or not layout.targets or each.log is None:
        return {}
    try:
        return stragglers.by_target(log_reader.load(each.log, trace=False), layout.targets)
    except DlioError:
        return {}
