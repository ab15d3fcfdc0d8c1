"""What a name on the command line stands for: a study, a job, an archive."""

from pathlib import Path

from dlio_hpc.archive import SUFFIX
from dlio_hpc.report import studyfiles
from dlio_hpc.report.studyfiles import StudyOutcome


def place(name: str, runs: Path) -> Path:
    """A path, or what has that name below `runs`, its archive where its directory is gone; where its directory would be
    if there is nothing of that name.
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
