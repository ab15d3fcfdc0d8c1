"""What a study found, as rows and sentences: the terminal and the page say the same."""

import os
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from dlio_hpc.analysis.comparison import COSTS, Comparison, Finding, Judged, PointFigures, Spread
from dlio_hpc.analysis.effects import Effect, Ranking
from dlio_hpc.analysis.replicates import SURE
from dlio_hpc.analysis.scaling import Scaling
from dlio_hpc.report.rows import share
from dlio_hpc.report.studyfiles import StudyOutcome
from dlio_hpc.study import Metric, Study
from dlio_hpc.units import format_seconds

METRICS: dict[Metric, str] = {
    "samples_per_s": "samples/s",
    "read_MBps": "MB/s",
    "wall_s": "time",
    "io_time_s": "I/O time",
    "au": "AU",
}
RANKING = ("parameter", "best", "worst", "best / worst", "of all differences", "beyond noise")
# Last words of keys that say too little by themselves, or are a column's already.
_VAGUE = {"bytes", "shape", "size", "time", "mean", "seed", "n", "nodes", "files", "layout"}
_SHOWN = 60
# Of a single measurement; a difference of a third would still be missed in three rounds.
_MUCH_NOISE = 0.15
# From so much on storage was measured, if not alone.
_FETCHED = 0.9
_SCALES = {"nodes", "ranks per node"}
_MARKS = {"best": "best", "same as best": "same", "slower": "worse", "unknown": "?"}


def heading(outcome: StudyOutcome) -> list[str]:
    """Which study it is, in lines."""
    study = outcome.study
    many = f"{len(study.points)} point(s) x {study.repeat} measurement(s)"
    jobs = f"{len(outcome.jobs)} job(s)"
    more = f", {outcome.others} measured once more and left out" if outcome.others else ""
    return [
        *([study.description] if study.description else []),
        f"{many} in rounds, their order drawn with seed {study.seed}; {jobs} on {study.site.name}{more}",
    ]


def notes(outcome: StudyOutcome) -> list[str]:
    """What a reader must know before believing anything."""
    told = dict.fromkeys(note for job in outcome.jobs for note in job.plan.notes)
    return [*told, *(f"left out, it cannot be read: {words}" for words in outcome.broken)]


def short(keys: Sequence[str]) -> dict[str, str]:
    """Keys without what is before their last dot, as long as that is clear."""
    last = {key: key.rsplit(".", 1)[-1] for key in keys}
    used = Counter(last.values())
    return {key: key if used[name] > 1 or name in _VAGUE else name for key, name in last.items()}


def setting(study: Study, number: int, is_scale_known: bool = False) -> str:
    """A point's in words; the only one of a part has none. is_scale_known: leave out on how many ranks."""
    labels = study.labels(study.points[number])
    if is_scale_known:
        labels = {key: label for key, label in labels.items() if key not in _SCALES}
    names = short(list(labels))
    return ", ".join(f"{names[key]}={label}" for key, label in labels.items()) or "the workload as it is"


def point_header(metric: Metric, keys: Sequence[str]) -> list[str]:
    """Columns of points(): those of what varies, then figures."""
    names = short(keys)
    figures = ["n", "time", "MB/s", "samples/s", "AU", f"{METRICS[metric]} from-to", "x ref", "verdict"]
    return [*(names[key] for key in keys), *figures]


def varied(study: Study, finding: Finding) -> list[str]:
    """The keys of its part that vary, as labels name them."""
    return list(finding.points[0].labels) if finding.points else [axis.key for axis in study.part(finding.part).axes]


def points(study: Study, finding: Finding) -> Iterator[tuple[PointFigures, list[str]]]:
    """A row each, in the study's order; of very many those that are best, and the reference."""
    judged = {point.point: point for each in finding.comparisons for point in each.points}
    shown = set(_most(study, finding, judged))
    reference = {each.reference for each in finding.comparisons} | {study.part(finding.part).reference}
    for found in finding.points:
        if found.point in shown:
            yield found, _point(found, finding.metric, judged.get(found.point), found.point in reference)


def _most(study: Study, finding: Finding, judged: dict[int, Judged]) -> list[int]:
    numbers = [found.point for found in finding.points]
    if len(numbers) <= _SHOWN:
        return numbers
    order = sorted(numbers, key=lambda number: -judged[number].to_best if number in judged else 0.0)
    return [*order[: _SHOWN - 1], study.part(finding.part).reference]


def left_out(finding: Finding) -> str | None:
    more = len(finding.points) - _SHOWN
    return f"... and {more} more points, none of them better; --csv has all." if more > 0 else None


def _point(found: PointFigures, metric: Metric, judged: Judged | None, is_reference: bool) -> list[str]:
    ratio = "ref" if is_reference else ""
    if judged is not None and judged.to_reference is not None and not is_reference:
        ratio = f"{judged.to_reference:.2f}"
    return [
        *found.labels.values(),
        str(found.n),
        _seconds(found.wall_s),
        _number(found.read_MBps),
        _number(found.samples_per_s),
        "-" if found.au is None else share(found.au.median),
        span(found, metric),
        ratio,
        "" if judged is None else _MARKS[judged.verdict],
    ]


