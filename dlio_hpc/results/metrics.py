"""Metrics of a run: a table of their names, units, directions, formulas and sources.

Studies, criteria, the history, comparisons, reports and the reference pages use this table. To add a metric that is
computed from the summary in result.json, add a row to METRICS, and add the name of the metric to MetricName. The name
is then also a value of --metric.
"""

from collections.abc import Callable, Container
from typing import Literal, NamedTuple, cast

from dlio_hpc.base.units import format_seconds
from dlio_hpc.results.phases import PHASES, Phase
from dlio_hpc.results.run_result import InferenceSummary, Summary

MetricName = Literal[
    "samples_per_s", "read_MBps", "au", "au_mlperf", "wall_s", "io_time_s", "wait_p99_s", "read_p99_s",
    "opens_per_s", "open_p99_s", "metadata_fraction", "slowest_rank_ratio", "checkpoint_write_MBps",
    "checkpoint_read_MBps", "checkpoint_safe_s", "restore_s", "restore_gap_s", "mkdir_per_s", "create_per_s",
    "write_per_s", "stat_per_s", "readdir_per_s", "open_read_close_per_s", "rename_per_s", "unlink_per_s",
    "rmdir_per_s", "common_samples_per_s",
    "kv_read_MBps", "kv_write_MBps", "kv_tokens_per_s", "kv_read_p99_s", "kv_write_p99_s", "ttft_p50_s",
    "ttft_p95_s", "ttft_p99_s", "ttft_load_share", "kv_hit_share", "late_share", "users_in_time",
]  # fmt: skip
# Metrics of opens and closes of sample files.
OF_OPENS: frozenset[MetricName] = frozenset({"opens_per_s", "open_p99_s", "metadata_fraction"})
# Unit "share": a number from 0 to 1, printed in percent. Unit "x": a ratio.
Unit = Literal["1/s", "MB/s", "s", "share", "x", ""]


class Metric(NamedTuple):
    """A metric of a run. noun: name of the metric within a sentence. source: how the metric is measured. absent: reason
    why some runs do not have the metric, or have the value 0; empty if every run has it. value: function that computes
    the metric from a summary, and returns None if the run does not have it.
    """

    noun: str
    unit: Unit
    is_higher_better: bool
    formula: str
    source: str
    absent: str
    value: Callable[[Summary], float | None]

    @property
    def scale(self) -> float:
        """Factor that converts a value to the number shown on the axis of a plot."""
        return 100.0 if self.unit == "share" else 1.0

    @property
    def axis(self) -> str:
        """Label of the axis of a plot, such as "read bandwidth (MB/s)"."""
        unit = {"share": "%", "1/s": "", "x": ""}.get(self.unit, self.unit)
        return f"{self.noun} ({unit})" if unit else self.noun

    @property
    def sign(self) -> int:
        """1 if higher values are better, otherwise -1. Used as an exponent: value ** sign is higher for the better of
        two values.
        """
        return 1 if self.is_higher_better else -1


def _synced(summary: Summary, rate: Literal["write_MBps", "read_MBps"]) -> float | None:
    """Return a rate of the run's checkpoints. Return None if there are no checkpoints, or if fsync was not called for
    them (checkpoint.fsync): their data may then still be in memory.
    """
    checkpoint = summary.checkpoint
    return None if checkpoint is None or checkpoint.fsync_s.max == 0 else getattr(checkpoint, rate)


def _safe(summary: Summary) -> float | None:
    """Return the median time until a checkpoint is safe. Return None if it is unknown."""
    checkpoint = summary.checkpoint
    if checkpoint is None or checkpoint.safe_s is None or checkpoint.fsync_s.max == 0:
        return None
    return checkpoint.safe_s.p50


