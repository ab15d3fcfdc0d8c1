"""Jobs and their runs as JUnit cases, for CI systems that submit jobs."""

from collections.abc import Iterator, Sequence

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, DlioError, Incomplete, InfrastructureError, InvalidRun, Unexpected
from dlio_hpc.files import rundir
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.records.outcomes import OUTCOMES, of_exit_code
from dlio_hpc.reports import regression_rows
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import acceptance
from dlio_hpc.verdict.junit import Case
from dlio_hpc.verdict.suite import SuiteVerdict

_TYPES: dict[type[DlioError], str] = {
    ConfigError: "configuration", InvalidRun: "invalid", InfrastructureError: "infrastructure",
    Incomplete: "incomplete", Unexpected: "bug",
}  # fmt: skip
# Metrics that are listed for a run without a fault.
_LISTED: tuple[MetricName, ...] = ("samples_per_s", "read_MBps", "au", "wall_s")


def of_jobs(outcomes: Sequence[JobOutcome]) -> list[Case]:
    """Return a case for each run of the jobs. If a job has a fault that none of its runs has, add a case for the
    job.
    """
    return [case for outcome in outcomes for case in _of_job(outcome)]


def of_suite(verdict: SuiteVerdict) -> list[Case]:
    """Return the cases of the verdict on a suite: its comparisons and its criteria. A measurement without a baseline
    has the result skipped, unless the verdict of the suite depends on it.
    """
    cases = []
    for judged in verdict.judgement.verdicts:
        is_counted = judged.outcome != "not_comparable" or verdict.exit_code == OUTCOMES["not_comparable"].exit_code
        case = regression_rows.case(judged, 0.0)
        cases.append(case if is_counted else case._replace(kind="skipped"))
    return [*cases, *acceptance.cases(verdict.acceptance)]


def _of_job(outcome: JobOutcome) -> Iterator[Case]:
    faults = [job_outcome.run_fault(outcome, run) for run in outcome.runs]
    for run, fault in zip(outcome.runs, faults, strict=True):
        yield _case(outcome, run, fault)
    if (fault := job_outcome.fault(outcome)) is not None and not any(faults):
        yield _failed("the job", outcome.job.job, fault, [*_places(outcome)], 0.0)


def _case(outcome: JobOutcome, run: RunOutcome, fault: DlioError | None) -> Case:
    seconds = units.seconds_between(run.result.started, run.result.ended) if run.result is not None else 0.0
    if fault is not None:
        evidence = [*_places(outcome, run), *_output(outcome)]
        whole = job_outcome.fault(outcome)
        if whole is not None and str(whole) != str(fault):
            evidence.insert(0, str(whole))
        return _failed(run.name, outcome.job.job, fault, evidence, seconds)
    text = "\n".join([*_measured(run), *_places(outcome, run)])
    return Case(run.name, outcome.job.job, "pass", "", "", text, seconds)


def _failed(name: str, job: str, fault: DlioError, evidence: Sequence[str], seconds: float) -> Case:
    kind = next(kind for kind in (*_TYPES, DlioError) if isinstance(fault, kind))
    return Case(name, job, "error", _TYPES.get(kind, "error"), str(fault), "\n".join([str(fault), *evidence]), seconds)


def of_exit(code: int, program: str) -> Case:
    """Return a case for a command whose exit code is not 0, unless another case states the reason."""
    text = f"{program} ended with exit code {code}; its messages are on stderr"
    return Case("exit code", program, "error", of_exit_code(code), text, text, 0.0)


def unfinished(program: str) -> Case:
    """Return the case for a JUnit file that is written before the jobs are submitted."""
    text = f"{program} has not finished: it was interrupted, or failed before the jobs ended; see its output"
    return Case("submission", program, "error", "incomplete", text, text, 0.0)


def refused(program: str, fault: DlioError) -> Case:
    """Return the case for a submission that failed before jobs ran."""
    return _failed("submission", program, fault, (), 0.0)


def _measured(run: RunOutcome) -> Iterator[str]:
    """Yield lines with the measurements of a run, and whether it measured the storage."""
    if run.result is None or run.result.summary is None:
        return
    for name in _LISTED:
        if (value := METRICS[name].value(run.result.summary)) is not None:
            unit = METRICS[name].unit if METRICS[name].unit in ("MB/s", "s") else ""
            yield f"{METRICS[name].noun}: {regression_rows.shown(value, name)} {unit}".rstrip()
    if run.storage is not None:
        yield f"storage: {run.storage.text()}"


def _places(outcome: JobOutcome, run: RunOutcome | None = None) -> Iterator[str]:
    """Yield lines that say where the files of the job and of the run are."""
    if outcome.directory is not None:
        yield f"directory: {outcome.directory}"
        if run is not None:
            yield f"run: {outcome.directory / rundir.RUNS / run.name}"
        yield f"log: {outcome.directory / rundir.STDERR}"
    if outcome.archive is not None:
        yield f"archive: {outcome.archive}"


def _output(outcome: JobOutcome) -> Iterator[str]:
    """Yield the last lines of the job's output."""
    if outcome.tail is not None:
        yield f"last lines of {outcome.tail.file}:"
        yield from outcome.tail.lines
