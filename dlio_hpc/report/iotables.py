"""What a program's I/O was like, as tables for a terminal; and all figures as rows of a CSV file."""

import csv
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.analysis.log.findings import SIZE_BINS, Analysis, Operation
from dlio_hpc.report import bottleneck, log_banner
from dlio_hpc.report.tables import console, show_banner, table
from dlio_hpc.results import Result
from dlio_hpc.units import format_seconds, format_size

_SHOWN = 5
Figure = tuple[str, str, str, str, Any]


def show(examined: Examined, file: Any) -> None:
    """Print a log: the banner first, then the figures."""
    out = console(file)
    show_banner(log_banner.of_logs([examined]), out)
    if examined.analysis is not None and examined.is_sound:
        out.print(Text(bottleneck.of_log(examined.title, examined.analysis)))
    out.print()
    show_run(examined, file)


def show_run(examined: Examined, file: Any) -> None:
    """Print the log of a run, below the banner of its job."""
    console(file).print(Group(*_parts(examined)), soft_wrap=False)


def _parts(examined: Examined) -> Iterator[RenderableType]:
    yield Text(examined.title, "bold")
    for fault in examined.faults:
        yield Text(f"  {fault.name}: {fault.text}", "yellow" if examined.is_sound else "red")
    if not examined.is_sound:
        yield Text("  this log is not whole: do not use its figures", "red")
    if (log := examined.log) is not None:
        version = f", Darshan {log.job.library}" if log.job.library else ""
        yield Text(f"  {log.job.program}")
        yield Text(f"  {log.job.ranks} rank(s), {format_seconds(log.job.seconds)}, job {log.job.id}{version}")
    if examined.analysis is not None:
        yield Text()
        yield from analysis_parts(examined.analysis)


def analysis_parts(found: Analysis) -> Iterator[RenderableType]:
    """Of one log."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    for label, text in facts(found):
        grid.add_row(f"{label:9}", text)
    yield grid
    yield Text()
    if found.read or found.write:
        yield _operations(found)
        yield Text("MB/s: bytes over the time with any request in flight; of one: the median.", "dim")
    if len(found.by_rank) > 1:
        yield Text()
        yield _ranks(found)
    if len(found.by_node) > 1:
        yield Text()
        yield _nodes(found)
    yield Text()
    yield from _files(found)
    yield Text()


def facts(found: Analysis) -> list[tuple[str, str]]:
    """Label and text each."""
    share = f", {_percent(found.io_share)} of the job" if found.io_share is not None else ""
    anybody = f"; of any rank {format_seconds(found.io_any_s)}" if found.io_any_s is not None else ""
    lines = [("I/O time", f"{format_seconds(found.io_s)} a rank{share}{anybody}")]
    if found.hidden_s is not None:
        lines.append(
            (
                "hidden",
                f"{format_seconds(found.hidden_s)} a rank by compute, {_percent(found.hidden_share)} of I/O time",
            )
        )
    data = found.metadata
    lines.append(
        (
            "metadata",
            f"{data.opens} opens, {data.seeks} seeks, {data.syncs} syncs; {format_seconds(data.time_s)} of all ranks, "
            f"{_percent(data.share)} of time in calls",
        )
    )
    for name, used in found.interfaces.items():
        lines.append(
            (
                name,
                f"{format_size(used.bytes_read)} in {used.reads} reads, {format_size(used.bytes_written)} in "
                f"{used.writes} writes, {used.files} files",
            )
        )
    if not found.traced:
        lines.append(("trace", "none, or cut: times are Darshan's sums, medians and overlap are not known"))
    if found.untraced_bytes:
        size = format_size(found.untraced_bytes)
        lines.append(("untraced", f"{size} through STDIO: they are in no time, rate or picture"))
    if not found.by_rank:
        lines.append(("ranks", "not available per rank: Darshan reduced the records of shared files (rank -1)"))
    return lines


OPERATION = (
    "requests", "bytes", "smallest", "mean", "median", "largest", "MB/s", "MB/s of one", "sequential", "consecutive",
)  # fmt: skip


def _operations(found: Analysis) -> RenderableType:
    kinds = [(name, kind) for name, kind in (("reads", found.read), ("writes", found.write)) if kind is not None]
    grid = table("", *(name for name, _ in kinds))
    grid.columns[0].justify = "left"
    columns = [operation_row(kind) for _, kind in kinds]
    for number, label in enumerate(OPERATION):
        grid.add_row(label, *(column[number] for column in columns))
    grid.add_section()
    for name in size_names(found):
        grid.add_row(size_words(name), *(str(kind.histogram.get(name, 0)) for _, kind in kinds))
    return grid


def size_words(name: str) -> str:
    """Of one of Darshan's bins."""
    low, _, high = name.partition("_")
    return "above 1G" if high == "PLUS" else f"{low} to {high}"


