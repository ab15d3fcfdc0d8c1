"""Python API: the commands of dlio-hpc as functions with typed arguments. `import dlio_hpc` makes them available.

Functions raise the errors of dlio_hpc.errors. The `exit_code` of an error is the exit code that the command would have.
Functions print nothing. Instead, they pass each line that the command would print on stderr to the function `report`. A
job is given by its directory, its archive, or its name in the folder `runs`. If no jobs are given, status(), wait() and
collect() use all jobs in `runs`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_hpc.plan.options import Options

if TYPE_CHECKING:
    from dlio_hpc.base.errors import DlioError
    from dlio_hpc.batch.job_record import Job
    from dlio_hpc.batch.job_state import JobSnapshot
    from dlio_hpc.batch.preflight import PreflightFinding
    from dlio_hpc.batch.submission import Submission
    from dlio_hpc.plan.cost import JobCost
    from dlio_hpc.plan.planned import Planned
    from dlio_hpc.records.job_outcome import JobOutcome
    from dlio_hpc.reports.study_report import StudyReport
    from dlio_hpc.results.metrics import MetricName
    from dlio_hpc.verdict.acceptance import Acceptance
    from dlio_hpc.verdict.baseline_comparison import Judgement
    from dlio_hpc.verdict.baselines import Accepted
    from dlio_hpc.verdict.collection import Archived
    from dlio_hpc.verdict.history_entry import Entry
    from dlio_hpc.verdict.suite import SuiteVerdict

RUNS = Path("dlio-runs")
Report = Callable[[str], None]


def _silent(_: str) -> None:
    """Ignore a line."""


def plan_jobs(options: Options, report: Report = _silent) -> "Planned":
    """Plan jobs without submitting them. Existing datasets are scanned. Raise ConfigError if the site does not allow
    the jobs. report: function that is called with lines on the progress.
    """
    from dlio_hpc.plan import planned

    made = planned.planned(options, report)
    _check_criteria(made)
    return made


def _check_criteria(planned: "Planned") -> None:
    """Read the criteria of a suite, so that a faulty criteria file raises ConfigError before anything is submitted."""
    verdict = planned.study.verdict
    if verdict is not None and verdict.criteria is not None:
        from dlio_hpc.verdict import criteria_file

        criteria_file.load(verdict.criteria)


def estimate(options: Options) -> "list[JobCost]":
    """Estimate the node-hours, bytes and disk space of each job, even if the site does not allow the jobs."""
    from dlio_hpc.plan import cost, planned

    return cost.of_jobs(planned.draft(options).jobs)


def check(options: Options, patience_s: float | None = 120.0) -> "Iterator[PreflightFinding]":
    """Check for problems that would make the jobs fail, and yield the findings. patience_s: number of seconds that a
    test job of two ranks may wait in the queue; None to start no test job.
    """
    from dlio_hpc.batch import preflight
    from dlio_hpc.plan import planned

    return preflight.look(planned.draft(options).jobs, patience_s)


def submit(options: Options, after: Sequence[Path] = (), report: Report = _silent) -> "Submission":
    """Plan jobs and submit them. after: directories of earlier jobs; the new jobs start when the earlier jobs have
    ended successfully.
    """
    return start(plan_jobs(options, report), after, report)


def start(
    planned: "Planned", after: Sequence[str | Path] = (), report: Report = _silent, verbose: Report = _silent
) -> "Submission":
    """Submit planned jobs. after: directories or names of earlier jobs; the new jobs start when the earlier jobs have
    ended successfully. verbose: function that is called with each submit command.
    """
    from dlio_hpc.batch import submission

    return submission.start(planned, _parents(planned, after), report, verbose)


def refusal(planned: "Planned") -> "DlioError | None":
    """Return the error with which a submission of planned jobs would end because a dataset is missing, and that none of
    the jobs generates; None if no dataset is missing.
    """
    from dlio_hpc.base.errors import DlioError
    from dlio_hpc.batch import submit as submitting

    try:
        submitting.check_datasets(planned.jobs)
    except DlioError as fault:
        return fault
    return None


def check_parents(planned: "Planned", after: Sequence[str | Path]) -> None:
    """Raise ConfigError if planned jobs cannot start after the earlier jobs `after`, because one of the earlier jobs
    failed. after: as in start().
    """
    from dlio_hpc.batch import submit as submitting

    submitting.parents(_parents(planned, after), planned.jobs[0])


def _parents(planned: "Planned", after: Sequence[str | Path]) -> list[Path]:
    """Return the directories of the jobs that must end before planned jobs start."""
    from dlio_hpc.records import names

    runs = Path(planned.study.runs)
    return [directory for name in after for directory in names.named(str(name), runs)]


def resume(study: str | Path, runs: Path = RUNS, report: Report = _silent) -> "Submission | None":
    """Submit jobs for the missing measurements of a study. Return None if no measurement is missing, or if jobs that
    have not ended will make the missing measurements.
    """
    from dlio_hpc.records import names, resumption

    known = resumption.load(names.study_folder(str(study), runs), Options(runs=runs))
    waiting = partial(report, f"{known.folder}: waiting for another process that submits this study")
    return resumption.start(known, report, _silent, waiting)[1]


def status(*jobs: str | Path, runs: Path = RUNS) -> "list[JobSnapshot]":
    """Ask the batch systems for the states of the jobs, and return the states."""
    from dlio_hpc.batch import job_state

    return job_state.refresh_all(_directories(jobs, runs))


def wait(*jobs: str | Path, runs: Path = RUNS) -> "list[Job]":
    """Wait until the jobs have ended, and return their records. If a job can no longer be watched, its record is
    returned with the last known state.
    """
    from dlio_hpc.batch.job_watch import watch

    last = {watched.directory: watched.job for watched in watch(_directories(jobs, runs))}
    return list(last.values())


def cancel(*jobs: str | Path, runs: Path = RUNS) -> "list[Job]":
    """Ask the batch system to cancel the jobs, the last one first. At least one job must be given."""
    from dlio_hpc.base.errors import ConfigError
    from dlio_hpc.batch.cancel import cancel as cancel_one

    if not jobs:
        raise ConfigError("name the jobs to cancel")
    return [cancel_one(directory) for directory in reversed(_directories(jobs, runs))]


def collect(*jobs: str | Path, runs: Path = RUNS) -> "list[Archived]":
    """Archive those of the jobs that have ended, and enter them into the history in the folder of the archives."""
    from dlio_hpc.verdict import collection

    ended = [look.directory for look in status(*jobs, runs=runs) if look.job.ended]
    return [collection.archive(directory) for directory in ended]


def report(*jobs: str | Path, runs: Path = RUNS) -> "list[JobOutcome]":
    """Return the outcomes of the given jobs, with their measurements, from their directories or archives."""
    from dlio_hpc.records import job_outcome, names

    return job_outcome.load_all([names.place(str(job), runs) for job in jobs])


def report_study(study: str | Path, metric: "MetricName | None" = None, runs: Path = RUNS) -> "StudyReport":
    """Return the report of a study: measurements, best settings, and advice. metric: metric by which points are
    compared; None for the metric that the study names.
    """
    from dlio_hpc.records import names
    from dlio_hpc.reports import study_report

    return study_report.make(names.study_in(names.study_folder(str(study), runs)), metric)


def judge_suite(study: "StudyReport", report: Report = _silent) -> "SuiteVerdict":
    """Judge a suite by its criteria, and by the baselines and the history in the folder of its archives."""
    from dlio_hpc.verdict import suite

    return suite.judge_study(study.outcome, study.effects, report)


def compare(
    *jobs: str | Path, metrics: "Sequence[MetricName] | None" = None, tolerance: float | None = None,
    baseline: str | None = None, force: bool = False, archive: Path | None = None, runs: Path = RUNS,
    report: Report = _silent,
) -> "Judgement":  # fmt: skip
    """Compare jobs with the baselines of their measurement keys, and with earlier jobs in the history. At least one job
    must be given. metrics: metrics that are compared; None for the metrics of the job's suite, or samples_per_s if the
    job has no suite. tolerance: largest relative drop that still passes; None for the tolerance of the job's suite, or
    2 % if the job has no suite. baseline: name of the job or baseline that all jobs are compared with; None for the
    baselines of their measurement keys. force: compare despite different settings or cached runs. archive: folder with
    the archives, the history and the baselines; None for the folder of each job's archive.
    """
    from dlio_hpc.verdict import comparison, judged_jobs

    given = list(map(str, jobs))
    selected = judged_jobs.select(given, archive, runs, report)
    wanted = comparison.Wanted(None if metrics is None else tuple(dict.fromkeys(metrics)), tolerance, force)
    judged = comparison.compare(given, selected.jobs, wanted, baseline, runs, report)
    return comparison.with_missing(judged, selected.missing)


def accept(*jobs: str | Path, criteria: str | None = None, runs: Path = RUNS) -> "Acceptance":
    """Judge the given jobs and studies by criteria. criteria: name of a shipped criteria file, or path of a YAML file;
    None for the criteria that the suite names.
    """
    from dlio_hpc.records import names
    from dlio_hpc.verdict import acceptance, judged_jobs

    return acceptance.of(judged_jobs.judged([names.place(str(job), runs) for job in jobs]), criteria)


def accept_baseline(
    job: str | Path, message: str, force: bool = False, archive: Path | None = None, runs: Path = RUNS,
    report: Report = _silent,
) -> "tuple[Accepted, ...]":  # fmt: skip
    """Make a job the baseline of each of its measurement keys, and return these baselines. message: reason for the
    decision, which is recorded. force: accept the job despite objections. archive: folder to which the baselines are
    written; None for the folder of the job's archive. If the job is a study of several nights, the newest night becomes
    the baseline.
    """
    from dlio_hpc.verdict import baselines, judged_jobs
    from dlio_hpc.verdict.history_entry import together

    jobs = judged_jobs.select([str(job)], archive, runs, report).jobs
    nights, folder = together([selected.entry for selected in jobs]), jobs[0].folder
    accepted = baselines.accept(
        folder, nights[-1], message, force, earlier=nights[:-1], past=judged_jobs.entries(folder, report)
    )
    judged_jobs.refresh(folder, report)
    return accepted


def history(pattern: str | None = None, archive: Path | None = None, runs: Path = RUNS) -> "tuple[Entry, ...]":
    """Return the entries of jobs in the history of a folder of archives. pattern: name of a job, in which * and ? are
    wildcards; None for all jobs. archive: folder of archives; None for `runs`/archive.
    """
    from dlio_hpc.verdict import judged_jobs
    from dlio_hpc.verdict.history import Where

    return judged_jobs.entries(judged_jobs.folder(archive, runs), _silent, Where(pattern))


def _directories(jobs: Sequence[str | Path], runs: Path) -> list[Path]:
    from dlio_hpc.records import names

    return names.directories(list(map(str, jobs)), runs)
