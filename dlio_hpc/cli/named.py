"""What a name on the command line stands for: a study, a job, an archive."""

from pathlib import Path

from dlio_hpc.report import studyfiles
from dlio_hpc.report.studyfiles import StudyOutcome


def place(name: str, runs: Path) -> Path:
    """A path, or what has that name below `runs`."""
    below = runs / name
    is_below = not Path(name).exists() and "/" not in name and (below.exists() or studyfiles.is_study(below))
    return below if is_below else Path(name)


def study_in(folder: Path) -> StudyOutcome:
    """With all of its jobs."""
    study = studyfiles.load(folder)
    return studyfiles.outcome(study, studyfiles.jobs(study))
