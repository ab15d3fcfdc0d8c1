"""Effects of the loads of mixes on each other as sentences and table rows, for the terminal and the HTML page."""

from collections.abc import Iterator, Sequence

from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.slowdowns import RELEVANT, Fairness, Slowdown
from dlio_hpc.base.units import counted, format_seconds, format_size, listed
from dlio_hpc.dataset import checkpoint_files
from dlio_hpc.plan.mix import OVERLAP
from dlio_hpc.plan.study import Point, Study
from dlio_hpc.reports import study_rows
from dlio_hpc.results.metrics import METRICS

HEADER = ("load", "together with", "verdict", "slowdown", "95 % interval", "n", "metric", "alone", "together")
FURTHER = ("load", "together with", "metric", "alone", "together", "slowdown", "95 % interval")
MATRIX_LEGEND = "no: no difference. ?: too noisy, or unknown. A load with a fixed rate has no row of its own."
FURTHER_LEGEND = "Intervals are simultaneous for the rows of a metric."
LEGEND = (
    "alone, together: medians. slowdown: how much worse the metric is together than alone, on the same ranks; mean of "
    "n pairs. Intervals are simultaneous: with 95 % confidence, all of them contain the true slowdown."
)
# Slowdown that a mix must be able to rule out. Ends of intervals above 100 and below 1/100 are not shown.
HIDDEN, _CUT = 1.25, 100
# Largest number of loads in the verdict, and the share of the largest slowdown of a load that counts as nearly as much.
_MOST, _NEARLY = 3, 0.9


def verdict(slowdowns: Sequence[Slowdown]) -> str:
    """Return the verdict on the loads: a sentence for each load that is slowed down, the largest slowdown first, one on
    loads of which it is not known, and one on loads without a difference.
    """
    judged = sorted((one for one in slowdowns if one.is_main), key=lambda one: -one.slowdown)
    if not judged:
        return (
            "No load has been measured both alone and together with others, each with a whole epoch or 20 steps in the "
            "same job."
        )
    slower = [one for one in judged if one.verdict == "slower"]
    unknown = [one for one in judged if one.verdict == "unknown"]
    if not slower and not unknown:
        return _without(judged)
    by_load: dict[tuple[str, str], list[Slowdown]] = {}
    for one in slower:
        by_load.setdefault((one.mix, one.load), []).append(one)
    sentences = [f"{_sentence(_cause(rows))}." for rows in list(by_load.values())[:_MOST]]
    sentences += [f"{_unknown(one)}." for one in unknown[: 1 if slower else 2]]
    if slower:
        others = [one for one in judged if (one.mix, one.load) not in by_load and one.verdict == "same"]
        noisy = dict.fromkeys(one.load for one in others if one.excludes >= HIDDEN)
        quiet = dict.fromkeys(one.load for one in others if one.load not in noisy)
        for text, names in (("Too noisy", noisy), ("No difference", quiet)):
            sentences += [f"{text} for {_joined(list(names))}."] if names else []
    return " ".join(sentences)


def _cause(rows: Sequence[Slowdown]) -> Slowdown:
    """Return the slowdown of a load that names its cause best: by a single other load if this one slows it down nearly
    as much as several others together, otherwise the largest one. rows: slowdowns of the load, the largest first.
    """
    single = [one for one in rows if len(one.others) == 1 and one.slowdown >= _NEARLY * rows[0].slowdown]
    return single[0] if single else rows[0]


def _sentence(one: Slowdown) -> str:
    """Return the slowdown of a load as a sentence without its full stop."""
    verb = "slows" if len(one.others) == 1 else "slow"
    return f"{_joined(one.others)} {verb} {one.load} by {_times(one.slowdown)} ({interval(one)})"


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _without(judged: Sequence[Slowdown]) -> str:
    """Return a sentence on loads of which none is slowed down: the load that may be slowed down most."""
    one = max(judged, key=lambda one: one.excludes)
    what = f"{one.load} with {_joined(one.others)} is {_times(one.slowdown)} as slow as alone ({interval(one)})"
    if one.excludes >= HIDDEN:
        return f"The noise is too large to see a slowdown below {HIDDEN:g} x: {what}; use more repeats or longer runs."
    return f"No load slows another one by {100 * RELEVANT:.0f} % or more beyond the noise: at most, {what}."


def _unknown(one: Slowdown) -> str:
    what = f"{one.load} with {_joined(one.others)} is {_times(one.slowdown)} as slow as alone"
    if one.overlap < OVERLAP:
        return (
            f"Unknown whether {_joined(one.others)} slowed {one.load}: they ran together for only "
            f"{100 * one.overlap:.0f} % of the time of {one.load}; use --mix-until last, or more epochs"
        )
    few = "one pair does not show the noise" if one.pairs < 2 else f"{one.pairs} equal pairs do not show the noise"
    return f"{what}, but {few}; use --repeat 4 or more"


def interval(one: Slowdown) -> str:
    """Return the interval of a slowdown as text."""
    if one.low is None or one.high is None:
        return "unknown"
    return f"{_end(one.low)} to {_end(one.high)}"


def _end(value: float) -> str:
    """Return the end of an interval as text. Ends that only show how little is known are cut."""
    return "over 100" if value > _CUT else "under 0.01" if value < 1 / _CUT else f"{value:.3g}"


