from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.core import measures, merge
from dlio_hpc.core.merge import Host, Merged
from dlio_hpc.core.run import _placement_faults
from dlio_hpc.plan import Request, Run, make
from dlio_hpc.site import load as load_site
from dlio_hpc.workload import load

_INTERVALS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), max_size=20)


@given(_INTERVALS, st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=8))
def test_overlap_is_what_counting_tick_by_tick_gives(reads: list[tuple[int, int]], gaps: list[tuple[int, int]]) -> None:
    intervals = np.array([[a for a, _ in reads], [a + length for a, length in reads]], float)
    steps, at = np.zeros((1, len(gaps), 6)), 0
    for row, (gap, length) in zip(steps[0], gaps, strict=True):
        row[1], row[2] = at + gap, at + gap + length
        at += gap + length
    busy = {tick for a, length in reads for tick in range(a, a + length)}
    computing = {tick for row in steps[0] for tick in range(int(row[1]), int(row[2]))}
    assert measures.overlap(intervals, steps[0]) == pytest.approx((len(busy), len(busy & computing)))


@given(st.lists(st.floats(2e-7, 500), min_size=1, max_size=300), st.integers(1, 5))
def test_histograms_add_up_and_keep_quantiles(latencies: list[float], parts: int) -> None:
    values = np.array(latencies)
    counts = sum((measures.histogram(part) for part in np.array_split(values, parts)), np.zeros(272, np.int64))
    assert (counts == measures.histogram(values)).all()
    told = measures.of_histogram(counts, float(values.sum()), float(values.max()))
    assert told is not None
    assert told.mean == pytest.approx(values.mean())
    assert told.max == values.max()
    ranked = np.sort(values)
    for share, value in ((0.5, told.p50), (0.95, told.p95), (0.99, told.p99)):
        exact = ranked[max(0, int(np.ceil(share * len(ranked))) - 1)]
        assert value == pytest.approx(exact, rel=0.046)


def test_nothing_read_has_no_latency() -> None:
    assert measures.of_histogram(measures.histogram(np.array([])), 0.0, 0.0) is None
    assert measures.overlap(np.zeros((2, 0)), np.zeros((1, 6))) == (0.0, 0.0)


def _run_of(steps_per_epoch: int) -> Run:
    run = make(load("demo"), load_site("local"), Request(runs=Path("r"))).runs[1]
    return replace(run, steps_per_epoch=steps_per_epoch)


def test_a_run_that_was_cut_short_in_its_second_epoch() -> None:
    """One rank, epochs of three steps, four done: the second epoch has one step, and MLPerf's formula leaves it out."""
    steps = np.zeros((1, 4, measures.COLUMNS))
    for number in range(4):
        steps[0, number] = [10 * number, 10 * number + 1, 10 * number + 9, 10 * number + 10, 2, 20, 8]
    none = np.zeros((1, 272), np.int64)
    fetched, saved = np.zeros((1, 2)), np.zeros((1, 0, 7))
    merged = Merged([Host("a", "1")], np.zeros((1, 1)), steps, none, np.zeros((1, 9)), fetched, saved, np.zeros((1, 6)))
    run = _run_of(3)
    first, second = merge.epochs(merged, run)
    assert (first.steps, first.wall_s, second.steps, second.wall_s, second.samples) == (3, 30, 1, 10, 2)
    told = merge.summary(merged, run)
    assert (told.steps, told.steps_planned, told.samples, told.wall_s) == (4, 3 * run.workload.train.epochs, 8, 40)
    assert told.au_mlperf == pytest.approx(16 / 20)
    assert told.samples_left_out == 0


def test_the_summary_of_a_run_with_known_figures() -> None:
    """Two ranks, two epochs of two steps: rank 0 waits 1, rank 1 waits 2; compute 3; sync until the later is there."""
    steps = np.zeros((2, 4, measures.COLUMNS))
    for rank, wait in ((0, 1.0), (1, 2.0)):
        for number in range(4):
            start = 100 + 5.0 * number
            steps[rank, number] = [start, start + wait, start + wait + 3, start + 5, 4, 40, 3]
    totals = np.array([[3, 0, 4, 1.5, 4, 2.0, 1.0, 2.0, 0.5], [4, 8, 4, 2.5, 4, 4.0, 0.5, 6.0, 1.5]])
    histogram = np.array([measures.histogram(np.full(4, 0.5)), measures.histogram(np.full(4, 1.5))])
    hosts = [Host("a", "1"), Host("b", "2")]
    fetched, saved = np.array([[10.0, 0], [5, 1]]), np.zeros((2, 0, 7))
    merged = Merged(hosts, np.zeros((2, 1)), steps, histogram, totals, fetched, saved, np.zeros((2, 6)))
    run = _run_of(2)
    told = merge.summary(merged, run)
    assert (told.samples, told.steps, told.bytes_read, told.opens, told.reads) == (32, 4, 320, 7, 8)
    assert told.wall_s == 20
    assert told.samples_per_s == 32 / 20
    assert told.au == pytest.approx(24 / (24 + 12))
    assert told.au_mlperf == pytest.approx(3 * 2 / 10), "one step of five seconds counts in each epoch"
    assert told.io_time_s == 3
    assert told.preprocess_s == 2
    assert told.io_hidden_fraction == pytest.approx(1.5 / 6)
    assert (told.wait_s.mean, told.wait_s.max, told.sync_s.mean) == (1.5, 2, 0.5)
    assert told.read_latency_s is not None
    assert told.read_latency_s.mean == 1
    assert (told.overhead_bytes_read, told.storage_bytes_read) == (8, 16)
    assert (told.slowest_rank.rank, told.slowest_rank.host) == (1, "b")
    first, second = merge.epochs(merged, run)
    assert (first.epoch, first.steps, first.samples, first.bytes_read, first.wall_s) == (1, 2, 16, 160, 10)
    assert first.wait_s + first.compute_s + first.sync_s == pytest.approx(first.wall_s)
    assert (first.storage_bytes_read, second.storage_bytes_read) == (15, 1)