def _rate(phase: Phase) -> Metric:
    """Return the metric of a phase of a metadata workload."""

    def value(summary: Summary) -> float | None:
        return next((one.per_s for one in summary.metadata if one.phase == phase), None)

    return Metric(
        f"{phase}/s", "1/s", True,
        "operations of all ranks / time from the first start to the last end, median over repeats",
        "timestamps of each rank", "the workload has no such phase", value,
    )  # fmt: skip


def _served(value: Callable[[InferenceSummary], float | None]) -> Callable[[Summary], float | None]:
    """Return a function that computes a metric from the requests of an inference workload."""
    return lambda summary: None if summary.inference is None else value(summary.inference)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


_NOT_INFERENCE = "the workload has no inference"
_NOT_SERVED = f"{_NOT_INFERENCE}, or so many requests were not served that this is the time of one of them"


METRICS: dict[MetricName, Metric] = {
    "samples_per_s": Metric(
        "samples/s", "1/s", True, "samples / wall_s", "ranks count samples as batches arrive",
        "the workload reads no samples",
        lambda summary: summary.samples_per_s,
    ),
    "read_MBps": Metric(
        "read bandwidth", "MB/s", True, "bytes_read / wall_s / 1e6", "ranks count bytes as samples arrive",
        "format null reads nothing; the workload only writes checkpoints", lambda summary: summary.read_MBps,
    ),
    "au": Metric(
        "AU", "share", True, "compute / (compute + wait), over all steps and ranks", "timestamps of each step",
        "a run without computation and wait; the workload only writes checkpoints", lambda summary: summary.au,
    ),
    "au_mlperf": Metric(
        "AU by MLPerf's formula", "share", True,
        "requested computation / running time, without the first step of each epoch", "timestamps of each step",
        "epochs of one step; the workload only writes checkpoints", lambda summary: summary.au_mlperf,
    ),
    "wall_s": Metric(
        "time", "s", False,
        "end of the last step - start of the first wait - evaluation passes in between, with their preparation",
        "timestamps of each step", "",
        lambda summary: summary.wall_s,
    ),
    "io_time_s": Metric(
        "I/O time", "s", False, "time with at least one read in flight, mean over ranks", "timestamps of each read",
        "TensorFlow does not report its reads; the workload only writes checkpoints",
        lambda summary: summary.io_time_s,
    ),
    "wait_p99_s": Metric(
        "p99 of the wait for a batch", "s", False, "99th percentile over steps and ranks", "timestamps of each step",
        "the workload only writes checkpoints",
        lambda summary: None if summary.samples_per_s is None else summary.wait_s.p99,
    ),
    "read_p99_s": Metric(
        "p99 of a read", "s", False, "99th percentile over requests", "histogram of read latency",
        "reads are not timed",
        lambda summary: None if summary.read_latency_s is None else summary.read_latency_s.p99,
    ),
    "opens_per_s": Metric(
        "opens", "1/s", True, "opens of sample files by all ranks / time", "counted when a file is opened",
        "no file is opened", lambda summary: summary.opens_per_s,
    ),
    "open_p99_s": Metric(
        "p99 of an open", "s", False, "99th percentile over opens of sample files", "histogram of open latency",
        "a library opens the files and does not tell how long it takes",
        lambda summary: None if summary.open_latency_s is None else summary.open_latency_s.p99,
    ),
    "metadata_fraction": Metric(
        "metadata share of I/O", "share", False,
        "seconds in opens and closes / seconds in opens, closes and reads, summed over threads",
        "timestamps of each open, close and read", "opens or reads are not timed",
        lambda summary: summary.metadata_fraction,
    ),
    "slowest_rank_ratio": Metric(
        "slowest rank / median rank", "x", False,
        "(wait + compute) of the slowest rank / (wait + compute) of the median rank", "timestamps of each step", "",
        lambda summary: summary.slowest_rank.ratio,
    ),
    "checkpoint_write_MBps": Metric(
        "checkpoint write bandwidth", "MB/s", True,
        "bytes written / seconds in write and fsync of the slowest rank / 1e6",
        "timestamps of each checkpoint", "there are no checkpoints, or checkpoint.fsync is false",
        lambda summary: _synced(summary, "write_MBps"),
    ),
    "checkpoint_read_MBps": Metric(
        "checkpoint read bandwidth", "MB/s", True, "bytes read / seconds in read of the slowest rank / 1e6",
        "timestamps of each checkpoint",
        "there are no checkpoints, checkpoint.fsync is false, or checkpoint.reads and checkpoint.read_back are not set",
        lambda summary: _synced(summary, "read_MBps") if summary.restored is None else summary.restored.read_MBps,
    ),
    "checkpoint_safe_s": Metric(
        "time until a checkpoint is safe", "s", False, "seconds in write and fsync of the slowest rank, median",
        "timestamps of each checkpoint", "there are no checkpoints, or checkpoint.fsync is false",
        _safe,
    ),
    "restore_s": Metric(
        "time to read a checkpoint", "s", False, "seconds in open and read of the slowest rank, median",
        "timestamps of each checkpoint", "checkpoint.reads is not set",
        lambda summary: None if summary.restored is None else summary.restored.slowest_s.p50,
    ),
    "restore_gap_s": Metric(
        "gap before checkpoints are read", "s", False, "first read - end of the last write",
        "timestamps of each checkpoint", "checkpoint.reads is not set",
        lambda summary: None if summary.restored is None else summary.restored.gap_s,
    ),
    "mkdir_per_s": _rate("mkdir"),
    "create_per_s": _rate("create"),
    "write_per_s": _rate("write"),
    "stat_per_s": _rate("stat"),
    "readdir_per_s": _rate("readdir"),
    "open_read_close_per_s": _rate("open_read_close"),
    "rename_per_s": _rate("rename"),
    "unlink_per_s": _rate("unlink"),
    "rmdir_per_s": _rate("rmdir"),
    "common_samples_per_s": Metric(
        "samples/s in the common time", "1/s", True,
        "samples / seconds of the whole epochs in the time in which all loads of a mix run",
        "timestamps of each step", "the run is not a load of a mix, reads no samples, or made no whole epoch",
        lambda summary: None if summary.mix is None else summary.mix.samples_per_s,
    ),
    "kv_read_MBps": Metric(
        "KV read bandwidth of a rank", "MB/s", True,
        "bytes of blocks read / seconds with at least one read of the rank in flight / 1e6, over all ranks",
        "timestamps of each block", f"{_NOT_INFERENCE}; no block was read", _served(lambda one: one.read_MBps),
    ),
    "kv_write_MBps": Metric(
        "KV write bandwidth of a rank", "MB/s", True,
        "bytes of blocks written / seconds with at least one write of the rank in flight / 1e6, over all ranks",
        "timestamps of each block", f"{_NOT_INFERENCE}; no block was written", _served(lambda one: one.write_MBps),
    ),
    "kv_tokens_per_s": Metric(
        "tokens/s that storage allows a rank", "1/s", True,
        "tokens of blocks read / seconds with at least one read of the rank in flight, over all ranks",
        "timestamps of each block", f"{_NOT_INFERENCE}; no block was read", _served(lambda one: one.tokens_per_s),
    ),
    "kv_read_p99_s": Metric(
        "p99 of reading a block", "s", False, "99th percentile over blocks", "histogram of block latency",
        f"{_NOT_INFERENCE}; no block was read", _served(lambda one: None if one.read_s is None else one.read_s.p99),
    ),
    "kv_write_p99_s": Metric(
        "p99 of writing a block", "s", False, "99th percentile over blocks", "histogram of block latency",
        f"{_NOT_INFERENCE}; no block was written",
        _served(lambda one: None if one.write_s is None else one.write_s.p99),
    ),
    "ttft_p50_s": Metric(
        "median time to the first token", "s", False, "median over all requests", "timestamps of each request",
        _NOT_SERVED, _served(lambda one: one.first_token("p50")),
    ),
    "ttft_p95_s": Metric(
        "p95 of the time to the first token", "s", False, "95th percentile over all requests",
        "timestamps of each request", _NOT_SERVED,
        _served(lambda one: one.first_token("p95")),
    ),
    "ttft_p99_s": Metric(
        "p99 of the time to the first token", "s", False, "99th percentile over all requests",
        "timestamps of each request", _NOT_SERVED,
        _served(lambda one: one.first_token("p99")),
    ),
    "ttft_load_share": Metric(
        "storage share of the time to the first token", "share", False,
        "seconds of reads / seconds to the first token, summed over served requests", "timestamps of each request",
        _NOT_INFERENCE,
        _served(lambda one: _share(one.load_s.mean, one.ttft_s.mean) if one.load_s and one.ttft_s else None),
    ),
    "kv_hit_share": Metric(
        "tokens from storage", "share", True, "tokens read from storage / tokens of histories and prompts",
        "plan of the served requests", _NOT_INFERENCE, _served(lambda one: _share(one.storage_tokens, one.tokens)),
    ),
    "users_in_time": Metric(
        "users in time", "", True,
        "largest number of users whose requests have their first token within inference.target (99 %), are all served, "
        "and do not queue up", "numbers of users that the epochs of a search try",
        f"{_NOT_INFERENCE}; inference.search is not set; fewer than 100 requests were made with this number of users",
        _served(
            lambda one: None
            if one.users_in_time is None or (one.users_in_time and not one.has_enough)
            else float(one.users_in_time)
        ),
    ),
    "late_share": Metric(
        "late requests", "share", False,
        "(requests with a time to the first token above inference.target + requests not served) / requests",
        "timestamps of each request", _NOT_INFERENCE,
        _served(lambda one: _share(one.late + one.requests - one.served, one.requests)),
    ),
}  # fmt: skip


