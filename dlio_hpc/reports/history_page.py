"""Report of a history: for each measurement key, its jobs from oldest to newest, and the changes between them."""

from collections.abc import Iterator, Sequence

from dlio_hpc.reports import history_rows, verdict_banners
from dlio_hpc.reports.history_rows import Block
from dlio_hpc.reports.page import Lines, Page, Picture, Pictures, Section, Table
from dlio_hpc.results.metrics import METRICS, MetricName


def of_history(blocks: Sequence[Block], metric: MetricName, source: str, now: str | None = None) -> Page:
    """Return the report of a metric over a history. source: name of the directory of the archives. now: the present
    time, if the report is to say that jobs stopped.
    """
    count = len({line.job for block in blocks for line in block.lines})
    return Page(
        title=f"History of {METRICS[metric].noun}",
        subtitle=f"{source}, {count} jobs",
        banner=verdict_banners.of_history(blocks, metric, now),
        facts=[],
        sections=[_block(block, metric) for block in blocks],
    )


def _block(block: Block, metric: MetricName) -> Section:
    change = "to baseline" if block.baseline is not None else "change"
    header = [name.replace("change", change) for name in history_rows.HEADER]
    rows = [list(history_rows.cells(line)) for line in block.lines]
    return Section(
        block.title,
        [
            Lines([f"{METRICS[metric].noun}  {block.bars}"] if block.bars else []),
            Pictures("", lambda: _draw(block, metric)),
            Table("", header, rows, is_whole=True),
            Lines(block.shifts, "red" if block.is_worse else ""),
        ],
    )


def _draw(block: Block, metric: MetricName) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import regression_plots

    return regression_plots.of_block(block, metric)
