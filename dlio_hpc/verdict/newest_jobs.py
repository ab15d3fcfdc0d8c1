"""Status of a facility: its suites and workloads on each site, with the verdict on the newest job of each. Suites are
judged as by `dlio-hpc report`, other jobs as by `dlio-hpc compare`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Literal, NamedTuple

from dlio_hpc.analysis.study import file_system_pairs
from dlio_hpc.base.errors import DlioError
from dlio_hpc.base.nights import night_of
from dlio_hpc.plan.plan import workload_of
from dlio_hpc.records import study_outcome
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.verdict import baseline_comparison, baselines, suite
from dlio_hpc.verdict.baseline_comparison import Judgement
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.history_entry import Entry, together
from dlio_hpc.verdict.suite import SuiteVerdict

# single: jobs of a workload that belong to no suite or study. unknown: jobs of a suite or a study whose archives cannot
# be read.
Kind = Literal["suite", "study", "single", "unknown"]


# Maximum number of studies among which a suite of the same name is searched.
_EARLIER = 100


class Standing(NamedTuple):
    """A suite, study or workload on a site. jobs: jobs of the suite, study or workload, oldest first. The jobs of a
    study are merged into one, or into one per night. members: names of the jobs of the newest study. judgement:
    comparison of the newest job with its baselines; None for a study that is not a suite, because it is not judged.
    suite: verdict on the newest job of a suite. note: reason why a suite or study was judged like other jobs; empty if
    it was not. has_baseline: whether the newest job with measurements has at least one measurement with an active
    baseline.
    """

    name: str
    site: str
    kind: Kind
    jobs: tuple[Entry, ...]
    members: tuple[str, ...]
    judgement: Judgement | None
    suite: SuiteVerdict | None
    note: str = ""
    has_baseline: bool = False

    @property
    def newest(self) -> Entry:
        return self.jobs[-1]

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the newest job; None if it is not judged."""
        judged = self.suite or self.judgement
        return None if judged is None else judged.outcome

    @property
    def night(self) -> date:
        """Night of the newest job."""
        return night_of(self.newest.ended)


def of(folder: Path, listed: Sequence[Entry], history: Sequence[Entry]) -> list[Standing]:
    """Return the standing of each suite, study and workload on each site. folder: folder of archives. listed: entries
    of the jobs to list. history: entries of all jobs, for comparison with the newest jobs.
    """
    active = baselines.active(baselines.read(folder))
    of_study: dict[str, list[Entry]] = {}
    for entry in history:
        of_study.setdefault(entry.study, []).append(entry)
    grouped: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in together([entry for entry in listed if entry.measurements or entry.fault is not None]):
        is_single = [job.job for job in of_study.get(entry.study, ())] == [entry.study]
        configuration = _configuration(entry) if is_single else ""
        grouped.setdefault((workload_of(entry.study), entry.site, configuration), []).append(entry)
    several = Counter((name, site) for name, site, _ in grouped)
    rows = []
    for (name, site, configuration), jobs in grouped.items():
        ordered = tuple(sorted(jobs, key=lambda job: (job.ended, job.job)))
        members = tuple(entry.job for entry in of_study.get(ordered[-1].study, ()))
        label = f"{name}, {configuration}" if configuration and several[name, site] > 1 else name
        row = Standing(label, site, "single", ordered, members, None, None)
        keys = {run.key for run in next((job.measurements for job in reversed(ordered) if job.measurements), ())}
        row = row._replace(has_baseline=any(baseline.group.key in keys for baseline in active))
        judged = _judged(row, folder, history, active)
        rows.append(judged)
        if judged.kind == "study":
            rows += _suite_before(judged, of_study, folder, history, active)
    return rows


def _suite_before(
    row: Standing, of_study: Mapping[str, Sequence[Entry]], folder: Path, history: Sequence[Entry],
    active: Sequence[Accepted],
) -> list[Standing]:  # fmt: skip
    """Return the standing of the suite that has the name of a study, from the jobs before this study. A user's study
    must not hide the suite of the facility. Return an empty list if there is no such suite.
    """
    studies = list(dict.fromkeys(job.study for job in reversed(row.jobs)))[1 : 1 + _EARLIER]
    for study in studies:
        last = max(place for place, job in enumerate(row.jobs) if job.study == study)
        members = tuple(entry.job for entry in of_study[study])
        earlier = row._replace(kind="single", jobs=row.jobs[: last + 1], members=members)
        if (judged := _judged(earlier, folder, history, active)).kind == "suite":
            return [judged]
    return []


def _configuration(entry: Entry) -> str:
    """Return a phrase for the configuration of a job: its nodes, its ranks and the digest of its settings. Jobs with
    different phrases measured different things.
    """
    keys = dict.fromkeys((run.key.nodes, run.key.ranks_per_node, run.key.settings) for run in entry.measurements)
    return "; ".join(f"{nodes} x {ranks} ranks, settings {settings}" for nodes, ranks, settings in keys)


def _judged(row: Standing, folder: Path, history: Sequence[Entry], active: Sequence[Accepted]) -> Standing:
    """Return the row with its kind, and with the verdict on its newest job. If a study has a single job with the name
    of the study, the job belongs to no suite.
    """
    if row.members != (row.newest.study,):
        try:
            outcome = study_outcome.archived(folder, row.members)
            if outcome is not None and outcome.study.verdict is None:
                return row._replace(kind="study")
            if outcome is not None:
                effects = file_system_pairs.effects(outcome.study, outcome.measured)
                verdict = suite.judge_study(outcome, effects, lambda _: None)
                return row._replace(kind="suite", judgement=verdict.judgement, suite=verdict)
        except (DlioError, OSError) as fault:
            row = row._replace(kind="unknown", note=f"judged without the criteria and tolerance of a suite: {fault}")
    return row._replace(judgement=baseline_comparison.judge([row.newest], history, active))
