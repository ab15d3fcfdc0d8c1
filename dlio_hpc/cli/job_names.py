"""What a name on the command line stands for: a study, a job, an archive."""

from pathlib import Path

from dlio_hpc.files.archive import SUFFIX
from dlio_hpc.records import study_outcome
from dlio_hpc.records.study_outcome import StudyOutcome


def place(name: str, runs: Path) -> Path:
    """The path that `name` stands for: `name` itself where it is a path, else the directory of that name below `runs`,
    or its archive where the directory is gone. A name that does not exist gives the path of its directory.
    """
    if "/" in name or Path(name).exists():
        return Path(name)
    below, archived = runs / name, runs / "archive" / (name + SUFFIX)
    is_archived = archived.is_file() and not below.exists() and not study_outcome.is_study(below)
    return archived if is_archived else below


def study_in(folder: Path) -> StudyOutcome:
    """With all of its jobs."""
    study = study_outcome.load(folder)
    return study_outcome.outcome(study, study_outcome.jobs(study))
