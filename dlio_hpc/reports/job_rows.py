"""Measurements of a job as table rows and lines, for the terminal and the HTML page."""

import math
import mmap
import statistics
from collections.abc import Iterable, Iterator, Sequence

from dlio_hpc.analysis.study import spread_reasons
from dlio_hpc.analysis.study.spread_reasons import Repeat
from dlio_hpc.base import units
from dlio_hpc.base.units import counted, format_seconds, format_size
from dlio_hpc.config.checkpoint_keys import Checkpoint, Mode
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.metadata_keys import MetadataKeys
from dlio_hpc.config.reader_keys import by_streams
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset import checkpoint_files, planned_bytes
from dlio_hpc.files import rundir
from dlio_hpc.lustre.layout_record import Record, describe
from dlio_hpc.plan.plan import Plan
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome, is_cut_short, without_log
from dlio_hpc.reports import inference_rows
from dlio_hpc.results import metrics
from dlio_hpc.results.metrics import MetricName
from dlio_hpc.results.phases import Phase
from dlio_hpc.results.probe_result import Pattern, ProbeRate, StorageProbe
from dlio_hpc.results.run_result import Distribution, Epoch, Generated, Result, Summary

EPOCHS = ("epoch", "samples", "samples/s", "MB/s", "AU", "wall s", "wait s", "compute s", "sync s")
RUNS = ("run", "samples/s", "MB/s", "AU", "wall", "wait", "compute", "sync", "storage")
RUNS_LEGEND = "wall, wait, compute, sync: seconds. storage: bytes that came from storage and not from memory."
CHECKPOINT_RUNS = ("run", "MB/s written", "MB/s read", "storage")
TAKES = ("latency per operation", "mean", "p50", "p95", "p99", "p99.9", "max")
CHECKPOINTS = ("checkpoints", "number", "bytes", "MB/s", "median s", "slowest s")
PHASES = ("phase", "operations", "per s", "first rank", "spread", "slowest rank")
PHASE_RUNS = ("phase", "median per s", "lowest", "highest", "spread")
PHASE_LEGEND = (
    "per s: operations of all ranks / time from the first start to the last end; median of the repeats. first rank: "
    "the same until the first rank ends. spread: (largest - smallest) / median of the repeats."
)
CHECKPOINT_LEGEND = "Seconds of the slowest rank: write and fsync, or open and read. MB/s: bytes / these seconds."
LEGEND = (
    "AU = compute / (compute + wait). Wait, compute, sync: mean over ranks. all: from the first wait to the last step, "
    "with the time between epochs, without a checkpoint after the last step."
)
# Shares of the wall time. A smaller own cost is not mentioned, and a larger one limits the rates.
_NOTABLE, _LIMITING = 0.01, 0.1
# How checkpoints are written and read.
_LIBRARIES: dict[Mode, str] = {
    "posix": "in POSIX requests",
    "torch": "through torch.save",
    "torch_distributed": "through torch.distributed.checkpoint",
    "keras": "through Keras's weights",
}
# Maximum number of runs that a line names.
_NAMED = 3
# Share of the time that a run computes above which the computation limits its rate.
_COMPUTING = 0.5


def workload(outcome: JobOutcome) -> str:
    """Return a description of the workload of the job's first run, in three lines, or in two if it only writes
    checkpoints. If the job's study has several points, another line says so.
    """
    plan = outcome.plan
    work = plan.runs[0].workload
    dataset, reader = work.dataset, work.reader
    ranks = f"{counted(plan.nodes, 'node')} x {counted(plan.ranks_per_node, 'rank')}"
    readers = counted(reader.read_threads, "worker process" if reader.worker_processes else "reader thread")
    if work.inference is not None:
        text = inference_rows.described(work.inference, ranks, _repeats(work))
        return f"{work.name}: {text}" + _several(plan)
    if work.metadata is not None:
        return f"{work.name}: {_operations(work.metadata, plan)}\n{ranks}, {_repeats(work)}" + _several(plan)
    if (saved := work.checkpoint) is not None and work.only_writes_checkpoints:
        return f"{work.name}: {_saved(saved, plan)}\n{ranks}" + _several(plan)
    return (
        f"{work.name}: {dataset.format}, {_geometry(dataset)}\n"
        f"{ranks}, "
        f"batch {reader.batch_size}, {readers}, {counted(work.train.epochs, 'epoch')}\n"
        f"{reader.loader} loader, {', '.join(_ways(work))}" + _several(plan)
    )