def span(found: PointFigures, metric: Metric) -> str:
    """From the least to the most."""
    spread: Spread | None = getattr(found, metric)
    if spread is None:
        return "-"
    if metric == "au":
        return f"{100 * spread.min:.1f}-{100 * spread.max:.1f} %"
    if metric in COSTS:
        return f"{format_seconds(spread.min)}-{format_seconds(spread.max)}"
    return f"{_digits(spread.min)}-{_digits(spread.max)}"


def figure(value: float, metric: Metric) -> str:
    """With its unit."""
    if metric == "au":
        return share(value)
    return format_seconds(value) if metric in COSTS else f"{_digits(value)} {METRICS[metric]}"


def _seconds(spread: Spread | None) -> str:
    return "-" if spread is None else format_seconds(spread.median)


def _number(spread: Spread | None) -> str:
    return "-" if spread is None else _digits(spread.median)


def _digits(value: float) -> str:
    """Four, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def verdict(study: Study, finding: Finding, found: Comparison) -> list[str]:
    """Sentences: the best, whether to change anything."""
    return list(_best(study, finding, found))


def noise(finding: Finding) -> list[str]:
    """How much of the differences is noise, of all comparisons; nothing where that is unknown, which verdicts say."""
    noises = [each.noise for each in finding.comparisons if each.noise.sd is not None]
    if not noises:
        return []
    sd, df = noises[0].sd or 0.0, noises[0].df
    few = "; so few tell little: repeat more often" if df < 4 else ""
    told = f"Noise of a single measurement: {100 * sd:.2g} % ({df} degrees of freedom{few})."
    if sd > _MUCH_NOISE:
        told += " So much hides differences: longer runs or a higher --repeat would show more."
    if any(each.are_rounds_apart for each in noises):
        drift = max(each.drift for each in noises)
        told += f" Rounds differ by {100 * drift:.2g} %, which all points share and which is left out."
    return [told]


def cached(finding: Finding) -> list[str]:
    """What of the bytes did not come from storage; nothing where nobody knows, or nothing was read."""
    shares = [point.from_storage for point in finding.points if point.from_storage is not None]
    if not shares:
        return []
    least, most = (f"{100 * each:.0f}" for each in (min(shares), max(shares)))
    told = f"Fetched from storage: {least if least == most else f'{least} to {most}'} % of what was read"
    if min(shares) > _FETCHED:
        return [f"{told}."]
    return [
        f"{told}, the rest came from the page cache: this compares memory, not storage. reader.drop_cache, "
        "reader.direct or more data than memory would tell."
    ]


def _where(study: Study, finding: Finding, found: Comparison) -> str:
    """On which ranks, where points are compared on several numbers of them."""
    if found.nodes is None or not study.part(finding.part).is_scaling:
        return ""
    return f"On {found.nodes} node(s) x {found.ranks_per_node} ranks: "


def _told(study: Study, found: Comparison, number: int | None) -> str:
    return "" if number is None else setting(study, number, found.nodes is not None)


def _best(study: Study, finding: Finding, found: Comparison) -> Iterator[str]:
    where, best = _where(study, finding, found), _told(study, found, found.best)
    gain = found.gain
    if found.noise.sd is None:
        ratio = "" if gain is None or found.best == found.reference else f", {gain.ratio:.2f} x the reference"
        yield f"{where}Ahead: {best}{ratio}. Whether that is more than noise cannot be told: {_why_unknown(found)}."
        return
    if gain is None:
        yield f"{where}Best: {best}. The reference was not measured."
    elif found.best == found.reference:
        yield f"{where}Best: the reference, {best}."
    elif not gain.is_beyond_noise:
        yield (
            f"{where}No difference beyond noise: the reference ({_told(study, found, found.reference)}) cannot be told "
            f"from the best ({best}, {gain.ratio:.2f} x; {_interval(gain.low, gain.high)})."
        )
    else:
        yield (
            f"{where}Best: {best}, {gain.ratio:.2f} x the reference ({_told(study, found, found.reference)}); "
            f"{_interval(gain.low, gain.high)}, confidence {confidence(gain.confidence)}."
        )
    yield from _choice(study, found)


def _choice(study: Study, found: Comparison) -> Iterator[str]:
    same = [point.point for point in found.points if point.verdict == "same as best"]
    if found.recommended is None:
        return
    if found.recommended == found.reference:
        others = "" if len(same) <= 1 and found.best == found.reference else f" {_others(len(same), len(found.points))}"
        is_usual = study.part(study.points[found.recommended].part).is_default
        yield f"{'Keep what you have.' if is_usual else 'No reason to change that.'}{others}"
    elif found.recommended != found.best:
        told = _told(study, found, found.recommended)
        yield f"Simplest of those that cannot be told from the best: {told}. {_others(len(same), len(found.points))}"
    elif same:
        yield _others(len(same), len(found.points))


def _others(same: int, points: int) -> str:
    if same == points - 1:
        return "No two points can be told apart."
    return f"{same} of {points - 1} others cannot be told from the best." if same else "All others are worse."


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * SURE:.0f} % interval {low:.2f} to {high:.2f}"


def confidence(found: float | None) -> str:
    if found is None:
        return "unknown"
    return "> 99.9 %" if found > 0.999 else f"{100 * found:.1f} %"


def _why_unknown(found: Comparison) -> str:
    if found.noise.df == 0:
        return "too little was measured twice; --repeat 3 would tell"
    return "repeats agree to the last digit, as no measurement does"


def part_title(study: Study, finding: Finding) -> str:
    part = study.part(finding.part)
    return ": ".join(filter(None, (part.name, part.title)))


def legend(study: Study, finding: Finding) -> str:
    """How the table of points is to be read."""
    unusual = " The workload's own setting is not among them: the reference is the first."
    return (
        f"Medians of n measurements, compared by {METRICS[finding.metric]}. x ref: times as good as the reference "
        "(ref), drift taken out. same: cannot be told from the best; worse: beyond noise; ?: unknown."
        + unusual
        * (not study.part(finding.part).is_default)
    )


def ranked(finding: Finding) -> Comparison | None:
    """Whose parameters are ranked: of the most ranks, where there are several numbers of them."""
    return next((each for each in reversed(finding.comparisons) if each.ranking is not None), None)


def ranking_title(finding: Finding, found: Comparison) -> str:
    where = f" on {found.nodes} node(s) x {found.ranks_per_node} ranks" if len(finding.comparisons) > 1 else ""
    return f"What matters{where}: means over all settings of the other parameters"


def ranking(found: Ranking) -> list[list[str]]:
    """A row for each parameter, the one that matters most first."""
    return [_effect(effect) for effect in found.effects]


def _effect(effect: Effect) -> list[str]:
    names = short(effect.keys)
    beyond = "unknown" if effect.confidence is None else "yes" if effect.is_beyond_noise else "no"
    told = f"{100 * effect.share:.0f} %"
    return [" with ".join(names.values()), effect.best, effect.worst, f"{effect.ratio:.2f}", told, beyond]


def ranking_notes(found: Ranking) -> list[str]:
    if found.interplay is None:
        return ["Too few combinations were measured to tell the parameters apart."]
    notes = []
    if any(len(effect.keys) > 1 for effect in found.effects):
        notes.append("Keys that move together cannot be told apart: they count as one.")
    if len(found.effects) > 1:
        notes.append(
            f"Of all differences between points, {100 * found.interplay:.0f} % are interplay: what no parameter "
            "does by itself."
        )
    return notes


def scaling_header() -> list[str]:
    return ["nodes", "ranks", "time", "samples/s", "speed-up", "95 % interval", "ideal", "efficiency"]


def scaling_title(found: Scaling) -> str:
    names = short(list(found.labels))
    told = ", ".join(f"{names[key]}={label}" for key, label in found.labels.items())
    same = "each rank reads the same amount" if found.kind == "weak" else "all ranks together read the same amount"
    return f"{found.kind.capitalize()} scaling{f' of {told}' if told else ''} ({same}), against the fewest ranks"


def scaling(found: Scaling) -> list[list[str]]:
    return [
        [
            f"{step.nodes} x {step.ranks_per_node}",
            str(step.ranks),
            format_seconds(step.wall_s),
            _digits(step.samples_per_s),
            f"{step.speed_up:.2f}",
            "-" if step.low is None or step.high is None else f"{step.low:.2f}-{step.high:.2f}",
            f"{step.ideal:.4g}",
            share(step.efficiency),
        ]
        for step in found.steps
    ]


def missing(outcome: StudyOutcome, most: int = 8) -> list[str]:
    """What is not there, why, and how to have it; nothing where nothing is missing."""
    if not outcome.missing:
        return []
    wanted = len(outcome.study.points) * outcome.study.repeat
    whys = Counter(each.why for each in outcome.missing).most_common()
    lines = [f"Missing: {len(outcome.missing)} of {wanted} measurements."]
    lines += [f"  {count} x {why}" for why, count in whys[:most]]
    if len(whys) > most:
        lines.append(f"  and {len(whys) - most} more reasons; --json has all.")
    return [*lines, "Their jobs go on."] if all(each.is_live for each in outcome.missing) else lines


def resume(outcome: StudyOutcome) -> str | None:
    """How to have what is missing, from anywhere; None where there is nothing to be done."""
    if all(each.is_live for each in outcome.missing):
        return None
    later = " when those that go on have ended" if any(each.is_live for each in outcome.missing) else ""
    folder = shlex.quote(os.path.join(outcome.study.runs, outcome.study.study))
    return f"To measure what is missing{later}: dlio-submit --resume {folder}"