def test_checkpoints_with_known_figures() -> None:
    """Two ranks, one epoch of two steps and a checkpoint after each: root writes 4 MB in 1 s + 1 s, twice."""
    steps = np.zeros((2, 2, measures.COLUMNS))
    steps[:, 0, :4] = [0, 1, 2, 3]
    steps[:, 1, :4] = [5.5, 6, 7, 8]
    saved = np.zeros((2, 2, 7))
    saved[0] = [[0, 1, 2.5, 1, 1, 0, 4e6], [0, 2, 2.5, 1, 1, 0, 4e6]]
    saved[1] = [[0, 1, 2.5, 0, 0, 0, 0], [0, 2, 2.5, 0, 0, 0, 0]]
    hosts, none = [Host("a", "1"), Host("a", "1")], np.zeros((2, 272), np.int64)
    merged = Merged(hosts, np.zeros((2, 1)), steps, none, np.zeros((2, 9)), np.zeros((2, 1)), saved, np.zeros((2, 6)))
    (epoch,) = merge.epochs(merged, _run_of(2))
    assert (epoch.wall_s, epoch.checkpoint_s) == (10.5, 5)
    assert epoch.wait_s + epoch.compute_s + epoch.sync_s + epoch.checkpoint_s == epoch.wall_s
    told = merge.summary(merged, _run_of(2))
    assert told.wall_s == 8, "to the end of the last step"
    assert told.checkpoint is not None
    assert (told.checkpoint.count, told.checkpoint.bytes_written, told.checkpoint.write_MBps) == (2, 8_000_000, 2)
    assert (told.checkpoint.pause_s.mean, told.checkpoint.write_s.mean, told.checkpoint.fsync_s.max) == (2.5, 1, 1)
    assert told.checkpoint.read_s is None
    assert told.checkpoint.read_MBps is None


def test_folding_often_gives_what_folding_once_gives() -> None:
    """Eight threads whose batches of twenty reads overlap in time and arrive one after the other."""
    random = np.random.default_rng(1)
    steps = np.zeros((200, measures.COLUMNS))
    steps[:, measures.STARTED] = np.arange(200)
    steps[:, measures.READY] = np.arange(200) + 0.3
    steps[:, measures.COMPUTED] = np.arange(200) + 0.9
    once, often = measures.ReadLog(), measures.ReadLog()
    for done in range(1, 200):
        starts = np.sort(random.uniform(max(0, done - 8), done + 0.3, 20))
        ends = np.minimum(starts + random.uniform(0, 0.3, 20), done + 0.3)
        for log in (once, often):
            log.add(array("d", starts), array("d", ends))
        often.fold(steps[:done], max(0.0, done + 1 - 8))
    for log in (once, often):
        log.fold(steps)
    assert (once.histogram == often.histogram).all()
    assert often.total_s == pytest.approx(once.total_s)
    assert often.longest_s == once.longest_s
    assert often.io_s == pytest.approx(once.io_s, rel=1e-9)
    assert often.hidden_s == pytest.approx(once.hidden_s, rel=1e-9)
    assert 0 < once.hidden_s < once.io_s


def test_a_log_asks_to_be_folded_before_it_grows_large() -> None:
    log = measures.ReadLog()
    many = array("d", [0.0]) * (1 << 17)
    assert not log.add(many, many)
    assert log.add(many, many)
    log.fold(np.zeros((1, measures.COLUMNS)), 1.0)
    assert not log.add(many, many)


def test_ranks_that_are_not_where_they_should_be(tmp_path: Path) -> None:
    plan = make(load("demo"), load_site("local"), Request(runs=tmp_path))
    assert _placement_faults(plan, ["a"] * 4) == []
    (fault,) = _placement_faults(plan, ["a", "a", "a", "b"])
    assert fault == "1 node(s) x 4 ranks were planned, there were 3 on a, 1 on b"
