"""Metrics that some runs do not have."""

from types import SimpleNamespace
from typing import Any

import pytest

from dlio_hpc.results.metrics import METRICS, MetricName


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
