"""The figures of a run that verdicts are about: what each is called, its unit, and which way is better."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from dlio_hpc.results import Distribution, Summary


class Metric(NamedTuple):
    """label: for people, with its unit. higher: more of it is better. is_share: of 1, shown in percent."""

    label: str
    unit: str
    higher: bool
    of: Callable[[Summary], float | None]
    is_share: bool = False


def _p99(found: Distribution | None) -> float | None:
    return None if found is None else found.p99


def _synced(one: Summary, rate: Literal["write_MBps", "read_MBps"]) -> float | None:
    """Of checkpoints that were brought to storage (checkpoint.fsync); others are written to memory, and read there."""
    saved = one.checkpoint
    return None if saved is None or saved.fsync_s.max == 0 else getattr(saved, rate)


METRICS: dict[str, Metric] = {
    "samples_per_s": Metric("samples/s", "1/s", True, lambda one: one.samples_per_s),
    "read_MBps": Metric("read bandwidth", "MB/s", True, lambda one: one.read_MBps),
    "au": Metric("AU", "", True, lambda one: one.au, is_share=True),
    "au_mlperf": Metric("AU by MLPerf's formula", "", True, lambda one: one.au_mlperf, is_share=True),
    "wall_s": Metric("time", "s", False, lambda one: one.wall_s),
    "io_time_s": Metric("I/O time", "s", False, lambda one: one.io_time_s),
    "wait_p99_s": Metric("p99 of the wait for a batch", "s", False, lambda one: one.wait_s.p99),
    "read_p99_s": Metric("p99 of a read", "s", False, lambda one: _p99(one.read_latency_s)),
    "slowest_rank_ratio": Metric("slowest rank over the median rank", "", False, lambda one: one.slowest_rank.ratio),
    "checkpoint_write_MBps": Metric("checkpoint write bandwidth", "MB/s", True, lambda one: _synced(one, "write_MBps")),
    "checkpoint_read_MBps": Metric("checkpoint read bandwidth", "MB/s", True, lambda one: _synced(one, "read_MBps")),
}


def figures(summary: Summary) -> dict[str, float]:
    """Those that the run has."""
    found = {name: metric.of(summary) for name, metric in METRICS.items()}
    return {name: value for name, value in found.items() if value is not None}
