"""What is asked whatever a criteria file says: that every run is good, and that the storage was measured."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.analysis.page_cache_check import ENOUGH, Storage
from dlio_hpc.errors import Incomplete, InvalidRun
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.verdict.criterion_result import Check, Evidence, Group, Ran, listed, runs_in_words
from dlio_hpc.verdict.history_entry import Entry

STORAGE = "storage"
_CLASSES: dict[int, Outcome] = {3: "invalid", 7: "incomplete"}
# Where the run itself has no better one, as its limit was wider.
_LARGER = (f"a dataset of {ENOUGH} times the nodes' memory",)
# Criterion and what it asks, by what it comes to where it is not met.
_ALWAYS: dict[Outcome, tuple[str, str]] = {
    "invalid": ("validity", "no run is invalid"),
    "infrastructure": ("infrastructure", "no run failed"),
    "incomplete": ("completeness", "no measurement is missing"),
}


class Absent(NamedTuple):
    """A measurement of a study that nobody has. title: of its point. job: the last that was to make it."""

    title: str
    repeat: int
    job: str | None
    why: str


class _Fault(NamedTuple):
    outcome: Outcome
    evidence: Evidence


def good(entries: Sequence[Entry], absent: Sequence[Absent]) -> Iterator[Check]:
    """One check for each kind of fault, so that it has the same names each time."""
    faults = [*_faulty(entries), *_unfinished(entries, absent)]
    count = sum(run.is_good for entry in entries for run in entry.measurements)
    if not count and not faults:
        faults = [_Fault("incomplete", Evidence("", "", None, "nothing was measured", is_met=False))]
    for outcome, (name, asked) in _ALWAYS.items():
        found = [fault.evidence for fault in faults if fault.outcome == outcome]
        told = listed(list(dict.fromkeys(each.words for each in found)), 1)
        words = f"{len(found)} x {told}" if len(found) > 1 else told
        yield Check(
            name, "", name, "", asked, outcome if found else "pass", words or f"{runs_in_words(count)} measured",
            tuple(found),
        )  # fmt: skip


def _faulty(entries: Sequence[Entry]) -> Iterator[_Fault]:
    """Runs that are no measurement and were not made once more; and what else was wrong with a job. One whose time was
    over after its last run lost nothing.
    """
    measured = {(entry.study, run.unit) for entry in entries for run in entry.measurements if run.is_good}
    for entry in entries:
        runs = [run for run in entry.measurements if run.kind == "measure"]
        for run in runs:
            if run.fault is not None and (entry.study, run.unit) not in measured:
                verdict = _CLASSES.get(run.exit_code, "infrastructure")
                yield _Fault(verdict, Evidence(entry.job, run.run, None, run.fault, is_met=False))
        codes = {run.exit_code for run in runs}
        lost_nothing = entry.exit_code == Incomplete.exit_code and codes == {0}
        is_told = entry.exit_code != InvalidRun.exit_code and codes - {0}
        if entry.fault is not None and entry.exit_code not in codes and not lost_nothing and not is_told:
            verdict = _CLASSES.get(entry.exit_code, "infrastructure")
            yield _Fault(verdict, Evidence(entry.job, "", None, entry.fault, is_met=False))


def _unfinished(entries: Sequence[Entry], absent: Sequence[Absent]) -> Iterator[_Fault]:
    """Measurements that no job's entry tells of."""
    told = {(entry.job, run.title, run.repeat) for entry in entries for run in entry.measurements}
    for each in absent:
        if (each.job, each.title, each.repeat) not in told:
            words = f"{each.title}, repeat {each.repeat + 1}: {each.why}"
            yield _Fault("incomplete", Evidence(each.job or "", "", None, words, is_met=False))


def of_storage(group: Group, limit: float) -> Check:
    """Were its bytes read from storage? cached shares above the limit, and unknown ones, are cached."""
    outcomes = [_outcome(each, limit) for each in group.runs]
    evidence = tuple(
        Evidence(each.job, each.run.run, _share(each), words, is_met=is_met)
        for each, (is_met, words) in zip(group.runs, outcomes, strict=True)
    )
    bad = [each for each in evidence if not each.is_met]
    shares = [each.value for each in evidence if each.value is not None]
    first = min(bad, key=lambda each: each.value or 0.0, default=evidence[0])
    words = f"{len(bad)} of {runs_in_words(len(evidence))}: {first.words}" if bad else first.words
    advice = dict.fromkeys(line for each in group.runs if (found := each.run.storage) for line in _advice(found, limit))
    better = tuple(advice) or _larger(group)
    asked = f"at least {100 * (1 - limit):g} % of each epoch from storage"
    return Check(
        STORAGE, "", "the storage was measured", group.label, asked, "cached" if bad else "pass", words, evidence,
        min(shares, default=None), limit=1 - limit, unit="share", advice=better if bad else (),
    )  # fmt: skip


def _larger(group: Group) -> tuple[str, ...]:
    """Of no use where nothing is stored."""
    return _LARGER if any(each.run.storage is not None and each.run.storage.epochs for each in group.runs) else ()


def _outcome(each: Ran, limit: float) -> tuple[bool, str]:
    storage = each.run.storage
    if storage is None:
        return False, "UNKNOWN: there is no record of what was read"
    return storage.outcome(limit) == "storage", storage.words(limit)


def _share(each: Ran) -> float | None:
    """Of the worst epoch, from storage."""
    storage = each.run.storage
    return None if storage is None or storage.cached is None else 1 - storage.cached


def _advice(found: Storage, limit: float) -> tuple[str, ...]:
    return () if found.outcome(limit) == "storage" else found.advice
