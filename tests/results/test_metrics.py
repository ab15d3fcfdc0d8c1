"""Values of metrics, and metrics that some runs do not have."""

from types import SimpleNamespace
from typing import Any

import pytest

from dlio_hpc.results import metrics
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.results.phases import PHASES, Phase

# Value of each metric of a run whose fields are all different.
VALUES: dict[MetricName, float] = {
    "samples_per_s": 1.0, "read_MBps": 2.0, "au": 0.3, "au_mlperf": 0.4, "wall_s": 5.0, "io_time_s": 6.0,
    "wait_p99_s": 7.0, "read_p99_s": 8.0, "slowest_rank_ratio": 9.0, "checkpoint_write_MBps": 10.0,
    "checkpoint_read_MBps": 11.0, "checkpoint_safe_s": 12.0, "restore_s": 13.0, "restore_gap_s": 14.0,
    "opens_per_s": 15.0, "open_p99_s": 16.0, "metadata_fraction": 0.17,
    "common_samples_per_s": 18.0,
    **{metrics.of_phase(phase): 20.0 + place for place, phase in enumerate(PHASES)},
    "kv_read_MBps": 30.0, "kv_write_MBps": 31.0, "kv_tokens_per_s": 32.0, "kv_read_p99_s": 33.0, "kv_write_p99_s": 34.0,
    "ttft_p50_s": 35.0, "ttft_p95_s": 36.0, "ttft_p99_s": 37.0, "ttft_load_share": 0.25, "kv_hit_share": 0.3,
    "late_share": 0.45, "users_in_time": 46.0,
}  # fmt: skip


@pytest.mark.parametrize("name", METRICS)
def test_each_metric_is_the_figure_that_it_names(name: MetricName) -> None:
    assert name in VALUES, f"add the value of {name} to VALUES, and to the run what it is computed from"
    seconds = SimpleNamespace(min=90.0, mean=91.0, p50=92.0, p90=93.0, max=94.0)
    other = SimpleNamespace(mean=106.0, p50=107.0, max=108.0)
    run: Any = SimpleNamespace(
        samples_per_s=1.0, read_MBps=2.0, au=0.3, au_mlperf=0.4, wall_s=5.0, io_time_s=6.0,
        wait_s=SimpleNamespace(**vars(seconds), p99=7.0), read_latency_s=SimpleNamespace(**vars(seconds), p99=8.0),
        slowest_rank=SimpleNamespace(ratio=9.0, rank=95),
        checkpoint=SimpleNamespace(
            write_MBps=10.0, read_MBps=96.0, fsync_s=seconds, safe_s=SimpleNamespace(p50=12.0, max=97.0)
        ),
        restored=SimpleNamespace(read_MBps=11.0, slowest_s=SimpleNamespace(p50=13.0, max=98.0), gap_s=14.0),
        opens_per_s=15.0, open_latency_s=SimpleNamespace(**vars(seconds), p99=16.0), metadata_fraction=0.17,
        metadata=[SimpleNamespace(phase=phase, per_s=20.0 + place) for place, phase in enumerate(PHASES)],
        inference=SimpleNamespace(
            read_MBps=30.0, write_MBps=31.0, tokens_per_s=32.0, read_s=SimpleNamespace(**vars(other), p99=33.0),
            write_s=SimpleNamespace(**vars(other), p99=34.0), load_s=SimpleNamespace(mean=2.0, max=104.0),
            ttft_s=SimpleNamespace(mean=8.0, p50=99.0, p95=99.0, p99=99.0, max=105.0), storage_tokens=3, tokens=10,
            first_token={"p50": 35.0, "p95": 36.0, "p99": 37.0}.get, has_enough=True,
            memory_tokens=5, late=2, requests=20, served=13, users=47,
            users_in_time=46,
        ),
        close_latency_s=SimpleNamespace(**vars(seconds), p99=103.0), opens=99, requests=100, steps=101, bytes_read=102,
        mix=SimpleNamespace(samples_per_s=18.0, overlap=0.9),
    )  # fmt: skip
    assert METRICS[name].value(run) == VALUES[name]


def _summary(safe_s: float | None, fsync_s: float) -> Any:
    safe = None if safe_s is None else SimpleNamespace(p50=safe_s)
    made = SimpleNamespace(safe_s=safe, fsync_s=SimpleNamespace(max=fsync_s), write_MBps=300.0, read_MBps=700.0)
    return SimpleNamespace(checkpoint=made, restored=None)


@pytest.mark.parametrize(
    ("safe_s", "fsync_s", "value"), [(2.5, 0.1, 2.5), (None, 0.1, None), (2.5, 0.0, None), (None, 0.0, None)]
)
def test_when_a_checkpoint_is_safe(safe_s: float | None, fsync_s: float, value: float | None) -> None:
    assert METRICS["checkpoint_safe_s"].value(_summary(safe_s, fsync_s)) == value


@pytest.mark.parametrize(("fsync_s", "write", "read"), [(0.1, 300.0, 700.0), (0.0, None, None)])
def test_rates_of_checkpoints_need_fsync(fsync_s: float, write: float | None, read: float | None) -> None:
    summary = _summary(1.0, fsync_s)
    assert METRICS["checkpoint_write_MBps"].value(summary) == write
    assert METRICS["checkpoint_read_MBps"].value(summary) == read


def test_a_run_without_checkpoints_has_no_metrics_of_them() -> None:
    nothing: Any = SimpleNamespace(checkpoint=None, restored=None)
    names: tuple[MetricName, ...] = (
        "checkpoint_write_MBps",
        "checkpoint_read_MBps",
        "checkpoint_safe_s",
        "restore_s",
        "restore_gap_s",
    )
    assert [METRICS[name].value(nothing) for name in names] == [None] * 5


def test_rates_and_utilisation_are_better_if_higher_and_times_if_lower() -> None:
    higher = {name for name, metric in METRICS.items() if metric.is_higher_better}
    assert higher == {
        "samples_per_s", "read_MBps", "au", "au_mlperf", "checkpoint_write_MBps", "checkpoint_read_MBps", "opens_per_s",
        "kv_read_MBps", "kv_write_MBps", "kv_tokens_per_s", "kv_hit_share", "users_in_time", "common_samples_per_s",
        *map(metrics.of_phase, PHASES),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ((), "samples_per_s"),
        (("wall_s",), "samples_per_s"),
        (("checkpoint_write_MBps", "samples_per_s"), "samples_per_s"),
        (("create_per_s", "checkpoint_write_MBps"), "checkpoint_write_MBps"),
        (("unlink_per_s", "stat_per_s", "wall_s"), "stat_per_s"),
        (("kv_write_MBps", "ttft_p99_s", "kv_read_MBps"), "kv_read_MBps"),
    ],
)
def test_the_metric_that_is_shown_by_default(known: tuple[str, ...], name: MetricName) -> None:
    assert metrics.main(known) == name


@pytest.mark.parametrize(
    ("phases", "shown"),
    [
        (PHASES, ("create", "stat", "open_read_close", "unlink")),
        (("unlink", "mkdir", "stat"), ("stat", "unlink")),
        (("rmdir", "mkdir", "rename"), ("mkdir", "rename", "rmdir")),
        ((), ()),
    ],
)
def test_phases_that_are_shown_side_by_side(phases: tuple[Phase, ...], shown: tuple[Phase, ...]) -> None:
    known = {metrics.of_phase(phase) for phase in phases} | {"wall_s"}
    assert metrics.quoted_phases(known) == {metrics.of_phase(phase): f"{phase}/s" for phase in shown}
