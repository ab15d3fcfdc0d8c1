"""Checks that are part of every acceptance test: all runs are good, no measurement is missing, and the storage was
measured.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.analysis.storage_check import ENOUGH, Storage
from dlio_hpc.base.errors import Incomplete, InvalidRun
from dlio_hpc.base.units import counted
from dlio_hpc.records.outcomes import Outcome, of_fault
from dlio_hpc.verdict.criterion_result import Check, CriterionGroup, Evidence, Ran, listed
from dlio_hpc.verdict.history_entry import Entry

STORAGE = "storage"
# Advice for a run that recorded no advice. Such a run was within the limit on bytes from memory that applied when it
# ran.
_LARGER = (f"a dataset of {ENOUGH} times the nodes' memory",)
# Name and requirement of each check, by the outcome that the check has if the requirement is not met.
_CHECKS: dict[Outcome, tuple[str, str]] = {
    "bug": ("bug", "no run met a bug in dlio-hpc"),
    "invalid": ("validity", "no run is invalid"),
    "infrastructure": ("infrastructure", "no run failed"),
    "incomplete": ("completeness", "no measurement is missing"),
}


class Absent(NamedTuple):
    """A measurement that a study lacks. title: title of its point. job: the last job that was planned to take this
    measurement; None if there was none. why: reason why it is missing.
    """

    title: str
    repeat: int
    job: str | None
    why: str


class _Fault(NamedTuple):
    outcome: Outcome
    evidence: Evidence


def good(entries: Sequence[Entry], absent: Sequence[Absent]) -> Iterator[Check]:
    """Yield one check for each of three requirements: no run is invalid, no run failed, and no measurement is missing.
    A requirement that is met also gets a check, so that all reports have the same checks. There is a further check if
    runs met a bug.
    """
    faults = [*_faulty(entries), *_unfinished(entries, absent)]
    count = sum(run.is_good for entry in entries for run in entry.measurements)
    if not count and not faults:
        faults = [_Fault("incomplete", Evidence("", "", None, "nothing was measured", is_met=False))]
    for outcome, (name, asked) in _CHECKS.items():
        evidence = [fault.evidence for fault in faults if fault.outcome == outcome]
        if outcome == "bug" and not evidence:
            continue
        message = listed(list(dict.fromkeys(item.text for item in evidence)), 1)
        message = f"{len(evidence)} x {message}" if len(evidence) > 1 else message
        yield Check(
            name, "", name, "", asked, outcome if evidence else "pass", message or f"{counted(count, 'run')} measured",
            tuple(evidence),
        )  # fmt: skip


def _faulty(entries: Sequence[Entry]) -> Iterator[_Fault]:
    """Yield the faults of measured runs whose measurement has no good run, and the faults of whole jobs. The fault of a
    job is left out in three cases. First: the job is invalid, and so is one of its runs. Second: the job has a fault
    other than being invalid, and one of its runs has a fault. Third: the job reached its time limit only after its last
    run, so that no measurement is missing.
    """
    measured = {(entry.study, run.unit) for entry in entries for run in entry.measurements if run.is_good}
    for entry in entries:
        runs = [run for run in entry.measurements if run.kind == "measure"]
        for run in runs:
            if run.fault is not None and (entry.study, run.unit) not in measured:
                yield _Fault(of_fault(run.exit_code), Evidence(entry.job, run.run, None, run.fault, is_met=False))
        codes = {run.exit_code for run in runs}
        lost_nothing = entry.exit_code == Incomplete.exit_code and codes == {0}
        is_reported = entry.exit_code != InvalidRun.exit_code and codes - {0}
        if entry.fault is not None and entry.exit_code not in codes and not lost_nothing and not is_reported:
            yield _Fault(of_fault(entry.exit_code), Evidence(entry.job, "", None, entry.fault, is_met=False))


def _unfinished(entries: Sequence[Entry], absent: Sequence[Absent]) -> Iterator[_Fault]:
    """Yield a fault for each planned measurement that has no run among the entries. A measurement whose run failed is
    skipped, because _faulty() yields the fault of that run.
    """
    recorded = {(entry.job, run.title, run.repeat) for entry in entries for run in entry.measurements}
    for missing in absent:
        if (missing.job, missing.title, missing.repeat) not in recorded:
            message = f"{missing.title}, repeat {missing.repeat + 1}: {missing.why}"
            yield _Fault("incomplete", Evidence(missing.job or "", "", None, message, is_met=False))


def of_storage(group: CriterionGroup, limit: float) -> Check:
    """Check whether the runs of a group read from storage. The outcome is `cached` if, in at least one run, the share
    of bytes that came from memory exceeds `limit` or is unknown.
    """
    outcomes = [_outcome(ran, limit) for ran in group.runs]
    evidence = tuple(
        Evidence(ran.job, ran.run.run, _share(ran), message, is_met=is_met)
        for ran, (is_met, message) in zip(group.runs, outcomes, strict=True)
    )
    bad = [item for item in evidence if not item.is_met]
    shares = [item.value for item in evidence if item.value is not None]
    first = min(bad, key=lambda item: item.value or 0.0, default=evidence[0])
    message = f"{len(bad)} of {counted(len(evidence), 'run')}: {first.text}" if bad else first.text
    advice = dict.fromkeys(
        line for ran in group.runs if (storage := ran.run.storage) for line in _advice(storage, limit)
    )
    better = tuple(advice) or _larger(group)
    asked = f"at least {100 * (1 - limit):g} % of each epoch from storage"
    if all(ran.run.storage is not None and ran.run.storage.is_metadata for ran in group.runs):
        asked = "operations that the servers of the file system answered"
    return Check(
        STORAGE, "", "the storage was measured", group.label, asked, "cached" if bad else "pass", message, evidence,
        min(shares, default=None), limit=1 - limit, unit="share", advice=better if bad else (),
    )  # fmt: skip


def _larger(group: CriterionGroup) -> tuple[str, ...]:
    """Return the advice to use a larger dataset. Return an empty tuple if the runs read no stored data."""
    return _LARGER if any(ran.run.storage is not None and ran.run.storage.epochs for ran in group.runs) else ()


def _outcome(ran: Ran, limit: float) -> tuple[bool, str]:
    """Return whether a run read from storage, and a description of its cache outcome."""
    storage = ran.run.storage
    if storage is None:
        return False, "UNKNOWN: the bytes read were not recorded"
    return storage.outcome(limit) == "storage", storage.text(limit)


def _share(ran: Ran) -> float | None:
    """Return the share of bytes from storage in the epoch with the lowest such share, or None if it is unknown."""
    storage = ran.run.storage
    return None if storage is None or storage.cached is None else 1 - storage.cached


def _advice(storage: Storage, limit: float) -> tuple[str, ...]:
    return () if storage.outcome(limit) == "storage" else storage.advice