def _operations(keys: MetadataKeys, plan: Plan) -> str:
    """Return a description of the operations of a metadata workload."""
    files = f"{counted(keys.files, 'file')} per rank, {counted(keys.files * plan.ranks, 'file')}"
    content = f" of {format_size(keys.bytes)}" if keys.bytes else ", empty"
    tree = f" with {counted(keys.leaves, 'subfolder')}" if keys.leaves > 1 else ""
    folders = {"own": f"a folder per rank{tree}", "shared": f"one folder{tree}"}[keys.folders]
    return f"{files}{content}, {folders}\nphases: {', '.join(keys.order)}"


def _repeats(work: Workload) -> str:
    return "once" if work.train.epochs == 1 else f"{work.train.epochs} times"


def _only(work: Workload) -> str:
    if work.inference is not None:
        return "blocks of KV caches"
    return "checkpoints only" if work.only_writes_checkpoints else "operations on files and directories"


def places(outcome: JobOutcome) -> list[tuple[str, str]]:
    """Return facts on the folders of a job: the dataset, and each folder of checkpoints and auxiliary files with its
    file system.
    """
    first = outcome.plan.runs[0]
    rows = [("data", first.dataset if first.workload.reads_samples else f"none: {_only(first.workload)}")]
    writing = [run for run in outcome.runs if run.run.kind != "generate" and run.run.workload.writes_outputs]
    known = {run.run.outputs: run.result.outputs_on for run in writing if run.result is not None}
    return rows + [
        ("outputs", f"{folder} on {known.get(folder) or 'an unknown file system'}")
        for folder in dict.fromkeys(run.run.outputs for run in writing)
    ]


def _saved(checkpoint: Checkpoint, plan: Plan) -> str:
    """Return a phrase with the number of checkpoints, the size of a checkpoint, and the library that writes them."""
    size = format_size(checkpoint_files.size(checkpoint, plan.ranks))
    reads = f", {checkpoint.reads} are read" if checkpoint.reads else ""
    return f"{checkpoint.writes} checkpoints of {size} {_LIBRARIES[checkpoint.mode]} are written{reads}; no dataset"


def _geometry(dataset: Dataset) -> str:
    """Return a phrase with the numbers of files and samples, and with their sizes."""
    size = format_size(dataset.size) if dataset.facts.holds_data else "no data"
    sample = f"{format_size(dataset.sample_bytes)}{' on average' if dataset.sizes_vary else ''}"
    existing = "" if dataset.existing is None else "existing, contents not compared: "
    files = f"{existing}{counted(dataset.files, 'file')}"
    if dataset.counts_vary:
        return f"{files} with {counted(dataset.samples, 'sample')} of {sample} ({size})"
    return f"{files} x {counted(dataset.samples_per_file, 'sample')} of {sample} ({size})"


def _several(plan: Plan) -> str:
    if len(plan.titles) < 2:
        return ""
    point = f"this is the first of {len(plan.titles)} points of the study {plan.study}"
    return f"\n{point}; for all of them: dlio-hpc report {plan.study}"


def title(outcome: JobOutcome, run: RunOutcome) -> str:
    """Return the title of the study's point that a run measures, or an empty string if it measures no point."""
    return "" if run.run.point is None else outcome.plan.titles.get(run.run.point, "")


def _ways(workload: Workload) -> list[str]:
    """Return phrases that describe how samples are stored and read. The first phrase is the mode of the reader. The
    others state settings that differ from the defaults.
    """
    dataset, reader = workload.dataset, workload.reader
    chunk = dataset.chunk_shape if dataset.is_chunked else None
    level = "" if dataset.level is None else f" {dataset.level}"
    options = (
        (True, f"{reader.mode} mode"),
        (dataset.file_access == "shared", "shared file"),
        (reader.access == "collective", "collective"),
        (reader.load == "memory", "in memory"),
        (reader.direct, "direct"),
        (reader.engine != "preadv", reader.engine),
        (reader.drop_cache, "cache dropped"),
        (dataset.arrays is not None, f"{len(dataset.arrays or ())} arrays per sample"),
        (chunk is not None, f"chunks of {'x'.join(map(str, chunk or ()))}"),
        (dataset.compression != "none", f"{dataset.compression}{level}"),
    )
    return [option for holds, option in options if holds]


def layout(record: Record) -> str | None:
    """Return a description of the layout of a dataset, or None if the dataset is not on Lustre and no layout was
    requested.
    """
    return describe(record) if record.file_system.is_lustre or record.asked else None


def generated(result: Generated) -> str:
    """Return one line about the dataset that a run generated."""
    if result.reused or result.write_MBps is None:
        return f"already complete in {result.dataset}; nothing was written"
    return (
        f"{counted(result.files, 'file')}, {format_size(result.bytes_written)} in {result.wall_s:.2f} s "
        f"({result.write_MBps:.0f} MB/s, fsync included)"
    )