def of_phase(phase: Phase) -> MetricName:
    """Return the metric of a phase of a metadata workload."""
    return cast(MetricName, f"{phase}_per_s")


# Metrics that are shown and compared by default if a run has them, in order of preference.
MAINS: tuple[MetricName, ...] = (
    "samples_per_s", "checkpoint_write_MBps", *map(of_phase, PHASES), "kv_read_MBps", "kv_write_MBps",
)  # fmt: skip
# Phases whose rates mdtest quotes; the rates of others are in the tables of a single job only.
_QUOTED: tuple[Phase, ...] = ("create", "stat", "open_read_close", "unlink")


def main(known: Container[str]) -> MetricName:
    """Return the metric that is shown by default. known: the metrics that some run has."""
    return next((name for name in MAINS if name in known), MAINS[0])


def quoted_phases(known: Container[str]) -> dict[MetricName, str]:
    """Return the metrics of the phases that are shown where several jobs are side by side, with their headings: the
    quoted phases, or if there are none, the first four of the others. known: the metrics that some run has.
    """
    phases = [phase for phase in PHASES if of_phase(phase) in known]
    shown = [phase for phase in phases if phase in _QUOTED] or phases[: len(_QUOTED)]
    return {of_phase(phase): METRICS[of_phase(phase)].noun for phase in shown}


def values(summary: Summary) -> dict[str, float]:
    """Return the values of the metrics that the run has, by name."""
    known = {name: metric.value(summary) for name, metric in METRICS.items()}
    return {name: value for name, value in known.items() if value is not None}


def format_value(value: float, unit: Unit) -> str:
    """Return a value as text with its unit, such as "93.2 %", "1.25 s" or "812.4 MB/s"."""
    if unit == "share":
        return f"{100 * value:.4g} %"
    if unit == "s":
        return format_seconds(value)
    digits = f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{digits} /s" if unit == "1/s" else f"{digits} {unit}".rstrip()
