"""Bottlenecks: a sentence with numbers that says whether storage, computation or synchronisation limited a
measurement.
"""

import re
import statistics
from collections.abc import Sequence

from dlio_hpc.analysis.log.findings import Analysis, IoLoad
from dlio_hpc.base.units import format_seconds
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.reports import inference_rows
from dlio_hpc.reports.job_rows import rates_of_phases, title
from dlio_hpc.results.run_result import Summary

# If the shares of the two longest phases differ by less than this, both phases are bottlenecks.
_ALIKE = 0.10
# What the wait is for if bytes came from somewhere else than storage, by the origin of the bytes.
_NOT_STORAGE = {
    "cached": "reads from memory instead of storage",
    "unknown": "reads (whether from storage or from memory is unknown)",
}
# Share of opens and closes in the time of I/O from which on they are the bottleneck, and not the reads.
_OF_METADATA = 0.5
# Maximum number of sentences at the top of a page or summary.
_ANSWERS = 5
# Maximum number of points that the sentence on a study names.
_NAMED = 6
# Reads explain a wait if reads are in flight during at least this share of it. The program of a Darshan log is bound by
# I/O if it spends at least this share of its run time in I/O.
_EXPLAINED = 0.5
# Reads explain none of a wait for data below the first share of it, and all of it from the second share on. In between,
# the wait has two causes.
_NONE_OF_IT, _ALL_OF_IT = 0.25, 0.75
_REMARK = re.compile(r" \([^)]*\)")
_PHASES = {
    "wait_s": "waiting for data",
    "compute_s": "compute",
    "sync_s": "synchronisation",
    "checkpoint_s": "checkpoints",
}


def of_job(outcome: JobOutcome) -> list[str]:
    """Return one sentence per measurement of the job. The sentence covers all repeats of the measurement. Return an
    empty list if the job measured nothing.
    """
    repeats = _repeats([outcome])
    names = [f"{title(outcome, runs[0])}: " if len(repeats) > 1 else "" for runs in repeats]
    return [name + _of_repeats(runs) for name, runs in zip(names, repeats, strict=True)]


def of_study(jobs: Sequence[JobOutcome]) -> list[str]:
    """Return a list with one sentence, or an empty list if nothing was measured. For each bottleneck, the sentence
    states the points of the study with this bottleneck, and the share of the time that ranks wait for data at these
    points.
    """
    limited: dict[str, list[tuple[str, float]]] = {}
    titles = {run.run.point: title(outcome, run) for outcome in jobs for run in outcome.runs}
    for runs in _repeats(jobs):
        if runs[0].run.workload.has_own_loader:
            continue
        seconds = _seconds(runs)
        if total := sum(seconds.values()):
            # Equal sets of bottlenecks count together, whichever of them takes longer.
            bottleneck = " and by ".join(sorted(_REMARK.sub("", text) for text in _bottlenecks(runs, seconds)))
            limited.setdefault(bottleneck, []).append((titles[runs[0].run.point], 100 * seconds["wait_s"] / total))
    points = sum(map(len, limited.values()))
    parts = [
        f"{_points(bound, points)} by {bottleneck} (waiting for data: {_range([wait for _, wait in bound])} %)"
        for bottleneck, bound in sorted(limited.items(), key=lambda pair: -len(pair[1]))
    ]
    return [f"Bound: {'; '.join(parts)}."] if parts else []


def shortened(answers: list[str]) -> list[str]:
    """Return the first few sentences. If there are more, add a sentence that states how many are left out."""
    more = len(answers) - _ANSWERS
    return [*answers[:_ANSWERS], f"And {more} more; each run's section has its numbers."] if more > 0 else answers


def _points(held: Sequence[tuple[str, float]], points: int) -> str:
    """Return which points of a study have a bottleneck: their titles or, if the study has many points or points have no
    titles, their number. held: the points with this bottleneck, each as a pair of its title and the share of the time
    that ranks wait for data, in %. points: number of all points of the study.
    """
    names = [name for name, _ in held if name]
    return ", ".join(names) if names and points <= _NAMED else f"{len(held)} of {points} points"


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _repeats(jobs: Sequence[JobOutcome]) -> list[list[RunOutcome]]:
    """Return the measured runs that completed at least one step, as one list per point of the study."""
    repeats: dict[int | None, list[RunOutcome]] = {}
    for run in (run for outcome in jobs for run in outcome.runs):
        if run.run.kind == "measure" and run.result is not None and run.result.summary and run.result.epochs:
            repeats.setdefault(run.run.point, []).append(run)
    return list(repeats.values())


