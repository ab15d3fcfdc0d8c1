"""Selection of the jobs to judge. Users select jobs by directory, archive, study, or a name in the history."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.counted_progress import Report
from dlio_hpc.base.errors import ConfigError, DlioError, Incomplete, InvalidRun, name_hint
from dlio_hpc.batch.job_record import unknown
from dlio_hpc.dataset import folder_kinds
from dlio_hpc.files import archive as archives
from dlio_hpc.plan.plan import archive_folder
from dlio_hpc.plan.study import Judging, Study
from dlio_hpc.records import job_outcome, names, study_outcome
from dlio_hpc.records.job_outcome import JobOutcome
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.verdict import history, history_entry
from dlio_hpc.verdict.history import Where
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.validity_criteria import Absent

# Function that is called with each note for the user.


class Selected(NamedTuple):
    """A selected job. folder: folder of archives that holds the history and the baselines for this job. study: study of
    the job; None if the job belongs to no study, or if its archive is gone.
    """

    entry: Entry
    folder: Path
    study: Study | None

    @property
    def judging(self) -> Judging | None:
        """Settings of the verdict of the job's suite; None if the job belongs to no suite."""
        return None if self.study is None else self.study.verdict


class Selection(NamedTuple):
    """Selected jobs. missing: a line for each study that lacks measurements."""

    jobs: list[Selected]
    missing: list[str]


def folder(archive: Path | None, runs: Path) -> Path:
    """Return the folder of the archives. Raise ConfigError if it does not exist, or is a folder of another kind."""
    path = archive or runs / "archive"
    if archive is None and not runs.is_dir():
        names = sorted(other.name for other in runs.parent.iterdir()) if runs.parent.is_dir() else []
        raise ConfigError(
            f"the folder of jobs {runs} does not exist; {name_hint(runs.name, names)}give the folder of jobs with "
            "-o/--runs, or the folder of archives with --archive"
        )
    if not path.is_dir():
        if archive is None:
            folder_kinds.refuse_other(runs, "jobs", "--runs")
        state = "is not a folder" if path.exists() else "does not exist"
        raise ConfigError(f"the folder of archives {path} {state}; give the folder with --archive")
    folder_kinds.refuse_other(path, "archives", "--archive")
    return path


def refresh(where: Path, report: Report) -> None:
    """Update the history of the folder: add the archives that it lacks, and report archives that cannot be read. Do
    nothing if this user has no permission to write the history. In that case, entries() reads the new archives itself.
    """
    if history.is_writable(where):
        for note in history.take_in(where, report).notes:
            report(f"note: {note}")


def select(given: Sequence[str], archive: Path | None, runs: Path, report: Report) -> Selection:
    """Return the jobs with these names. A name may also be the name of a study. It then selects the study's jobs that
    measured something or failed. Raise ConfigError if a name is unknown, or if `archive` is no folder of archives.
    """
    if archive is not None:
        folder(archive, runs)
    selections = [_named(name, archive, runs, report) for name in given]
    missing = dict.fromkeys(line for selection in selections for line in selection.missing)
    return Selection([job for selection in selections for job in selection.jobs], list(missing))


def _named(name: str, archive: Path | None, runs: Path, report: Report) -> Selection:
    path = names.place(name, runs)
    if study_outcome.is_study(path):
        return _study(names.study_in(path), archive)
    if path.exists() or "/" in name:
        return Selection([_job(path, archive)], [])
    return _from_history(name, archive, runs, report)


def _study(outcome: StudyOutcome, archive: Path | None) -> Selection:
    """Return those jobs of a study that measured something or failed. Raise InvalidRun if a job cannot be read, because
    a verdict without that job would be wrong.
    """
    if outcome.broken:
        raise InvalidRun(outcome.broken[0])
    where = archive or Path(outcome.study.archive)
    jobs = [Selected(_entry(job), where, outcome.study) for job in outcome.jobs]
    jobs = [job for job in jobs if job.entry.measurements or job.entry.fault is not None]
    return Selection(jobs, _missing(outcome))


def _job(path: Path, archive: Path | None) -> Selected:
    outcome = job_outcome.load(path)
    where = archive_folder(outcome.plan, path) if path.is_dir() else path.absolute().parent
    return Selected(_entry(outcome), archive or where, study_outcome.held([outcome]))


def _entry(outcome: JobOutcome) -> Entry:
    """Return the entry of a job. Raise Incomplete if the job has not ended."""
    job = outcome.job
    if not job.ended:
        raise Incomplete(f"job {job.job} is {job.state}; wait for its end (dlio-hpc wait {outcome.directory})")
    return history_entry.of(outcome)


