"""Rules on how a measurement is made: steps per epoch, dataset size relative to memory, number of runs, gaps between
runs, file system of the results, unmodified workloads.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from dlio_hpc import document
from dlio_hpc.config import shipped, workload
from dlio_hpc.errors import ConfigError
from dlio_hpc.plan import plan
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.units import format_seconds, format_size, seconds_between
from dlio_hpc.verdict.criteria_file import Criterion
from dlio_hpc.verdict.criterion_result import Check, CriterionGroup, Evidence, Ran
from dlio_hpc.verdict.history_entry import changes

# Requirements in words, by YAML key.
_WORDS = {
    "min_steps": "steps per epoch >= {}",
    "min_dataset_over_memory": "dataset >= {:g} x the nodes' memory",
    "min_checkpoint_over_memory": "checkpoints >= {:g} x the nodes' memory, or read from storage",
    "rank_memory": "a checkpoint fits into {} of each rank",
    "warmups": "warm-ups = {}",
    "measured_runs": "measured runs = {}",
    "min_measured_runs": "measured runs >= {}",
    "gaps": "gaps shorter than a run",
    "separate_results_fs": "dataset and results on different file systems",
    "unmodified": "{} as shipped",
    "divisions": "a workload of the division {}",
}


class _Rule(NamedTuple):
    """A rule of a criterion, and the group that is checked. name: name of the criterion. key: YAML key of the rule."""

    name: str
    key: str
    criterion: Criterion
    group: CriterionGroup

    def check(self, is_met: bool, message: str, **rest: Any) -> Check:
        """Return a check with the outcome pass or fail."""
        return self._check("pass" if is_met else "fail", message, **rest)

    def unknown(self, message: str, evidence: tuple[Evidence, ...] = ()) -> Check:
        """Return a check that cannot be decided, because a value is unknown. Its outcome is `skipped` if the criterion
        is optional, otherwise `inconclusive`. message: what is unknown.
        """
        verdict: Outcome = "skipped" if self.criterion.optional else "inconclusive"
        return self._check(verdict, f"unknown: {message}", evidence=evidence)

    def _check(self, verdict: Outcome, message: str, **rest: Any) -> Check:
        title, asked = self.criterion.title or self.name, in_words(self.key, self.criterion)
        return Check(self.name, self.key, title, self.group.label, asked, verdict, message, **rest)


def checks(name: str, criterion: Criterion, group: CriterionGroup) -> Iterator[Check]:
    """Yield a check for each rule that the criterion sets."""
    if criterion.min_steps is not None:
        yield _steps(_Rule(name, "min_steps", criterion, group), criterion.min_steps)
    if (ratio := criterion.min_dataset_over_memory) is not None:
        yield _memory(_Rule(name, "min_dataset_over_memory", criterion, group), ratio)
    if (ratio := criterion.min_checkpoint_over_memory) is not None:
        yield _checkpoints(_Rule(name, "min_checkpoint_over_memory", criterion, group), ratio)
    if criterion.rank_memory is not None:
        yield _rank_memory(_Rule(name, "rank_memory", criterion, group), criterion.rank_memory)
    yield from _counts(name, criterion, group)
    if criterion.gaps != "any":
        yield _gaps(_Rule(name, "gaps", criterion, group))
    if criterion.separate_results_fs:
        yield _separation(_Rule(name, "separate_results_fs", criterion, group))
    if criterion.unmodified:
        yield _as_shipped(_Rule(name, "unmodified", criterion, group))
    if criterion.divisions:
        yield _division(_Rule(name, "divisions", criterion, group))


def in_words(key: str, criterion: Criterion) -> str:
    """Return a description of what a rule requires. key: the YAML key of the rule."""
    value = getattr(criterion, key)
    if isinstance(value, dict):
        return _WORDS[key].format(" or ".join(value))
    if key == "rank_memory":
        return _WORDS[key].format(format_size(value))
    return _WORDS[key].format(", ".join(value) if isinstance(value, tuple) else value)


def _steps(rule: _Rule, least: int) -> Check:
    runs = rule.group.runs
    evidence = tuple(
        Evidence(ran.job, ran.run.run, ran.run.steps, f"{ran.run.steps} steps", ran.run.steps >= least) for ran in runs
    )
    fewest = min(ran.run.steps for ran in runs)
    return rule.check(
        fewest >= least, f"{fewest} per rank", evidence=evidence,
        value=float(fewest), limit=float(least), advice=_larger(fewest, least),
    )  # fmt: skip


def _larger(measured: float, least: float) -> tuple[str, ...]:
    """Return advice that states by which factor to enlarge the dataset. Return no advice if the dataset is large
    enough.
    """
    if not 0 < measured < least:
        return ()
    factor = f"{least / measured:,.0f}" if least / measured >= 100 else f"{least / measured:.3g}"
    return (f"a dataset {factor} times as large (--dataset-size)",)


def _memory(rule: _Rule, least: float) -> Check:
    ratios = [(ran, _over_memory(ran)) for ran in rule.group.runs]
    evidence = tuple(
        Evidence(ran.job, ran.run.run, ratio, _sizes(ran), None if ratio is None else ratio >= least)
        for ran, ratio in ratios
    )
    known = [ratio for _, ratio in ratios if ratio is not None]
    if len(known) < len(ratios) and min(known, default=least) >= least:
        return rule.unknown("node memory was not recorded", evidence)
    fewest = min(known)
    return rule.check(
        fewest >= least, evidence[known.index(fewest)].text, evidence=evidence, value=fewest, limit=least,
        unit="x", advice=_larger(fewest, least),
    )  # fmt: skip


def _over_memory(ran: Ran) -> float | None:
    """Return the size of the dataset divided by the memory of all nodes, or None if the memory is unknown."""
    storage = ran.run.storage
    return storage.dataset_bytes / storage.memory_bytes if storage is not None and storage.memory_bytes else None


def _sizes(ran: Ran) -> str:
    storage = ran.run.storage
    if storage is None:
        return "unknown"
    memory = format_size(storage.memory_bytes) if storage.memory_bytes else "an unknown amount"
    return f"dataset of {format_size(storage.dataset_bytes)}, {memory} of memory on all nodes"


def _checkpoints(rule: _Rule, least: float) -> Check:
    """Compare the bytes of all checkpoints with the nodes' memory. Below the limit, the checkpoints must have been read
    from storage.
    """
    size, writes = _checkpoint(rule.group)
    if not size:
        return rule.unknown("the sizes of the checkpoints were not recorded")
    evidence = tuple(_against_memory(ran, size * writes, least) for ran in rule.group.runs)
    if any(item.is_met is None for item in evidence):
        return rule.unknown("node memory was not recorded", evidence)
    worst = min(evidence, key=lambda item: (bool(item.is_met), item.value))
    advice = (
        "more checkpoints (checkpoint.writes), or read them on other nodes (checkpoint.reorder) or with O_DIRECT "
        "(checkpoint.direct)",
    )
    return rule.check(
        bool(worst.is_met), worst.text, evidence=evidence, value=worst.value, limit=least, unit="x",
        advice=() if worst.is_met else advice,
    )  # fmt: skip


def _against_memory(ran: Ran, written: int, least: float) -> Evidence:
    """Return the bytes that a run writes over the memory of all nodes, and whether the run meets the rule."""
    storage = ran.run.storage
    if storage is None or not storage.memory_bytes:
        return Evidence(ran.job, ran.run.run, None, "unknown")
    ratio = written / storage.memory_bytes
    sizes = f"checkpoints of {format_size(written)}, {format_size(storage.memory_bytes)} of memory on all nodes"
    if ratio >= least:
        return Evidence(ran.job, ran.run.run, ratio, sizes, is_met=True)
    return Evidence(ran.job, ran.run.run, ratio, f"{sizes}; {storage.text()}", storage.outcome() == "storage")


def _rank_memory(rule: _Rule, memory: int) -> Check:
    size, _ = _checkpoint(rule.group)
    if not size:
        return rule.unknown("the sizes of the checkpoints were not recorded")
    total = memory * rule.group.ranks
    message = f"a checkpoint of {format_size(size)}, {format_size(total)} of memory of {rule.group.ranks} ranks"
    return rule.check(size <= total, message, value=total / size, limit=1.0, unit="x")


def _checkpoint(group: CriterionGroup) -> tuple[int, int]:
    """Return the bytes of a checkpoint of all ranks, and the number of checkpoints that a run writes. Both are 0 if the
    workload is unknown, or does not only write checkpoints.
    """
    try:
        checkpoint = document.convert(group.runs[0].workload, workload.Workload, group.label).checkpoint
    except ConfigError:  # an older version recorded it
        return 0, 0
    if checkpoint is None or checkpoint.writes is None:
        return 0, 0
    return checkpoint.size(group.ranks), checkpoint.writes


def _counts(name: str, criterion: Criterion, group: CriterionGroup) -> Iterator[Check]:
    warmups = sum(ran.run.kind == "warmup" for ran in group.sequence)
    measured = len(group.runs)
    for key, count in (("warmups", warmups), ("measured_runs", measured), ("min_measured_runs", measured)):
        if (wanted := getattr(criterion, key)) is not None:
            yield _count(_Rule(name, key, criterion, group), count, wanted)


def _count(rule: _Rule, count: int, wanted: int) -> Check:
    is_least = rule.key.startswith("min_")
    is_met = count >= wanted if is_least else count == wanted
    evidence = tuple(Evidence(ran.job, ran.run.run, None, ran.run.kind) for ran in rule.group.sequence)
    option = "--warmup" if rule.key == "warmups" else "--repeat"
    return rule.check(
        is_met, f"there are {count}", evidence=evidence,
        value=float(count), limit=float(wanted), advice=() if is_met else (f"{option} {wanted}",),
    )  # fmt: skip


def _gaps(rule: _Rule) -> Check:
    """Check that each gap between consecutive runs is shorter than the shortest run. No further run of this length fits
    into such a gap.
    """
    sequence = rule.group.sequence
    runs = [ran.run for ran in sequence]
    gaps = [max(0.0, seconds_between(run.ended, following.started)) for run, following in pairwise(runs)]
    if not gaps:
        return rule.unknown("there is only one run, so there are no gaps")
    shortest, longest = min(seconds_between(run.started, run.ended) for run in runs), max(gaps)
    evidence = tuple(
        Evidence(ran.job, ran.run.run, gap, f"{format_seconds(gap)} after the previous run", gap < shortest)
        for ran, gap in zip(sequence[1:], gaps, strict=True)
    )
    message = f"the longest gap is {format_seconds(longest)}, the shortest run {format_seconds(shortest)}"
    together = "make the runs longer (dataset.files, train.epochs); run nothing else between them in the job"
    apart = "make all runs in one batch job, with --warmup, --repeat and enough --time"
    is_one = len({ran.job for ran in sequence}) == 1
    advice = () if longest < shortest else (together if is_one else apart,)
    return rule.check(
        longest < shortest, message, evidence=evidence, value=longest, limit=shortest, unit="s", advice=advice
    )


def _separation(rule: _Rule) -> Check:
    dataset = rule.group.key.file_system
    if dataset in ("none", "unknown"):
        return rule.unknown("file system of the dataset")
    places = {ran.job: ran.results_on for ran in rule.group.runs}
    if not all(places.values()):
        return rule.unknown("file system of the job directory")
    evidence = tuple(
        Evidence(job, "", None, f"dataset on {dataset}, results on {place}", place != dataset)
        for job, place in places.items()
    )
    same = [item for item in evidence if not item.is_met]
    advice = ("-o DIR or --data DIR on another file system",) if same else ()
    return rule.check(not same, (same or evidence)[0].text, evidence=evidence, advice=advice)


def _as_shipped(rule: _Rule) -> Check:
    """Compare the settings of the group with those of the shipped workload that has the same name."""
    measured, shipped_workload = rule.group.runs[0].workload, _shipped(rule.group.key.workload)
    if shipped_workload is None or measured is None:
        return rule.unknown(f"no shipped workload {rule.group.key.workload!r}")
    differences = [
        difference
        for key in rule.criterion.unmodified
        for difference in changes(_value(shipped_workload, key), _value(measured, key), key)
    ]
    return rule.check(not differences, f"shipped / measured: {'; '.join(differences)}" if differences else "as shipped")


def _shipped(name: str) -> Any:
    """Return the shipped workload with this name as nested mappings, with the values of all defaults. Return None if
    there is none. A facility's own workload with the same name does not count.
    """
    path = shipped.root() / shipped.WORKLOADS / f"{name}.yaml"
    return json.loads(document.encode(plan.resolved(workload.load(str(path))))) if path.is_file() else None


def _division(rule: _Rule) -> Check:
    """State the strictest division in which all keys may differ that differ from those of the shipped workload."""
    measured, shipped_workload = rule.group.runs[0].workload, _shipped(rule.group.key.workload)
    if shipped_workload is None or measured is None:
        return rule.unknown(f"no shipped workload {rule.group.key.workload!r}")
    differences = changes(shipped_workload, measured)
    allowed: tuple[str, ...] = ()
    left, reason = differences, ""
    for division, keys in rule.criterion.divisions.items():
        allowed = (*allowed, *keys)
        if not _forbidden(differences, allowed):
            return rule.check(True, f"division {division}{reason}")
        left = _forbidden(differences, allowed)
        reason = f", because of {'; '.join(left)}"
    return rule.check(False, f"no division lets these keys change, shipped / measured: {'; '.join(left)}")


def _forbidden(differences: list[str], allowed: tuple[str, ...]) -> list[str]:
    """Return the differences whose keys are not allowed to differ. A key allows those below it, too."""
    return [line for line in differences if not any(f"{line.split(': ')[0]}.".startswith(f"{key}.") for key in allowed)]


def _value(data: Any, key: str) -> Any:
    """Return the value of a dotted key in nested mappings, or None if the key is missing."""
    for name in key.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data
