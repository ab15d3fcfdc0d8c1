"""Banner of a study: whether the study is complete, measured the storage, and led to a conclusion."""

from collections.abc import Iterator

from dlio_hpc.analysis.study import file_system_pairs, spread_reasons
from dlio_hpc.analysis.study.best_setting import Comparison, Finding, PointMetrics
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.scaling import Scaling
from dlio_hpc.plan.study import Study
from dlio_hpc.records.job_outcome import RunOutcome
from dlio_hpc.reports import ab_rows, banner, job_banner, slowdown_rows, study_report, study_text
from dlio_hpc.reports.banner import Banner
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.results import metrics
from dlio_hpc.results.metrics import METRICS, MetricName

# Relative difference that a study must be able to rule out. A study that shows no difference beyond noise is conclusive
# only if it rules out differences of this size.
HIDDEN = 0.20


def of_study(report: StudyReport) -> Banner:
    """Return the banner of a study. If measurements are missing, the banner says so. Otherwise, if bytes came or may
    have come from memory, or if nothing was read, the banner says so. Otherwise, the banner is the worst of the banners
    of all conclusions.
    """
    study = report.outcome.study
    if (fault := study_report.fault(report)) is not None:
        missing = study_text.missing(report.outcome)
        opening = banner.of_fault(fault)
        return opening._replace(text=f"{missing[0]} {opening.text}") if missing else opening
    if study.generate == "only":
        return Banner("good", "The datasets are as planned. The study only generates datasets; it measures nothing.")
    if (unmeasured := _of_writing(report) or _of_storage(report)) is not None:
        return unmeasured
    apart = [run for run in _measured_runs(report) if run.run.load is None or not run.run.load.shares_nodes]
    uneven = job_banner.of_disturbance(apart)  # on shared nodes, other loads are what a mix measures
    return banner.gravest([*uneven, *_of_sides(report), *_of_mixes(report), *_of_parts(study, report)])


def _of_storage(report: StudyReport) -> Banner | None:
    """Return the banner of a study in which bytes came, or may have come, from memory, or in which nothing was read.
    Return None for other studies.
    """
    study, measured = report.outcome.study, report.outcome.measured
    parts: dict[str, list[Measured]] = {}
    for measurement in measured:
        parts.setdefault(study.points[measurement.point].part, []).append(measurement)
    for origin, text in (
        ("cached", "Cached (bytes came from memory instead of storage)"),
        ("unknown", "Unknown whether bytes came from storage or from memory"),
    ):
        counts = {name: sum(measurement.origin == origin for measurement in runs) for name, runs in parts.items()}
        if any(counts.values()):
            named = [
                f"{name + ': ' if len(study.parts) > 1 else ''}{count} of {len(parts[name])}"
                for name, count in counts.items()
                if count
            ]
            from_storage = [name for name, count in counts.items() if not count]
            rest = f" {', '.join(from_storage)}: from storage." if from_storage and origin == "cached" else ""
            return Banner("not measured", f"{text}: {'; '.join(named)} measurements.{rest}")
    if measured and all(measurement.origin == "nothing read" for measurement in measured):
        written = job_banner.of_writing(_measured_runs(report))
        return None if written.state == "good" else written
    return None


def _of_writing(report: StudyReport) -> Banner | None:
    """Return the banner if no run's checkpoints reached storage; None for other studies."""
    reasons = [run.storage and run.storage.unwritten for run in _measured_runs(report)]
    if not reasons or not all(reasons):
        return None
    return Banner("not measured", f"{str(reasons[0])[0].upper()}{str(reasons[0])[1:]}.")


def _measured_runs(report: StudyReport) -> list[RunOutcome]:
    return [run for job in report.outcome.jobs for run in job.runs if run.run.kind == "measure" and run.result]


def _of_sides(report: StudyReport) -> Iterator[Banner]:
    """Yield the banner on the comparison of two file systems. Yield nothing if the study does not compare
    file systems.
    """
    study = report.outcome.study
    if not study.is_ab:
        return
    text = ab_rows.verdict(study, report.effects)
    if not report.effects:
        yield Banner("not measured", text)
        return
    ends = [(whole.low, whole.high) for whole in file_system_pairs.overall(report.effects)]
    if any(low is None or high is None for low, high in ends):
        yield Banner("inconclusive", text)
    else:
        is_narrow = all(
            low > 1 - HIDDEN and high < 1 / (1 - HIDDEN) for low, high in ends if low is not None and high is not None
        )
        yield _conclusive(text, is_narrow or any(effect.better is not None for effect in report.effects))


