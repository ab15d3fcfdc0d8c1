"""Resumption of a study: submit jobs for the measurements that are still missing."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch import submission, submit
from dlio_hpc.batch.cancel import cancel
from dlio_hpc.batch.submission import Report, Submission
from dlio_hpc.files import rundir
from dlio_hpc.plan import night_chain, packing, planned
from dlio_hpc.plan.options import Options
from dlio_hpc.plan.planned import Planned
from dlio_hpc.plan.study import Study
from dlio_hpc.records import study_outcome
from dlio_hpc.records.job_outcome import JobOutcome
from dlio_hpc.records.study_outcome import StudyOutcome


class Lacking(NamedTuple):
    """The measurements that a study lacks. planned: the study, and new jobs for the missing measurements that no live
    job will make; there may be no such jobs. live: jobs of the study that are queued or running. stray: directories of
    jobs that were never submitted. measured: number of measurements that exist. missing: number of missing
    measurements, including those that live jobs will make.
    """

    planned: Planned
    live: list[JobOutcome]
    stray: list[Path]
    measured: int
    missing: int

    @property
    def directories(self) -> list[Path]:
        """Directories of the jobs that are queued or running."""
        return [job.directory for job in self.live if job.directory is not None]


def load(folder: Path, options: Options) -> Study:
    """Return the study in a folder. If `options` sets a walltime, an account, a queue or job options, these replace the
    values of the study. Raise ConfigError if the study only generates data.
    """
    known = study_outcome.load(folder)
    if known.generate == "only":
        raise ConfigError(
            f"{known.study} generates data and measures nothing, so it cannot be resumed; submit it again"
        )
    return planned.resumed(known, options)


def lacking(study: Study) -> Lacking:
    """Return the measurements that the study lacks, with jobs planned for them. Raise ConfigError if the site does not
    allow these jobs.
    """
    outcome = study_outcome.outcome(study, study_outcome.jobs(study))
    live = [job for job in outcome.jobs if study_outcome.is_live(job)]
    stray = [
        job.directory for job in outcome.jobs if job.directory and not job.job.ended and not study_outcome.is_live(job)
    ]
    wanted = [missing.unit for missing in outcome.missing if not missing.is_live]
    again = Planned(study, ())
    if wanted:
        seconds = {packing.Unit(run.point, run.repeat): run.seconds for run in outcome.measured}
        number, begins = study_outcome.next_number(study), _begins(outcome, wanted)
        again = Planned(study, packing.plans(study, wanted, number, seconds, begins))
        planned.check(again)
    return Lacking(again, live, stray, len(outcome.measured), len(outcome.missing))


def _begins(outcome: StudyOutcome, wanted: Sequence[packing.Unit]) -> dict[int, str]:
    """Return the time (UTC) at which each night of the missing measurements `wanted` begins. The time is empty if the
    night begins immediately.
    """
    good = {measurement.job for measurement in outcome.measured}
    jobs = [
        night_chain.NightJob(
            job.job.night,
            units.timestamp(job.job.begins or job.job.states[0].time),
            study_outcome.is_live(job) or job.job.job in good,
        )
        for job in outcome.jobs
    ]
    return night_chain.resumed(outcome.study, (outcome.study.night(unit.repeat) for unit in wanted), jobs)


def start(
    known: Study, report: Report, verbose: Report, on_wait: Callable[[], None]
) -> tuple[Lacking, Submission | None]:
    """Submit jobs for the measurements that the study lacks. Mark jobs of the study that were never submitted as
    cancelled. Return two values: what the study lacked, and the submission. The submission is None if no job was
    needed. on_wait: function that is called if another process is submitting or resuming the study, before this
    function waits for that process.
    """
    submit.keep(known, is_new=False)
    with rundir.locked_file(known.folder / rundir.STUDY, on_wait):
        lacked = lacking(known)
        if not lacked.planned.jobs:
            return lacked, None
        submit.check(lacked.planned.jobs)
        _renew_scans(lacked.planned, report)
        for directory in lacked.stray:
            cancel(directory)
        ids = [batch_id for job in lacked.live if (batch_id := job.job.batch_id) is not None]
        return lacked, submission.hand_over(lacked.planned, (), ids, report, verbose)


def _renew_scans(planned: Planned, report: Report) -> None:
    """Check that existing datasets have not changed since the study was submitted. Raise ConfigError if one has."""
    runs = {
        scan.index: run for job in planned.jobs for run in job.runs if (scan := run.workload.dataset.scan) is not None
    }
    for run in runs.values():
        from dlio_hpc.dataset import dataset_scan  # imports numpy

        dataset_scan.renew(run.workload.dataset, run.dataset, report)
