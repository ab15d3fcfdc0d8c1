"""Submission of the jobs of a study, so that they run one after the other and do not disturb each other."""

import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, DlioError
from dlio_hpc.base.units import counted
from dlio_hpc.batch import job_record, submit
from dlio_hpc.batch.cancel import cancel
from dlio_hpc.batch.schedulers.scheduler import After
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.files import rundir
from dlio_hpc.plan import night_chain
from dlio_hpc.plan.plan import Plan
from dlio_hpc.plan.planned import Planned

Report = Callable[[str], None]


class Submission(NamedTuple):
    """The jobs that a command submitted. name: name of the study. study: folder of the study; None for a single
    measurement. directories: directories of the jobs.
    """

    name: str
    study: Path | None
    directories: tuple[Path, ...]


class Commands(NamedTuple):
    """A job that is planned but not submitted. command: command that would submit the job."""

    plan: Plan
    command: str


def commands(planned: Planned) -> list[Commands]:
    """Return, for each job, the command that would submit the job. In a command, ID-OF-JOB stands for the batch id of
    an earlier job.
    """
    jobs = planned.jobs
    return [
        Commands(job, SCHEDULERS[job.site.scheduler].command(job, after(jobs[: number + 1], _unknown(jobs[:number]))))
        for number, job in enumerate(jobs)
    ]


def _unknown(jobs: Sequence[Plan]) -> list[str]:
    return [f"ID-OF-{job.job}" for job in jobs]


def after(jobs: Sequence[Plan], ids: Sequence[str], parents: Sequence[str] = (), live: Sequence[str] = ()) -> After:
    """Return the dependencies of the last of `jobs`. ids: batch ids of the other `jobs`, in the same order. parents:
    batch ids of jobs that must succeed before the last job starts. live: batch ids of jobs that must end before the
    last job starts.

    The last job waits for all other jobs, not only for the previous one, because a queued job may be cancelled. If the
    first job only generates data, it must succeed. The other jobs need only end.
    """
    if not ids:
        return After(tuple(parents), tuple(live))
    first = 1 if all(run.kind == "generate" for run in jobs[0].runs) else 0
    return After((*parents, *ids[:first]), (*live, *ids[first:]))


def start(planned: Planned, parents: Sequence[Path], report: Report, verbose: Report) -> Submission:
    """Submit all jobs. They start only after all jobs in the directories `parents` have succeeded. report: function
    that prints a line for the user. verbose: function that prints a submit command.
    """
    if parents and planned.study.nights > 1:
        raise ConfigError(
            "--after: it is not known when the first night could begin; wait until the other job has ended, or leave "
            "--nights out"
        )
    submit.check(planned.jobs, is_after=bool(parents))
    waited = submit.parents(parents, planned.jobs[0])
    if planned.study.is_plain:
        return hand_over(planned, waited, (), report, verbose)
    with rundir.locked_file(submit.keep(planned.study) / rundir.STUDY):  # no resumption before all jobs are submitted
        return hand_over(planned, waited, (), report, verbose)


def hand_over(
    planned: Planned, parents: Sequence[str], live: Sequence[str], report: Report, verbose: Report
) -> Submission:
    """Submit the jobs. Each job runs after the jobs before it; see after(). If the batch system rejects a job, the jobs
    that are already submitted are kept if they belong to a study. Otherwise, they are cancelled. parents: batch ids of
    jobs that must succeed before any of the jobs starts. live: batch ids of jobs that must end before any of the jobs
    starts. If the first job may start immediately, the begin times of the others are relative to its acceptance.
    """
    plans, study = planned.jobs, None if planned.study.is_plain else planned.study
    if study is not None:
        for line in summary(planned):
            report(line)
    directories: list[Path] = []
    ids: list[str] = []
    notes: set[str] = set()
    home = SCHEDULERS[plans[0].site.scheduler].home()
    late = 0.0
    for number, job in enumerate(plans):
        plan = structs.replace(job, begins=job.begins and night_chain.later(job.begins, late))
        try:
            submitted = submit.submit(plan, after(plans[: number + 1], ids, parents, live), study, home)
        except DlioError:
            _give_up(planned, directories, report)
            raise
        if number == 0 and not plan.begins:
            late = max(0.0, time.time() - units.timestamp(plan.created))
        directories.append(Path(plan.directory))
        ids.append(str(submitted.job.batch_id))
        verbose(f"submit command: {submitted.job.command}")
        for note in (note for note in (*plan.notes, *submitted.notes) if note not in notes):
            report(f"note: {note}")
        notes |= {*plan.notes, *submitted.notes}
        report(_submitted(plan, submitted.job))
        report(f"  {plan.directory}")
    return Submission(planned.study.study, None if study is None else study.folder, tuple(directories))


def _submitted(plan: Plan, job: job_record.Job) -> str:
    cluster = f" on cluster {job.cluster}" if job.cluster else ""
    night = f", {job.night_text()}" if job.nights > 1 else ""
    return f"submitted {job.job} to {plan.site.name} as {job.batch_id}{cluster}{night}:"


def summary(planned: Planned) -> list[str]:
    """Return a line with the numbers of points, measurements and jobs of a study, and with its seed. If the study has
    several nights, further lines have the begin and the number of jobs of each night.
    """
    points, measured = len(planned.study.points), sum(run.point is not None for job in planned.jobs for run in job.runs)
    heading = (
        f"study {planned.study.study}: {counted(points, 'point')}, {counted(measured, 'measurement')} in "
        f"{counted(len(planned.jobs), 'job')}, "
        f"seed {planned.study.seed}"
    )
    jobs = Counter((job.night, job.begins) for job in planned.jobs) if planned.study.nights > 1 else {}
    return [
        heading,
        *(
            f"{night_chain.described(night, planned.study.nights, begins)}: {counted(count, 'job')}"
            for (night, begins), count in jobs.items()
        ),
    ]


def _give_up(planned: Planned, directories: Sequence[Path], report: Report) -> None:
    """Handle a rejection by the batch system. If the study can be resumed, keep the jobs that are submitted, and report
    the command that submits the remaining jobs later. Otherwise, cancel the jobs in `directories`.
    """
    if not planned.study.is_plain:
        later = resume_command(planned.study.folder)
        report(f"jobs submitted: {len(directories)} of {len(planned.jobs)}; submit the others later with: {later}")
        return
    for directory in directories:
        report(f"cancelling {cancel(directory).job}, which belongs to the same study as the rejected job")


def resume_command(folder: Path) -> str:
    """Return the command that resumes the study in `folder`."""
    return f"dlio-submit --resume {shlex.quote(str(folder))}"
