"""Findings of a study as table rows, for the terminal and the HTML page."""

from collections import Counter
from collections.abc import Iterator, Sequence

from dlio_hpc.analysis.study.best_setting import Comparison, Finding, JudgedPoint, PointMetrics
from dlio_hpc.analysis.study.main_effects import Effect, Ranking
from dlio_hpc.analysis.study.scaling import Scaling
from dlio_hpc.base.units import format_seconds
from dlio_hpc.plan.study import Study
from dlio_hpc.reports.job_rows import share
from dlio_hpc.results import metrics
from dlio_hpc.results.metrics import METRICS, MetricName

# Metrics that have a table column, and the heading of the column.
_COLUMNS: dict[MetricName, str] = {"wall_s": "time", "read_MBps": "MB/s", "samples_per_s": "samples/s", "au": "AU"}
# The same for a part that writes checkpoints and reads no samples.
_OF_CHECKPOINTS: dict[MetricName, str] = {"wall_s": "time", "checkpoint_write_MBps": "checkpoint MB/s"}
# The same where no rate was measured, because fsync was not called for checkpoints.
_UNSYNCED: dict[MetricName, str] = {
    "wall_s": "time", "checkpoint_read_MBps": "checkpoint read MB/s", "restore_s": "restore",
}  # fmt: skip
RANKING = ("parameter", "best", "worst", "best / worst", "of all differences", "beyond noise")
# Last parts of keys that are ambiguous alone or equal to the heading of another column.
_VAGUE = {"bytes", "shape", "size", "time", "mean", "seed", "n", "nodes", "files", "layout"}
_SHOWN = 60
_SCALES = {"nodes", "ranks per node"}
_MARKS = {"best": "best", "same as best": "same", "slower": "worse", "unknown": "?"}

# Explanation of the table of a scaling curve.
SCALING_LEGEND = (
    "Computation is emulated: a step takes as long on many ranks as on one rank. The speed-up shows how reading "
    "scales: the storage, and the processors that the ranks of a node share. The program may scale less well."
)


def short(keys: Sequence[str]) -> dict[str, str]:
    """Return a short name for each key: the part after its last dot if this part is unique and clear, otherwise the
    whole key.
    """
    last = {key: key.rsplit(".", 1)[-1] for key in keys}
    used = Counter(last.values())
    return {key: key if used[name] > 1 or name in _VAGUE else name for key, name in last.items()}


def setting(study: Study, number: int, is_place_known: bool = False) -> str:
    """Return the setting of a point as text, as KEY=VALUE pairs. is_place_known: whether to leave out the number of
    nodes, the number of ranks and the file system. If no pair remains, the text is "the workload as it is".
    """
    point = study.points[number]
    labels = study.labels(point)
    if is_place_known:
        aside = {*_SCALES, *(axis.key for axis in study.part(point.part).axes if axis.is_data)}
        labels = {key: label for key, label in labels.items() if key not in aside}
    return joined(labels) or "the workload as it is"


def joined(labels: dict[str, str]) -> str:
    """Return the labels as KEY=VALUE with shortened keys, separated by commas."""
    names = short(list(labels))
    return ", ".join(f"{names[key]}={label}" for key, label in labels.items())


def point_header(finding: Finding, keys: Sequence[str]) -> list[str]:
    """Return the headings for the rows of points(): the varied keys and the metrics. If settings are compared, headings
    for ratio and verdict follow.
    """
    names = short(keys)
    measured = ["n", *_columns(finding).values(), f"{METRICS[finding.metric].noun} from-to"]
    return [*(names[key] for key in keys), *measured, *(["x ref", "verdict"] if finding.comparisons else [])]


def varied(study: Study, finding: Finding) -> list[str]:
    """Return the keys that vary in the part of the study to which the finding belongs: the keys in the labels of the
    points.
    """
    return list(finding.points[0].labels) if finding.points else [axis.key for axis in study.part(finding.part).axes]


def points(study: Study, finding: Finding) -> Iterator[tuple[PointMetrics, list[str]]]:
    """Yield the points, each with its table row, in the order of the study. If there are too many points for a table,
    only the reference and the best points are included.
    """
    judged = {point.point: point for comparison in finding.comparisons for point in comparison.points}
    shown = set(_most(study, finding, judged))
    reference = {comparison.reference for comparison in finding.comparisons} | {study.part(finding.part).reference}
    for point in finding.points:
        if point.point in shown:
            has_compute = study.points[point.point].workload.compute.time.mean > 0
            row = _point(point, finding, has_compute)
            if finding.comparisons:
                row += _judged(judged.get(point.point), point.point in reference)
            yield point, row


