"""Does what was measured meet the criteria? Each criterion with its evidence, and one verdict."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from dlio_hpc import document
from dlio_hpc.errors import ConfigError
from dlio_hpc.records.outcomes import OUTCOMES, Outcome, label, worst
from dlio_hpc.verdict import criteria_file, history_entry, performance_criteria, procedure_criteria, validity_criteria
from dlio_hpc.verdict.criteria_file import Criteria, Criterion, is_named
from dlio_hpc.verdict.criterion_result import (
    Check,
    Group,
    Ran,
    advice_lines,
    evidence_lines,
    listed,
)
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.junit import Case
from dlio_hpc.verdict.selection import Judged
from dlio_hpc.verdict.validity_criteria import Absent


class Acceptance(Struct, frozen=True):
    """what: the names of what was judged. checks: of all, then group by group, in the order of the criteria. seconds:
    of all runs that were judged.
    """

    criteria: Criteria
    what: tuple[str, ...]
    checks: tuple[Check, ...]
    seconds: dict[str, float]

    @property
    def outcome(self) -> Outcome:
        """The most severe outcome of the criteria."""
        return worst(check.outcome for check in self.checks) or "pass"

    @property
    def exit_code(self) -> int:
        return OUTCOMES[self.outcome].exit_code

    @property
    def groups(self) -> list[str]:
        """Labels; the empty one of what is about everything comes first."""
        return list(dict.fromkeys(each.group for each in sorted(self.checks, key=lambda each: each.group != "")))

    def of(self, group: str) -> list[Check]:
        return [each for each in self.checks if each.group == group]


def of(judged: Judged, criteria: str | None) -> Acceptance:
    """Judge jobs and studies by a criteria file; None: by the criteria of the suite among them."""
    entries = [history_entry.of(job) for job in judged.all_jobs]
    return judge(criteria_file.load(criteria or _own(judged)), entries, judged.absent)


def _own(judged: Judged) -> str:
    """The criteria of the suite that is judged."""
    own = {study.study.verdict.criteria for study in judged.studies if study.study.verdict is not None}
    if len(own) != 1 or None in own:
        raise ConfigError("say with --criteria what to judge by; only a suite has criteria of its own")
    return str(own.pop())


def judge(criteria: Criteria, entries: Sequence[Entry], absent: Sequence[Absent] = ()) -> Acceptance:
    """entries: the jobs. absent: measurements of their studies that are missing. The same for the same input, in any
    order of jobs.
    """
    entries = sorted(entries, key=lambda entry: (entry.created, entry.job))
    groups = grouped(entries)
    checks = [*validity_criteria.good(entries, absent), *_strangers(criteria, groups)]
    asked = {group.label: list(_of_group(criteria, group, groups)) for group in groups}
    checks += _unasked(criteria, [each for found in asked.values() for each in found], [group.key for group in groups])
    for group in groups:
        storage = validity_criteria.of_storage(group, criteria.cached_above)
        checks.append(storage)
        checks += asked[group.label] if storage.outcome == "pass" else map(_of_memory, asked[group.label])
    seconds = {group.label: sum(each.run.metrics.get("wall_s", 0.0) for each in group.runs) for group in groups}
    studies = dict.fromkeys(entry.study for entry in entries)
    return Acceptance(criteria, tuple(studies), tuple(checks), seconds)


def _of_group(criteria: Criteria, group: Group, groups: Sequence[Group]) -> Iterator[Check]:
    for name, criterion in criteria.criteria.items():
        if criterion.selects(group.key):
            yield from performance_criteria.checks(name, criterion, group, groups)
            yield from procedure_criteria.checks(name, criterion, group)


def _of_memory(check: Check) -> Check:
    """A figure of memory that is good enough says nothing of storage; one that is not says enough."""
    if not check.metric or check.outcome not in ("pass", "inconclusive"):
        return check
    return structs.replace(check, outcome="cached", words=f"{check.words}; not of the storage")


def _strangers(criteria: Criteria, groups: Sequence[Group]) -> Iterator[Check]:
    """What was measured beside the workloads that the criteria are for."""
    for workload in dict.fromkeys(group.key.workload for group in groups):
        if not is_named(workload, criteria.workloads):
            names = ", ".join(criteria.workloads)
            words = f"{workload} is none of them; judge it by other criteria (--criteria)"
            yield Check("workloads", "workloads", "workloads", "", f"only {names}", "fail", words)


def _unasked(criteria: Criteria, checks: Sequence[Check], keys: Sequence[Key]) -> Iterator[Check]:
    """Criteria that nothing was measured for: one that is silent would pass whatever the storage does."""
    judged = {(each.criterion, each.key) for each in checks}
    for name, criterion in criteria.criteria.items():
        of = f" ({criterion.selection})" if criterion.selection else ""
        verdict: Outcome = "skipped" if criterion.optional else "fail"
        for key in criterion.asked:
            if (name, key) not in judged:
                asked = _in_words(name, key, criterion)
                yield Check(name, key, criterion.title or name, "", asked, verdict, f"nothing was measured for it{of}")
        lacking = criterion.lacking(keys)
        if lacking and not criterion.optional and any((name, key) in judged for key in criterion.asked):
            words = f"nothing was measured for {', '.join(lacking)}"
            yield Check(name, "", criterion.title or name, "", f"measured{of}", "fail", words)


def _in_words(name: str, key: str, criterion: Criterion) -> str:
    if key in performance_criteria.LIMITS:
        return performance_criteria.limit(name, key, criterion).words
    return procedure_criteria.in_words(key, criterion)


def grouped(entries: Sequence[Entry]) -> list[Group]:
    """Repeats of one measurement together, in the order of entries; of what was measured twice the first."""
    found: dict[tuple[Key, str, str], list[Ran]] = {}
    seen = set()
    for entry in entries:
        for run in entry.measurements:
            once = (entry.study, run.unit, run.key)  # with another version it is another group's
            if run.is_good and once not in seen:
                seen.add(once)
                found.setdefault((run.key, run.data, run.title), []).append(Ran.of(entry, run))
    labels = _labels(list(found))
    return [
        Group(label, key, data, tuple(_ordered(runs)), tuple(_ordered([*runs, *_warmups(entries, key, data)])))
        for label, ((key, data, _), runs) in zip(labels, found.items(), strict=True)
    ]


def _warmups(entries: Sequence[Entry], key: Key, data: str) -> Iterator[Ran]:
    for entry in entries:
        for run in entry.measurements:
            if run.kind == "warmup" and run.fault is None and run.key == key and run.data == data:
                yield Ran.of(entry, run)


def _ordered(runs: Sequence[Ran]) -> list[Ran]:
    return sorted(runs, key=lambda each: (each.run.started, each.job, each.run.run))


def _labels(groups: Sequence[tuple[Key, str, str]]) -> list[str]:
    """Short where that is enough to tell them apart."""
    short = [key.title if title in ("", key.workload) else f"{title}: {key.title}" for key, _, title in groups]
    longer = [
        label if short.count(label) == 1 else f"{label}, {key.file_system}, layout {key.layout}, {data}"
        for label, (key, data, _) in zip(short, groups, strict=True)
    ]
    return [
        label if longer.count(label) == 1 else f"{label}, {key.digest}"
        for label, (key, _, _) in zip(longer, groups, strict=True)
    ]


def summary(found: Acceptance) -> str:
    """One line."""
    return f"acceptance of {listed(found.what)} by {found.criteria.name}: {counted(found)}"


def counted(found: Acceptance) -> str:
    """How many criteria came to what."""
    counts = Counter(check.outcome for check in found.checks)
    skipped = counts.pop("skipped", 0)
    parts = [f"{counts.pop('pass', 0)} of {len(found.checks) - skipped} pass"]
    parts += [f"{counts[outcome]} {label(outcome)}" for outcome in OUTCOMES if counts[outcome]]
    return ", ".join([*parts, *([f"{skipped} skipped"] if skipped else [])])


def as_document(found: Acceptance) -> dict[str, Any]:
    """As --json shows it."""
    return {
        "summary": summary(found),
        "outcome": found.outcome,
        "exit_code": found.exit_code,
        "studies": list(found.what),
        "criteria": document.plain(found.criteria),
        "checks": document.plain(found.checks),
    }


def cases(found: Acceptance) -> list[Case]:
    """As JUnit has it: one for each criterion of each group."""
    seconds = dict(found.seconds)
    return [_case(each, seconds.pop(each.group, 0.0)) for each in found.checks]


def _case(check: Check, seconds: float) -> Case:
    """seconds: of the group's runs, which its first case is given."""
    name = ": ".join(filter(None, (check.group, f"{check.title}: {check.asked}")))
    lines = [check.words, *evidence_lines(check), *advice_lines(check)]
    message = f"{label(check.outcome)}: {check.words}"
    return Case(
        name, "dlio-hpc.accept", OUTCOMES[check.outcome].junit, _cause(check), message, "\n".join(lines), seconds
    )


def _cause(check: Check) -> str:
    """The type of JUnit's failure or error; empty for a criterion that is met or skipped."""
    words = " ".join(each.words for each in check.evidence)
    if check.outcome == "incomplete" and ("time limit" in words or "timeout" in words):
        return "timeout"
    return check.outcome if OUTCOMES[check.outcome].junit in ("failure", "error") else ""
