"""Pictures of a study: metrics over parameters, main effects, and scaling."""

import re
from collections.abc import Iterator

from matplotlib.figure import Figure

from dlio_hpc.analysis.study.best_setting import Finding
from dlio_hpc.plan.study import Part
from dlio_hpc.reports import study_rows
from dlio_hpc.reports.figures import ab_plot, canvas, repeats_plot, scaling_plot, sweep_plots
from dlio_hpc.reports.figures.sweep_plots import PlottedPart
from dlio_hpc.reports.page import Picture
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.results.metrics import METRICS


def draw(report: StudyReport) -> Iterator[Picture]:
    """Yield the pictures of each part of the study, followed by the pictures of all parts together. Parts without
    measurements have no pictures.
    """
    yield from of_sides(report)
    for finding in report.findings:
        yield from of_part(report, finding)
    yield from together(report)


def of_sides(report: StudyReport) -> Iterator[Picture]:
    """Yield the picture that compares two file systems. Yield nothing if the study does not compare file systems."""
    if report.effects:
        title = "Two file systems, pair by pair"
        with canvas.style():
            figure, caption = ab_plot.effects(report.outcome.study, report.effects, title)
        yield Picture("sides", title, caption, figure, True)


def of_part(report: StudyReport, finding: Finding) -> Iterator[Picture]:
    """Yield the pictures of a part. If the study has several parts, file names and titles start with the name of the
    part.
    """
    study = report.outcome.study
    part, is_one_of_several = study.part(finding.part), len(study.parts) > 1
    prefix = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', part.name)}-" if is_one_of_several else ""
    title = f"{part.name}: " if is_one_of_several else ""
    for stem, heading, figure, caption in _of_part(report, part, finding, title):
        yield Picture(prefix + stem, title + heading, caption, figure, True)


def _of_part(report: StudyReport, part: Part, finding: Finding, title: str) -> Iterator[tuple[str, str, Figure, str]]:
    """Yield the file name, title, figure and caption of each picture of a part."""
    study = report.outcome.study
    whose = f"{study.study} on {study.site.name}, {study.created}"
    if finding.comparisons:
        comparison = finding.comparisons[-1]
        ranks = (
            f", {comparison.nodes} node(s) x {comparison.ranks_per_node} ranks" if len(finding.comparisons) > 1 else ""
        )
        ranks += f", below {comparison.data}" if comparison.data is not None else ""
        shown = PlottedPart(study, part, finding, comparison, report.outcome.measured, whose + ranks)
        if part.zipped or len(part.settings) == 1:
            heading = "Time and bandwidth over " + " with ".join(
                study_rows.short([axis.key for axis in part.settings]).values()
            )
            with canvas.style():
                yield "sweep", heading, *sweep_plots.sweep(shown, title + heading)
        elif len(part.settings) == 2 and shown.medians:
            heading = f"{METRICS[finding.metric].noun.capitalize()} of each combination"
            with canvas.style():
                yield "map", heading, *sweep_plots.heat_map(shown, title + heading)
        if comparison.ranking is not None and len(comparison.ranking.effects) > 1 and shown.medians:
            with canvas.style():
                yield (
                    "effects",
                    "Effect of each parameter",
                    *sweep_plots.effects(shown, title + "Effect of each parameter"),
                )
    if len(finding.points) == 1 and finding.metric in finding.points[0].metrics:
        measured = [
            measurement for measurement in report.outcome.measured if measurement.point == finding.points[0].point
        ]
        with canvas.style():
            yield "repeats", "Repeats", *repeats_plot.repeats(finding, measured, whose, title + "Repeats")
    if finding.scalings:
        heading = f"{finding.scalings[0].kind.capitalize()} scaling"
        named = [(scaling_plot.setting(scaling), scaling) for scaling in finding.scalings]
        with canvas.style():
            yield "scaling", heading, *scaling_plot.scaling(named, whose, title + heading)


def together(report: StudyReport) -> Iterator[Picture]:
    """Yield one picture with the scaling of all parts, if more than one part varies the number of ranks."""
    study = report.outcome.study
    scaling = [(finding, curve) for finding in report.findings for curve in finding.scalings]
    if len({finding.part for finding, _ in scaling}) < 2:
        return
    named = [(f"{finding.part}: {scaling_plot.setting(curve)}", curve) for finding, curve in scaling]
    with canvas.style():
        figure, caption = scaling_plot.scaling(
            named, f"{study.study} on {study.site.name}, {study.created}", "Scaling of all parts"
        )
    yield Picture("scaling", "Scaling of all parts", caption, figure, True)