def _most(study: Study, finding: Finding, judged: dict[int, JudgedPoint]) -> list[int]:
    numbers = [point.point for point in finding.points]
    if len(numbers) <= _SHOWN:
        return numbers
    order = sorted(numbers, key=lambda number: -judged[number].to_best if number in judged else 0.0)
    return list(dict.fromkeys([study.part(finding.part).reference, *order]))[:_SHOWN]


def left_out(finding: Finding) -> str | None:
    """Return a note on the points that are not in the table. Return None if all points are in the table."""
    more = len(finding.points) - _SHOWN
    return f"... and {more} more points; --csv has all." if more > 0 else None


def _judged(judged: JudgedPoint | None, is_reference: bool) -> list[str]:
    ratio = "ref" if is_reference else ""
    if judged is not None and judged.to_reference is not None and not is_reference:
        ratio = f"{judged.to_reference:.2f}"
    return [ratio, "" if judged is None else _MARKS[judged.verdict]]


def _columns(finding: Finding) -> dict[MetricName, str]:
    """Return the metrics with a column in the table of a part, with the headings."""
    reads = any((rates := point.metrics.get("read_MBps")) and rates.max for point in finding.points)
    saves = any(point.metrics.get("checkpoint_write_MBps") for point in finding.points)
    measured = {name for point in finding.points for name in point.metrics}
    if phases := metrics.quoted_phases(measured):
        return phases
    if measured and not saves and "samples_per_s" not in measured:
        return {name: heading for name, heading in _UNSYNCED.items() if name in measured}
    return _OF_CHECKPOINTS if saves and not reads else _COLUMNS


def _point(point: PointMetrics, finding: Finding, has_compute: bool) -> list[str]:
    """Return the row of a point. has_compute: whether the workload of the point computes; without computation, there is
    no AU.
    """
    return [
        *point.labels.values(),
        str(point.n),
        *(_median(point, name) if has_compute or name != "au" else "-" for name in _columns(finding)),
        span(point, finding.metric),
    ]


def span(point: PointMetrics, metric: MetricName) -> str:
    """Return the range of a metric over the repeats of a point, as text."""
    spread = point.metrics.get(metric)
    if spread is None:
        return "-"
    if METRICS[metric].unit == "share":
        return f"{100 * spread.min:.1f}-{100 * spread.max:.1f} %"
    if METRICS[metric].unit == "s":
        return f"{format_seconds(spread.min)}-{format_seconds(spread.max)}"
    return f"{_digits(spread.min)}-{_digits(spread.max)}"


def with_unit(value: float, metric: MetricName) -> str:
    """Return a value with its unit."""
    unit = METRICS[metric].unit
    text = number(value, metric)
    return text if unit in ("s", "share", "") else f"{text} {METRICS[metric].noun if unit == '1/s' else unit}"


def number(value: float, metric: MetricName) -> str:
    """Return a value as the text of a table cell. Shares and times have their unit; for other metrics, the unit is in
    the heading.
    """
    unit = METRICS[metric].unit
    return share(value) if unit == "share" else format_seconds(value) if unit == "s" else _digits(value)


def _median(point: PointMetrics, metric: MetricName) -> str:
    return "-" if (spread := point.metrics.get(metric)) is None else number(spread.median, metric)


def _digits(value: float) -> str:
    """Return a number with four significant digits, or with all digits before the decimal point if there are more than
    four.
    """
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def ranked(finding: Finding) -> Comparison | None:
    """Return the comparison that has a ranking of parameters. If several have one, return the comparison on the most
    ranks; if none has one, return None.
    """
    return next((comparison for comparison in reversed(finding.comparisons) if comparison.ranking is not None), None)


def ranking(parameters: Ranking) -> list[list[str]]:
    """Return a table row per parameter (header: RANKING), largest effect first."""
    return [_effect(effect, parameters.is_beyond_noise) for effect in parameters.effects]


def _effect(effect: Effect, has_shares: bool) -> list[str]:
    """Return the row of a parameter. has_shares: whether any difference between points exceeds the noise. If not, the
    parameter's share of the differences is only noise, and is not shown.
    """
    names = short(effect.keys)
    beyond = "unknown" if effect.confidence is None else "yes" if effect.is_beyond_noise else "no"
    share_of_all = f"{100 * effect.share:.0f} %" if has_shares else "-"
    return [" with ".join(names.values()), effect.best, effect.worst, f"{effect.ratio:.2f}", share_of_all, beyond]


def scaling_header() -> list[str]:
    return ["nodes", "ranks", "time", "samples/s", "speed-up", "95 % interval", "ideal", "efficiency"]


def scaling(curve: Scaling) -> list[list[str]]:
    """Return a row per point of a scaling curve, with the columns of scaling_header()."""
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
        for step in curve.steps
    ]
