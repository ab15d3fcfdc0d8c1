"""Acceptance: measurements are judged against the criteria in a file. Each check of a criterion lists its evidence. The
verdict is the most severe outcome of all checks.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct, structs

from dlio_hpc.base.counted_progress import Report
from dlio_hpc.base.errors import ConfigError, DlioError
from dlio_hpc.base.nights import nights_of
from dlio_hpc.config import shipped
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import archive_folder
from dlio_hpc.records.job_outcome import JobOutcome
from dlio_hpc.records.outcomes import OUTCOMES, Outcome, label, worst
from dlio_hpc.results import metrics
from dlio_hpc.verdict import (
    criteria_file,
    history,
    history_entry,
    performance_criteria,
    procedure_criteria,
    site_spread,
    validity_criteria,
)
from dlio_hpc.verdict.criteria_file import Criteria, Criterion, is_named
from dlio_hpc.verdict.criterion_result import (
    Check,
    CriterionGroup,
    Ran,
    advice_lines,
    evidence_lines,
    listed,
)
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.judged_jobs import Judged
from dlio_hpc.verdict.junit import Case
from dlio_hpc.verdict.site_spread import NightPrior
from dlio_hpc.verdict.validity_criteria import Absent

# What measures the servers instead of the opens of a run.
_OPENS = ("a metadata workload with files of another node (metadata_own on several nodes)",)


class Acceptance(Struct, frozen=True):
    """Result of an acceptance test. what: names of the studies that were judged. checks: first the checks of all jobs
    together, then the checks of each group, in the order of the criteria. seconds: for each label of a group, the sum
    of wall_s over the measured runs of that group.
    """

    criteria: Criteria
    what: tuple[str, ...]
    checks: tuple[Check, ...]
    seconds: dict[str, float]

    @property
    def outcome(self) -> Outcome:
        """Most severe outcome of the checks; incomplete if no criterion applies to a measurement."""
        most = worst(check.outcome for check in self.checks) or "pass"
        return "incomplete" if most == "pass" and self.applies_nowhere else most

    @property
    def applies_nowhere(self) -> bool:
        """Whether none of the criteria applies to a measurement; False if there are no criteria."""
        asked = [check for check in self.checks if check.criterion in self.criteria.criteria]
        return bool(asked) and all(check.outcome == "skipped" for check in asked)

    @property
    def exit_code(self) -> int:
        return OUTCOMES[self.outcome].exit_code

    @property
    def unmet(self) -> list[Check]:
        """Checks that failed or have no verdict. Skipped checks are not included."""
        return [check for check in self.checks if not check.is_met]

    @property
    def groups(self) -> list[str]:
        """Labels of the groups. The empty label comes first: it stands for the checks of all jobs together."""
        return list(dict.fromkeys(check.group for check in sorted(self.checks, key=lambda check: check.group != "")))

    def of(self, group: str) -> list[Check]:
        """Return the checks of the group with this label."""
        return [check for check in self.checks if check.group == group]


def of(judged: Judged, criteria: str | None, report: Report = lambda _: None) -> Acceptance:
    """Judge jobs and studies. criteria: name or path of a criteria file; None selects the criteria file that the judged
    suite names. report: function that is called with each note for the user.
    """
    entries = [history_entry.of(job) for job in judged.all_jobs]
    asked = _own(judged) if criteria is None else criteria_file.load(criteria)
    return judge(asked, entries, judged.absent, _prior(asked, judged, entries, report))


def _prior(criteria: Criteria, judged: Judged, entries: Sequence[Entry], report: Report) -> NightPrior:
    """Return the variation between nights that the histories of the judged jobs show. The histories are not updated."""
    if criteria.night_spread is not None:
        return site_spread.assumed
    folders = dict.fromkeys(Path(study.study.archive) for study in judged.studies)
    folders |= dict.fromkeys(folder for job in judged.jobs if (folder := _archives_of(job)) is not None)
    known: dict[str, Entry] = {}
    for folder in folders:
        try:
            if (folder / rundir.HISTORY).exists():
                known |= {entry.job: entry for entry in history.entries(folder)}
        except (DlioError, OSError) as fault:
            report(f"note: the variation between nights is assumed, because the history cannot be read: {fault}")
    return prior_of(list(known.values()), entries)


def prior_of(history: Sequence[Entry], judged: Sequence[Entry]) -> NightPrior:
    """Return the variation between nights that a history shows. The jobs that are judged are left out."""
    jobs = {entry.job for entry in judged}
    return site_spread.of_site(history_entry.together([entry for entry in history if entry.job not in jobs]))


def _archives_of(job: JobOutcome) -> Path | None:
    """Return the folder with the archive of a job; None if it is not known."""
    if job.directory is not None:
        return archive_folder(job.plan, job.directory)
    return None if job.archive is None else job.archive.parent


def _own(judged: Judged) -> Criteria:
    """Return the criteria of the judged suites. Raise ConfigError if no suite is judged, if one of them names no
    criteria file, or if they have different criteria.
    """
    own = [criteria_file.of_study(study.study) for study in judged.studies if study.study.verdict is not None]
    if not own or own[0] is None or any(criteria != own[0] for criteria in own):
        raise ConfigError(
            "no criteria file is given: use --criteria NAME or FILE; only a suite can name a criteria file itself. "
            f"Names: {', '.join(shipped.names(shipped.CRITERIA))}"
        )
    return own[0]


def judge(
    criteria: Criteria,
    entries: Sequence[Entry],
    absent: Sequence[Absent] = (),
    prior: NightPrior = site_spread.assumed,
) -> Acceptance:
    """Judge jobs against criteria. entries: the jobs. absent: measurements that the studies of these jobs lack. prior:
    known variation between nights; not used if the criteria state this variation. The result does not depend on the
    order of the jobs.
    """
    if criteria.night_spread is not None:
        prior = site_spread.given(criteria.night_spread)
    entries = sorted(entries, key=lambda entry: (entry.created, entry.job))
    groups = grouped(entries)
    checks = [*validity_criteria.good(entries, absent), *_unexpected_workloads(criteria, groups)]
    by_group = [list(_of_group(criteria, group, groups, prior)) for group in groups]
    checks += _unmeasured(criteria, [check for own in by_group for check in own], [group.key for group in groups])
    for group, own in zip(groups, by_group, strict=True):
        storage = validity_criteria.of_storage(group, criteria.cached_above)
        checks.append(storage)
        checks += [_by_node(check, group) for check in own] if storage.outcome == "pass" else map(_as_cached, own)
    seconds = {group.label: sum(ran.run.metrics.get("wall_s", 0.0) for ran in group.runs) for group in groups}
    studies = dict.fromkeys(entry.study for entry in entries)
    return Acceptance(criteria, tuple(studies), tuple(checks), seconds)


def _of_group(
    criteria: Criteria, group: CriterionGroup, groups: Sequence[CriterionGroup], prior: NightPrior
) -> Iterator[Check]:
    for name, criterion in criteria.criteria.items():
        if criterion.selects(group.key):
            yield from performance_criteria.checks(name, criterion, group, groups, prior)
            yield from procedure_criteria.checks(name, criterion, group)


def _as_cached(check: Check) -> Check:
    """Return a check with the outcome that applies to a group that read from memory. For a check of a metric, the
    outcome `pass` or `inconclusive` becomes `cached`. The outcome `fail` remains, because reads from memory do not make
    storage look slower. Checks of rules are returned unchanged.
    """
    if not check.metric or check.outcome not in ("pass", "inconclusive"):
        return check
    return structs.replace(check, outcome="cached", text=f"{check.text}; not a measurement of the storage")


def _by_node(check: Check, group: CriterionGroup) -> Check:
    """Return a check of a metric of opens with the outcome that applies if the nodes may have answered the opens. Other
    checks are returned unchanged.
    """
    doubts = [ran.run.storage.opens_doubt for ran in group.runs if ran.run.storage is not None]
    doubt = next(filter(None, doubts), "")
    if check.metric not in metrics.OF_OPENS or not doubt or check.outcome not in ("pass", "inconclusive"):
        return check
    return structs.replace(check, outcome="cached", text=f"{check.text}; {doubt}", advice=_OPENS)


def _unexpected_workloads(criteria: Criteria, groups: Sequence[CriterionGroup]) -> Iterator[Check]:
    """Yield a failed check for each measured workload that the criteria do not allow."""
    for workload in dict.fromkeys(group.key.workload for group in groups):
        if is_named(workload, criteria.whatif):
            message = f"{workload} is for exploration only (whatif); no division accepts it"
        elif not is_named(workload, criteria.workloads):
            message = f"{workload} is not among the allowed workloads; judge it by other criteria (--criteria)"
        else:
            continue
        yield Check("workloads", "workloads", "workloads", "", f"only {', '.join(criteria.workloads)}", "fail", message)


def _unmeasured(criteria: Criteria, checks: Sequence[Check], keys: Sequence[Key]) -> Iterator[Check]:
    """Yield a check for each criterion that applies to no measured run, because such a criterion must not pass
    silently. Also yield a check for each criterion that names a workload, or a number of nodes or ranks, that was not
    measured.
    """
    judged = {(check.criterion, check.key) for check in checks}
    for name, criterion in criteria.criteria.items():
        selection = f" ({criterion.selection})" if criterion.selection else ""
        verdict: Outcome = "skipped" if criterion.optional else "fail"
        for key in criterion.asked:
            if (name, key) not in judged:
                measured = listed(sorted({known.workload for known in keys}))
                message = f"this criterion applies to no measured run{selection}; measured: {measured or 'nothing'}"
                yield Check(name, key, criterion.title or name, "", _in_words(name, key, criterion), verdict, message)
        lacking = criterion.lacking(keys)
        if lacking and not criterion.optional and any((name, key) in judged for key in criterion.asked):
            message = f"no run was measured for {', '.join(lacking)}"
            yield Check(name, "", criterion.title or name, "", f"measured{selection}", "fail", message)


def _in_words(name: str, key: str, criterion: Criterion) -> str:
    """Return a description of what a criterion requires. key: the YAML key of the limit or rule."""
    if key in performance_criteria.LIMITS:
        return performance_criteria.limit(name, key, criterion).text
    return procedure_criteria.RULES[key].in_words(key, criterion)


def grouped(entries: Sequence[Entry]) -> list[CriterionGroup]:
    """Return the good measured runs, grouped by measurement key, dataset and title of the study's point. The groups are
    in the order of the entries. If the same repeat was run more than once, only its first good run is included.
    """
    by_key: dict[tuple[Key, str, str], list[Ran]] = {}
    taken = set()
    nights = list(zip(entries, nights_of([entry.ended for entry in entries]), strict=True))
    for entry, night in nights:
        for run in entry.measurements:
            # Another version of dlio-hpc belongs to another group. Loads of a mix are compared within a job.
            identity = (entry.study, run.unit, run.key, entry.job if run.key.mix else "")
            if run.is_good and identity not in taken:
                taken.add(identity)
                title = history_entry.point_title(run.title, run.key)
                by_key.setdefault((run.key, run.data, title), []).append(Ran.of(entry, run, night))
    labels = _labels(list(by_key))
    return [
        CriterionGroup(label, key, data, tuple(_ordered(runs)), tuple(_ordered([*runs, *_warmups(nights, key, data)])))
        for label, ((key, data, _), runs) in zip(labels, by_key.items(), strict=True)
    ]


def _warmups(nights: Sequence[tuple[Entry, date]], key: Key, data: str) -> Iterator[Ran]:
    """Yield the good warm-up runs with the measurement key `key` on the dataset `data`. nights: jobs, each with its
    night.
    """
    for entry, night in nights:
        for run in entry.measurements:
            if run.kind == "warmup" and run.fault is None and run.key == key and run.data == data:
                yield Ran.of(entry, run, night)


def _ordered(runs: Sequence[Ran]) -> list[Ran]:
    return sorted(runs, key=lambda ran: (ran.run.started, ran.job, ran.run.run))


def _labels(groups: Sequence[tuple[Key, str, str]]) -> list[str]:
    """Return one label per group. No two labels are equal. If several groups would have the same label, their file
    system, layout and dataset are appended. If labels are still equal, the digest of the measurement key is appended
    too.
    """
    short = [key.title if not title else f"{title}: {key.title}" for key, _, title in groups]
    detailed = [
        label if short.count(label) == 1 else f"{label}, {key.place}, layout {key.layout}, {data}"
        for label, (key, data, _) in zip(short, groups, strict=True)
    ]
    return [
        label if detailed.count(label) == 1 else f"{label}, {key.digest}"
        for label, (key, _, _) in zip(detailed, groups, strict=True)
    ]


def summary(acceptance: Acceptance) -> str:
    """Return the result of an acceptance test in one line."""
    return f"acceptance of {listed(acceptance.what)} by {acceptance.criteria.name}: {counted(acceptance)}"


def counted(acceptance: Acceptance) -> str:
    """Return how many checks have each outcome, such as "3 of 4 pass, 1 fail"."""
    counts = Counter(check.outcome for check in acceptance.checks)
    skipped = counts.pop("skipped", 0)
    judged = len(acceptance.checks) - skipped
    parts = [f"{counts.pop('pass', 0)} of {judged} pass"] if judged else []
    parts += [f"{counts[outcome]} {label(outcome)}" for outcome in OUTCOMES if counts[outcome]]
    return ", ".join([*parts, *([f"{skipped} skipped"] if skipped else [])])


def cases(acceptance: Acceptance) -> list[Case]:
    """Return one JUnit case per check."""
    seconds = dict(acceptance.seconds)
    return [_case(check, seconds.pop(check.group, 0.0)) for check in acceptance.checks]


def _case(check: Check, seconds: float) -> Case:
    """Return the JUnit case of a check. seconds: duration to report for the case. The first case of a group reports the
    wall time of all runs of the group; the other cases of the group report 0.
    """
    name = ": ".join(filter(None, (check.group, f"{check.title}: {check.asked}")))
    lines = [check.text, *evidence_lines(check), *advice_lines(check)]
    message = f"{label(check.outcome)}: {check.text}"
    return Case(
        name, "dlio-hpc.accept", OUTCOMES[check.outcome].junit, _cause(check), message, "\n".join(lines), seconds
    )


def _cause(check: Check) -> str:
    """Return the `type` attribute of JUnit's failure or error element. Return an empty string if the check passed or
    was skipped.
    """
    evidence = " ".join(item.text for item in check.evidence)
    if check.outcome == "incomplete" and ("time limit" in evidence or "timeout" in evidence):
        return "timeout"
    return check.outcome if OUTCOMES[check.outcome].junit in ("failure", "error") else ""
