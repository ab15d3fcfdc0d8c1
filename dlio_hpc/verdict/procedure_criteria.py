"""Criteria of how it was measured: steps, dataset and memory, number of runs, gaps between them, where results went."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from dlio_hpc import document
from dlio_hpc.config import shipped, workload
from dlio_hpc.plan import plan
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.units import format_seconds, format_size, seconds_between
from dlio_hpc.verdict.criteria_file import Criterion
from dlio_hpc.verdict.criterion_result import Check, Evidence, Group, Ran
from dlio_hpc.verdict.history_entry import changes

# What is asked, by the keys of criteria.
_WORDS = {
    "min_steps": "steps of an epoch >= {}",
    "min_dataset_over_memory": "dataset >= {:g} x the nodes' memory",
    "warmups": "warm-ups = {}",
    "measured_runs": "measured runs = {}",
    "min_measured_runs": "measured runs >= {}",
    "gaps": "gaps shorter than a run",
    "separate_results_fs": "dataset and results on different file systems",
    "unmodified": "{} as the workload ships",
}


class _Rule(NamedTuple):
    """What a criterion asks of a group, under that key of the criteria file."""

    name: str
    key: str
    criterion: Criterion
    group: Group

    def check(self, is_met: bool, words: str, **rest: Any) -> Check:
        return self._check("pass" if is_met else "fail", words, **rest)

    def unknown(self, words: str, evidence: tuple[Evidence, ...] = ()) -> Check:
        """No verdict is possible."""
        verdict: Outcome = "skipped" if self.criterion.optional else "inconclusive"
        return self._check(verdict, f"not known: {words}", evidence=evidence)

    def _check(self, verdict: Outcome, words: str, **rest: Any) -> Check:
        title, asked = self.criterion.title or self.name, in_words(self.key, self.criterion)
        return Check(self.name, self.key, title, self.group.label, asked, verdict, words, **rest)


def checks(name: str, criterion: Criterion, group: Group) -> Iterator[Check]:
    """Of each rule that is asked for."""
    if criterion.min_steps is not None:
        yield _steps(_Rule(name, "min_steps", criterion, group), criterion.min_steps)
    if (ratio := criterion.min_dataset_over_memory) is not None:
        yield _memory(_Rule(name, "min_dataset_over_memory", criterion, group), ratio)
    yield from _counts(name, criterion, group)
    if criterion.gaps != "any":
        yield _gaps(_Rule(name, "gaps", criterion, group))
    if criterion.separate_results_fs:
        yield _apart(_Rule(name, "separate_results_fs", criterion, group))
    if criterion.unmodified:
        yield _as_shipped(_Rule(name, "unmodified", criterion, group))


def in_words(key: str, criterion: Criterion) -> str:
    """What the criterion asks under that key."""
    asked = getattr(criterion, key)
    return _WORDS[key].format(", ".join(asked) if isinstance(asked, tuple) else asked)


def _steps(rule: _Rule, least: int) -> Check:
    runs = rule.group.runs
    evidence = tuple(
        Evidence(each.job, each.run.run, each.run.steps, f"{each.run.steps} steps", each.run.steps >= least)
        for each in runs
    )
    fewest = min(each.run.steps for each in runs)
    return rule.check(
        fewest >= least, f"{fewest} on each rank", evidence=evidence,
        value=float(fewest), limit=float(least), advice=_larger(fewest, least),
    )  # fmt: skip


def _larger(measured: float, least: float) -> tuple[str, ...]:
    if not 0 < measured < least:
        return ()
    times = f"{least / measured:,.0f}" if least / measured >= 100 else f"{least / measured:.3g}"
    return (f"a dataset {times} times as large (--dataset-size)",)


def _memory(rule: _Rule, least: float) -> Check:
    found = [(each, _over_memory(each)) for each in rule.group.runs]
    evidence = tuple(
        Evidence(each.job, each.run.run, ratio, _sizes(each), None if ratio is None else ratio >= least)
        for each, ratio in found
    )
    known = [ratio for _, ratio in found if ratio is not None]
    if len(known) < len(found) and min(known, default=least) >= least:
        return rule.unknown("node memory was not recorded", evidence)
    fewest = min(known)
    return rule.check(
        fewest >= least, evidence[known.index(fewest)].words, evidence=evidence, value=fewest, limit=least,
        unit="x", advice=_larger(fewest, least),
    )  # fmt: skip


def _over_memory(each: Ran) -> float | None:
    storage = each.run.storage
    return storage.dataset_bytes / storage.memory_bytes if storage is not None and storage.memory_bytes else None


def _sizes(each: Ran) -> str:
    storage = each.run.storage
    if storage is None:
        return "unknown"
    memory = format_size(storage.memory_bytes) if storage.memory_bytes else "an unknown amount"
    return f"{format_size(storage.dataset_bytes)} of dataset, {memory} of memory on all nodes"


def _counts(name: str, criterion: Criterion, group: Group) -> Iterator[Check]:
    warmups = sum(each.run.kind == "warmup" for each in group.sequence)
    measured = len(group.runs)
    for key, found in (("warmups", warmups), ("measured_runs", measured), ("min_measured_runs", measured)):
        if (wanted := getattr(criterion, key)) is not None:
            yield _count(_Rule(name, key, criterion, group), found, wanted)


def _count(rule: _Rule, found: int, wanted: int) -> Check:
    is_least = rule.key.startswith("min_")
    is_met = found >= wanted if is_least else found == wanted
    evidence = tuple(Evidence(each.job, each.run.run, None, each.run.kind) for each in rule.group.sequence)
    option = "--warmup" if rule.key == "warmups" else "--repeat"
    return rule.check(
        is_met, f"there are {found}", evidence=evidence,
        value=float(found), limit=float(wanted), advice=() if is_met else (f"{option} {wanted}",),
    )  # fmt: skip


def _gaps(rule: _Rule) -> Check:
    """Against the shortest run, so that none would have found room."""
    sequence = rule.group.sequence
    runs = [each.run for each in sequence]
    gaps = [max(0.0, seconds_between(one.ended, other.started)) for one, other in pairwise(runs)]
    if not gaps:
        return rule.unknown("a single run has no neighbour")
    shortest, longest = min(seconds_between(run.started, run.ended) for run in runs), max(gaps)
    evidence = tuple(
        Evidence(each.job, each.run.run, gap, f"{format_seconds(gap)} after the run before it", gap < shortest)
        for each, gap in zip(sequence[1:], gaps, strict=True)
    )
    words = f"at most {format_seconds(longest)}; the shortest run took {format_seconds(shortest)}"
    together = "longer runs (dataset.files, train.epochs), or nothing else in the job"
    apart = "all runs in one batch job: --warmup, --repeat and enough --time"
    is_one = len({each.job for each in sequence}) == 1
    advice = () if longest < shortest else (together if is_one else apart,)
    return rule.check(
        longest < shortest, words, evidence=evidence, value=longest, limit=shortest, unit="s", advice=advice
    )


def _apart(rule: _Rule) -> Check:
    dataset = rule.group.key.file_system
    if dataset in ("none", "unknown"):
        return rule.unknown("where the dataset lies")
    places = {each.job: each.results_on for each in rule.group.runs}
    if not all(places.values()):
        return rule.unknown("where the job's folder was")
    evidence = tuple(
        Evidence(job, "", None, f"dataset on {dataset}, results on {place}", place != dataset)
        for job, place in places.items()
    )
    same = [each for each in evidence if not each.is_met]
    advice = ("-o DIR or --data DIR on another file system",) if same else ()
    return rule.check(not same, (same or evidence)[0].words, evidence=evidence, advice=advice)


def _as_shipped(rule: _Rule) -> Check:
    """A workload of that name whose settings are others is not that workload."""
    name = rule.group.key.workload
    found = rule.group.runs[0].workload
    path = shipped.root() / shipped.WORKLOADS / f"{name}.yaml"  # a facility's workload of that name is another one
    if not path.is_file() or found is None:
        return rule.unknown(f"there is no shipped workload {name!r}")
    usual = json.loads(document.encode(plan.resolved(workload.load(str(path)))))
    told = [
        words for key in rule.criterion.unmodified for words in changes(_value(usual, key), _value(found, key), key)
    ]
    return rule.check(not told, f"shipped / found: {'; '.join(told)}" if told else "it is")


def _value(data: Any, key: str) -> Any:
    for name in key.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data