def _of_mixes(report: StudyReport) -> Iterator[Banner]:
    """Yield the banner on loads that run at the same time. Yield nothing if the study has no mix."""
    if not report.outcome.study.is_mixed:
        return
    text, judged = slowdown_rows.verdict(report.slowdowns), [one for one in report.slowdowns if one.is_main]
    if not judged:
        yield Banner("not measured", text)
    elif any(one.verdict == "unknown" for one in judged):
        yield Banner("inconclusive", text)
    else:
        is_narrow = all(one.excludes < slowdown_rows.HIDDEN for one in judged)
        is_conclusive = is_narrow or any(one.verdict == "slower" for one in judged)
        yield Banner("good" if is_conclusive else "inconclusive", text)


def _of_parts(study: Study, report: StudyReport) -> Iterator[Banner]:
    for finding in report.findings:
        name = f"{finding.part}: " if len(study.parts) > 1 else ""
        for part in _of_part(study, finding):
            yield part._replace(text=f"{name}{part.text}")


def _of_part(study: Study, finding: Finding) -> Iterator[Banner]:
    text = " ".join(study_text.first(study, finding))
    if not finding.points:
        yield Banner("not measured", "Nothing was measured.")
    elif finding.unusable is not None:
        yield Banner("inconclusive", finding.unusable)
    elif finding.confounded is not None:
        yield Banner("inconclusive", f"{finding.confounded}.")
    elif finding.comparisons:
        yield _of_comparison(text, finding.comparisons[-1])
    elif finding.scalings:
        yield from (_of_scaling(" ".join(study_text.scaling(scaling)), scaling) for scaling in finding.scalings)
    elif not study.is_ab and not study.part(finding.part).is_load:
        yield from (_of_point(point, finding.metric) for point in finding.points)


def _of_comparison(text: str, comparison: Comparison) -> Banner:
    """Return the banner on compared settings. The comparison is conclusive if a change is recommended by the effects of
    parameters, or if the ratio of the recommended setting to the best of the other settings is at least 0.8
    (1 - HIDDEN), even at the lower end of its confidence interval.
    """
    if comparison.change is not None:
        return Banner("good", text)
    chosen = None if comparison.recommended is None else comparison.of(comparison.recommended)
    if chosen is None or chosen.low is None or chosen.high is None:
        return Banner("inconclusive", text)
    return _conclusive(text, chosen.low >= 1 - HIDDEN)


def _of_scaling(text: str, scaling: Scaling) -> Banner:
    """Return the banner on a scaling curve. The curve is conclusive if the last speed-up differs from linear by more
    than the noise, or if its confidence interval is narrow: the lower end is at least 0.8 (1 - HIDDEN) times the upper
    end.
    """
    last = scaling.steps[-1]
    if last.low is None or last.high is None:
        return Banner("inconclusive", text)
    return _conclusive(text, last.is_below or last.is_above or last.low >= (1 - HIDDEN) * last.high)


def _conclusive(text: str, is_conclusive: bool) -> Banner:
    if is_conclusive:
        return Banner("good", text)
    return Banner("inconclusive", f"{text} The noise is too large to rule out a difference of {100 * HIDDEN:.0f} %.")


def _of_point(point: PointMetrics, metric: MetricName) -> Banner:
    """Return the banner on a point that is compared with no other point."""
    shown, saves = metrics.main(point.metrics), metric == "checkpoint_write_MBps"
    rates, unit = point.metrics.get(metric if saves else shown), "MB/s" if saves else METRICS[shown].noun
    if rates is None:
        return Banner("not measured", f"No measurement has {unit}.")
    text = f"{'Checkpoints are written at ' * saves}{rates.median:.1f} {unit}"
    if not saves and METRICS[shown].unit != "1/s":
        text = f"{unit}: {metrics.format_value(rates.median, METRICS[shown].unit)}"
    if point.n < 2:
        return Banner("inconclusive", f"{text}, measured once: the noise is unknown.")
    spread = spread_reasons.spread([rates.min, rates.median, rates.max])
    text = f"{text}, median of {point.n} repeats that differ by {100 * spread:.1f} %."
    return Banner("inconclusive" if spread > spread_reasons.LARGE else "good", text)
