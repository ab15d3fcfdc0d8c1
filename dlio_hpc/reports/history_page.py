"""Report of a history: for each measurement key, its jobs from oldest to newest, and the changes between them."""

from collections.abc import Iterator, Sequence

from dlio_hpc.base.units import counted
from dlio_hpc.reports import history_rows, verdict_banners
from dlio_hpc.reports.history_rows import Block
from dlio_hpc.reports.numbered_notes import NumberedNotes
from dlio_hpc.reports.page import Facts, Lines, Page, Picture, Pictures, Section, Table
from dlio_hpc.results.metrics import METRICS, MetricName

# Columns of history_rows.HEADER with names.
_NAMES = (1,)


def of_history(
    blocks: Sequence[Block], metric: MetricName, source: str, now: str | None = None, total: int | None = None
) -> Page:
    """Return the report of a metric over a history. source: name of the directory of the archives. now: the present
    time, if the report shall say that no jobs ran recently. total: number of all jobs; None if the report lists all
    jobs.
    """
    notes = NumberedNotes()
    shown = [block for block in blocks if block.lines]
    listed = len({line.job for block in shown for line in block.lines})
    total = listed if total is None else total
    sections = [_block(block, metric, notes) for block in shown]
    return Page(
        title=f"History of {METRICS[metric].noun}",
        subtitle=f"{source}, {counted(total, 'job')}{_left_out(total, listed, len(blocks) - len(shown))}",
        banner=verdict_banners.of_history(blocks, metric, now),
        facts=[],
        sections=[*sections, _legend(notes.facts(), metric)],
    )


def _left_out(total: int, listed: int, hidden: int) -> str:
    """Return a clause on the jobs that are not listed; empty if all jobs are listed. hidden: number of measurements
    without a listed job.
    """
    if listed == total:
        return ""
    older = f", with {counted(hidden, 'measurement')} that no listed job made" if hidden else ""
    return f"; the newest {listed:,} are listed, {total - listed:,} are left out{older}; --last {total} lists all"


def _legend(notes: Facts, metric: MetricName) -> Section:
    """Return the section that explains the columns and states the notes."""
    legend = (
        f"n: runs. median, spread: of {METRICS[metric].noun} of these runs; spread is (largest - smallest) / median. "
        "change: difference of the median from the baseline or, without a baseline, from the previous job; + is better."
    )
    return Section("Notes", [*([notes] if notes.rows else []), Lines([legend], "dim")])


def _block(block: Block, metric: MetricName, notes: NumberedNotes) -> Section:
    base = [] if block.baseline is None else [f"change: to baseline {block.baseline.id}"]
    rows = [list(history_rows.cells(line, notes)) for line in block.lines]
    return Section(
        block.title,
        [
            Lines([f"{METRICS[metric].noun}  {block.bars}"] if block.bars else [], is_for_terminal=True),
            Pictures("", lambda: _draw(block, metric)),
            Table("", history_rows.HEADER, rows, is_whole=True, names=_NAMES),
            Lines(base, "dim"),
            Lines(block.shifts, "red" if block.is_worse else ""),
        ],
    )


def _draw(block: Block, metric: MetricName) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import regression_plots

    return regression_plots.of_block(block, metric)
