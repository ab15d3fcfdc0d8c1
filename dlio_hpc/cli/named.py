"""What a name on the command line stands for: a study, a job, an archive."""

from pathlib import Path

from dlio_hpc.archive import SUFFIX
from dlio_hpc.report import studyfiles
from dlio_hpc.report.studyfiles import StudyOutcome


def place(name: str, runs: Path) -> Path:
    """The path that `name` stands for: `name` itself where it is a path, else the directory of that name below `runs`,
    or its archive where the directory is gone. A name that does not exist gives the path of its directory.
    """
    if "/" in name or Path(name).exists():
        return Path(name)
    below, archived = runs / name, runs / "archive" / (name + SUFFIX)
    is_archived = archived.is_file() and not below.exists() and not studyfiles.is_study(below)
    return archived if is_archived else below


def study_in(folder: Path) -> StudyOutcome:
    """With all of its jobs."""
    study = studyfiles.load(folder)
    return studyfiles.outcome(study, studyfiles.jobs(study))
