"""Tables for a terminal: what a person reads first after a job."""

from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.report import banner, bottleneck, job_banner, job_rows
from dlio_hpc.report.banner import Banner
from dlio_hpc.results import Summary

_WIDTH, _WIDEST = 80, 1000


def show(outcome: JobOutcome, file: Any) -> None:
    """The job's summary, at least 80 columns wide, without colour where `file` is no terminal."""
    out = console(file)
    opening = job_banner.of_jobs([outcome])
    show_banner(opening, out)
    for answer in bottleneck.shortened(bottleneck.of_job(outcome)) if opening.state != "bad" else ():
        out.print(Text(answer))
    out.print()
    out.print(_job(outcome), soft_wrap=False)
    for label, path in (("archive", outcome.archive), ("directory", outcome.directory)):
        if path is not None:
            out.print(f"{label:10}{path}", soft_wrap=True, markup=False)


def console(file: Any) -> Console:
    """As wide as the terminal, and at least 80 columns; without colour where `file` is none."""
    found = Console(file=file, highlight=False, markup=False)
    return found if found.width >= _WIDTH else Console(file=file, highlight=False, markup=False, width=_WIDTH)


def show_banner(opening: Banner, out: Console) -> None:
    """Print the state and the sentence that a summary opens with."""
    colour = banner.COLOURS[opening.state]
    out.print(Text.assemble((f"{opening.label}: ", f"bold {colour}"), (opening.text, colour)))


def show_whole(out: Console, grid: Table) -> None:
    """However wide it is: a line that is too long for the terminal is folded there, and nothing is left out."""
    width = out.width
    out.width = max(width, Measurement.get(out, out.options.update(max_width=_WIDEST), grid).maximum)
    out.print(grid)
    out.width = width


def _job(outcome: JobOutcome) -> RenderableType:
    plan = outcome.plan
    heading = Text.assemble((outcome.job.job, "bold"), f" on {plan.site.name}: ", (outcome.job.state, _colour(outcome)))
    parts: list[RenderableType] = [heading, Text(job_rows.workload(outcome)), *_layout(outcome)]
    parts += [*(Text(f"Note: {note}", "yellow") for note in plan.notes), Text()]
    for run in outcome.runs:
        parts += _run(outcome, run)
    if (cut_short := job_rows.cut_short(outcome)) is not None:
        title, lines = cut_short
        parts += [Text(f"{title}:", "bold"), *(Text(f"  {line}") for line in lines), Text()]
    for reason in job_rows.repeats(outcome):
        parts += [Text(reason, "yellow"), Text()]
    return Group(*parts)


def _layout(outcome: JobOutcome) -> list[RenderableType]:
    told: list[RenderableType] = []
    for found in outcome.layouts:
        if (words := job_rows.layout(found)) is not None:
            told += [Text(words), *(Text(fault, "red") for fault in found.faults)]
    return told


def _colour(outcome: JobOutcome) -> str:
    return {"completed": "green", "running": "yellow", "submitted": "yellow", "queued": "yellow"}.get(
        outcome.job.state, "red"
    )


def _run(outcome: JobOutcome, run: RunOutcome) -> list[RenderableType]:
    title = job_rows.title(outcome, run)
    parts: list[RenderableType] = [Text.assemble((run.name, "bold"), f" {title}" if title else "")]
    if run.error is not None:
        parts += [Text(f"  failed on rank {run.error.rank} ({run.error.host}): {run.error.message}", "red")]
    if run.result is None:
        return [*parts, *([] if run.error else [Text("  no result")]), Text()]
    if run.result.generated is not None:
        return [*parts, Text(f"  {job_rows.generated(run.result.generated)}"), *_invalid(run), Text()]
    if run.result.summary is None:
        return parts
    if run.result.kind == "warmup":
        parts += [Text("  warm-up: not part of any measurement")]
    if run.result.summary.steps < run.result.summary.steps_planned:
        done, planned = run.result.summary.steps, run.result.summary.steps_planned
        parts += [Text(f"  the time limit came near: {done} of {planned} steps", "red")]
    return [*parts, *_measured(outcome, run, run.result.summary), *_invalid(run), Text()]


def _measured(outcome: JobOutcome, run: RunOutcome, summary: Summary) -> list[RenderableType]:
    assert run.result is not None
    epochs, takes = table(*job_rows.EPOCHS), table(*job_rows.TAKES)
    takes.columns[0].justify = "left"
    *each, together = job_rows.epochs(run.result, summary)
    for row in each:
        epochs.add_row(*row)
    epochs.add_section()
    epochs.add_row(*together, style="bold")
    for row in job_rows.takes(run, summary):
        takes.add_row(*row)
    facts = "\n".join(f"{label:10}{text}" for label, text in job_rows.facts(run, summary))
    darshan = [Text(f"Darshan   {line}") for line in job_rows.darshan(outcome, run)]
    return [epochs, Text(job_rows.LEGEND, "dim"), Text(), takes, Text(), Text(facts), *darshan]


def _invalid(run: RunOutcome) -> list[RenderableType]:
    return [Text(f"invalid   {text}", "red") for text in job_rows.invalid(run)]


def table(*headings: str) -> Table:
    """Right-aligned columns under a rule."""
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in headings:
        grid.add_column(heading, justify="right", no_wrap=True)
    return grid
