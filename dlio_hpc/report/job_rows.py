"""What a job measured, as rows of text: the terminal and the page show the same."""

from collections.abc import Iterable

from dlio_hpc.analysis.study import disturbances
from dlio_hpc.analysis.study.disturbances import Repeat
from dlio_hpc.config.workload import Workload
from dlio_hpc.files import rundir
from dlio_hpc.lustre.layout_record import Record, describe
from dlio_hpc.plan import planned_bytes
from dlio_hpc.plan.plan import Plan
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome, is_cut_short, without_log
from dlio_hpc.results import Distribution, Epoch, Generated, Result, Summary
from dlio_hpc.units import format_seconds, format_size

EPOCHS = ("epoch", "samples", "samples/s", "MB/s", "AU", "wall s", "wait s", "compute s", "sync s")
TAKES = ("latency per operation", "mean", "p50", "p95", "p99", "max")
LEGEND = "AU = compute / (compute + wait). Wait, compute, sync: mean over ranks."
# Runs that one line names.
_NAMED = 3


def workload(outcome: JobOutcome) -> str:
    """What was run, in three lines, and one more where runs differ in it."""
    plan = outcome.plan
    work = plan.runs[0].workload
    dataset, reader = work.dataset, work.reader
    size = "no data" if dataset.format == "null" else format_size(dataset.size)
    return (
        f"{work.name}: {dataset.format}, {dataset.files} files x {dataset.samples_per_file} samples of "
        f"{format_size(dataset.sample_bytes)} ({size})\n"
        f"{plan.nodes} node(s) x {plan.ranks_per_node} ranks, "
        f"batch {reader.batch_size}, {reader.read_threads} reader thread(s), {work.train.epochs} epoch(s)\n"
        f"{reader.loader} loader, {', '.join(_ways(work))}" + _several(plan)
    )


def _several(plan: Plan) -> str:
    if len(plan.titles) < 2:
        return ""
    return f"\nthat is the first of {len(plan.titles)} points of the study {plan.study}: dlio-hpc report {plan.study}"


def title(outcome: JobOutcome, run: RunOutcome) -> str:
    """Which point of its study a run measures, in words; nothing where there is nothing to compare."""
    return "" if run.run.point is None else outcome.plan.titles.get(run.run.point, "")


def _ways(workload: Workload) -> list[str]:
    """How the samples lie in their files and come from there, as far as it is not the usual."""
    dataset, reader = workload.dataset, workload.reader
    chunk = dataset.chunk_shape if dataset.is_chunked else None
    level = "" if dataset.level is None else f" {dataset.level}"
    told = (
        (True, f"{reader.mode} mode"),
        (dataset.file_access == "shared", "shared file"),
        (reader.access == "collective", "collective"),
        (reader.load == "memory", "in memory"),
        (reader.direct, "direct"),
        (reader.drop_cache, "cache dropped"),
        (chunk is not None, f"chunks of {'x'.join(map(str, chunk or ()))}"),
        (dataset.compression != "none", f"{dataset.compression}{level}"),
    )
    return [words for holds, words in told if holds]


def layout(found: Record) -> str | None:
    """Of a dataset on Lustre, or where one was asked for."""
    return describe(found) if found.file_system.is_lustre or found.asked else None


def generated(found: Generated) -> str:
    """What a run wrote, in a line."""
    if found.reused or found.write_MBps is None:
        return f"found whole in {found.dataset}; nothing written"
    return (
        f"{found.files} files, {format_size(found.bytes_written)} in {found.wall_s:.2f} s "
        f"({found.write_MBps:.0f} MB/s, fsync included)"
    )


def epochs(result: Result, summary: Summary) -> list[list[str]]:
    """A row each, and the last of all together."""
    total = [sum(getattr(epoch, name) for epoch in result.epochs) for name in ("wait_s", "compute_s", "sync_s")]
    together = [
        "all",
        str(summary.samples),
        f"{summary.samples_per_s:.1f}",
        f"{summary.read_MBps:.1f}",
        share(summary.au),
        f"{summary.wall_s:.3f}",
        *(f"{value:.3f}" for value in total),
    ]
    return [*map(_epoch, result.epochs), together]


def _epoch(epoch: Epoch) -> list[str]:
    busy = epoch.compute_s + epoch.wait_s
    return [
        str(epoch.epoch),
        str(epoch.samples),
        f"{epoch.samples / epoch.wall_s:.1f}",
        f"{epoch.bytes_read / epoch.wall_s / 1e6:.1f}",
        share(epoch.compute_s / busy if busy else None),
        *(f"{value:.3f}" for value in (epoch.wall_s, epoch.wait_s, epoch.compute_s, epoch.sync_s)),
    ]


def takes(run: RunOutcome, summary: Summary) -> list[list[str]]:
    """How long one of each takes."""
    found: list[tuple[str, Distribution | None]] = [
        ("wait for the batch", summary.wait_s),
        (f"compute (asked {format_seconds(summary.compute_asked_s)})", summary.compute_s),
        ("sync of the ranks", summary.sync_s),
        (_read(run.run.workload), summary.read_latency_s),
    ]
    return [
        [name, *map(format_seconds, (values.mean, values.p50, values.p95, values.p99, values.max))]
        for name, values in found
        if values is not None
    ]


def _read(workload: Workload) -> str:
    """What was timed: requests to the system, or the library's calls that make them."""
    by_library = workload.dataset.format == "hdf5" and workload.reader.mode == "framework"
    return "one read by h5py" if by_library else "one read request"