def _of_phases(runs: Sequence[RunOutcome]) -> str:
    """Return a sentence with the rate of each phase of a metadata workload: the median of the runs. It has no
    bottleneck, because all time is spent in operations on files.
    """
    rates = rates_of_phases(runs)
    texts = (f"{phase} {statistics.median(known):,.0f}/s" for phase, known in rates.items())
    medians = " (medians)" if any(len(known) > 1 for known in rates.values()) else ""
    return f"Operations of all ranks: {', '.join(texts)}{medians}."


def _of_requests(runs: Sequence[RunOutcome]) -> str:
    """Return sentences on the requests of an inference workload."""
    summaries = [run.result.summary.inference for run in runs if run.result is not None and run.result.summary]
    served = [one for one in summaries if one is not None]
    keys = runs[0].run.workload.inference
    return inference_rows.sentence(served, keys) if served and keys else "No epoch of requests has ended."


def _of_repeats(runs: Sequence[RunOutcome]) -> str:
    if runs[0].run.workload.inference is not None:
        return _of_requests(runs)
    if runs[0].run.workload.metadata is not None:
        return _of_phases(runs)
    seconds = _seconds(runs)
    total = sum(seconds.values())
    if not total:
        return "No time was spent in steps."
    order = sorted(seconds, key=lambda phase: -seconds[phase])
    parts = ", ".join(f"{_PHASES[phase]} {100 * seconds[phase] / total:.1f} %" for phase in order if seconds[phase])
    mean = "mean over ranks" if len(runs) == 1 else f"mean over ranks and {len(runs)} repeats"
    bottlenecks = " and by ".join(_bottlenecks(runs, seconds))
    where = "in steps and checkpoints" if seconds["checkpoint_s"] else "in steps"
    return f"Bound by {bottlenecks}: of {format_seconds(total / len(runs))} {where}, {parts} ({mean})."


def _bottlenecks(runs: Sequence[RunOutcome], seconds: dict[str, float]) -> list[str]:
    """Return the names of the bottlenecks: the longest phase and, if it takes nearly as much time, the second longest
    phase. A wait in synchronisation may be due to slow reads of other ranks. If synchronisation is among the
    bottlenecks, and reads are in flight for at least half of the total waiting time, the wait for data and the wait in
    synchronisation are therefore one bottleneck: ranks wait for the reads of the slowest rank.
    """
    first, second = sorted(seconds, key=lambda phase: -seconds[phase])[:2]
    is_alike = seconds[first] - seconds[second] < _ALIKE * sum(seconds.values())
    phases = [first, second] if is_alike else [first]
    waited = seconds["wait_s"] + seconds["sync_s"]
    active = _active(runs)
    if "sync_s" in phases and active is not None and active >= _EXPLAINED * waited:
        others = [_bottleneck(phase, runs, seconds) for phase in phases if phase not in ("wait_s", "sync_s")]
        return [f"{_source(runs)} (ranks wait for the reads of {_slowest(runs)})", *others]
    return [_bottleneck(phase, runs, seconds) for phase in phases]


def _slowest(runs: Sequence[RunOutcome]) -> str:
    """Return a phrase that names the slowest rank and states the ratio of its time to the time of the median rank. The
    ratio is the median over the repeats.
    """
    ranks = [summary.slowest_rank for summary in _summaries(runs)]
    ratio = f"{statistics.median(rank.ratio for rank in ranks):.2f} x the median rank"
    if len({rank.rank for rank in ranks}) > 1:
        return f"the slowest rank, which is not the same in each repeat, {ratio}"
    return f"rank {ranks[0].rank} on {ranks[0].host}, {ratio}"


