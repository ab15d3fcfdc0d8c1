"""Criteria of how it was measured: steps, dataset and memory, number of runs, gaps between them, where results went."""

from collections.abc import Iterator, Mapping
from typing import Any

from dlio_hpc.units import format_seconds, format_size, seconds_between
from dlio_hpc.verdict.check import Check, Evidence, Group, Ran, Verdict
from dlio_hpc.verdict.criteria import Criterion

# Of each job the file system of its folder, as keys of measurements have a dataset's; without those not known.
Places = Mapping[str, str]


def checks(name: str, criterion: Criterion, group: Group, places: Places) -> Iterator[Check]:
    """Of each rule that is asked for."""
    if criterion.least_steps is not None:
        yield _steps(name, criterion, group, criterion.least_steps)
    if criterion.least_dataset_over_memory is not None:
        yield _memory(name, criterion, group, criterion.least_dataset_over_memory)
    if criterion.warmups is not None:
        warmups = sum(each.run.kind == "warmup" for each in group.sequence)
        yield _count(name, criterion, group, "warm-ups", warmups, criterion.warmups)
    if criterion.measured_runs is not None:
        yield _count(name, criterion, group, "measured runs", len(group.runs), criterion.measured_runs)
    if criterion.least_measured_runs is not None:
        wanted = criterion.least_measured_runs
        yield _count(name, criterion, group, "measured runs", len(group.runs), wanted, is_least=True)
    if criterion.gaps != "any":
        yield _gaps(name, criterion, group)
    if criterion.results_apart:
        yield _apart(name, criterion, group, places)


def _check(name: str, criterion: Criterion, group: Group, asked: str, **rest: Any) -> Check:
    return Check(name, criterion.title or name, group.label, asked, **rest)


def _verdict(is_met: bool) -> Verdict:
    return "met" if is_met else "not met"


def _steps(name: str, criterion: Criterion, group: Group, least: int) -> Check:
    evidence = [
        Evidence(each.job, each.run.run, each.run.steps, f"{each.run.steps} steps", each.run.steps >= least)
        for each in group.runs
    ]
    fewest = min(each.run.steps for each in group.runs)
    return _check(
        name, criterion, group, f"steps of an epoch >= {least}", verdict=_verdict(fewest >= least),
        words=f"{fewest} steps of an epoch on each rank", evidence=tuple(evidence), value=float(fewest),
        limit=float(least), advice=() if fewest >= least else (_more_files(least / fewest),),
    )  # fmt: skip


def _more_files(times: float) -> str:
    return f"-S dataset.files={times:.3g} times as many, without --dataset-size"


def _memory(name: str, criterion: Criterion, group: Group, least: float) -> Check:
    found = [(each, _over_memory(each)) for each in group.runs]
    evidence = tuple(
        Evidence(each.job, each.run.run, ratio, _sizes(each), None if ratio is None else ratio >= least)
        for each, ratio in found
    )
    asked = f"dataset >= {least:g} x the nodes' memory"
    known = [ratio for _, ratio in found if ratio is not None]
    if len(known) < len(found):
        return _unknown(name, criterion, group, asked, "nobody asked the nodes for their memory", evidence)
    fewest = min(known)
    return _check(
        name, criterion, group, asked, verdict=_verdict(fewest >= least), words=_sizes(group.runs[0]),
        evidence=evidence, value=fewest, limit=least, unit="x",
        advice=() if fewest >= least else (_more_files(least / fewest),) if fewest else (),
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


def _unknown(
    name: str, criterion: Criterion, group: Group, asked: str, words: str, evidence: tuple[Evidence, ...] = ()
) -> Check:
    """No verdict is possible."""
    verdict: Verdict = "passed over" if criterion.where_known else "noisy"
    return _check(name, criterion, group, asked, verdict=verdict, words=f"not known: {words}", evidence=evidence)


def _count(
    name: str, criterion: Criterion, group: Group, what: str, found: int, wanted: int, is_least: bool = False
) -> Check:
    is_met = found >= wanted if is_least else found == wanted
    return _check(
        name, criterion, group, f"{what} {'>=' if is_least else '='} {wanted}", verdict=_verdict(is_met),
        words=f"{found} of them", value=float(found), limit=float(wanted),
        evidence=tuple(Evidence(each.job, each.run.run, None, each.run.kind) for each in group.sequence),
    )  # fmt: skip


def _gaps(name: str, criterion: Criterion, group: Group) -> Check:
    """Against the shortest run, so that none would have found room."""
    asked = "gaps shorter than a run"
    runs = [each.run for each in group.sequence]
    gaps = [max(0.0, seconds_between(one.ended, other.started)) for one, other in zip(runs, runs[1:], strict=False)]
    shortest = min(seconds_between(run.started, run.ended) for run in runs)
    evidence = tuple(
        Evidence(each.job, each.run.run, gap, f"{format_seconds(gap)} after the run before it", gap < shortest)
        for each, gap in zip(group.sequence[1:], gaps, strict=True)
    )
    if not gaps:
        return _unknown(name, criterion, group, asked, "a single run has no neighbour")
    longest = max(gaps)
    return _check(
        name, criterion, group, asked, verdict=_verdict(longest < shortest),
        words=f"at most {format_seconds(longest)}; the shortest run took {format_seconds(shortest)}",
        evidence=evidence, value=longest, limit=shortest, unit="s",
        advice=() if longest < shortest else ("all runs in one batch job: --warmup, --repeat and enough --time",),
    )  # fmt: skip


def _apart(name: str, criterion: Criterion, group: Group, places: Places) -> Check:
    asked = "dataset and results on different file systems"
    dataset = group.key.file_system
    if dataset in ("none", "unknown"):
        return _unknown(name, criterion, group, asked, "where the dataset lies")
    found = {job: places.get(job) for job in dict.fromkeys(each.job for each in group.runs)}
    if None in found.values():
        return _unknown(name, criterion, group, asked, "where the job's folder was; judge it where that lies")
    evidence = tuple(
        Evidence(job, "", None, f"dataset on {dataset}, results on {place}", place != dataset)
        for job, place in found.items()
    )
    same = [job for job, place in found.items() if place == dataset]
    words = f"both on {dataset}" if same else evidence[0].words
    advice = ("-o DIR or --data DIR on another file system",) if same else ()
    return _check(
        name, criterion, group, asked, verdict=_verdict(not same), words=words, evidence=evidence, advice=advice
    )
