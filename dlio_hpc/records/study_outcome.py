"""What a study left behind: what its jobs measured of its points, and what is still missing."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from dlio_hpc import document
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.batch.job_record import unknown
from dlio_hpc.errors import ConfigError, DlioError, InvalidRun
from dlio_hpc.files import archive, rundir, safe_folders
from dlio_hpc.plan import packing, plan
from dlio_hpc.plan.packing import Unit
from dlio_hpc.plan.study import Study
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome


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
    others: measurements made once more, which are left out. broken: jobs that cannot be read, and why.
    """

    study: Study
    jobs: list[JobOutcome]
    measured: list[Measured]
    missing: list[Missing]
    others: int
    broken: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes of all jobs, without duplicates."""
        return list(dict.fromkeys(note for job in self.jobs for note in job.plan.notes))

    @property
    def wanted(self) -> int:
        """Measurements in all."""
        return len(self.measured) + len(self.missing)


def is_study(path: Path) -> bool:
    """Is it the folder of a study, rather than of a job; or was it, and its jobs still know?"""
    return not (path / rundir.JOB).exists() and _record(path) is not None


def _record(path: Path) -> Path | None:
    """The study's record: in its folder, or where that is lost in that of one of its jobs."""
    own = path / rundir.STUDY
    if own.is_file():
        return own
    copies = sorted(path.parent.glob(f"{glob.escape(path.name)}-*/{rundir.STUDY}"))
    return next((copy for copy in copies if _number(path.name, copy.parent.name) is not None), None)


def load(path: Path) -> Study:
    """The study in a folder; ConfigError when there is none, InvalidRun when its record is damaged."""
    record = _record(path)
    if record is None and not path.exists():
        raise unknown(path)
    if record is None:
        raise ConfigError(f"{path} is no study's folder: there is no {rundir.STUDY}")
    try:
        content = safe_folders.content(record, rundir.LARGEST_DOCUMENT)
    except OSError as fault:
        raise ConfigError(f"cannot read {record}: {fault.strerror}") from fault
    study = document.decode(content, Study, str(record), InvalidRun)
    here = os.path.dirname(os.path.abspath(path))
    return structs.replace(study, runs=here, archive=plan.moved(study.archive, study.runs, here))


def held(outcomes: Sequence[JobOutcome]) -> Study | None:
    """The study that all these jobs are of; None: there is none."""
    copies = {outcome.study: outcome.job.job for outcome in outcomes}
    studies = [
        document.decode(content, Study, f"{job}/{rundir.STUDY}", InvalidRun)
        for content, job in copies.items()
        if content
    ]
    if None in copies or len({(study.study, study.created) for study in studies}) != 1 or studies[0].is_plain:
        return None
    return studies[0]


def jobs(study: Study) -> list[Path]:
    """Directories of the study's jobs; archives of those that have no directory any more."""
    found = {path.parent.name: path.parent for path in _named(study, study.runs, f"/{rundir.JOB}")}
    for path in _named(study, study.archive, archive.SUFFIX):
        found.setdefault(path.name.removesuffix(archive.SUFFIX), path)
    numbers = {name: _number(study.study, name) for name in found}
    return [found[name] for name in sorted(found, key=lambda name: numbers[name] or 0) if numbers[name] is not None]


def next_number(study: Study) -> int:
    """Of the study's next job; whatever lies in a folder of such a name, it is taken."""
    names = [path.name for path in _named(study, study.runs, "")]
    names += [path.name.removesuffix(archive.SUFFIX) for path in _named(study, study.archive, archive.SUFFIX)]
    return 1 + max((_number(study.study, name) or 0 for name in names), default=0)


def _named(study: Study, folder: str, suffix: str) -> list[Path]:
    """What is called as the study's jobs are."""
    return list(Path(folder).glob(f"{glob.escape(study.study)}-*{suffix}"))


def _number(study: str, name: str) -> int | None:
    """Of a job; 0: the one that generates. None: the name is no job's of this study. (A study's own name has more
    behind a workload's than a number.)
    """
    number = name.removeprefix(f"{study}-")
    return int(number) if number.isdigit() else 0 if number == "generate" else None


def outcome(study: Study, paths: Sequence[Path]) -> StudyOutcome:
    """Of the jobs in these directories and archives. One that cannot be read spoils none of the others."""
    try:
        return of_jobs(study, job_outcome.load_all(paths))
    except (DlioError, OSError):
        outcomes, broken = [], []
        for path in paths:
            try:
                outcomes.append(_either(study, path))
            except (DlioError, OSError) as fault:
                broken.append(f"{path.name}: {fault}")
        return of_jobs(study, outcomes)._replace(broken=tuple(broken))


def _either(study: Study, path: Path) -> JobOutcome:
    """From the directory, or where that cannot be read from the archive."""
    try:
        return job_outcome.load(path)
    except DlioError:
        kept = Path(study.archive, path.name + archive.SUFFIX)
        if not path.is_dir() or not kept.exists():
            raise
        return job_outcome.load(kept)


def is_live(job: JobOutcome) -> bool:
    """Does it go on? What was never handed to its batch system, because its submission was killed, does not."""
    return job.directory is not None and not job.job.ended and job.job.batch_id is not None


def of_jobs(study: Study, outcomes: list[JobOutcome], absent: str = "no job was submitted for it") -> StudyOutcome:
    """Of these jobs; absent: why a measurement is missing that none of them was to make."""
    laid_out = {part.name for part in study.parts if any(axis.is_layout for axis in part.axes)}
    good: dict[Unit, Measured] = {}
    bad: dict[Unit, Missing] = {}
    others = 0
    for job in outcomes:
        for run in job.runs:
            if run.run.point is None:
                continue
            unit = Unit(run.run.point, run.run.repeat)
            why = job_outcome.run_fault(job, run, must_be_laid_out=study.points[unit.point].part in laid_out)
            if why is not None:
                bad[unit] = Missing(unit, job.job.job, str(why), is_live(job))
            elif unit in good:
                others += 1
            else:
                good[unit] = _measured(job, run, unit)
    wanted = packing.order(study)
    missing = [bad.get(unit, Missing(unit, None, absent, False)) for unit in wanted if unit not in good]
    return StudyOutcome(study, outcomes, [good[unit] for unit in wanted if unit in good], missing, others)


def _measured(job: JobOutcome, run: RunOutcome, unit: Unit) -> Measured:
    result, storage = run.result, run.storage
    assert result is not None
    assert result.summary is not None
    assert storage is not None
    made = unit.point, unit.repeat, job.job.job, run.name, result.started, result.ended, result.summary
    return Measured(*made, storage.cached, storage.outcome(), result.disturbance)