def _seconds(runs: Sequence[RunOutcome]) -> dict[str, float]:
    """Return the duration of each phase in seconds. Each epoch contributes its mean over ranks; the epochs of all these
    runs are summed.
    """
    epochs = [epoch for run in runs if run.result is not None for epoch in run.result.epochs]
    return {phase: sum(getattr(epoch, phase) for epoch in epochs) for phase in _PHASES}


def _summaries(runs: Sequence[RunOutcome]) -> list[Summary]:
    return [run.result.summary for run in runs if run.result is not None and run.result.summary is not None]


def _bottleneck(phase: str, runs: Sequence[RunOutcome], seconds: dict[str, float]) -> str:
    if phase == "compute_s":
        return "compute"
    if phase == "checkpoint_s":
        return "writing checkpoints"
    if phase == "sync_s":
        return f"synchronisation (waiting for {_slowest(runs)})"
    return _reading(runs, seconds["wait_s"])


def _reading(runs: Sequence[RunOutcome], waited: float) -> str:
    """Return a phrase that says what caused the wait for data. The phrase names storage only if the bytes came from
    storage and reads were in flight during the wait. waited: duration of the wait in seconds, summed over the runs.
    """
    if _origins(runs) == {"nothing read"}:
        return "the benchmark itself, since nothing was read"
    active = _active(runs)
    if active is None or active >= _ALL_OF_IT * waited:
        return _source(runs)
    calls, about = ("opens, closes and reads", "about ") if _metadata(runs) else ("reads", "")
    share = (
        f"({calls} were in flight for {about}{format_seconds(active / len(runs))} of "
        f"{format_seconds(waited / len(runs))} of waiting)"
    )
    prepares = any(summary.preprocess_s for summary in _summaries(runs))
    loader = "preparing data" if prepares else "the loader, with its workers, queues and copies"
    if active < _NONE_OF_IT * waited:
        return f"{loader}, not storage {share}"
    source = _source(runs)
    return f"{source}{',' * (', ' in source)} and by {loader} {share}"


def _origins(runs: Sequence[RunOutcome]) -> set[str]:
    return {run.storage.outcome() for run in runs if run.storage is not None}


def _source(runs: Sequence[RunOutcome]) -> str:
    """Return a phrase for the reads that ranks wait for."""
    metadata, origins = _metadata(runs), _origins(runs)
    if not origins.isdisjoint(_NOT_STORAGE):
        return next(text for origin, text in _NOT_STORAGE.items() if origin in origins)
    if metadata >= _OF_METADATA:
        return f"opens and closes of files, which take {100 * metadata:.0f} % of the time in opens, closes and reads"
    if _active(runs) is None:
        return "storage or decoding (TensorFlow's read times are unknown)"
    return "storage or decompression (the same call reads and decompresses)" if _unpacks(runs) else "storage"


def _unpacks(runs: Sequence[RunOutcome]) -> bool:
    work = runs[0].run.workload
    return work.dataset.compression != "none" and work.reader.mode == "framework"


def _metadata(runs: Sequence[RunOutcome]) -> float:
    """Return the share of opens and closes in the time of opens, closes and reads, as the median over the runs; 0 if it
    is not known.
    """
    return statistics.median(summary.metadata_fraction or 0.0 for summary in _summaries(runs))


def _active(runs: Sequence[RunOutcome]) -> float | None:
    """Return the time in seconds during which a rank opened, read or closed a file and did not compute, summed over the
    runs. The time of opens and closes is estimated from their share. Return None if reads were not timed.
    """
    in_flight, metadata = _in_flight(_summaries(runs)), _metadata(runs)
    return None if in_flight is None else in_flight / max(1 - metadata, 1e-9)


def _in_flight(summaries: Sequence[Summary]) -> float | None:
    """Return the time in seconds during which a rank had a read in flight and did not compute. This time is the mean
    over ranks, summed over the runs. Return None if reads were not timed.
    """
    total = 0.0
    for summary in summaries:
        if summary.io_time_s is None:
            return None
        total += summary.io_time_s * (1 - (summary.io_hidden_fraction or 0.0))
    return total


