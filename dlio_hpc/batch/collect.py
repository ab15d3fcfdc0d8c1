"""Collection of a job that has ended: write its archive."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from dlio_hpc.base.errors import Incomplete, InfrastructureError, InvalidRun, of_system
from dlio_hpc.batch import job_record, job_state
from dlio_hpc.files import archive, filesystem, rundir
from dlio_hpc.plan.plan import archive_folder


class Collected(NamedTuple):
    """Result of collect(). fresh: whether this call wrote the archive; False if it already existed. notes: messages for
    the user.
    """

    archive: Path
    fresh: bool
    notes: list[str]


# Seconds that the file system of the dataset has to answer.
_ANSWER_S = 5.0


def collect(directory: Path) -> Collected:
    """Archive the job in `directory`. If the job already has an intact archive and has not run again since, keep this
    archive. Raise Incomplete if the job has not ended. The job directory is not changed. If the collection is
    interrupted, it can therefore be repeated.
    """
    record = job_state.settle(directory)
    if not record.ended:
        raise Incomplete(
            f"job {record.job} is {record.state}; collect it when it has ended (dlio-hpc wait {directory})"
        )
    has_ended = job_state.exit_status(directory) is not None
    if not has_ended and (job_state.ran_since(directory, record) or rundir.is_running(directory)):
        raise Incomplete(
            f"job {record.job} was {record.state}, but its script was started again and has not ended; collect it "
            "when the file exit_status exists"
        )
    plan = job_record.load_plan(directory)
    if plan.job != record.job:
        raise InvalidRun(f"{directory}: {rundir.PLAN} is of job {plan.job}, but {rundir.JOB} of job {record.job}")
    target = archive_folder(plan, directory) / (record.job + archive.SUFFIX)
    if not target.exists():
        job_state.await_release(directory)
    with rundir.locked(directory):
        notes = _notes(target, plan.folders)
        try:
            rundir.take_spare(directory, [(run.number, run.name) for run in plan.runs])
            return _archived(directory, target, notes)
        except OSError as fault:
            why = of_system(fault, target)
            raise InfrastructureError(
                f"cannot archive {directory}: {why}; the job's directory is untouched. When that is fixed, run: "
                f"dlio-hpc collect {directory}"
            ) from fault


def _archived(directory: Path, target: Path, notes: list[str]) -> Collected:
    faults = archive.faults(target) if target.exists() else None  # None: there is no archive
    if faults == []:
        if archive.is_of(target, directory):
            return Collected(target, False, notes)
        if not _ran_again(target, directory):
            notes.append(
                f"{directory} has changed since it was archived; to archive it again, remove {target} and collect the "
                "job"
            )
            return Collected(target, False, notes)
        notes.append(
            f"the job ran again after it was archived: {target} has been written again, with earlier results in "
            f"{rundir.ATTEMPTS}"
        )
    elif faults:
        _refuse_altered(directory, f"{target} is damaged")
        kept = _aside(target)
        notes.append(f"{target} is not an archive of this job, or damaged ({faults[0]}): it is kept as {kept}")
    else:
        _refuse_altered(directory, f"{target} is missing")
    for left_over in target.parent.glob(f".{target.name}.*.tmp"):
        left_over.unlink()  # left by a collection that was killed
    notes += archive.create(directory, target)
    return Collected(target, True, notes)


def _refuse_altered(directory: Path, why: str) -> None:
    """Raise InvalidRun if results differ from those that were collected before. why: fault of the archive that
    contained the original results.
    """
    collected = archive.recorded(directory)
    if not collected:  # a job that is collected for the first time, whose files need not be read twice
        return
    if names := archive.altered(directory, archive.digests(directory), collected):
        raise InvalidRun(
            f"{directory / names[0]} was changed after the job was collected, and {why}; put the original back. To "
            f"archive the files as they are, remove {directory / rundir.MANIFEST} and collect the job again"
        )


def _aside(target: Path) -> Path:
    """Rename an archive that is damaged, or that belongs to another job, because it may be the only copy. Return its
    new path.
    """
    number = 1
    while (kept := target.with_name(f"{target.name}.damaged-{number}")).exists():
        number += 1
    target.rename(kept)
    return kept


def _ran_again(target: Path, directory: Path) -> bool:
    """Return whether the job ran again after it was archived. The job directory then meets three conditions: it has an
    earlier attempt that is not in the archive, it has the archived plan, and it has every archived result. A folder of
    another job with the same name therefore never replaces an archive.
    """
    archived, current = archive.listed(target), archive.digests(directory)
    attempts = {PurePosixPath(name).parts[:2] for name in archived}
    if all((rundir.ATTEMPTS, attempt.name) in attempts for attempt in rundir.attempts(directory)):
        return False
    results = {digest for name, digest in archived.items() if PurePosixPath(name).name == rundir.RESULT}
    return archived.get(rundir.PLAN) == current.get(rundir.PLAN) and results <= set(current.values())


def _notes(target: Path, folders: Sequence[str]) -> list[str]:
    def is_under_test() -> bool:
        return _device(target.parent) in {_device(Path(folder)) for folder in folders}

    # A folder may be inaccessible, or its storage may not answer; then there is no note.
    if filesystem.answered(is_under_test, _ANSWER_S):
        return ["the archive is on the file system under test; choose another place with --archive"]
    return []


def _device(path: Path) -> int:
    return os.stat(filesystem.existing(path)).st_dev