def operation_row(kind: Operation) -> list[str]:
    """Requests, bytes, sizes (min, mean, median, max), MB/s, MB/s of one, shares."""
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


def size_names(found: Analysis) -> list[str]:
    """Bins that hold any request, in order of size."""
    used = {name for kind in (found.read, found.write) if kind for name in kind.histogram}
    return [name for name in SIZE_BINS if name in used]


def _ranks(found: Analysis) -> RenderableType:
    grid = table("slowest ranks", "host", "I/O", "read", "written", "requests", "MB/s")
    for row in slowest(found):
        grid.add_row(*row)
    return grid


def _nodes(found: Analysis) -> RenderableType:
    grid = table(*NODES)
    for row in slowest_nodes(found):
        grid.add_row(*row)
    return grid


NODES = ("slowest nodes", "ranks", "I/O a rank", "read", "written")


def slowest_nodes(found: Analysis, count: int = _SHOWN) -> list[list[str]]:
    """Those whose ranks spend most time in I/O."""
    nodes = sorted(found.by_node, key=lambda node: -node.io_s)[:count]
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


def slowest(found: Analysis, count: int = _SHOWN) -> list[list[str]]:
    """Those with the most time in I/O."""
    ranks = sorted(found.by_rank, key=lambda rank: -rank.io_s)[:count]
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


def _files(found: Analysis) -> Iterator[RenderableType]:
    """Their paths below the folder that all have in common."""
    if not found.files:
        return
    folders = [file.path.split("/")[:-1] for file in found.files]
    ends = zip(min(folders), max(folders), strict=False)
    common = "".join(f"{first}/" for first, _ in takewhile(lambda pair: pair[0] == pair[1], ends))
    shown = f", the busiest {_SHOWN}" if len(found.files) > _SHOWN else ""
    yield Text(f"{len(found.files)} file(s){shown}, in {common or 'several places'}")
    grid = table("type", "size", "read", "written", "requests", "I/O", "file")
    grid.columns[0].justify = grid.columns[-1].justify = "left"
    grid.columns[-1].no_wrap, grid.columns[-1].overflow = False, "fold"
    for path, *row, _ranks, time in busiest(found):
        grid.add_row(*row, time, path.removeprefix(common))
    yield grid


def busiest(found: Analysis, count: int = _SHOWN) -> list[list[str]]:
    """Files with the most bytes."""
    return [
        [
            file.path,
            file.type,
            format_size(file.size),
            format_size(file.bytes_read),
            format_size(file.bytes_written),
            str(file.reads + file.writes),
            "all" if file.ranks < 0 else str(file.ranks),
            format_seconds(file.io_s),
        ]
        for file in found.files[:count]
    ]


def write_csv(figures: Iterable[Figure], file: Any) -> None:
    """One figure a row: of which log or run, of what in it, its name, its value."""
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["log", "of", "which", "figure", "value"])
    out.writerows(figures)


def figures_of_result(result: Result, title: str) -> Iterator[Figure]:
    """What the core measured."""
    content = msgspec.to_builtins(result)
    for epoch in content.pop("epochs"):
        number = str(epoch.pop("epoch"))
        yield from ((title, "epoch", number, *pair) for pair in epoch.items())
    for name in ("summary", "generated"):
        yield from ((title, "run", "", *pair) for pair in _flat(content[name] or {}, ""))


def figures_of_log(examined: Examined) -> Iterator[Figure]:
    """What a Darshan log says."""
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
    """MB/s; slow ones with three digits."""
    return "-" if value is None else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
