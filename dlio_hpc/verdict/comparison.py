"""Comparison of selected jobs. Each job is compared with the history and the baselines in the folder of its archive."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.counted_progress import Report
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.plan.study import Judging
from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.results.metrics import MetricName
from dlio_hpc.verdict import baseline_comparison, baselines, history_entry, judged_jobs
from dlio_hpc.verdict.baseline_comparison import USUAL, Judgement, Reference, Terms, Verdict
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.judged_jobs import Selected
from dlio_hpc.verdict.regression import TOLERANCE


class Wanted(NamedTuple):
    """Options of a comparison. metrics, tolerance: as in Terms. None selects the values of the job's suite, or the
    defaults if the job belongs to no suite. force: as in Terms.
    """

    metrics: tuple[MetricName, ...] | None = None
    tolerance: float | None = None
    force: bool = False

    def of(self, judging: Judging | None) -> Terms:
        """Return the parameters for a job. judging: settings of the verdict of the job's suite; None if the job belongs
        to no suite.
        """
        usual = Judging() if judging is None else judging
        return Terms(
            usual.metrics if self.metrics is None else self.metrics,
            usual.tolerance if self.tolerance is None else self.tolerance,
            self.force,
        )


def compare(
    given: Sequence[str], jobs: Sequence[Selected], wanted: Wanted, baseline: str | None, runs: Path, report: Report
) -> Judgement:
    """Compare the jobs that selection.select() returned for the names `given`. baseline: id of a baseline, or name of a
    job. All jobs are compared with this baseline or job. If `baseline` is None, each job is compared with the baselines
    of its measurement keys. Jobs of a suite are compared by the metrics and the tolerance of the suite, unless `wanted`
    sets them. Raise ConfigError if there are no jobs.
    """
    if not jobs:
        raise ConfigError(
            f"{' '.join(given)}: no job of the study has measured anything; "
            "dlio-hpc status shows the states of its jobs"
        )
    against = None if baseline is None else _references(baseline, jobs[0].folder, runs, report)
    verdicts: list[Verdict] = []
    groups: dict[tuple[Path, Terms], list[Entry]] = {}
    for job in jobs:
        groups.setdefault((job.folder, wanted.of(job.judging)), []).append(job.entry)
    active = {folder: baselines.active_in(folder, report) for folder in dict.fromkeys(job.folder for job in jobs)}
    for (folder, asked), mine in groups.items():
        terms = asked if against is None else asked._replace(against=against)
        verdicts += baseline_comparison.judge(mine, judged_jobs.entries(folder, report), active[folder], terms).verdicts
    return baseline_comparison.summed(verdicts)


def with_missing(judged: Judgement, missing: Sequence[str]) -> Judgement:
    """Return a judgement to which a verdict is added for each study that lacks measurements. No verdict is added if the
    judgement already has such a verdict on the study. missing: a line for each study that lacks measurements.
    """
    code = OUTCOMES["incomplete"].exit_code
    known = [verdict.job for verdict in judged.verdicts if verdict.outcome == "incomplete"]
    verdicts = [
        Verdict(study, USUAL.metrics[0], "incomplete", code, text.strip(), TOLERANCE)
        for study, _, text in (line.partition(":") for line in missing)
        if not any(job == study or job.startswith(f"{study}-") for job in known)
    ]
    return baseline_comparison.summed([*judged.verdicts, *verdicts]) if verdicts else judged


def _references(name: str, folder: Path, runs: Path, report: Report) -> tuple[Reference, ...]:
    """Return the references that `name` stands for. `name` is the id of a baseline, which may be retired or replaced,
    or the name of any job or study. The newest night of a study is its first reference. Raise ConfigError if the job
    has no valid measured run.
    """
    for accepted in baselines.read(folder).accepted:
        if accepted.id == name:
            return (Reference(accepted.id, accepted.group, accepted.warnings),)
    try:
        selected = judged_jobs.select([name], folder, runs, report).jobs
    except ConfigError as fault:
        raise ConfigError(f"--baseline: {fault}; dlio-hpc baseline list lists the baselines") from fault
    jobs = history_entry.together([job.entry for job in selected])
    of_jobs = tuple(reference for job in reversed(jobs) for reference in baseline_comparison.references(job))
    if not of_jobs:
        raise ConfigError(f"--baseline: {name} has no valid measured run")
    return of_jobs
