"""Tables for a terminal: what a person reads first after a job."""

from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dlio_hpc.lustre.record import describe
from dlio_hpc.report.jobfiles import JobOutcome, RunOutcome
from dlio_hpc.results import Distribution, Epoch, Generated, Result, Summary
from dlio_hpc.units import format_seconds, format_size
from dlio_hpc.workload import Workload

_WIDTH = 80
_LEGEND = "AU = compute / (compute + wait). Wait, compute, sync: mean over ranks."


def show(outcome: JobOutcome, file: Any) -> None:
    """The job's summary, at least 80 columns wide, without colour where `file` is no terminal."""
    console = Console(file=file, highlight=False)
    if console.width < _WIDTH:
        console = Console(file=file, highlight=False, width=_WIDTH)
    console.print(_job(outcome), soft_wrap=False)
    for label, path in (("archive", outcome.archive), ("directory", outcome.directory)):
        if path is not None:
            console.print(f"{label:10}{path}", soft_wrap=True, markup=False)


def _job(outcome: JobOutcome) -> RenderableType:
    plan = outcome.plan
    heading = Text.assemble((outcome.job.job, "bold"), f" on {plan.site.name}: ", (outcome.job.state, _colour(outcome)))
    parts: list[RenderableType] = [heading, Text(_workload(outcome)), *_layout(outcome), Text()]
    for run in outcome.runs:
        parts += _run(run)
    return Group(*parts)


def _layout(outcome: JobOutcome) -> list[RenderableType]:
    """Of a dataset on Lustre, or where one was asked for."""
    if outcome.layout is None or not (outcome.layout.file_system.is_lustre or outcome.layout.asked):
        return []
    return [Text(describe(outcome.layout)), *(Text(fault, "red") for fault in outcome.layout.faults)]


def _colour(outcome: JobOutcome) -> str:
    return {"completed": "green", "running": "yellow", "submitted": "yellow", "queued": "yellow"}.get(
        outcome.job.state, "red"
    )


def _workload(outcome: JobOutcome) -> str:
    plan = outcome.plan
    workload = plan.runs[0].workload
    dataset, reader = workload.dataset, workload.reader
    size = "no data" if dataset.format == "null" else format_size(dataset.size)
    return (
        f"{workload.name}: {dataset.format}, {dataset.files} files x {dataset.samples_per_file} samples of "
        f"{format_size(dataset.sample_bytes)} ({size})\n"
        f"{plan.nodes} node(s) x {plan.ranks_per_node} ranks, "
        f"batch {reader.batch_size}, {reader.read_threads} reader thread(s), {workload.train.epochs} epoch(s)\n"
        f"{reader.loader} loader, {', '.join(_ways(workload))}"
    )


def _ways(workload: Workload) -> list[str]:
    """How the samples lie in their files and come from there, as far as it is not the usual."""
    dataset, reader = workload.dataset, workload.reader
    chunk = dataset.chunk_shape if dataset.is_chunked else None
    level = "" if dataset.level is None else f" {dataset.level}"
    told = (
        (True, f"{reader.mode} mode"),
        (dataset.layout == "shared", "shared file"),
        (reader.access == "collective", "collective"),
        (reader.load == "memory", "in memory"),
        (reader.direct, "direct"),
        (reader.drop_cache, "cache dropped"),
        (chunk is not None, f"chunks of {'x'.join(map(str, chunk or ()))}"),
        (dataset.compression != "none", f"{dataset.compression}{level}"),
    )
    return [words for holds, words in told if holds]


def _run(run: RunOutcome) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(run.name, "bold")]
    if run.error is not None:
        parts += [Text(f"  failed on rank {run.error.rank} ({run.error.host}): {run.error.message}", "red")]
    if run.result is None:
        return [*parts, *([] if run.error else [Text("  no result")]), Text()]
    if run.result.generated is not None:
        return [*parts, Text(f"  {_generated(run.result.generated)}"), Text()]
    if run.result.summary is None:
        return parts
    if run.result.kind == "warmup":
        parts += [Text("  warm-up: not part of any measurement")]
    if run.result.summary.steps < run.result.summary.steps_planned:
        done, planned = run.result.summary.steps, run.result.summary.steps_planned
        parts += [Text(f"  the time limit came near: {done} of {planned} steps", "red")]
    return [
        *parts,
        _epochs(run.result, run.result.summary),
        Text(_LEGEND, "dim"),
        Text(),
        _latencies(run, run.result.summary),
        Text(),
        Text(_bytes(run, run.result.summary)),
        Text(),
    ]


