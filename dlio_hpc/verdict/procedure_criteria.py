"""Rules on how a measurement is made: steps per epoch, dataset size relative to memory, number of runs, gaps between
runs, file system of the results, ranks per node.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from dlio_hpc.base.units import counted, format_seconds, format_size, seconds_between
from dlio_hpc.verdict import checkpoint_criteria, division_criteria
from dlio_hpc.verdict.criteria_file import Criterion
from dlio_hpc.verdict.criterion_result import Check, CriterionGroup, Evidence, Ran
from dlio_hpc.verdict.criterion_rule import Rule, RuleKind, value_at


def checks(name: str, criterion: Criterion, group: CriterionGroup) -> Iterator[Check]:
    """Yield a check for each rule that the criterion sets."""
    for key, kind in RULES.items():
        if key in criterion.asked:
            yield kind.check(Rule(name, key, kind.in_words(key, criterion), criterion, group))


def _steps(rule: Rule) -> Check:
    runs, least = rule.group.runs, rule.value
    evidence = tuple(
        Evidence(ran.job, ran.run.run, ran.run.steps, f"{ran.run.steps} steps", ran.run.steps >= least) for ran in runs
    )
    fewest = min(ran.run.steps for ran in runs)
    return rule.check(
        fewest >= least, f"{fewest} per rank", evidence=evidence,
        value=float(fewest), limit=float(least), advice=_larger(fewest, least),
    )  # fmt: skip


def _larger(measured: float, least: float) -> tuple[str, ...]:
    """Return advice with the factor by which to enlarge the dataset, or no advice if the dataset is large enough."""
    if not 0 < measured < least:
        return ()
    factor = f"{least / measured:,.0f}" if least / measured >= 100 else f"{least / measured:.3g}"
    return (f"a dataset {factor} times as large (--dataset-size)",)


def _memory(rule: Rule) -> Check:
    least: float = rule.value
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


def _ranks_per_node(rule: Rule) -> Check:
    count, least = rule.group.key.ranks_per_node, rule.value
    advice = () if count >= least else (f"--ppn {least} or more",)
    return rule.check(count >= least, f"there are {count}", value=float(count), limit=float(least), advice=advice)


def _prefetch(rule: Rule) -> Check:
    """Compare the number of batches that are read ahead with the limit, which is at least one batch per thread."""
    reader = rule.group.runs[0].workload
    prefetch, threads = (value_at(reader, f"reader.{name}") for name in ("prefetch", "read_threads"))
    if prefetch is None or threads is None:
        return rule.unknown("reader.prefetch was not recorded")
    limit = max(rule.value, threads)
    return rule.check(
        prefetch <= limit, f"reader.prefetch is {prefetch}, with {counted(threads, 'thread')}",
        value=float(prefetch), limit=float(limit), is_least=False,
        advice=() if prefetch <= limit else (f"-S reader.prefetch={limit}",),
    )  # fmt: skip


def _warmups(rule: Rule) -> Check:
    """Compare the number of warm-up runs with the criterion, for the first job and for each other job that has warm-up
    runs. Only warm-up runs at the beginning of a job are counted.
    """
    by_job: dict[str, list[str]] = {}
    for ran in rule.group.sequence:  # in order of time
        by_job.setdefault(ran.job, []).append(ran.run.kind)
    first, *others = (kinds.count("warmup") if kinds[0] == "warmup" else 0 for kinds in by_job.values())
    differing = {first, *filter(None, others)} - {rule.value}
    return _count(rule, min(differing, default=rule.value), rule.group.sequence, "--warmup")


def _measured_runs(rule: Rule) -> Check:
    return _count(rule, len(rule.group.runs), rule.group.runs, "--repeat")


def _count(rule: Rule, count: int, runs: Sequence[Ran], option: str) -> Check:
    """Compare a number of runs with the number in the criterion. runs: the evidence. option: option that sets the
    number.
    """
    wanted = rule.value
    is_met = count >= wanted if rule.key.startswith("min_") else count == wanted
    evidence = tuple(Evidence(ran.job, ran.run.run, None, ran.run.kind) for ran in runs)
    return rule.check(
        is_met, f"there are {count}", evidence=evidence,
        value=float(count), limit=float(wanted), advice=() if is_met else (f"{option} {wanted}",),
    )  # fmt: skip


def _gaps(rule: Rule) -> Check:
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


def _separation(rule: Rule) -> Check:
    key = rule.group.key
    places = {"dataset": key.file_system, "checkpoints": key.outputs}
    data = {name: place for name, place in places.items() if place not in ("none", "")}
    if not data or "unknown" in data.values():
        unknown = next((name for name, place in data.items() if place == "unknown"), "dataset")
        return rule.unknown(f"file system of the {unknown}")
    results = {ran.job: ran.results_on for ran in rule.group.runs}
    if not all(results.values()):
        return rule.unknown("file system of the job directory")
    where = ", ".join(f"{name} on {place}" for name, place in data.items())
    evidence = tuple(
        Evidence(job, "", None, f"{where}, results on {place}", place not in data.values())
        for job, place in results.items()
    )
    same = [item for item in evidence if not item.is_met]
    advice = ("-o DIR or --data DIR on another file system",) if same else ()
    return rule.check(not same, (same or evidence)[0].text, evidence=evidence, advice=advice)


# Kinds of rules, by YAML key, in the order of the checks.
RULES: dict[str, RuleKind] = {
    "min_steps": RuleKind("steps per epoch >= {}", _steps),
    "min_dataset_over_memory": RuleKind("dataset >= {:g} x the nodes' memory", _memory),
    **checkpoint_criteria.RULES,
    "min_ranks_per_node": RuleKind("ranks per node >= {}", _ranks_per_node),
    "max_prefetch": RuleKind("reader.prefetch <= {}, or a batch per thread", _prefetch),
    "warmups": RuleKind("warm-ups = {}", _warmups),
    "measured_runs": RuleKind("measured runs = {}", _measured_runs),
    "min_measured_runs": RuleKind("measured runs >= {}", _measured_runs),
    "gaps": RuleKind("gaps shorter than a run", _gaps),
    "separate_results_fs": RuleKind("results on another file system than the data", _separation),
    **division_criteria.RULES,
}