def _from_history(name: str, archive: Path | None, runs: Path, report: Report) -> Selection:
    """Return the job `name`, or the jobs of the study `name`, from the history. The history also knows jobs whose
    directory no longer exists. Raise ConfigError if the name is unknown.
    """
    where = archive or runs / "archive"
    known: tuple[Entry, ...] = ()
    if where.is_dir():
        refresh(where, report)
        known = history.entries(where)
        job = [entry for entry in known if entry.job == name]
        study = [] if job else [entry for entry in known if entry.study == name]
        if job:
            return _archived(job, where, report)
        if study:
            return _archived_study(study, where, report)
    raise unknown(runs / name, where, [label for entry in known for label in (entry.job, entry.study)])


def _archived(jobs: Sequence[Entry], where: Path, report: Report) -> Selection:
    """Return jobs in the history with the settings of their suites, which are read from their archives."""
    return Selection([Selected(entry, where, _study_of_archive(entry, where, report)) for entry in jobs], [])


def _archived_study(jobs: Sequence[Entry], where: Path, report: Report) -> Selection:
    """Return the jobs of a study in the history. If the archive of a job is gone or unreadable, it is unknown whether
    the study lacks measurements; report this. where: folder of archives.
    """
    try:
        outcome = study_outcome.archived(where, [entry.job for entry in jobs])
    except (DlioError, OSError) as fault:
        report(f"note: it is unknown whether {jobs[0].study} lacks measurements: {fault}")
        outcome = None
    if outcome is None:
        return _archived(jobs, where, report)
    return Selection([Selected(entry, where, outcome.study) for entry in jobs], _missing(outcome))


def _missing(outcome: StudyOutcome) -> list[str]:
    line = f"{outcome.study.study}: {len(outcome.missing)} of {outcome.wanted} measurements are missing"
    return [line] if outcome.missing else []


def _study_of_archive(entry: Entry, where: Path, report: Report) -> Study | None:
    """Return the study of a job from the job's archive. If the archive of a job of a study is gone or cannot be read,
    report this, and return None.
    """
    path = where / (entry.job + archives.SUFFIX)
    if path.exists():
        try:
            return study_outcome.held([job_outcome.load_archive(path)])
        except (DlioError, OSError) as fault:
            report(f"note: {entry.job} is compared without the settings of a suite: {fault}")
    elif entry.study != entry.job:
        report(f"note: {entry.job} is compared without the settings of its suite, because {path} is gone")
    return None


def entries(where: Path, report: Report, wanted: Where = history.EVERYTHING) -> tuple[Entry, ...]:
    """Add new archives to the history of a folder, and return the entries that `wanted` selects. Return an empty tuple
    if the folder does not exist.
    """
    if not where.is_dir():
        return ()
    refresh(where, report)
    return history.entries(where, wanted)


class Judged(NamedTuple):
    """Studies and jobs to which criteria are applied. jobs: jobs that belong to none of the studies."""

    studies: list[StudyOutcome]
    jobs: list[JobOutcome]

    @property
    def all_jobs(self) -> list[JobOutcome]:
        """The jobs of the studies, then the other jobs."""
        return [*(job for study in self.studies for job in study.jobs), *self.jobs]

    @property
    def absent(self) -> list[Absent]:
        """The measurements that the studies lack."""
        return [measurement for study in self.studies for measurement in absent(study)]


def judged(paths: Sequence[Path]) -> Judged:
    """Return the studies and jobs to judge, from these directories or archives. Jobs of a study are judged as that
    study, and the measurements of its other jobs are reported as missing.
    """
    folders = [path for path in paths if study_outcome.is_study(path)]
    studies = {_identity(one.study): one for one in map(names.study_in, dict.fromkeys(folders))}
    jobs: list[JobOutcome] = []
    parts: dict[tuple[str, str], list[JobOutcome]] = {}
    known: dict[tuple[str, str], Study] = {}
    of_copies: dict[bytes | None, Study | None] = {}  # decoding the copy of a study in each of its jobs takes long
    for job in job_outcome.load_all([path for path in dict.fromkeys(paths) if path not in folders]):
        if job.study not in of_copies:
            of_copies[job.study] = study_outcome.held([job])
        if (study := of_copies[job.study]) is None:
            jobs.append(job)
        else:
            known.setdefault(_identity(study), study)
            parts.setdefault(_identity(study), []).append(job)
    for identity, part in parts.items():
        whole = studies.get(identity)
        others = [] if whole is None else whole.jobs
        more = [job for job in part if job.job.job not in {other.job.job for other in others}]
        if more:
            why = "not planned in any of the given jobs"
            broken = () if whole is None else whole.broken
            outcome = study_outcome.of_jobs(known[identity], [*others, *more], absent=why)
            studies[identity] = outcome._replace(broken=broken)
    return Judged(list(studies.values()), jobs)


def _identity(study: Study) -> tuple[str, str]:
    return study.study, study.created


def absent(outcome: StudyOutcome) -> list[Absent]:
    """Return the measurements that a study lacks."""
    study = outcome.study
    return [
        Absent(study.title(study.points[missing.unit.point]), missing.unit.repeat, missing.job, missing.why)
        for missing in outcome.missing
    ]
