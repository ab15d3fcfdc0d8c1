"""Which ranks read the counters of a node's file system client, and what the counters of an epoch become."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlio_hpc.config import site, workload
from dlio_hpc.core import cache_accounting, client_counters
from dlio_hpc.core.client_counters import Traffic
from dlio_hpc.core.procfs import IO
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.files import filesystem
from dlio_hpc.files.filesystem import FileSystem
from tests.support import planning


def _arrivals(monkeypatch: pytest.MonkeyPatch, rank: int, kind: str, counts: list[Traffic | None]) -> tuple[Any, Any]:
    """Return the arrivals of a rank of a node, and what `looks` was asked. counts: what the client says in turn."""
    answers = iter(counts)
    monkeypatch.setattr(client_counters, "counter", lambda _: (lambda: next(answers)) if counts else None)
    node: Any = SimpleNamespace(rank=rank, bcast=lambda value: value if rank == 0 else bool(counts))
    asked: list[bool] = []

    def looks(is_counted: bool) -> bool:
        asked.append(is_counted)
        return False

    return cache_accounting.Arrivals(node, FileSystem(kind), looks), asked


def test_the_first_rank_of_a_node_reports_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    io = iter([IO(0, 0, 1000, 0), IO(0, 0, 8000, 0)])
    arrivals, asked = _arrivals(monkeypatch, 0, "lustre", [Traffic(10, 200, 3000), Traffic(15, 260, 3700)])
    monkeypatch.setattr(cache_accounting, "process_io", lambda: next(io))
    arrivals.begin()
    counts = arrivals.end(300)
    assert counts[cache_accounting.FETCHED] == 6700
    assert counts[cache_accounting.ASKED : cache_accounting.LOOKED] == (5.0, 60.0, 700.0)
    assert asked == [True]


def test_other_ranks_of_a_node_report_nothing_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals, _ = _arrivals(monkeypatch, 1, "lustre", [Traffic(10, 200, 3000), Traffic(15, 260, 3700)])
    arrivals.begin()
    assert arrivals.end(0)[cache_accounting.ASKED : cache_accounting.LOOKED] == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("after", [None, Traffic(15, 100, 3700)])
def test_a_counter_that_is_gone_or_fell_is_unknown(monkeypatch: pytest.MonkeyPatch, after: Traffic | None) -> None:
    arrivals, _ = _arrivals(monkeypatch, 0, "lustre", [Traffic(10, 200, 3000), after])
    arrivals.begin()
    assert all(map(math.isnan, arrivals.end(0)[cache_accounting.ASKED : cache_accounting.LOOKED]))


def test_a_disk_needs_no_client_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts what a disk delivers, whatever counters there are besides."""
    assert _arrivals(monkeypatch, 0, "ext4", [Traffic(1, 2, 3)])[1] == [False]
    assert _arrivals(monkeypatch, 0, "lustre", [])[1] == [False]


@pytest.mark.parametrize(
    ("kind", "keys", "memory", "looks"),
    [
        ("lustre", ("dataset.samples_per_file=1", "dataset.sample={bytes: 1 MiB}"), 1, False),
        ("lustre", (), 1 << 40, True),
        ("lustre", ("reader.direct=true",), 1 << 40, False),
        ("fuse.ceph-fuse", ("dataset.samples_per_file=1", "dataset.sample={bytes: 1 MiB}"), 1, True),
        ("lustre", ("dataset.format=hdf5", "dataset.chunk=4KiB", "reader.mode=framework"), 1, True),
    ],
)
def test_pages_are_checked_where_counters_do_not_say_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, keys: tuple[str, ...], memory: int, looks: bool
) -> None:
    run = planning.make(
        workload.load("demo", keys), site.load("local"), planning.Request(tmp_path, data=tmp_path)
    ).runs[-1]  # fmt: skip
    monkeypatch.setattr(filesystem, "of", lambda _: FileSystem(kind))
    monkeypatch.setattr(cache_accounting, "memory", lambda: memory)
    monkeypatch.setattr(client_counters, "counter", lambda _: lambda: Traffic(1, 2, 3))
    node: Any = SimpleNamespace(rank=0, bcast=lambda value: value)
    assert cache_accounting.of_samples(node, run, 1)._looks == looks


def test_the_files_that_are_looked_at_are_those_of_the_ranks_next_samples(tmp_path: Path) -> None:
    """A rank's share of 24 samples in 8 files of 3: positions 6 to 11 lie in files 2 and 3."""
    keys = (
        "dataset.files=8",
        "dataset.samples_per_file=3",
        "reader={batch_size: 2, shuffle: {files: false, samples: false}}",
    )
    run = planning.make(
        workload.load("demo", keys), site.load("local"), planning.Request(tmp_path, data=tmp_path, ranks_per_node=4)
    ).runs[-1]  # fmt: skip
    order = Order(run.workload.dataset, run.workload.reader, 0, 1, 4)
    names = [Path(path).name for path in cache_accounting.some_files(run, order, 6, 12, 1)]
    assert names == ["00000002.npz", "00000003.npz"]
