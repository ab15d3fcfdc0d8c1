"""The Python API: the commands as functions with typed arguments. `import dlio_hpc` offers them.

Functions raise the errors of dlio_hpc.errors, whose `exit_code` is that of the command. Functions print nothing; a
function given as `report` is called with each line that the command prints on stderr. A job is named by its directory,
its archive, or a name below `runs`. Without a name, a function takes all jobs in `runs`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_hpc.plan.options import Options

if TYPE_CHECKING:
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
    """Ignore a line of a report."""


def plan_jobs(options: Options) -> "Planned":
    """Plan the jobs of a submission. Raise ConfigError if the site does not allow them."""
    from dlio_hpc.plan import planned

    made = planned.planned(options)
    _check_criteria(made)
    return made


def _check_criteria(planned: "Planned") -> None:
    """Read the criteria of a suite, so that an invalid file is reported before the suite is measured."""
    verdict = planned.study.verdict
    if verdict is not None and verdict.criteria is not None:
        from dlio_hpc.verdict import criteria_file

        criteria_file.load(verdict.criteria)


def estimate(options: Options) -> "list[JobCost]":
    """Estimate the time, node-hours, bytes and space of each job, whether or not the site allows it."""
    from dlio_hpc.plan import cost, planned

    return cost.of_jobs(planned.draft(options).jobs)


def check(options: Options, patience_s: float | None = 120.0) -> "Iterator[PreflightFinding]":
    """Check for conditions that would make a job fail. patience_s: seconds that a small job, which only launches ranks,
    may wait in the queue and run; None: do not launch ranks.
    """
    from dlio_hpc.batch import preflight
    from dlio_hpc.plan import planned

    return preflight.look(planned.draft(options).jobs, patience_s)


def submit(options: Options, after: Sequence[Path] = (), report: Report = _silent) -> "Submission":
    """Plan jobs and submit them. They start after the jobs in the directories `after` have succeeded."""
    return start(plan_jobs(options), after, report)


def start(
    planned: "Planned", after: Sequence[str | Path] = (), report: Report = _silent, verbose: Report = _silent
) -> "Submission":
    """Submit planned jobs. They start after the jobs named in `after` have succeeded. verbose: function that is called
    with each submit command.
    """
    from dlio_hpc.batch import submission
    from dlio_hpc.records import names

    runs = Path(planned.study.runs)
    parents = [directory for name in after for directory in names.named(str(name), runs)]
    return submission.start(planned, parents, report, verbose)


def resume(study: str | Path, runs: Path = RUNS, report: Report = _silent) -> "Submission | None":
    """Submit jobs for the measurements that a study lacks. Return None if it lacks none."""
    from dlio_hpc.records import names, resumption

    known = resumption.load(names.study_folder(str(study), runs), Options(runs=runs))
    waiting = partial(report, f"{known.folder}: another process submits it; waiting")
    return resumption.start(known, report, _silent, waiting)[1]


def status(*jobs: str | Path, runs: Path = RUNS) -> "list[JobSnapshot]":
    """Return the states of jobs, after asking the batch systems for them."""
    from dlio_hpc.batch import job_state

    return job_state.refresh_all(_directories(jobs, runs))


def wait(*jobs: str | Path, runs: Path = RUNS) -> "list[Job]":
    """Wait until the jobs have ended, and return their records. In the record of a job that can no longer be watched,
    the last state is not an end.
    """
    from dlio_hpc.batch.job_watch import watch

    last = {watched.directory: watched.job for watched in watch(_directories(jobs, runs))}
    return list(last.values())


def cancel(*jobs: str | Path, runs: Path = RUNS) -> "list[Job]":
    """Ask the batch system to cancel the jobs, the last one first. At least one job must be given."""
    from dlio_hpc.batch.cancel import cancel as cancel_one
    from dlio_hpc.errors import ConfigError

    if not jobs:
        raise ConfigError("name the jobs to cancel")
    return [cancel_one(directory) for directory in reversed(_directories(jobs, runs))]


def collect(*jobs: str | Path, runs: Path = RUNS) -> "list[Archived]":
    """Archive the jobs that have ended, and add them to the history in the folder of their archives."""
    from dlio_hpc.verdict import collection

    ended = [look.directory for look in status(*jobs, runs=runs) if look.job.ended]
    return [collection.archive(directory) for directory in ended]


def report(*jobs: str | Path, runs: Path = RUNS) -> "list[JobOutcome]":
    """Return the results of jobs, from their directories or archives."""
    from dlio_hpc.records import job_outcome, names

    return job_outcome.load_all([names.place(str(job), runs) for job in jobs])


def report_study(study: str | Path, metric: "MetricName | None" = None, runs: Path = RUNS) -> "StudyReport":
    """Return the results of a study: its measurements, the best settings, and advice. metric: metric by which points
    are compared; None: that of the study.
    """
    from dlio_hpc.records import names
    from dlio_hpc.reports import study_report

    return study_report.make(names.study_in(names.study_folder(str(study), runs)), metric)


def judge_suite(study: "StudyReport", report: Report = _silent) -> "SuiteVerdict":
    """Judge a suite: compare its points with their baselines, and apply its criteria."""
    from dlio_hpc.verdict import suite

    return suite.judge_study(study.outcome, study.effects, report)


def compare(
    *jobs: str | Path, metrics: "Sequence[MetricName]" = ("samples_per_s",), tolerance: float = 0.02,
    baseline: str | None = None, force: bool = False, archive: Path | None = None, runs: Path = RUNS,
    report: Report = _silent,
) -> "Judgement":  # fmt: skip
    """Compare each measurement of the jobs with the baseline of its configuration, and with earlier results in the
    history. metrics: metrics to compare. tolerance: largest relative drop that is not a regression. baseline: a job or
    baseline to compare with instead. force: compare despite different settings or cached runs. archive: folder of
    archives, history and baselines; None: the folder "archive" in `runs`.
    """
    from dlio_hpc.errors import ConfigError
    from dlio_hpc.verdict import comparison, selection
    from dlio_hpc.verdict.baseline_comparison import Terms

    selected = selection.select(list(map(str, jobs)), archive, runs, report).jobs
    if not selected:
        raise ConfigError(f"{' '.join(map(str, jobs))}: none of its jobs measured anything")
    terms = Terms(tuple(dict.fromkeys(metrics)), tolerance, force)
    if baseline is not None:
        terms = terms._replace(against=comparison.references(baseline, archive or selected[0].folder, runs, report))
    return comparison.compare(selected, terms, report)


def accept(*jobs: str | Path, criteria: str | None = None, runs: Path = RUNS) -> "Acceptance":
    """Judge jobs and studies by criteria. criteria: name of shipped criteria or a YAML file; None: the criteria of the
    suite.
    """
    from dlio_hpc.records import names
    from dlio_hpc.verdict import acceptance, selection

    return acceptance.of(selection.judged([names.place(str(job), runs) for job in jobs]), criteria)


def accept_baseline(
    job: str | Path, message: str, force: bool = False, archive: Path | None = None, runs: Path = RUNS,
    report: Report = _silent,
) -> "tuple[Accepted, ...]":  # fmt: skip
    """Make a job the baseline of each configuration that it measured. message: the reason, which is stored with the
    baseline. force: accept despite objections, which are stored too. archive: folder of archives, history and
    baselines; None: the folder "archive" in `runs`.
    """
    from dlio_hpc.verdict import baselines, selection
    from dlio_hpc.verdict.history_entry import together

    jobs = selection.select([str(job)], archive, runs, report).jobs
    (entry, *_), folder = together([selected.entry for selected in jobs]), jobs[0].folder
    accepted = baselines.accept(folder, entry, message, force)
    selection.refresh(folder, report)
    return accepted


def history(pattern: str | None = None, archive: Path | None = None, runs: Path = RUNS) -> "tuple[Entry, ...]":
    """Return the jobs in the history of a folder of archives. pattern: name of the jobs, with the wildcards * and ?;
    None: all jobs. archive: the folder; None: the folder "archive" in `runs`.
    """
    from dlio_hpc.verdict import selection
    from dlio_hpc.verdict.history import Where

    return selection.entries(selection.folder(archive, runs), _silent, Where(pattern))


def _directories(jobs: Sequence[str | Path], runs: Path) -> list[Path]:
    from dlio_hpc.records import names

    return names.directories(list(map(str, jobs)), runs)
