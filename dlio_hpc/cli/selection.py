"""Jobs as verdicts see them, by whatever a user calls them: directory, archive, study, or a name in the history."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.batch.job_record import unknown
from dlio_hpc.cli import console, job_names
from dlio_hpc.cli.verbs import PATH, option
from dlio_hpc.errors import ConfigError, Incomplete, InvalidRun
from dlio_hpc.plan.plan import archive_folder
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.records.job_outcome import JobOutcome
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.verdict import history, history_entry
from dlio_hpc.verdict.history import Where
from dlio_hpc.verdict.history_entry import Entry


class Found(NamedTuple):
    """folder: of archives, whose history and baselines are the job's."""

    entry: Entry
    folder: Path


def of_archives(function: Any) -> Any:
    """The options --archive and --runs of commands on histories."""
    function = option(
        "-o", "--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Where jobs are."
    )(function)
    return option(
        "--archive", type=PATH, metavar="DIR", help="Where archives, history and baselines are. Default: RUNS/archive."
    )(function)


def folder(archive: Path | None, runs: Path) -> Path:
    """Where the archives are; ConfigError where there are none."""
    found = archive or runs / "archive"
    if not found.is_dir():
        raise ConfigError(f"{found} is no folder of archives; say with --archive where they are")
    return found


def refresh(where: Path) -> None:
    """Take in what the history in a folder does not know yet; what cannot be read is said."""
    if not history.is_writable(where):
        return  # each look takes it in for itself
    for note in history.take_in(where).notes:
        console.say(f"note: {note}")


class Looked(NamedTuple):
    """missing: of each study, in words, how much of it nobody has."""

    jobs: list[Found]
    missing: list[str]


def look(names: Sequence[str], archive: Path | None, runs: Path) -> Looked:
    """All that have these names; a study is its jobs that measure. ConfigError where a name is nobody's."""
    found = [_named(name, archive, runs) for name in names]
    missing = dict.fromkeys(words for each in found for words in each.missing)
    return Looked([job for each in found for job in each.jobs], list(missing))


def jobs(names: Sequence[str], archive: Path | None, runs: Path) -> list[Found]:
    """As look(), whatever is missing."""
    return look(names, archive, runs).jobs


def _named(name: str, archive: Path | None, runs: Path) -> Looked:
    path = job_names.place(name, runs)
    if study_outcome.is_study(path):
        return _study(job_names.study_in(path), archive)
    if path.exists() or "/" in name:
        return Looked([_job(path, archive)], [])
    return Looked(_remembered(name, archive, runs), [])


def _study(found: StudyOutcome, archive: Path | None) -> Looked:
    """InvalidRun where one of its jobs cannot be read: the verdict would be about the others alone."""
    if found.broken:
        raise InvalidRun(found.broken[0])
    folder = archive or Path(found.study.archive)
    jobs = [Found(_entry(job), folder) for job in found.jobs]
    jobs = [job for job in jobs if job.entry.measurements or job.entry.fault is not None]
    words = f"{found.study.study}: {len(found.missing)} of {found.wanted} measurements are missing"
    return Looked(jobs, [words] if found.missing else [])


def _job(path: Path, archive: Path | None) -> Found:
    outcome = job_outcome.load(path)
    where = archive_folder(outcome.plan, path) if path.is_dir() else path.absolute().parent
    return Found(_entry(outcome), archive or where)


def _entry(outcome: JobOutcome) -> Entry:
    """Incomplete where the job goes on."""
    job = outcome.job
    if not job.ended:
        raise Incomplete(f"job {job.job} is {job.state}; wait for its end (dlio-hpc wait {outcome.directory})")
    return history_entry.of(outcome)


def _remembered(name: str, archive: Path | None, runs: Path) -> list[Found]:
    """A job or a study whose directory is gone."""
    where = archive or runs / "archive"
    every: tuple[Entry, ...] = ()
    if where.is_dir():
        refresh(where)
        every = history.entries(where)
        mine = [each for each in every if each.job == name] or [each for each in every if each.study == name]
        if mine:
            return [Found(each, where) for each in mine]
    raise unknown(runs / name, where, [names for entry in every for names in (entry.job, entry.study)])


def entries(where: Path, wanted: Where = history.EVERYTHING) -> tuple[Entry, ...]:
    """The history of a folder with all that is new in it; none where there is no such folder yet."""
    if not where.is_dir():
        return ()
    refresh(where)
    return history.entries(where, wanted)
