"""Outcome of a study: the measurements that its jobs made, and the measurements that are still missing."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, DlioError, InvalidRun
from dlio_hpc.batch.job_record import unknown
from dlio_hpc.files import archive, rundir, safe_folders
from dlio_hpc.plan import night_chain, packing, plan
from dlio_hpc.plan.packing import Unit
from dlio_hpc.plan.study import Study
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome


class MissingMeasurement(NamedTuple):
    """A measurement that is missing. unit: point and repeat of the measurement. job: name of the newest job that should
    have made the measurement; None if no job was submitted for it. why: reason why the measurement is missing. is_live:
    whether `job` is still queued or running.
    """

    unit: Unit
    job: str | None
    why: str
    is_live: bool


class StudyOutcome(NamedTuple):
    """Outcome of a study. jobs: jobs, sorted by their numbers. measured: valid measurements, in the order of the study.
    missing: measurements that are still to be made. others: number of valid measurements that are not in `measured`,
    because they duplicate a measurement there. broken: for each job that cannot be read, a message with the reason.
    """

    study: Study
    jobs: list[JobOutcome]
    measured: list[Measured]
    missing: list[MissingMeasurement]
    others: int
    broken: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Notes of all jobs, without duplicates."""
        return list(dict.fromkeys(note for job in self.jobs for note in job.plan.notes))

    @property
    def wanted(self) -> int:
        """Number of all measurements of the study, both made and missing."""
        return len(self.measured) + len(self.missing)


def is_study(path: Path) -> bool:
    """Return True if `path` is the folder of a study, and False if it is the folder of a job. The folder of a study
    need not exist: it is enough that the jobs of the study have copies of study.json.
    """
    return not (path / rundir.JOB).exists() and _record(path) is not None


def _record(path: Path) -> Path | None:
    """Return the path of a study's record, study.json. If the record in the folder of the study is lost, return the
    path of a copy in the directory of one of its jobs. If there is no copy either, return None.
    """
    own = path / rundir.STUDY
    if own.is_file():
        return own
    copies = sorted(path.parent.glob(f"{glob.escape(path.name)}-*/{rundir.STUDY}"))
    return next((copy for copy in copies if _number(path.name, copy.parent.name) is not None), None)


def load(path: Path) -> Study:
    """Load the study in a folder. Raise ConfigError if there is no study, and InvalidRun if its record is corrupted."""
    record = _record(path)
    if record is None and not path.exists():
        raise unknown(path)
    if record is None:
        raise ConfigError(f"{path} is not a study's folder: it has no {rundir.STUDY}")
    try:
        content = safe_folders.content(record, rundir.LARGEST_DOCUMENT)
    except OSError as fault:
        raise ConfigError(f"cannot read {record}: {fault.strerror}") from fault
    study = serialization.decode(content, Study, str(record), InvalidRun)
    here = os.path.dirname(os.path.abspath(path))
    return structs.replace(study, runs=here, archive=plan.moved(study.archive, study.runs, here))


def held(outcomes: Sequence[JobOutcome]) -> Study | None:
    """Return the study to which all these jobs belong. Return None if the jobs belong to different studies or to
    none.
    """
    copies = {outcome.study: outcome.job.job for outcome in outcomes}
    studies = [
        serialization.decode(content, Study, f"{job}/{rundir.STUDY}", InvalidRun)
        for content, job in copies.items()
        if content
    ]
    if None in copies or len({(study.study, study.created) for study in studies}) != 1 or studies[0].is_plain:
        return None
    return studies[0]


def jobs(study: Study) -> list[Path]:
    """Return the directories of the study's jobs, sorted by the numbers of the jobs. For a job whose directory was
    removed, return the path of its archive instead.
    """
    paths = {path.parent.name: path.parent for path in _named(study, study.runs, f"/{rundir.JOB}")}
    for path in _named(study, study.archive, archive.SUFFIX):
        paths.setdefault(path.name.removesuffix(archive.SUFFIX), path)
    numbers = {name: _number(study.study, name) for name in paths}
    return [paths[name] for name in sorted(paths, key=lambda name: numbers[name] or 0) if numbers[name] is not None]


def next_number(study: Study) -> int:
    """Return the number for the next job of the study. It is larger than every number that is in use. A number is in
    use if any file or folder has the name of the job with this number.
    """
    names = [path.name for path in _named(study, study.runs, "")]
    names += [path.name.removesuffix(archive.SUFFIX) for path in _named(study, study.archive, archive.SUFFIX)]
    return 1 + max((_number(study.study, name) or 0 for name in names), default=0)


