"""I/O of a program as table rows: operations, sizes, ranks, nodes and files. All numbers can also be written as CSV
rows.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from typing import Any

import msgspec

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.analysis.log.findings import SIZE_BINS, Analysis, Operation
from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.reports import csv_table
from dlio_hpc.results.run_result import Result

Number = tuple[str, str, str, str, Any]
OPERATION = (
    "requests", "bytes", "smallest", "mean", "median", "largest", "MB/s", "MB/s per request", "sequential",
    "consecutive",
)  # fmt: skip
RANKS = ("rank", "host", "I/O time", "read", "written", "requests", "MB/s")
NODES = ("node", "ranks", "I/O per rank", "read", "written")
FILES = ("file", "type", "size", "read", "written", "requests", "ranks", "I/O time")


def facts(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the facts about a program's I/O, each as a label and a text."""
    share = f", {_percent(analysis.io_share)} of the job" if analysis.io_share is not None else ""
    any_rank = f"; of any rank {format_seconds(analysis.io_any_s)}" if analysis.io_any_s is not None else ""
    scope = " in traced requests" if analysis.untraced_bytes else ""
    lines = [("I/O time", f"{format_seconds(analysis.io_s)} per rank{scope}{share}{any_rank}")]
    if analysis.load.rank is not None and analysis.ranks > 1:
        lines.append(("slowest", f"rank {analysis.load.rank}: {_in_calls(analysis)}"))
    elif analysis.untraced_bytes:
        lines.append(("I/O calls", _in_calls(analysis)))
    if analysis.hidden_s is not None:
        lines.append(
            (
                "hidden",
                f"{format_seconds(analysis.hidden_s)} per rank by compute, "
                f"{_percent(analysis.hidden_share)} of I/O time",
            )
        )
    metadata = analysis.metadata
    lines.append(
        (
            "metadata",
            f"{metadata.opens} opens, {metadata.seeks} seeks, {metadata.syncs} syncs; "
            f"{format_seconds(metadata.time_s)} summed over all ranks, {_percent(metadata.share)} of the time "
            "in I/O calls",
        )
    )
    for name, use in analysis.interfaces.items():
        lines.append(
            (
                name,
                f"{format_size(use.bytes_read)} in {use.reads} reads, {format_size(use.bytes_written)} in "
                f"{use.writes} writes, {use.files} files",
            )
        )
    if not analysis.traced:
        lines.append(
            ("trace", "none, or truncated; times are sums from Darshan's counters, medians and overlap are unknown")
        )
    if analysis.untraced_bytes:
        size = format_size(analysis.untraced_bytes)
        lines.append(("untraced", f"{size} through STDIO: not part of I/O time, rates and pictures"))
    if not analysis.by_rank:
        lines.append(("ranks", "not available per rank: Darshan reduced the records of shared files (rank -1)"))
    return lines


def _in_calls(analysis: Analysis) -> str:
    """Return the time that the slowest rank spends in I/O calls of all interfaces, as text."""
    load = analysis.load
    least, most = format_seconds(load.least_s), format_seconds(load.most_s)
    return f"{least if least == most else f'{least} to {most}'} in I/O calls of all interfaces, metadata calls included"


def size_words(name: str) -> str:
    """Return the range of sizes that one of Darshan's bins covers, such as "100 to 1K"."""
    low, _, high = name.partition("_")
    return "above 1G" if high == "PLUS" else f"{low} to {high}"


def operation_row(kind: Operation) -> list[str]:
    """Return the table cells for an operation (header: OPERATION)."""
    size, rate = kind.size, kind.bandwidth_MBps
    sizes = ["-"] * 4
    if size is not None:
        sizes = [
            format_size(value) if value is not None else "-" for value in (size.min, size.mean, size.median, size.max)
        ]
    return [
        str(kind.requests),
        format_size(kind.bytes),
        *sizes,
        _rate(kind.MBps),
        _rate(rate.median if rate else None),
        _percent(kind.sequential),
        _percent(kind.consecutive),
    ]


def size_names(analysis: Analysis) -> list[str]:
    """Return the names of the size bins that contain requests, from the smallest to the largest."""
    used = {name for kind in (analysis.read, analysis.write) if kind for name in kind.histogram}
    return [name for name in SIZE_BINS if name in used]