def _generated(generated: Generated) -> str:
    if generated.reused or generated.write_MBps is None:
        return f"found whole in {generated.dataset}; nothing written"
    return (
        f"{generated.files} files, {format_size(generated.bytes_written)} in {generated.wall_s:.2f} s "
        f"({generated.write_MBps:.0f} MB/s, fsync included)"
    )


def _table(*headings: str) -> Table:
    """Right-aligned columns under a rule."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _epochs(result: Result, summary: Summary) -> Table:
    table = _table("epoch", "samples", "samples/s", "MB/s", "AU", "wall s", "wait s", "compute s", "sync s")
    for epoch in result.epochs:
        table.add_row(*_epoch(epoch))
    total = [sum(getattr(epoch, name) for epoch in result.epochs) for name in ("wait_s", "compute_s", "sync_s")]
    table.add_section()
    table.add_row(
        "all",
        str(summary.samples),
        f"{summary.samples_per_s:.1f}",
        f"{summary.read_MBps:.1f}",
        _share(summary.au),
        f"{summary.wall_s:.3f}",
        *(f"{value:.3f}" for value in total),
        style="bold",
    )
    return table


def _epoch(epoch: Epoch) -> list[str]:
    busy = epoch.compute_s + epoch.wait_s
    return [
        str(epoch.epoch),
        str(epoch.samples),
        f"{epoch.samples / epoch.wall_s:.1f}",
        f"{epoch.bytes_read / epoch.wall_s / 1e6:.1f}",
        _share(epoch.compute_s / busy if busy else None),
        *(f"{value:.3f}" for value in (epoch.wall_s, epoch.wait_s, epoch.compute_s, epoch.sync_s)),
    ]


def _latencies(run: RunOutcome, summary: Summary) -> Table:
    table = _table("what one takes", "mean", "p50", "p95", "p99", "max")
    table.columns[0].justify = "left"
    rows: list[tuple[str, Distribution | None]] = [
        ("wait for the batch", summary.wait_s),
        (f"compute (asked {format_seconds(summary.compute_asked_s)})", summary.compute_s),
        ("sync of the ranks", summary.sync_s),
        (_read(run.run.workload), summary.read_latency_s),
    ]
    for name, values in rows:
        if values is not None:
            table.add_row(name, *map(format_seconds, (values.mean, values.p50, values.p95, values.p99, values.max)))
    return table


def _read(workload: Workload) -> str:
    """What was timed: requests to the system, or the library's calls that make them."""
    by_library = workload.dataset.format == "hdf5" and workload.reader.mode == "framework"
    return "one read by h5py" if by_library else "one read request"


def _bytes(run: RunOutcome, summary: Summary) -> str:
    planned = "as planned" if summary.bytes_read == run.run.bytes else f"{format_size(run.run.bytes)} planned"
    lines = [
        *_left_out(run, summary),
        f"read      {format_size(summary.bytes_read)} ({planned}) in {summary.reads} requests, {summary.opens} opens",
    ]
    if summary.io_time_s is None:
        lines.append("I/O time  unknown: TensorFlow does not tell when it reads")
    else:
        hidden = f"{_share(summary.io_hidden_fraction)} hidden by compute"
        lines.append(f"I/O time  {format_seconds(summary.io_time_s)} a rank, {hidden}")
    if summary.storage_bytes_read is not None and summary.bytes_read:
        lines.append(f"storage   {_storage(summary.storage_bytes_read, summary.bytes_read)}")
    if (saved := summary.checkpoint) is not None:
        lines.append(
            f"saved     {saved.count} checkpoints, {format_size(saved.bytes_written)} at {saved.write_MBps:.0f} MB/s; "
            f"training stood still {format_seconds(saved.pause_s.mean)} each"
        )
    if (side := summary.side_files) is not None:
        lines.append(
            f"beside    {side.reads} reads ({format_size(side.bytes_read)}), {side.writes} writes "
            f"({format_size(side.bytes_written)}) of side files, {format_seconds(side.time_s)} a rank"
        )
    if summary.preprocess_s:
        lines.append(f"prepared  {format_seconds(summary.preprocess_s)} of preprocessing threads' time a rank")
    slowest = summary.slowest_rank
    lines.append(f"slowest   rank {slowest.rank} on {slowest.host}, {slowest.ratio:.3f} x the median rank")
    return "\n".join(lines)


def _left_out(run: RunOutcome, summary: Summary) -> list[str]:
    if not summary.samples_left_out:
        return []
    workload = run.run.workload
    why = "train.steps" if workload.train.steps else "reader.drop_last"
    return [f"left out  {summary.samples_left_out // workload.train.epochs} samples an epoch ({why})"]


def _storage(fetched: int, read: int) -> str:
    text = f"{format_size(fetched)} fetched, {_share(fetched / read)} of what was read"
    return f"{text}: page cache, not storage" if fetched < read / 2 else text


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
