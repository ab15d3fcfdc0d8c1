"""Comparison of selected jobs. Each job is compared with the history and the baselines in the folder of its archive."""

from collections.abc import Sequence
from pathlib import Path

from dlio_hpc.errors import ConfigError
from dlio_hpc.verdict import baseline_comparison, baselines, selection
from dlio_hpc.verdict.baseline_comparison import Judgement, Reference, Terms, Verdict
from dlio_hpc.verdict.selection import Report, Selected


def compare(
    given: Sequence[str], jobs: Sequence[Selected], terms: Terms, baseline: str | None, runs: Path, report: Report
) -> Judgement:
    """Compare the jobs that selection.select() returned for the names `given`. baseline: id of a baseline, or name of a
    job. All jobs are compared with this baseline or job. If it is None, each job is compared with the baselines of its
    measurement keys. Raise ConfigError if there are no jobs.
    """
    if not jobs:
        raise ConfigError(
            f"{' '.join(given)}: no job of the study has measured anything; "
            "dlio-hpc status shows the states of its jobs"
        )
    if baseline is not None:
        terms = terms._replace(against=_references(baseline, jobs[0].folder, runs, report))
    verdicts: list[Verdict] = []
    for folder in dict.fromkeys(job.folder for job in jobs):
        mine = [job.entry for job in jobs if job.folder == folder]
        active = baselines.active_in(folder, report)
        verdicts += baseline_comparison.judge(mine, selection.entries(folder, report), active, terms).verdicts
    return baseline_comparison.summed(verdicts)


def _references(name: str, folder: Path, runs: Path, report: Report) -> tuple[Reference, ...]:
    """Return the references that `name` stands for. `name` is the id of a baseline, which may be retired or replaced,
    or the name of any job. Raise ConfigError if the job has no valid measured run.
    """
    for accepted in baselines.read(folder).accepted:
        if accepted.id == name:
            return (Reference(accepted.id, accepted.group, accepted.warnings),)
    of_jobs = tuple(
        reference
        for job in selection.select([name], folder, runs, report).jobs
        for reference in baseline_comparison.references(job.entry)
    )
    if not of_jobs:
        raise ConfigError(f"--baseline: {name} has no valid measured run")
    return of_jobs
