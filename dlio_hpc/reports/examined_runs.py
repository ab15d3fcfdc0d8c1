"""Analysis of the runs of a job, from their Darshan logs and timelines."""

from pathlib import Path

from dlio_hpc.analysis.log import analyze as examining
from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.base.errors import DlioError
from dlio_hpc.darshan import run_check
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunFiles


def examine(path: Path, outcome: JobOutcome, step_s: float | None, is_one: bool) -> dict[str, Examined]:
    """Return the analysed runs of a job by their names, in the order of execution. path: directory or archive of the
    job. step_s: width of the time bins in seconds; None to choose it automatically. is_one: whether the report is on
    this job only. If not, the titles of the runs include the name of the job.
    """
    job = "" if is_one else f"{outcome.job.job}/"
    with job_outcome.evidence(path, outcome) as recorded:
        return {
            evidence.run.name: _examined(outcome, evidence, step_s, job + evidence.run.name) for evidence in recorded
        }


def _examined(outcome: JobOutcome, evidence: RunFiles, step_s: float | None, title: str) -> Examined:
    run, result = evidence.run, evidence.run.result
    assert result is not None
    notes = []
    why = job_outcome.without_log(outcome, run)
    if why is not None and evidence.log is None and evidence.timeline is not None:
        notes.append(f"no Darshan log ({why}): pictures are drawn from the benchmark's own timeline")
    if result.kind == "warmup":
        notes.append("warm-up: not part of any measurement")
    expected = run_check.expected(outcome.plan, run.run, result)
    try:
        return examining.run(run.run, title, evidence.log, expected, evidence.timeline, step_s, tuple(notes))
    except DlioError as fault:  # not a Darshan log, or readable by pydarshan only
        notes.append(f"{fault}: pictures are drawn from the benchmark's own timeline")
        return examining.run(run.run, title, None, expected, evidence.timeline, step_s, tuple(notes))