def epochs(result: Result, summary: Summary) -> list[list[str]]:
    """Return a row per epoch (header: EPOCHS), and a last row with the totals."""
    total = [sum(getattr(epoch, name) for epoch in result.epochs) for name in ("wait_s", "compute_s", "sync_s")]
    together = [
        "all",
        str(summary.samples),
        rate(summary.samples_per_s),
        rate(summary.read_MBps),
        au(summary),
        f"{summary.wall_s:.3f}",
        *(f"{value:.3f}" for value in total),
    ]
    return [*(_epoch(epoch, summary) for epoch in result.epochs), together]


def of_runs(runs: Sequence[RunOutcome]) -> tuple[Sequence[str], list[list[str]]]:
    """Return the header and the rows of a table of runs: a row for each run, and a last row with the medians of the
    measured runs. `runs` must have summaries.
    """
    only_writes = runs[0].run.workload.only_writes_checkpoints
    header: Sequence[str] = CHECKPOINT_RUNS if only_writes else RUNS
    values = _checkpoint_values if only_writes else _values
    if runs[0].run.workload.inference is not None:
        header, values = inference_rows.RUNS, _inference_values
    measured = [values(run) for run in runs if run.run.kind == "measure"]
    medians = [None if None in column else statistics.median(column) for column in zip(*measured, strict=True)]
    rows = [[run.name, *_formatted(values(run), header)] for run in runs]
    return header, [*rows, [f"median of {len(measured)}", *_formatted(medians, header)]]


def phases_of_runs(runs: Sequence[RunOutcome]) -> list[list[str]]:
    """Return a row per phase with the rates of the measured runs of a metadata workload (header: PHASE_RUNS)."""
    return [
        [phase, *(f"{value:,.0f}" for value in (statistics.median(known), min(known), max(known))), _spread(known)]
        for phase, known in rates_of_phases(runs).items()
    ]


def rates_of_phases(runs: Sequence[RunOutcome]) -> dict[Phase, list[float]]:
    """Return the rate of each phase in the measured runs of a metadata workload. Runs without a summary are left
    out.
    """
    rates: dict[Phase, list[float]] = {}
    for run in runs:
        if run.run.kind == "measure" and run.result is not None and run.result.summary is not None:
            for phase in run.result.summary.metadata:
                rates.setdefault(phase.phase, []).append(phase.per_s)
    return rates


def _spread(rates: Sequence[float]) -> str:
    """Return (largest - smallest) / median as a percentage, or "-" if there is only one rate."""
    if len(rates) < 2 or not (median := statistics.median(rates)):
        return "-"
    return f"{100 * (max(rates) - min(rates)) / median:.0f} %"


def _values(run: RunOutcome) -> list[float | None]:
    """Return the values of a run in the order of RUNS."""
    assert run.result is not None
    summary, epochs = run.result.summary, run.result.epochs
    assert summary is not None
    times = [sum(getattr(epoch, name) for epoch in epochs) for name in ("wait_s", "compute_s", "sync_s")]
    busy = summary.au if summary.compute_asked_s else None
    return [summary.samples_per_s, summary.read_MBps, busy, summary.wall_s, *times, _from_storage(run)]


def _checkpoint_values(run: RunOutcome) -> list[float | None]:
    """Return the values of a run in the order of CHECKPOINT_RUNS."""
    assert run.result is not None
    assert run.result.summary is not None
    saved, restored = run.result.summary.checkpoint, run.result.summary.restored
    written = None if saved is None else saved.write_MBps
    return [written, None if restored is None else restored.read_MBps, _from_storage(run)]


def _inference_values(run: RunOutcome) -> list[float | None]:
    """Return the values of a run in the order of inference_rows.RUNS."""
    assert run.result is not None
    assert run.result.summary is not None
    known = metrics.values(run.result.summary)
    names: tuple[MetricName, ...] = ("ttft_p50_s", "ttft_p99_s", "kv_read_MBps", "kv_write_MBps", "late_share")
    return [*(known.get(name) for name in names), _from_storage(run)]


def _from_storage(run: RunOutcome) -> float | None:
    return None if run.storage is None or run.storage.cached is None else 1 - run.storage.cached


def _formatted(values: Sequence[float | None], header: Sequence[str]) -> list[str]:
    cells = []
    for value, column in zip(values, header[1:], strict=True):
        if column in ("AU", "late", "storage"):
            cells.append(share(value))
        else:
            cells.append("-" if value is None else rate(value) if "/s" in column else f"{value:.3f}")
    return cells


