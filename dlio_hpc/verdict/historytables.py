"""The history on a terminal and as CSV."""

import csv
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.report import history_rows, tables, verdict_banners
from dlio_hpc.report.history_rows import Block
from dlio_hpc.verdict.history_entry import Entry

_COLUMNS = ("study", "site", "state", "ended")
_OF_KEY = ("file_system", "layout", "nodes", "ranks_per_node", "workload", "settings", "version")
_OF_RUN = ("run", "kind", "title", "repeat", "data", "fault")


def show(blocks: Sequence[Block], metric: MetricName, file: Any) -> None:
    """Print the banner, then a table for each key."""
    out = tables.console(file)
    tables.show_banner(verdict_banners.of_history(blocks, metric), out)
    out.print()
    for number, block in enumerate(blocks):
        if number:
            out.print()
        out.print(Text(block.title, "bold"), soft_wrap=True)
        if block.bars:
            out.print(Text(f"{METRICS[metric].noun}  {block.bars}"), soft_wrap=True)
        table = tables.table(*(name.replace("change", _change(block)) for name in history_rows.HEADER))
        for place in (0, 1, -1):
            table.columns[place].justify = "left"
        for line in block.lines:
            table.add_row(*history_rows.cells(line))
        tables.show_whole(out, table)
        for words in block.shifts:
            out.print(Text(words, "red" if block.is_worse else ""), soft_wrap=True)


def _change(block: Block) -> str:
    return "to baseline" if block.baseline is not None else "change"


def write_csv(entries: Sequence[Entry], file: Any) -> None:
    csv.writer(file, lineterminator="\n").writerows(_rows(entries))


def _rows(entries: Sequence[Entry]) -> Iterator[list[Any]]:
    """A run a row, all metrics."""
    yield ["job", *_COLUMNS, *_OF_KEY, *_OF_RUN, "storage", *METRICS]
    for entry in entries:
        for run in entry.measurements:
            yield [
                entry.job,
                *(getattr(entry, name) for name in _COLUMNS),
                *(getattr(run.key, name) for name in _OF_KEY),
                *(getattr(run, name) for name in _OF_RUN),
                "" if run.storage is None else run.storage.outcome(),
                *(run.metrics.get(name, "") for name in METRICS),
            ]
