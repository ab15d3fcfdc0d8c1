"""Names by which users refer to jobs and studies. A name is a path, or the name of a directory in the folder of runs.
If this directory was removed, the name stands for the archive of the job.
"""

import glob
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from dlio_hpc.base.errors import ConfigError, DlioError
from dlio_hpc.base.units import counted, listed
from dlio_hpc.batch import abandoned_files, job_record
from dlio_hpc.dataset import folder_kinds
from dlio_hpc.files import rundir
from dlio_hpc.files.archive import SUFFIX
from dlio_hpc.records import study_outcome
from dlio_hpc.records.study_outcome import StudyOutcome


def place(name: str, runs: Path) -> Path:
    """Return the path that `name` stands for: the directory `name` in the folder `runs` or, if the directory no longer
    exists, the archive of the job, which may also be given by its file name. If neither exists, `name` is a path. See
    also _chosen().
    """
    below, archived = runs / name, runs / "archive" / (name + SUFFIX)
    if name.endswith(SUFFIX) and not Path(name).exists():
        archived = runs / "archive" / name
    is_archived = archived.is_file() and not below.exists() and not study_outcome.is_study(below)
    return _chosen(name, archived if is_archived else below)


def study_folder(name: str, runs: Path) -> Path:
    """Return the folder of the study `name`. name: path of the study, or its name in the folder `runs`."""
    return _chosen(name, runs / name)


def _chosen(name: str, inside: Path) -> Path:
    """Return `inside`, which the name of a job or study stands for in the folder of runs. If only a path `name` exists,
    or if `name` has a slash, return this path. Raise ConfigError if both exist, such as a job and its copy that was
    extracted from an archive.
    """
    here = Path(name)
    if "/" in name or name in ("", ".", "..") or (here.exists() and not inside.exists()):
        return here
    if here.is_dir() and inside.exists() and not here.samefile(inside):
        raise ConfigError(f"both {inside} and ./{name} exist; write the path of the one that is meant")
    return inside


def study_of(path: Path) -> Path | None:
    """Return the folder of the study that a job belongs to; None if it belongs to none. path: directory or archive of
    the job.
    """
    name = path.name.removesuffix(SUFFIX)
    folder = path.parent.parent if path.name.endswith(SUFFIX) else path.parent
    with suppress(DlioError, OSError):
        name = job_record.load(folder / name).study
    study = folder / name
    return study if name and study_outcome.is_study(study) else None


def study_in(folder: Path) -> StudyOutcome:
    """Return the outcome of the study in a folder, with all its jobs."""
    study = study_outcome.load(folder)
    return study_outcome.outcome(study, study_outcome.jobs(study))


def directories(names: Sequence[str], runs: Path) -> list[Path]:
    """Return the directories of jobs. A name is a path, or the name of a job or of a study in the folder `runs`. A
    study stands for all its jobs. If `names` is empty, return the directories of all jobs in `runs`. In this case,
    raise ConfigError if there are no jobs.
    """
    if not names:
        return _all(runs)
    return list(dict.fromkeys(directory for name in names for directory in named(name, runs)))


def _all(runs: Path) -> list[Path]:
    """Return the directories of all jobs in the folder `runs` that this user may read. Raise ConfigError if there are
    none, and OSError if `runs` cannot be read.
    """
    files = sorted(runs.glob(rundir.JOBS)) or list(rundir.matching(runs, rundir.JOBS))
    if not files:
        rests = ", only leftover files of killed submissions (dlio-hpc clean removes them)"
        left = rests if any(abandoned_files.rests(runs)) else ""
        left = left if runs.is_dir() else f", which does not exist{_jobs_nearby(runs)}"
        folder_kinds.refuse_other(runs, "jobs", "--runs")
        raise ConfigError(f"no jobs in {runs}{left}; give the directory of your jobs with --runs")
    return [file.parent for file in files]


def _jobs_nearby(runs: Path) -> str:
    """Return where the jobs are, if this folder or the one above has jobs and `runs` is a name in this folder."""
    near = next((path for path in (Path(), Path("..")) if folder_kinds.holds(path, "jobs")), None)
    if near is None or runs.is_absolute():
        return ""
    return f"; {'this folder' if near == Path() else 'the folder above'} has jobs: --runs {near}"


def overlooked(runs: Path, listed: Collection[Path]) -> Iterator[str]:
    """Yield notes about folders in `runs` that may be jobs and are not in `listed`, the directories of jobs: folders
    that this user may not read, and folders with a plan, but without job.json.
    """
    with suppress(OSError):
        others = [
            path for path in sorted(runs.iterdir()) if path not in listed and path.name[0] != "." and path.is_dir()
        ]
        unreadable = [path for path in others if not os.access(path, os.R_OK | os.X_OK)]
        if unreadable:
            yield f"{counted(len(unreadable), 'folder')} cannot be read (Permission denied): {_names(unreadable)}"
        lost = [path for path in others if path not in unreadable and (path / rundir.PLAN).is_file()]
        if lost:
            yield (
                f"{counted(len(lost), 'folder')} of jobs without {rundir.JOB}: {_names(lost)}; if {runs / 'archive'} "
                "has the archive of a job, dlio-hpc report shows it"
            )


def _names(folders: Sequence[Path]) -> str:
    return listed([path.name for path in folders])


def named(name: str, runs: Path) -> list[Path]:
    """Return a list with the directory of the job `name`. If `name` is a study, return the directories of all its jobs.
    name: a path, or a name in the folder `runs`.
    """
    if study_outcome.is_study(folder := study_folder(name, runs)):
        return [path for path in study_outcome.jobs(study_outcome.load(folder)) if path.is_dir()]
    if folder.is_dir() or "/" in name:
        return [folder]
    # The names of a study's jobs begin with the name of the study.
    likely = [path.parent for path in sorted(runs.glob(f"{glob.escape(name)}-*/{rundir.JOB}"))]
    of_study = [directory for directory in likely if job_record.load(directory).study == name]
    return of_study or [runs / name]


def studies(names: Sequence[str], runs: Path) -> list[Path]:
    """Return the folders of the studies among `names`. If `names` is empty, return the folders of all studies in the
    folder `runs`.
    """
    folders = [study_folder(name, runs) for name in names] or sorted(
        path.parent for path in runs.glob(f"*/{rundir.STUDY}")
    )
    return [folder for folder in folders if study_outcome.is_study(folder)]
