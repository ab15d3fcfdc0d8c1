"""Pictures of loads that run at the same time: their slowdowns, and the steps of one launch on a common clock."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.analysis.log.view import Steps
from dlio_hpc.analysis.study.slowdowns import Slowdown
from dlio_hpc.base.units import listed
from dlio_hpc.plan.study import Study
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunFiles
from dlio_hpc.reports import slowdown_rows
from dlio_hpc.reports.figures import canvas, plots
from dlio_hpc.reports.figures.canvas import COLOURS, GREY, INK, RULE
from dlio_hpc.reports.page import Picture
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.results.run_result import MixSummary

# Largest number of steps of a load that are drawn one by one.
_MOST_STEPS = 2000


def _stem(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


class _Lane(NamedTuple):
    """A load of a launch. steps: its steps; times are in seconds after the first step began."""

    mix: MixSummary
    steps: Steps


def of_study(report: StudyReport) -> Iterator[Picture]:
    """Yield a picture of all slowdowns, and for each mix a picture of one launch with all its loads."""
    study = report.outcome.study
    judged = [one for one in report.slowdowns if one.is_main]
    if judged:
        title = "Slowdown by other loads"
        with canvas.style():
            figure, caption = _bars(study, judged, title)
        yield Picture("slowdown", title, caption, figure, True)
    for mix in dict.fromkeys(one.mix for one in judged):
        lanes = next((lanes for job in report.outcome.jobs if (lanes := _lanes(study, job, mix))), [])
        if lanes:
            title = f"One launch of {mix}, all loads on one clock"
            with canvas.style():
                figure, caption = _timeline(study, lanes, title)
            yield Picture(f"launch-{_stem(mix)}", title, caption, figure, True)


def _bars(study: Study, judged: Sequence[Slowdown], title: str) -> tuple[Figure, str]:
    """Draw a row for each load and the loads that ran at the same time, the first one at the top."""
    figure, (axes,) = plots.sheet(title, f"{study.study} on {study.site.name}", 1.4 + 0.4 * len(judged), 1)
    for row, one in enumerate(reversed(judged)):
        colour = COLOURS["written"] if one.verdict == "slower" else GREY
        axes.barh(row, one.slowdown, height=0.55, color=f"{colour}66", edgecolor=colour, linewidth=0.8)
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [row, row], color=INK, linewidth=1.4)
    axes.axvline(1, color=INK, linewidth=0.9, linestyle="--")
    highest = max(min(one.high or one.slowdown, 2 * one.slowdown) for one in judged)
    axes.set(xlim=(0, 1.05 * max(highest, 1.1)), ylim=(-0.6, len(judged) - 0.4))
    names = [canvas.printable(f"{one.load} with {listed(one.others)}", 44) for one in reversed(judged)]
    axes.set_yticks(range(len(judged)), names)
    axes.set_xlabel("slowdown (1: as fast as alone)")
    legend = "Bars: slowdown; lines: 95 % intervals, which may reach beyond the picture."
    return figure, f"{slowdown_rows.verdict(judged)} {legend}"


def _lanes(study: Study, job: JobOutcome, mix: str) -> list[_Lane]:
    """Return the loads of the first good launch of a job that has all loads of a mix."""
    size = sum(part.is_load for part in study.parts if _mix_of(study, part.name) == mix)
    place = job.directory or job.archive
    if place is None:
        return []
    with job_outcome.evidence(place, job) as recorded:
        launches: dict[int | None, list[RunFiles]] = {}
        for evidence in recorded:
            load = evidence.run.run.load
            if load is not None and load.mix == mix and len(load.together) == size:
                launches.setdefault(evidence.run.run.launch, []).append(evidence)
        for members in launches.values():
            lanes = [lane for evidence in members if (lane := _lane(job, evidence)) is not None]
            if len(lanes) == size:
                return lanes
    return []


def _mix_of(study: Study, part: str) -> str:
    load = next((point.load for point in study.points if point.part == part), None)
    return "" if load is None else load.mix


def _lane(job: JobOutcome, evidence: RunFiles) -> _Lane | None:
    result = evidence.run.result
    if evidence.timeline is None or result is None or job_outcome.run_fault(job, evidence.run) is not None:
        return None
    if result.summary is None or result.summary.mix is None:
        return None
    with timeline_reader.opened(evidence.timeline) as recorded:
        return _Lane(result.summary.mix, timeline_reader.steps(recorded))


def _timeline(study: Study, lanes: Sequence[_Lane], title: str) -> tuple[Figure, str]:
    """Draw a lane for each load: when it waits, computes and synchronises. The common time is between the lines."""
    figure, (axes,) = plots.sheet(title, f"{study.study} on {study.site.name}", 1.5 + 0.6 * len(lanes), 1)
    for row, lane in enumerate(reversed(lanes)):
        steps = lane.steps
        start = steps.start[:_MOST_STEPS] + lane.mix.began_s
        begin = start
        axes.barh(row, lane.mix.ended_s - lane.mix.began_s, height=0.7, left=lane.mix.began_s, color=RULE)
        for name in ("wait", "compute", "sync"):
            end = begin + getattr(steps, name)[:_MOST_STEPS]
            canvas.boxes(axes, begin, end, row - 0.35, np.float64(row + 0.35), COLOURS[name])
            begin = end
    common = lanes[0].mix.common_s
    for at in common:
        axes.axvline(at, color=INK, linewidth=0.9, linestyle="--")
    for name in ("wait", "compute", "sync"):
        axes.bar([0], [0], color=COLOURS[name], label=name)
    axes.bar([0], [0], color=RULE, label="between steps")
    axes.set(xlim=(0, max(lane.mix.ended_s for lane in lanes)), ylim=(-0.6, len(lanes) - 0.4))
    axes.set_yticks(range(len(lanes)), [canvas.printable(lane.mix.load, 32) for lane in reversed(lanes)])
    axes.set_xlabel("seconds after the launch began")
    canvas.legend(axes)
    text = (
        f"Mean over the ranks of a load. All loads ran from {common[0]:.1f} to {common[1]:.1f} s (dashed lines), the "
        "common time. A step that takes longer than alone waits for storage, or for its ranks (sync). Between steps, "
        "checkpoints are written and epochs are prepared."
    )
    return figure, text