def of_log(title: str, analysis: Analysis) -> str:
    """Return a sentence that says whether the program of a Darshan log is bound by I/O. A program is bound by I/O if
    its slowest rank, or several ranks in turn, are in I/O calls for at least half of the run time. The sentence states
    no other bottleneck, because Darshan logs contain no times of computation or synchronisation.
    """
    load, meta = analysis.load, analysis.metadata.share
    if analysis.job_s + load.clock_s <= 0:
        return f"{title}: the run time is unknown, so the bottleneck of the program is unknown."
    cost = "" if meta is None else f"; metadata calls are {100 * meta:.1f} % of the time in I/O calls"
    return f"{_bound_of_log(title, analysis)}{cost}."


def may_bind(analysis: Analysis) -> bool:
    """Return whether the program of a Darshan log is, or may be, bound by I/O."""
    load = analysis.load
    shortest_s = max(analysis.job_s - load.clock_s, 0.0)
    is_known = analysis.job_s + load.clock_s > 0
    return is_known and (bool(load.unread) or max(load.most_s, load.any_least_s) >= _EXPLAINED * shortest_s)


def _bound_of_log(title: str, analysis: Analysis) -> str:
    load = analysis.load
    longest_s, shortest_s = analysis.job_s + load.clock_s, max(analysis.job_s - load.clock_s, 0.0)
    slowest = f"{_slowest_of_log(analysis)} in I/O calls for {_of_run(load.least_s, load.most_s, analysis)}"
    if load.least_s >= _EXPLAINED * longest_s:
        return f"{title} is bound by I/O: {slowest}{_mostly(load)}"
    if load.unread:
        return (
            f"{title} may be bound by I/O: {slowest}, without the calls of {', '.join(load.unread)}, which are unknown"
        )
    if load.most_s >= _EXPLAINED * shortest_s:
        return f"{title} may be bound by I/O: {slowest}{_why_bounds(analysis)}"
    if load.any_least_s >= _EXPLAINED * longest_s:
        ranks = f"at least one rank was in I/O calls for {_of_run(load.any_least_s, load.any_least_s, analysis)}"
        return f"{title} may be bound by I/O that ranks do in turn: {ranks}, but {slowest}"
    if load.any_most_s >= _EXPLAINED * shortest_s:
        unknown = "whether ranks do I/O in turn is unknown, because the log has no trace of all calls"
        return f"No rank of {title} is bound by I/O: {slowest}; {unknown}"
    return f"{title} is not bound by I/O: {slowest}"


def _slowest_of_log(analysis: Analysis) -> str:
    load = analysis.load
    if load.rank is None:
        return "each of its ranks, on average, was"
    name = f"rank {load.rank} on {load.host}" if load.host else f"rank {load.rank}"
    is_bound = analysis.ranks == 1 or load.least_s >= _EXPLAINED * (analysis.job_s + load.clock_s)
    return f"{name} was" if is_bound else f"its slowest rank, {name}, was"


def _of_run(least_s: float, most_s: float, analysis: Analysis) -> str:
    """Return a time and its share of the run time as text. least_s, most_s: lower and upper bound of the time in
    seconds.
    """
    job_s, clock_s = analysis.job_s, analysis.load.clock_s
    run = format_seconds(job_s) if not clock_s else f"{job_s:.0f} s +- 1 s" if job_s else "less than 1 s"
    share = f" ({100 * least_s / job_s:.1f} %)" if job_s else ""
    return f"{'' if _is_exact(least_s, most_s, analysis) else 'at least '}{format_seconds(least_s)} of {run}{share}"


def _is_exact(least_s: float, most_s: float, analysis: Analysis) -> bool:
    return most_s - least_s <= 0.01 * (analysis.job_s + analysis.load.clock_s)


def _mostly(load: IoLoad) -> str:
    return f", mostly in {load.interface}{f' {load.calls}' if load.calls else ''}" if load.interface else ""


def _why_bounds(analysis: Analysis) -> str:
    """Return the reason why the time of the slowest rank has different bounds."""
    load = analysis.load
    if load.overlaps:
        return "; calls of its threads or processes overlap, so their times cannot be added up"
    if not _is_exact(load.least_s, load.most_s, analysis):
        return f" and at most {format_seconds(load.most_s)}, because Darshan reduced the records of shared files"
    return "; the run time is known in whole seconds only"