def facts(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """What else there is to say: label and text."""
    planned = "as planned" if summary.bytes_read == run.run.bytes else f"{format_size(run.run.bytes)} planned"
    if run.result is not None:
        wanted = planned_bytes.payload(run.run.workload, run.result.ranks, run.run.samples)
        planned += (
            f", {run.run.bytes / wanted:.3g} x the samples" if run.run.bytes > planned_bytes.SPARE * wanted else ""
        )
    read = f"{format_size(summary.bytes_read)} ({planned}) in {summary.reads} requests, {summary.opens} opens"
    slowest = summary.slowest_rank
    return [
        *_left_out(run, summary),
        ("read", read),
        ("I/O time", _io_time(summary)),
        *_storage(run),
        *_beside(run, summary),
        ("slowest", f"rank {slowest.rank} on {slowest.host}, {slowest.ratio:.3f} x the median rank"),
        *disturbances.facts(None if run.result is None else run.result.disturbance),
    ]


def by_point(runs: Iterable[RunOutcome]) -> dict[int | None, list[Repeat]]:
    """The repeats of each measurement, by their samples/s; the key is the point of the study, None without one."""
    points: dict[int | None, list[Repeat]] = {}
    for run in runs:
        if run.result is not None and run.result.summary is not None and run.run.kind == "measure":
            rate = run.result.summary.samples_per_s
            points.setdefault(run.run.point, []).append(Repeat(run.name, rate, run.result.disturbance))
    return points


def repeats(outcome: JobOutcome) -> list[str]:
    """Reasons why repeats differ: a line for each point whose repeats differ by more than disturbances.LARGE."""
    lines = []
    for number, some in by_point(outcome.runs).items():
        differ = disturbances.spread([repeat.value for repeat in some])
        if differ > disturbances.LARGE:
            of = f" of {outcome.plan.titles[number]}" if number in outcome.plan.titles else ""
            why = "; ".join(disturbances.explained(some))
            lines.append(f"samples/s{of} differ by {100 * differ:.0f} % between repeats: {why}")
    return lines


def _left_out(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    if not summary.samples_left_out:
        return []
    work = run.run.workload
    why = "train.steps" if work.train.steps else "reader.drop_last"
    return [("left out", f"{summary.samples_left_out // work.train.epochs} samples an epoch ({why})")]


def _io_time(summary: Summary) -> str:
    if summary.io_time_s is None:
        return "unknown: TensorFlow does not tell when it reads"
    return f"{format_seconds(summary.io_time_s)} a rank, {share(summary.io_hidden_fraction)} hidden by compute"


def _storage(run: RunOutcome) -> list[tuple[str, str]]:
    """Was it the storage, and if not, what would make it so."""
    found = run.storage
    if found is None or not found.epochs:
        return []
    return [("storage", found.words()), *[("", f"instead: {' or '.join(found.advice)}")] * bool(found.advice)]


def _beside(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """Label and text for checkpoints, auxiliary files, comparing and preprocessing, as far as the run had them."""
    told = []
    if (saved := summary.checkpoint) is not None:
        text = (
            f"{saved.count} checkpoints, {format_size(saved.bytes_written)} at {saved.write_MBps:.0f} MB/s; "
            f"training stood still {format_seconds(saved.pause_s.mean)} each"
        )
        told.append(("saved", text))
    if (side := summary.auxiliary_files) is not None:
        text = (
            f"{side.reads} reads ({format_size(side.bytes_read)}), {side.writes} writes "
            f"({format_size(side.bytes_written)}) of auxiliary files, {format_seconds(side.time_s)} a rank"
        )
        told.append(("beside", text))
    if summary.verify_s and run.run.workload.reader.verify_content == "all":
        text = (
            f"{summary.samples_verified} samples as generated, {format_seconds(summary.verify_s)} a rank, included in "
            "wall and samples/s, not in wait"
        )
        told.append(("compared", text))
    if summary.preprocess_s:
        told.append(("prepared", f"{format_seconds(summary.preprocess_s)} of preprocessing threads' time a rank"))
    return told


def darshan(outcome: JobOutcome, run: RunOutcome) -> list[str]:
    """What Darshan says of the same bytes, in a line, and what is wrong with its log."""
    if (why := without_log(outcome, run)) is not None:
        return [f"no log: {why}" if run.verdict or not run.run.darshan else f"unknown: {why}"]
    assert run.verdict is not None
    lines = []
    if (seen := run.verdict.bytes) is not None and not run.verdict.differences:
        own, core = format_size(seen.darshan), format_size(seen.core)
        agreed = "as the core" if own == core else f"{core} by the core"
        agreed += " and the plan" if seen.planned == seen.darshan else ""
        clock = run.verdict.clock_error_s
        aligned = "" if clock is None else f"; clocks within {format_seconds(clock)}"
        lines.append(f"{own}, {agreed}{aligned}")
    return [*lines, *(f"{fault.name}: {fault.text}" for fault in run.verdict.faults)]


def invalid(run: RunOutcome) -> list[str]:
    """Each makes the run invalid."""
    return [*(run.result.faults if run.result else ()), *(run.verdict.differences if run.verdict else ())]


def cut_short(outcome: JobOutcome) -> tuple[str, list[str]] | None:
    """Title and last lines printed of a job that ended with runs without a result; None where every run has one."""
    if not is_cut_short(outcome):
        return None
    names = [run.name for run in outcome.runs if run.result is None]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    if outcome.tail is None:
        return f"No result of {listed}", [f"{rundir.STDERR} and {rundir.STDOUT} are empty or missing"]
    return f"No result of {listed}; the last lines of {outcome.tail.file}", list(outcome.tail.lines)


def share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
