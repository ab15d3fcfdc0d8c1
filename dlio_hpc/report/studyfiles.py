"""What a study left behind: what its jobs measured of its points, and what is still missing."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from dlio_hpc import document, packing, rundir
from dlio_hpc.analysis.measured import Measured
from dlio_hpc.errors import ConfigError
from dlio_hpc.packing import Unit
from dlio_hpc.report import jobfiles
from dlio_hpc.report.jobfiles import JobOutcome, RunOutcome
from dlio_hpc.study import Study


class Missing(NamedTuple):
    """A measurement that nobody has. job, why: of the newest job that was to make it; None where none was planned.
    is_live: that job goes on.
    """

    unit: Unit
    job: str | None
    why: str
    is_live: bool


class StudyOutcome(NamedTuple):
    """jobs: in the order of their names. measured: one for each measurement that is good, in the study's order.
    others: measurements made once more, which are left out.
    """

    study: Study
    jobs: list[JobOutcome]
    measured: list[Measured]
    missing: list[Missing]
    others: int


def is_study(path: Path) -> bool:
    """Is it the folder of a study, rather than of a job?"""
    return (path / rundir.STUDY).is_file() and not (path / rundir.JOB).exists()


def load(path: Path) -> Study:
    """The study in a folder; ConfigError when there is none."""
    try:
        content = (path / rundir.STUDY).read_bytes()
    except OSError as fault:
        raise ConfigError(f"{path} is no study's folder: cannot read {rundir.STUDY}: {fault.strerror}") from fault
    found = document.decode(content, Study, str(path / rundir.STUDY))
    here = os.path.dirname(os.path.abspath(path))
    if here == found.runs:
        return found
    below = os.path.relpath(found.archive, found.runs)  # it was moved, with its archives where they lay beside it
    archive = found.archive if below.startswith("..") else os.path.join(here, below)
    return structs.replace(found, runs=here, archive=archive)


def held(outcomes: Sequence[JobOutcome]) -> Study | None:
    """The study that all these jobs are of, with the most repeats that any of them knows; None: there is none."""
    copies = {outcome.study: outcome.job.job for outcome in outcomes}
    studies = [document.decode(content, Study, f"{job}/{rundir.STUDY}") for content, job in copies.items() if content]
    if None in copies or len({(study.study, study.created) for study in studies}) != 1 or studies[0].is_plain:
        return None
    return max(studies, key=lambda study: study.repeat)


def jobs(study: Study, folder: Path) -> list[Path]:
    """Directories of the study's jobs, beside its folder; archives of those that have no directory any more."""
    from dlio_hpc import archive

    beside = folder.resolve().parent
    found = {path.parent.name: path.parent for path in beside.glob(f"{_escaped(study.study)}-*/{rundir.JOB}")}
    for path in Path(study.archive).glob(f"{_escaped(study.study)}-*{archive.SUFFIX}"):
        found.setdefault(path.name.removesuffix(archive.SUFFIX), path)
    numbers = {name: name.removeprefix(f"{study.study}-") for name in found}
    known = [name for name, number in numbers.items() if number.isdigit() or number == "generate"]
    return [
        found[name] for name in sorted(known, key=lambda name: int(numbers[name]) if numbers[name].isdigit() else 0)
    ]


def next_number(study: Study, paths: Sequence[Path]) -> int:
    """Of the study's next job."""
    from dlio_hpc import archive

    names = [path.name.removesuffix(archive.SUFFIX).removeprefix(f"{study.study}-") for path in paths]
    return 1 + max((int(name) for name in names if name.isdigit()), default=0)


def _escaped(name: str) -> str:
    import glob

    return glob.escape(name)


def outcome(study: Study, paths: Sequence[Path]) -> StudyOutcome:
    """Of the jobs in these directories and archives."""
    return of_jobs(study, jobfiles.load_all(paths))


def of_jobs(study: Study, outcomes: list[JobOutcome], absent: str = "no job was submitted for it") -> StudyOutcome:
    """Of these jobs; absent: why a measurement is missing that none of them was to make."""
    good: dict[Unit, Measured] = {}
    bad: dict[Unit, Missing] = {}
    others = 0
    for job in outcomes:
        for run in job.runs:
            if run.run.point is None:
                continue
            unit = Unit(run.run.point, run.run.repeat)
            if (why := jobfiles.run_fault(job, run)) is not None:
                bad[unit] = Missing(unit, job.job.job, why, not job.job.ended)
            elif unit in good:
                others += 1
            else:
                good[unit] = _measured(job, run, unit)
    wanted = packing.order(study)
    missing = [bad.get(unit, Missing(unit, None, absent, False)) for unit in wanted if unit not in good]
    return StudyOutcome(study, outcomes, [good[unit] for unit in wanted if unit in good], missing, others)


def _measured(job: JobOutcome, run: RunOutcome, unit: Unit) -> Measured:
    result = run.result
    assert result is not None
    assert result.summary is not None
    return Measured(unit.point, unit.repeat, job.job.job, run.name, result.started, result.ended, result.summary)
