"""Names of jobs and studies, as users give them: a path, the name of a directory below RUNS, or of its archive."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from dlio_hpc.batch import debris, job_record
from dlio_hpc.errors import ConfigError
from dlio_hpc.files import rundir
from dlio_hpc.files.archive import SUFFIX
from dlio_hpc.records import study_outcome
from dlio_hpc.records.study_outcome import StudyOutcome


def place(name: str, runs: Path) -> Path:
    """Return the path that `name` stands for: `name` itself where it is a path, else the directory of that name below
    `runs`, or its archive where the directory is gone. A name that does not exist gives the path of its directory.
    """
    if "/" in name or Path(name).exists():
        return Path(name)
    below, archived = runs / name, runs / "archive" / (name + SUFFIX)
    is_archived = archived.is_file() and not below.exists() and not study_outcome.is_study(below)
    return archived if is_archived else below


def study_folder(name: str, runs: Path) -> Path:
    """Return the folder of a study, by its path or its name below `runs`."""
    return Path(name) if os.sep in name or Path(name).is_dir() else runs / name


def study_in(folder: Path) -> StudyOutcome:
    """Return the study in a folder with all of its jobs."""
    study = study_outcome.load(folder)
    return study_outcome.outcome(study, study_outcome.jobs(study))


def directories(names: Sequence[str], runs: Path) -> list[Path]:
    """Return the directories of jobs: paths, names below `runs`, or those of a study's jobs; all below `runs` when none
    is named. ConfigError where there are none below `runs`.
    """
    if not names:
        return _all(runs)
    return list(dict.fromkeys(directory for name in names for directory in named(name, runs)))


def _all(runs: Path) -> list[Path]:
    """Return the directories of all jobs below `runs` that may be looked at; ConfigError where there are none, OSError
    where none may be looked at.
    """
    files = sorted(runs.glob(rundir.JOBS)) or list(rundir.matching(runs, rundir.JOBS))
    if not files:
        left = ", only the remains of killed submissions (dlio-hpc clean)" if any(debris.rests(runs)) else ""
        raise ConfigError(f"no jobs in {runs}{left}; say with --runs where they are")
    return [file.parent for file in files]


def named(name: str, runs: Path) -> list[Path]:
    """Return the directory of a job, by its path or its name below `runs`, or those of the jobs of a study there."""
    if study_outcome.is_study(folder := study_folder(name, runs)):
        return [path for path in study_outcome.jobs(study_outcome.load(folder)) if path.is_dir()]
    if folder.is_dir() or "/" in name:
        return [folder]
    # The names of a study's jobs begin with the name of the study.
    likely = [path.parent for path in sorted(runs.glob(f"{glob.escape(name)}-*/{rundir.JOB}"))]
    of_study = [directory for directory in likely if job_record.load(directory).study == name]
    return of_study or [runs / name]


def studies(names: Sequence[str], runs: Path) -> list[Path]:
    """Return the folders of the studies among the names; of all below `runs` when none is named."""
    folders = [study_folder(name, runs) for name in names] or sorted(
        path.parent for path in runs.glob(f"*/{rundir.STUDY}")
    )
    return [folder for folder in folders if study_outcome.is_study(folder)]