def of_median(runs: Sequence[RunOutcome]) -> RunOutcome:
    """Return the measured run with the median of the main rate. If the number of runs is even, return the run with the
    lower of the two middle rates.
    """
    measured = [(known[1], run) for run in runs if run.run.kind == "measure" and (known := main_rate(run)) is not None]
    ordered = sorted(measured, key=lambda pair: pair[0])
    return ordered[(len(ordered) - 1) // 2][1]


def au(summary: Summary) -> str:
    """Return the AU as a percentage, or "-" if it is not known or the workload has no computation."""
    return share(summary.au if summary.compute_asked_s else None)


def _epoch(epoch: Epoch, summary: Summary) -> list[str]:
    busy = epoch.compute_s + epoch.wait_s if summary.compute_asked_s else 0.0
    return [
        str(epoch.epoch),
        str(epoch.samples),
        f"{epoch.samples / epoch.wall_s:.1f}",
        f"{epoch.bytes_read / epoch.wall_s / 1e6:.1f}",
        share(epoch.compute_s / busy if busy else None),
        *(f"{value:.3f}" for value in (epoch.wall_s, epoch.wait_s, epoch.compute_s, epoch.sync_s)),
    ]


def checkpoints(summary: Summary) -> list[list[str]]:
    """Return a row for the checkpoints that were written, and one for those that were read (header: CHECKPOINTS)."""
    rows = []
    if (saved := summary.checkpoint) is not None:
        rows.append(["written", *_transfers(saved.count, saved.bytes_written, saved.write_MBps, saved.safe_s)])
    if (restored := summary.restored) is not None:
        rows.append(["read", *_transfers(restored.count, restored.bytes_read, restored.read_MBps, restored.slowest_s)])
    return rows


def _transfers(count: int, size: int, rate: float, times: Distribution | None) -> list[str]:
    seconds = ["-", "-"] if times is None else [f"{times.p50:.3f}", f"{times.max:.3f}"]
    return [str(count), format_size(size), f"{rate:.1f}", *seconds]


def takes(run: RunOutcome, summary: Summary) -> list[list[str]]:
    """Return a row of latencies for each kind of operation (header: TAKES)."""
    compute = (f"compute (asked {format_seconds(summary.compute_asked_s)})", summary.compute_s)
    rows: list[tuple[str, Distribution | None]] = [
        ("wait for the batch", summary.wait_s),
        compute,
        ("sync of the ranks", summary.sync_s),
        (_read(run.run.workload), summary.read_latency_s),
        ("open of a file", summary.open_latency_s),
        ("close of a file", summary.close_latency_s),
    ]
    if run.run.workload.metadata is not None:
        rows = [(phase.phase, phase.latency_s) for phase in summary.metadata]
    if summary.inference is not None:
        rows = inference_rows.takes(summary.inference)
    if run.run.workload.only_writes_checkpoints:
        saved, restored = summary.checkpoint, summary.restored
        rows = [
            compute,
            ("write of a rank", None if saved is None else saved.write_s),
            ("fsync of a rank", None if saved is None or not saved.fsync_s.max else saved.fsync_s),
            ("pause for a checkpoint", None if saved is None else saved.pause_s),
            ("open and read of a rank", None if restored is None else restored.read_s),
        ]
    return [
        [name, *map(_seconds, (values.mean, values.p50, values.p95, values.p99, values.p999, values.max))]
        for name, values in rows
        if values is not None
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else format_seconds(value)


def _read(workload: Workload) -> str:
    """Return the name of the operation that is timed as a read. For some formats, this is a call of a library in
    framework mode, which may make several requests. Otherwise, it is a single read request to the operating system.
    """
    facts, reader = workload.dataset.facts, workload.reader
    if reader.mapped:
        return "one copy from a map"
    by_library = reader.mode == "framework" and (not facts.streams or by_streams(workload.dataset, reader))
    return (facts.timed_call if by_library else "") or "one read request"


def facts(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """Return the facts about a run that are not in the tables, each as a pair of label and text."""
    if run.run.workload.only_writes_checkpoints:
        return _facts_of_checkpoints(run, summary)
    if run.run.workload.metadata is not None:
        return _facts_of_metadata(run, summary)
    if run.run.workload.inference is not None:
        return _facts_of_inference(run, summary)
    planned = "as planned" if summary.bytes_read == run.run.bytes else f"{format_size(run.run.bytes)} planned"
    if run.result is not None:
        payload = planned_bytes.payload(run.run.workload, run.result.ranks, run.run.samples)
        planned += (
            f", {run.run.bytes / payload:.3g} x the bytes of the samples"
            if run.run.bytes > planned_bytes.SPARE * payload
            else ""
        )
    read = f"{format_size(summary.bytes_read)} ({planned}) in {summary.reads} requests, {summary.opens} opens"
    if summary.overhead_bytes_read > _MUCH_OVERHEAD * summary.bytes_read:
        read += f"; {format_size(summary.overhead_bytes_read)} were read besides the samples, such as headers"
    slowest = summary.slowest_rank
    return [
        *_left_out(run, summary),
        ("read", read),
        *_page_faults(summary),
        ("I/O time", _io_time(summary)),
        *_metadata(run, summary),
        *_own_cost(summary, run.run.workload),
        *_storage(run),
        *probe_facts(run, summary),
        *_additional(run, summary),
        ("slowest", f"rank {slowest.rank} on {slowest.host}, {slowest.ratio:.3f} x the median rank"),
        *spread_reasons.facts(None if run.result is None else run.result.disturbance),
    ]


def _page_faults(summary: Summary) -> list[tuple[str, str]]:
    """Return the line about samples that were copied from mapped files."""
    if summary.page_faults is None:
        return []
    pages = -(-summary.bytes_read // mmap.PAGESIZE)
    faults = summary.page_faults
    text = (
        f"the samples fill {pages:,} pages of {format_size(mmap.PAGESIZE)}; {faults.major:,} page faults waited for "
        f"storage, {faults.minor:,} did not (a fault can bring several pages); the requests above are those of headers"
    )
    return [("mapped", text)]


# Bytes besides those of samples, as a share of the bytes of samples, from which on a report states them.
_MUCH_OVERHEAD = 0.1
# Share of opens and closes in the time of I/O from which on a report gives advice.
_MUCH_METADATA = 0.2


def _metadata(run: RunOutcome, summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield a fact about the opens and closes of files. It has advice if they take much of the time of I/O and bytes
    came from storage. If files are in memory, the node itself may answer opens, and advice could be wrong.
    """
    if summary.opens_per_s is None:
        return
    rate = f"{summary.opens_per_s:,.0f} opens/s"
    if summary.metadata_fraction is None:
        yield "metadata", f"{rate}; how long an open takes is not known, because a library opens the files"
        return
    share = f"opens and closes take {100 * summary.metadata_fraction:.0f} % of the time in opens, closes and reads"
    advice = ""
    is_much = summary.metadata_fraction >= _MUCH_METADATA
    origin = None if run.storage is None else run.storage.outcome()
    workload = run.run.workload
    if is_much and origin != "storage":
        state = "files were in memory" if origin == "cached" else "it is unknown whether files were in memory"
        advice = f"; {state}, so this may be the time of the node and not of the file system"
    elif is_much and run.storage is not None and run.storage.opens_doubt:
        advice = f"; {run.storage.opens_doubt}"
    elif is_much and workload.dataset.existing is None:
        folders = "" if workload.dataset.subfolders else ", subfolders (dataset.subfolders)"
        advice = (
            f". To reduce it: more samples in a file (dataset.samples_per_file, TFRecord){folders}; on Lustre, "
            "Data-on-MDT for small files, or more MDTs (site.layout)"
        )
    elif is_much:
        advice = ". To reduce it: larger files with more samples, such as TFRecord files or tar shards"
    yield "metadata", f"{share}; {rate}{advice}"


def phases(run: RunOutcome, summary: Summary) -> list[list[str]]:
    """Return a row per phase of a metadata workload (header: PHASES)."""
    rows = []
    for phase in summary.metadata:
        slowest = f"{phase.slowest_rank.rank} on {phase.slowest_rank.host}, {phase.slowest_rank.ratio:.2f} x"
        rows.append(
            [
                phase.phase,
                f"{phase.operations:,}",
                f"{phase.per_s:,.0f}",
                f"{phase.per_s_of_first:,.0f}",
                _spread(phase.rates),
                slowest,
            ]
        )
    return rows


def cut_phases(run: RunOutcome, summary: Summary) -> dict[Phase, tuple[int, int]]:
    """Return the phases of a metadata workload that the time limit ended, each with the number of operations and the
    number that was planned.
    """
    keys = run.run.workload.metadata
    if keys is None or run.result is None:
        return {}
    of_rank = {phase: keys.leaves if phase == "readdir" else keys.files for phase in keys.order}
    planned = {one.phase: of_rank[one.phase] * run.result.ranks * len(one.rates) for one in summary.metadata}
    made = {one.phase: one.operations for one in summary.metadata}
    return {phase: (count, planned[phase]) for phase, count in made.items() if count < planned[phase]}


def _facts_of_metadata(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """Return the facts about a run of a metadata workload."""
    cut = [f"{phase}: {count:,} of {most:,}" for phase, (count, most) in cut_phases(run, summary).items()]
    return [
        *([("limit", f"metadata.time_limit left operations out: {', '.join(cut)}")] if cut else []),
        *_short_phases(run.run.workload, summary),
        *_own_cost(summary, run.run.workload),
        *_storage(run),
        *spread_reasons.facts(None if run.result is None else run.result.disturbance),
    ]


def _facts_of_inference(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """Return the facts about a run of an inference workload."""
    keys = run.run.workload.inference
    return [
        *(inference_rows.facts(keys, summary.inference) if keys is not None and summary.inference is not None else ()),
        *_storage(run),
        *spread_reasons.facts(None if run.result is None else run.result.disturbance),
    ]


# Seconds below which the rate of a phase is uncertain, because ranks start a phase within some milliseconds.
_SHORT_S = 0.1


def _short_phases(workload: Workload, summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield a fact if phases of a metadata workload were so short that the start of the ranks affects their rates."""
    short = {phase.phase: phase.wall_s for phase in summary.metadata if 0 < phase.wall_s < _SHORT_S}
    if not short or workload.metadata is None:
        return
    shortest = min(short.values())
    names = ", ".join(f"{phase} {format_seconds(wall_s)}" for phase, wall_s in short.items())
    files = math.ceil(workload.metadata.files * _SHORT_S / shortest)
    yield (
        "short",
        f"{names}: ranks start a phase within some milliseconds, so rates of short phases are uncertain; to measure "
        f"longer: -S metadata.files={files}",
    )


def _facts_of_checkpoints(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """Return the facts about a run that only writes checkpoints."""
    unread = [] if summary.restored else [("restored", "not measured: checkpoint.reads is 0")]
    return [
        ("samples", "not measured: the workload has no dataset, so it has no samples/s and no AU"),
        *_storage(run),
        *_additional(run, summary),
        *unread,
        *spread_reasons.facts(None if run.result is None else run.result.disturbance),
    ]


def main_rate(run: RunOutcome) -> tuple[str, float] | None:
    """Return the rate by which the repeats of a run are compared, and its name: samples/s, or the rate of writing
    checkpoints or of reading blocks of KV caches if there are no samples. Return None if it was not measured.
    """
    summary = None if run.result is None else run.result.summary
    if summary is None:
        return None
    if run.run.workload.metadata is not None:
        return (f"{summary.metadata[0].phase}/s", summary.metadata[0].per_s) if summary.metadata else None
    if run.run.workload.inference is not None:
        return _rate_of_blocks(summary)
    if not run.run.workload.only_writes_checkpoints:
        return None if summary.samples_per_s is None else ("samples/s", summary.samples_per_s)
    return None if summary.checkpoint is None else ("checkpoint MB/s", summary.checkpoint.write_MBps)


def _rate_of_blocks(summary: Summary) -> tuple[str, float] | None:
    """Return the rate of reading blocks of KV caches, or of writing them if none was read, and its name."""
    served = summary.inference
    if served is None:
        return None
    rates = (("KV read MB/s", served.read_MBps), ("KV write MB/s", served.write_MBps))
    return next(((name, rate) for name, rate in rates if rate is not None), None)


def by_point(runs: Iterable[RunOutcome]) -> dict[int | None, list[Repeat]]:
    """Return the repeats of each point of the study as a dict. Each key is the number of a point, or None for runs that
    measure no point. Each repeat is given as the main rate of one measured run.
    """
    points: dict[int | None, list[Repeat]] = {}
    for run in runs:
        if run.result is not None and run.run.kind == "measure" and (known := main_rate(run)) is not None:
            points.setdefault(run.run.point, []).append(Repeat(run.name, known[1], run.result.disturbance))
    return points


def noun(runs: Iterable[RunOutcome]) -> str:
    """Return the name of the main rate of runs, such as "samples/s"."""
    return next((known[0] for run in runs if (known := main_rate(run)) is not None), "samples/s")


def repeats(outcome: JobOutcome, said: str = "") -> list[str]:
    """Return a line, with possible reasons, for each point if its repeats differ by more than disturbances.LARGE. said:
    text that stands above these lines; points are left out if this text has their reasons.
    """
    lines = []
    for number, runs in by_point(outcome.runs).items():
        differ = spread_reasons.spread([repeat.value for repeat in runs])
        if differ > spread_reasons.LARGE and (why := "; ".join(spread_reasons.explained(runs))) not in said:
            of_point = f" of {outcome.plan.titles[number]}" if number in outcome.plan.titles else ""
            lines.append(f"{noun(outcome.runs)}{of_point} differ by {100 * differ:.0f} % between repeats: {why}")
    return lines


def _left_out(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    if not summary.samples_left_out:
        return []
    work = run.run.workload
    why = "train.steps" if work.train.steps else "reader.drop_last"
    return [("left out", f"{summary.samples_left_out // work.train.epochs} samples per epoch ({why})")]


def _io_time(summary: Summary) -> str:
    if summary.io_time_s is None:
        return "unknown: TensorFlow does not report read times"
    return f"{format_seconds(summary.io_time_s)} per rank, {share(summary.io_hidden_fraction)} hidden by compute"


def _own_cost(summary: Summary, work: Workload) -> list[tuple[str, str]]:
    """Return the share of the time that dlio-hpc itself takes, as a list with a pair of label and text. The list is
    empty if the share is small.
    """
    apart_s = summary.checkpoint.own_s if summary.checkpoint else 0.0  # in no other time of the run
    own = ((summary.overhead_s or 0.0) - apart_s) / summary.wall_s
    if own < _NOTABLE:
        return []
    text = f"{share(own)} of the time is the cost of dlio-hpc itself"
    if own > _LIMITING:
        longer = "longer epochs (the page cache is dropped before each), " if work.reader.drop_cache else ""
        remedy = f"it limits the rates; use {longer}larger batches or larger samples, or more ranks"
        text += f": {remedy if work.metadata is None else 'operations here take only microseconds'}"
    return [("own cost", text)]


def _storage(run: RunOutcome) -> list[tuple[str, str]]:
    """Return facts, each as a pair of label and text. The first fact says whether the bytes came from storage or
    memory. Remarks on evaluation passes and checkpoints follow, and then advice on how to read from storage, if there
    is any.
    """
    storage = run.storage
    if storage is None or not storage.epochs:
        return []
    return [
        ("storage", storage.text()),
        *(("", remark) for remark in storage.remarks),
        *[("", f"to read from storage: {' or '.join(storage.advice)}")] * bool(storage.advice),
    ]


def _additional(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """Return facts about checkpoints, auxiliary files, verification and preprocessing, each as a pair of label and
    text. Features that the run does not use are left out.
    """
    lines = []
    checkpoint = run.run.workload.checkpoint
    through = _LIBRARIES[checkpoint.mode if checkpoint else "posix"]
    if (saved := summary.checkpoint) is not None:
        text = (
            f"{saved.count} checkpoints {through}, {format_size(saved.bytes_written)} at {saved.write_MBps:.0f} MB/s; "
            f"training paused for {format_seconds(saved.pause_s.mean)} per checkpoint"
        )
        lines.append(("saved", text))
        is_safe = run.storage is None or run.storage.unwritten is None
        if saved.safe_s is not None and saved.fsync_s.max and is_safe:
            spread = f"after {format_seconds(saved.safe_s.p50)} (median), {format_seconds(saved.safe_s.max)} at most"
            lines.append(("safe", f"{spread}: write and fsync of the slowest rank"))
    if (passes := summary.evaluation) is not None:
        rate = f"{passes.count} passes, {format_size(passes.bytes_read)} at {passes.read_MBps:.0f} MB/s"
        rate += f"; {passes.wall_s:.3f} s, of which {passes.wait_s:.3f} s wait"
        lines.append(("evaluated", rate))
    if (restored := summary.restored) is not None:
        size = format_size(restored.bytes_read)
        rate = f"{restored.count} checkpoints {through}, {size} at {restored.read_MBps:.0f} MB/s"
        slowest = f"slowest rank {format_seconds(restored.slowest_s.p50)} (median)"
        gap = f"first read {format_seconds(restored.gap_s)} after the last write"
        lines.append(("restored", f"{rate}; {slowest}; {gap}"))
    if (side := summary.auxiliary_files) is not None:
        text = (
            f"{side.reads} reads ({format_size(side.bytes_read)}), {side.writes} writes "
            f"({format_size(side.bytes_written)}) of auxiliary files, {format_seconds(side.time_s)} per rank"
        )
        lines.append(("auxiliary", text))
    if summary.verify_s and run.run.workload.reader.verify_content == "all":
        text = (
            f"{summary.samples_verified} samples are as generated; the check took {format_seconds(summary.verify_s)} "
            "per rank (included in wall and samples/s, but not in wait)"
        )
        lines.append(("verified", text))
    if summary.preprocess_s:
        reader = run.run.workload.reader
        is_decoded = reader.mode == "framework" and run.run.workload.dataset.facts.holds_image
        where = "decoding images and in preprocessing" if is_decoded else "in preprocessing threads"
        lines.append(("prepared", f"{format_seconds(summary.preprocess_s)} per rank {where}"))
    return lines


def darshan(outcome: JobOutcome, run: RunOutcome) -> list[str]:
    """Return lines about Darshan's log of a run. The first line states the bytes that Darshan counted, and whether
    dlio-hpc counted the same number of bytes. Each fault of the log has a line. If there is no log, the only line
    states the reason.
    """
    if (why := without_log(outcome, run)) is not None:
        return [f"no log: {why}" if run.verdict or not run.run.darshan else f"unknown: {why}"]
    assert run.verdict is not None
    lines = []
    if (counts := run.verdict.bytes) is not None and not run.verdict.differences:
        own, core = format_size(counts.darshan), format_size(counts.core)
        agreed = "in agreement with dlio-hpc" if own == core else f"{core} by dlio-hpc"
        agreed += " and the plan" if counts.planned == counts.darshan else ""
        clock = run.verdict.clock_error_s
        aligned = "" if clock is None else f"; clocks within {format_seconds(clock)}"
        workers = f"; with {run.verdict.workers} logs of worker processes" if run.verdict.workers else ""
        lines.append(f"{own}, {agreed}{aligned}{workers}")
    return [*lines, *(f"{fault.name}: {fault.text}" for fault in run.verdict.faults)]


def invalid(run: RunOutcome) -> list[str]:
    """Return the faults for which the run is invalid."""
    return [*(run.result.faults if run.result else ()), *(run.verdict.differences if run.verdict else ())]


def cut_short(outcome: JobOutcome) -> tuple[str, list[str]] | None:
    """Return a title and the last lines of output of a job that ended before every run had a result. Return None for
    other jobs.
    """
    if not is_cut_short(outcome):
        return None
    names = [run.name for run in outcome.runs if run.result is None]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    if outcome.tail is None:
        return f"No result of {listed}", [f"{rundir.STDERR} and {rundir.STDOUT} are empty or missing"]
    return f"No result of {listed}; the last lines of {outcome.tail.file}", list(outcome.tail.lines)


def rate(value: float | None) -> str:
    """Return a rate with one digit after the point, or "-" if it is None."""
    return "-" if value is None else f"{value:.1f}"


def share(value: float | None) -> str:
    """Return a share as a percentage, or "-" if it is None."""
    return "-" if value is None else f"{100 * value:.1f} %"


def probe_facts(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """Return facts on the probe: the rate of the run as a share of the rate of the probe, and the rates of the probe.
    Without a probe, the list is empty.
    """
    probe = run.probe
    if probe is None:
        return []
    if probe.why_not is not None:
        return [("probe", f"not measured: {probe.why_not}")]
    compared = [] if run.result is None else [_compared(run, run.result, summary, probe)]
    lines = [*compared, *(_rate(rate, probe) for rate in probe.rates)]
    return [("probe" if not place else "", line) for place, line in enumerate(lines)]


def _compared(run: RunOutcome, result: Result, summary: Summary, probe: StorageProbe) -> str:
    """Return a sentence that compares the rate of the run with the rate of the probe, a plain loop of the same
    ranks.
    """
    if run.storage is None or run.storage.outcome() != "storage" or summary.read_MBps is None:
        return "not compared with the run, which did not provably read from storage"
    rate = _reference(probe.rates, _pattern(run.run.workload))
    if not rate.MBps:
        return "not compared with the run: the plain loop read nothing"
    before = format_seconds(units.seconds_between(probe.ended, result.started))
    text = (
        f"{summary.read_MBps:.0f} MB/s are {100 * summary.read_MBps / rate.MBps:.0f} % of what a plain loop got from "
        f"the same files {before} before ({rate.pattern})"
    )
    if summary.au is not None and summary.au > _COMPUTING:
        text += f"; computation (AU {100 * summary.au:.0f} %) limits the rate of the run"
    return text


def _pattern(workload: Workload) -> Pattern:
    """Return the pattern of the probe that is nearest to the pattern of the workload."""
    return "random" if workload.reader.shuffle.samples and workload.dataset.samples_per_file > 1 else "sequential"


def _reference(rates: list[ProbeRate], pattern: Pattern) -> ProbeRate:
    return next(rate for rate in rates if rate.pattern == pattern and rate.tool == "loop")


def _rate(rate: ProbeRate, probe: StorageProbe) -> str:
    tool = "plain loop" if rate.tool == "loop" else rate.tool
    size = format_size(rate.request_bytes)
    return f"{tool}, {rate.pattern}: {rate.MBps:.0f} MB/s, requests of {size}, {probe.threads} threads, O_DIRECT"
