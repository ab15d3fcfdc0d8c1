"""The pictures of a study: figures over what was varied, main effects, and scaling."""

import re
from collections.abc import Iterator

from matplotlib.figure import Figure

from dlio_hpc.analysis.study.best_setting import Finding
from dlio_hpc.metrics import METRICS
from dlio_hpc.plan.study import Part
from dlio_hpc.report import study_rows
from dlio_hpc.report.document import Picture
from dlio_hpc.report.figures import ab_plot, canvas, repeats_plot, scaling_plot, sweep_plots
from dlio_hpc.report.figures.sweep_plots import Shown
from dlio_hpc.report.study_report import StudyReport


def draw(report: StudyReport) -> Iterator[Picture]:
    """Of each part in turn, then of all together; what was not measured has none."""
    yield from of_sides(report)
    for finding in report.findings:
        yield from of_part(report, finding)
    yield from together(report)


def of_sides(report: StudyReport) -> Iterator[Picture]:
    """Of two file systems that are compared."""
    if report.effects:
        words = "Two file systems, pair by pair"
        with canvas.style():
            figure, caption = ab_plot.effects(report.outcome.study, report.effects, words)
        yield Picture("sides", words, caption, figure, True)


def of_part(report: StudyReport, finding: Finding) -> Iterator[Picture]:
    """Their names begin with the part's where there are several."""
    study = report.outcome.study
    part, several = study.part(finding.part), len(study.parts) > 1
    prefix = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', part.name)}-" if several else ""
    title = f"{part.name}: " if several else ""
    for stem, words, figure, caption in _of_part(report, part, finding, title):
        yield Picture(prefix + stem, title + words, caption, figure, True)


def _of_part(report: StudyReport, part: Part, finding: Finding, title: str) -> Iterator[tuple[str, str, Figure, str]]:
    """Stem, title, figure and caption of each."""
    study = report.outcome.study
    whose = f"{study.study} on {study.site.name}, {study.created}"
    if finding.comparisons:
        found = finding.comparisons[-1]
        ranks = f", {found.nodes} node(s) x {found.ranks_per_node} ranks" if len(finding.comparisons) > 1 else ""
        ranks += f", below {found.data}" if found.data is not None else ""
        shown = Shown(study, part, finding, found, report.outcome.measured, whose + ranks)
        if part.zipped or len(part.settings) == 1:
            words = "Time and bandwidth over " + " with ".join(
                study_rows.short([axis.key for axis in part.settings]).values()
            )
            with canvas.style():
                yield "sweep", words, *sweep_plots.sweep(shown, title + words)
        elif len(part.settings) == 2 and shown.medians:
            words = f"{METRICS[finding.metric].noun.capitalize()} of each combination"
            with canvas.style():
                yield "map", words, *sweep_plots.heat_map(shown, title + words)
        if found.ranking is not None and len(found.ranking.effects) > 1 and shown.medians:
            with canvas.style():
                yield (
                    "effects",
                    "What each parameter does",
                    *sweep_plots.effects(shown, title + "What each parameter does"),
                )
    if len(finding.points) == 1 and finding.metric in finding.points[0].metrics:
        mine = [measurement for measurement in report.outcome.measured if measurement.point == finding.points[0].point]
        with canvas.style():
            yield "repeats", "Repeats", *repeats_plot.repeats(finding, mine, whose, title + "Repeats")
    if finding.scalings:
        words = f"{finding.scalings[0].kind.capitalize()} scaling"
        named = [(scaling_plot.setting(scaling), scaling) for scaling in finding.scalings]
        with canvas.style():
            yield "scaling", words, *scaling_plot.scaling(named, whose, title + words)


def together(report: StudyReport) -> Iterator[Picture]:
    """How parts scale beside each other; nothing where only one does."""
    study = report.outcome.study
    scaling = [(finding, each) for finding in report.findings for each in finding.scalings]
    if len({finding.part for finding, _ in scaling}) < 2:
        return
    named = [(f"{finding.part}: {scaling_plot.setting(each)}", each) for finding, each in scaling]
    with canvas.style():
        figure, caption = scaling_plot.scaling(
            named, f"{study.study} on {study.site.name}, {study.created}", "Scaling of all parts"
        )
    yield Picture("scaling", "Scaling of all parts", caption, figure, True)
