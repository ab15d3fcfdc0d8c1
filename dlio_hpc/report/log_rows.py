"""I/O of a program as rows of text: operations, sizes, ranks, nodes, files; and all numbers as rows of CSV."""

import csv
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

import msgspec

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.analysis.log.findings import SIZE_BINS, Analysis, Operation
from dlio_hpc.results import Result
from dlio_hpc.units import format_seconds, format_size

Number = tuple[str, str, str, str, Any]
OPERATION = (
    "requests", "bytes", "smallest", "mean", "median", "largest", "MB/s", "MB/s of one", "sequential", "consecutive",
)  # fmt: skip
RANKS = ("rank", "host", "I/O time", "read", "written", "requests", "MB/s")
NODES = ("node", "ranks", "I/O a rank", "read", "written")
FILES = ("file", "type", "size", "read", "written", "requests", "ranks", "I/O time")


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


def slowest_nodes(found: Analysis, count: int) -> list[list[str]]:
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


def slowest(found: Analysis, count: int) -> list[list[str]]:
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


def common_folder(found: Analysis) -> str:
    """The folder that all files have in common, with a slash at its end; empty where there is none."""
    folders = [file.path.split("/")[:-1] for file in found.files]
    ends = zip(min(folders), max(folders), strict=False)
    return "".join(f"{first}/" for first, _ in takewhile(lambda pair: pair[0] == pair[1], ends))


def busiest(found: Analysis, count: int) -> list[list[str]]:
    """Files with the most bytes, by their paths below the folder that all have in common."""
    folder = common_folder(found)
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
        for file in found.files[:count]
    ]


def write_csv(numbers: Iterable[Number], file: Any) -> None:
    """Write a row for each number: log or run, part of it, key within the part, name, value."""
    out = csv.writer(file, lineterminator="\n")
    out.writerow(["log", "of", "which", "metric", "value"])
    out.writerows(numbers)


def numbers_of_result(result: Result, title: str) -> Iterator[Number]:
    """What the core measured."""
    content = msgspec.to_builtins(result)
    for epoch in content.pop("epochs"):
        number = str(epoch.pop("epoch"))
        yield from ((title, "epoch", number, *pair) for pair in epoch.items())
    for name in ("summary", "generated"):
        yield from ((title, "run", "", *pair) for pair in _flat(content[name] or {}, ""))


def numbers_of_log(examined: Examined) -> Iterator[Number]:
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