def slowest_nodes(analysis: Analysis, count: int) -> list[list[str]]:
    """Return rows for the `count` nodes whose ranks spend the most time in I/O (header: NODES)."""
    nodes = sorted(analysis.by_node, key=lambda node: -node.io_s)[:count]
    return [
        [
            node.host,
            str(node.ranks),
            format_seconds(node.io_s),
            format_size(node.bytes_read),
            format_size(node.bytes_written),
        ]
        for node in nodes
    ]


def slowest(analysis: Analysis, count: int) -> list[list[str]]:
    """Return rows for the `count` ranks that spend the most time in I/O (header: RANKS)."""
    ranks = sorted(analysis.by_rank, key=lambda rank: -rank.io_s)[:count]
    return [
        [
            str(rank.rank),
            rank.host or "-",
            format_seconds(rank.io_s),
            format_size(rank.bytes_read),
            format_size(rank.bytes_written),
            str(rank.reads + rank.writes),
            _rate(rank.MBps),
        ]
        for rank in ranks
    ]


def common_folder(analysis: Analysis) -> str:
    """Return the deepest directory that contains all files, with a trailing slash; empty if there is no such
    directory.
    """
    folders = [file.path.split("/")[:-1] for file in analysis.files]
    ends = zip(min(folders), max(folders), strict=False)
    return "".join(f"{first}/" for first, _ in takewhile(lambda pair: pair[0] == pair[1], ends))


def busiest(analysis: Analysis, count: int) -> list[list[str]]:
    """Return rows for the `count` files with the most bytes (header: FILES). Paths are relative to the common
    directory.
    """
    folder = common_folder(analysis)
    return [
        [
            file.path.removeprefix(folder),
            file.type,
            format_size(file.size),
            format_size(file.bytes_read),
            format_size(file.bytes_written),
            str(file.reads + file.writes),
            "all" if file.ranks < 0 else str(file.ranks),
            format_seconds(file.io_s),
        ]
        for file in analysis.files[:count]
    ]


def write_csv(numbers: Iterable[Number], file: Any) -> None:
    """Write a CSV header, followed by one row per number. The cells of a row are: the log or run; the kind of object
    that the number describes, such as job, rank or file; the name of this object; the metric; the value.
    """
    csv_table.write(chain([("log", "of", "which", "metric", "value")], numbers), file)


def numbers_of_result(result: Result, title: str) -> Iterator[Number]:
    """Yield CSV rows of the numbers that the benchmark itself measured."""
    content = msgspec.to_builtins(result)
    for epoch in content.pop("epochs"):
        number = str(epoch.pop("epoch"))
        yield from ((title, "epoch", number, *pair) for pair in epoch.items())
    for name in ("summary", "generated"):
        yield from ((title, "run", "", *pair) for pair in _flat(content[name] or {}, ""))


def numbers_of_log(examined: Examined) -> Iterator[Number]:
    """Yield CSV rows of the numbers of a Darshan log."""
    yield from ((examined.title, *row) for row in _rows(examined))


def _rows(examined: Examined) -> Iterator[tuple[str, str, str, Any]]:
    for fault in examined.faults:
        yield "fault", fault.name, "text", fault.text
    if examined.analysis is None:
        return
    content = msgspec.to_builtins(examined.analysis)
    for name, key in (("by_rank", "rank"), ("by_node", "host"), ("files", "path")):
        for row in content.pop(name):
            which = row.pop(key)
            yield from (
                ({"by_rank": "rank", "by_node": "node", "files": "file"}[name], which, *pair) for pair in row.items()
            )
    if (line := content.pop("timeline")) is not None:
        start, step = line.pop("start_s"), line.pop("step_s")
        for name, values in line.items():
            yield from (("time", f"{start + step * number:.9g}", name, value) for number, value in enumerate(values))
    yield from (("job", "", *pair) for pair in _flat(content, ""))


def _flat(content: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield from ((f"{prefix}{name}.{key}", number) for key, number in value)
        else:
            yield f"{prefix}{name}", value


def _rate(value: float | None) -> str:
    """Return a rate in MB/s as text, or "-" if it is None. Numbers below 10 have three significant digits."""
    return "-" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