def _named(study: Study, folder: str, suffix: str) -> list[Path]:
    """Return the paths in a folder whose names start like the names of the study's jobs and end with `suffix`."""
    return list(Path(folder).glob(f"{glob.escape(study.study)}-*{suffix}"))


def _number(study: str, name: str) -> int | None:
    """Return the number of the job `name` in the study, or 0 for the job that generates datasets. Return None if `name`
    is not a job of the study. It may, for example, be a job of a study whose name starts in the same way.
    """
    return 0 if name == f"{study}-generate" else night_chain.job_number(study, name)


def outcome(study: Study, paths: Sequence[Path]) -> StudyOutcome:
    """Return the outcome of a study from the jobs in these directories and archives. Jobs that cannot be read are
    listed in `broken`.
    """
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
    """Load a job from its directory, or from its archive if the directory cannot be read."""
    try:
        return job_outcome.load(path)
    except DlioError:
        kept = Path(study.archive, path.name + archive.SUFFIX)
        if not path.is_dir() or not kept.exists():
            raise
        return job_outcome.load(kept)


def is_live(job: JobOutcome) -> bool:
    """Return whether the job is queued or running. A job without a batch id is neither, because its submission was
    interrupted.
    """
    return job.directory is not None and not job.job.ended and job.job.batch_id is not None


def of_jobs(study: Study, outcomes: list[JobOutcome], absent: str | None = None) -> StudyOutcome:
    """Return the outcome of a study from these jobs. absent: reason that is stated for a missing measurement if none of
    these jobs was planned to make it.
    """
    laid_out = {part.name for part in study.parts if any(axis.is_layout for axis in part.axes)}
    numbers = range(len(study.points))
    good: dict[Unit, Measured] = {}
    chosen = _chosen(study, outcomes)
    bad: dict[Unit, MissingMeasurement] = {}
    others = 0
    for job in outcomes:
        for run in job.runs:
            if run.run.point is None or run.run.point not in numbers:  # a warm-up, or a run of a damaged plan
                continue
            unit = Unit(run.run.point, run.run.repeat)
            why = job_outcome.run_fault(job, run, must_be_laid_out=study.points[unit.point].part in laid_out)
            if why is not None:
                bad[unit] = MissingMeasurement(unit, job.job.job, str(why), is_live(job))
            elif unit in good or chosen.get(unit, job.job.job) != job.job.job:
                others += 1
            else:
                good[unit] = _measured(job, run, unit)
    wanted = packing.order(study)
    if absent is None:
        archives = Path(study.archive) / f"{study.study}-N{archive.SUFFIX}"
        absent = f"no job was submitted for it, or its directory in {study.runs} and its archive {archives} are missing"
    missing = [bad.get(unit, MissingMeasurement(unit, None, absent, False)) for unit in wanted if unit not in good]
    return StudyOutcome(study, outcomes, [good[unit] for unit in wanted if unit in good], missing, others)


def _chosen(study: Study, outcomes: Sequence[JobOutcome]) -> dict[Unit, str]:
    """Return the job whose measurements count, for each measurement of a mix: the first job with good measurements of
    all loads of the repeat, alone and together. Without such a job, the first good measurement counts; it is not in the
    result.
    """
    chosen: dict[Unit, str] = {}
    for block in study.blocks if study.is_mixed else ():
        points = {point for launch in block for point in launch}
        for job in outcomes:
            good = {
                Unit(run.run.point, run.run.repeat)
                for run in job.runs
                if run.run.point in points and job_outcome.run_fault(job, run) is None
            }
            for repeat in {unit.repeat for unit in good}:
                units = {Unit(point, repeat) for point in points}
                if units <= good:
                    chosen = dict.fromkeys(units, job.job.job) | chosen
    return chosen


def archived(folder: Path, jobs: Sequence[str]) -> StudyOutcome | None:
    """Read the archives of these jobs in a folder, and return the outcome of their study. Return None if the jobs
    belong to no study.
    """
    outcomes = [job_outcome.load_archive(folder / (job + archive.SUFFIX)) for job in jobs]
    study = held(outcomes)
    if study is None:
        return None
    return of_jobs(structs.replace(study, archive=str(folder)), outcomes, absent="its job is not archived")


def _measured(job: JobOutcome, run: RunOutcome, unit: Unit) -> Measured:
    result, storage = run.result, run.storage
    assert result is not None
    assert result.summary is not None
    assert storage is not None
    made = unit.point, unit.repeat, job.job.job, run.name, result.started, result.ended, result.summary
    return Measured(*made, storage.cached, storage.outcome(), result.disturbance)