def row(one: Slowdown) -> list[str]:
    """Return the table row for a slowdown (header: HEADER)."""
    load, others, noun, alone, together, slowdown, ends = further(one)
    same = "no difference" if one.excludes < HIDDEN else "too noisy"
    verdict = same if one.verdict == "same" else one.verdict
    return [load, others, verdict, slowdown, ends, str(one.pairs), noun, alone, together]


def matrices(slowdowns: Sequence[Slowdown]) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield the title, the header and the rows of a matrix for each mix whose pairs were measured: a row for each load
    that is slowed down, a column for each load that slows it down.
    """
    judged = [one for one in slowdowns if one.is_main]
    for mix in dict.fromkeys(one.mix for one in judged):
        pairs = {(one.load, one.others[0]): one for one in judged if one.mix == mix and len(one.others) == 1}
        names = list(dict.fromkeys(name for pair in pairs for name in pair))
        if len(names) > 2:
            rows = [[name, *(_cell(pairs.get((name, other))) for other in names)] for name in names]
            yield f"{mix}: who is slowed down by whom", ["slowed down", *(f"by {name}" for name in names)], rows


def _cell(one: Slowdown | None) -> str:
    if one is None:
        return "-"
    if one.verdict in ("slower", "faster"):
        return _times(one.slowdown)
    return f"{'no' if one.verdict == 'same' and one.excludes < HIDDEN else '?'} ({_times(one.slowdown)})"


def _times(value: float) -> str:
    """Return a slowdown as text, with two decimals below 10."""
    return f"{value:.2f} x" if value < 10 else f"{value:.3g} x"


def further(one: Slowdown) -> list[str]:
    """Return the table row for the slowdown of a further metric (header: FURTHER)."""
    alone, together = (study_rows.number(value, one.metric) for value in (one.alone, one.together))
    noun = METRICS["samples_per_s" if one.metric == "common_samples_per_s" else one.metric].noun  # remarks say the rest
    return [one.load, listed(one.others), noun, alone, together, _times(one.slowdown), interval(one)]


def remarks(slowdowns: Sequence[Slowdown], fairness: Sequence[Fairness]) -> list[str]:
    """Return sentences on the time in which the loads overlapped, and on the fairness among equal loads."""
    return [*_overlaps(slowdowns), *map(_fairness, fairness)]


def queues(study: Study, measured: Sequence[Measured]) -> list[str]:
    """Return a sentence for each inference workload whose queue of requests grew in some runs."""
    parts = {point.number: point.part for point in study.points}
    grown: dict[str, list[bool]] = {}
    for one in measured:
        if one.summary.inference is not None:
            grown.setdefault(parts[one.point], []).append(not one.summary.inference.is_sustained)
    return [
        f"{part}: the queue of requests grows in {sum(runs)} of {counted(len(runs), 'run')}, so that its users are too "
        "many; its bandwidth is that of the requests that were served."
        for part, runs in grown.items()
        if any(runs)
    ]


def backgrounds(study: Study, measured: Sequence[Measured]) -> list[str]:
    """Return sentences for each load with a fixed rate: the rate, and how exactly the runs held it."""
    first = {point.part: point for point in reversed(study.points)}
    own = {point.number: point.part for point in study.points}
    sentences = []
    for part in study.parts:
        if not part.is_load or first[part.name].workload.compute.interval is None:
            continue
        paces = [one.summary.pace for one in measured if own[one.point] == part.name and one.summary.pace is not None]
        reached = ""
        if paces:
            least = 100 * min(1.0, *(pace.per_s * pace.every_s for pace in paces))
            latest = format_seconds(max(pace.latest_s for pace in paces))
            reached = f" Runs reached {least:.1f} % of it or more, and a burst started at most {latest} late."
        strength = _strength(first[part.name])
        sentences.append(
            f"{part.name} is a background of {strength}.{reached} A run that does not hold this rate is invalid."
        )
    return sentences


def _strength(point: Point) -> str:
    """Return the rate of a load with a fixed rate as text."""
    workload, ranks = point.workload, point.ranks
    bursts = ranks / float(workload.compute.interval or 1)
    if workload.metadata is not None:
        return f"{bursts * workload.metadata.files:,.4g} operations/s on files"
    if workload.checkpoint is not None and workload.only_writes_checkpoints:
        written = checkpoint_files.size(workload.checkpoint, ranks)
        return f"{bursts * written / ranks / 1e6:,.4g} MB/s, written and synced"
    return f"{bursts * workload.reader.batch_size:,.4g} samples/s of {format_size(workload.dataset.sample_bytes)}"


def _overlaps(slowdowns: Sequence[Slowdown]) -> Iterator[str]:
    least = min((one.overlap for one in slowdowns if one.is_main), default=None)
    if least is not None:
        yield (
            f"All loads of a launch start at the same time. They ran together for at least {100 * least:.0f} % of "
            "their time. Samples/s count the whole epochs in the common time; other metrics count the whole time of a "
            "load."
        )


def _fairness(one: Fairness) -> str:
    return (
        f"Fairness among {_joined(one.loads)}: {one.index:.3g} (Jain's index of their rates together divided by those "
        f"alone: 1 is even, {1 / len(one.loads):.2g} is one load only)."
    )
