"""A job's runs examined: each with its Darshan log and timeline, as far as it has them."""

from pathlib import Path

from dlio_hpc.analysis.log import analyze as examining
from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.darshan import run_check
from dlio_hpc.errors import DlioError
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import Evidence, JobOutcome


def examine(path: Path, outcome: JobOutcome, step_s: float | None, is_one: bool) -> dict[str, Examined]:
    """By the run's name, in their order. Where it is not the only job, titles have the job's name, too."""
    job = "" if is_one else f"{outcome.job.job}/"
    with job_outcome.evidence(path, outcome) as found:
        return {each.run.name: _examined(outcome, each, step_s, job + each.run.name) for each in found}


def _examined(outcome: JobOutcome, each: Evidence, step_s: float | None, title: str) -> Examined:
    run, result = each.run, each.run.result
    assert result is not None
    notes = []
    why = job_outcome.without_log(outcome, run)
    if why is not None and each.log is None and each.timeline is not None:
        notes.append(f"no Darshan log ({why}): pictures are drawn from the core's own record")
    if result.kind == "warmup":
        notes.append("warm-up: not part of any measurement")
    expected = run_check.expected(outcome.plan, result)
    try:
        return examining.run(run.run, title, each.log, expected, each.timeline, step_s, tuple(notes))
    except DlioError as fault:  # a log that is none, or that only pydarshan could read
        notes.append(f"{fault}: pictures are drawn from the core's own record")
        return examining.run(run.run, title, None, expected, each.timeline, step_s, tuple(notes))
