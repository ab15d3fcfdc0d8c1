from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.config.site import load as load_site
from dlio_hpc.config.workload import load
from dlio_hpc.core import cache_accounting, distributions, evaluation, merge, node_activity, restore
from dlio_hpc.core.distributions import Counts, Floats
from dlio_hpc.core.io_counters import UNKNOWN, Tally
from dlio_hpc.core.merge import Host, Merged
from dlio_hpc.core.read_activity import BUSY, LEAST_S, OPENS, Activity, TimeBins, common, spread
from dlio_hpc.core.run import _placement_faults
from dlio_hpc.core.train import PHASE_COLUMNS
from dlio_hpc.plan.plan import Run
from tests.support import planning, recordings

_INTERVALS = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 30)), max_size=20)


@given(st.lists(st.floats(2e-7, 500), min_size=1, max_size=300), st.integers(1, 5))
def test_histograms_add_up_and_keep_quantiles(latencies: list[float], parts: int) -> None:
    values = np.array(latencies)
    counts = sum((distributions.histogram(part) for part in np.array_split(values, parts)), np.zeros(272, np.int64))
    assert (counts == distributions.histogram(values)).all()
    distribution = distributions.of_histogram(counts, float(values.sum()), float(values.max()))
    assert distribution is not None
    assert distribution.mean == pytest.approx(values.mean())
    assert distribution.max == values.max()
    ranked = np.sort(values)
    for share, value in ((0.5, distribution.p50), (0.95, distribution.p95), (0.99, distribution.p99)):
        exact = ranked[max(0, int(np.ceil(share * len(ranked))) - 1)]
        assert value == pytest.approx(exact, rel=0.046)


def test_nothing_read_has_no_latency() -> None:
    assert distributions.of_histogram(distributions.histogram(np.array([])), 0.0, 0.0) is None


def _run_of(steps_per_epoch: int) -> Run:
    run = planning.make(load("demo"), load_site("local"), planning.Request(runs=Path("r"))).runs[1]
    return replace(run, steps_per_epoch=steps_per_epoch)


def _merged(hosts: list[Host], steps: Floats, reads: Counts, totals: Floats, fetched: Floats, saved: Floats) -> Merged:
    """Merge recordings. reads: histogram of the read latencies of each rank."""
    ranks = len(hosts)
    histograms = np.stack([reads, np.zeros_like(reads), np.zeros_like(reads)], axis=1)
    sizes, activity = np.zeros((ranks, 160), np.int64), np.zeros((ranks, 5, 1))
    offsets, sides, marks = np.zeros((ranks, 1)), np.zeros((ranks, 6)), np.zeros((ranks, 0, 2))
    arrivals = np.zeros((*fetched.shape, cache_accounting.COLUMNS))
    arrivals[..., cache_accounting.FETCHED] = fetched
    disturbances = np.zeros((ranks, fetched.shape[1] + 1, node_activity.COLUMNS))
    verified = np.zeros((*fetched.shape, 2))
    return Merged(
        hosts, TimeBins(1, 0, 1), offsets, steps, histograms, np.zeros((ranks, 3, 2)), totals, arrivals, saved,
        np.zeros((ranks, 0, restore.COLUMNS)), np.zeros((ranks, 0, evaluation.COLUMNS)), verified, sides,
        sizes, activity, marks, disturbances, np.zeros((ranks, 0, PHASE_COLUMNS)), np.zeros((ranks, 0, 0), np.int64),
        *recordings.unserved(ranks),
    )  # fmt: skip


def test_a_run_that_was_cut_short_in_its_second_epoch() -> None:
    """One rank does four steps in epochs of three: the second epoch has one step, which MLPerf's formula leaves out."""
    steps = np.zeros((1, 4, distributions.COLUMNS))
    for number in range(4):
        steps[0, number] = [10 * number, 10 * number + 1, 10 * number + 9, 10 * number + 10, 2, 20, 8]
    none = np.zeros((1, 272), np.int64)
    fetched, saved = np.zeros((1, 2)), np.zeros((1, 0, 8))
    merged = _merged([Host("a", "1")], steps, none, np.zeros((1, 8)), fetched, saved)
    run = _run_of(3)
    first, second = merge.epochs(merged, run)
    assert (first.steps, first.wall_s, second.steps, second.wall_s, second.samples) == (3, 30, 1, 10, 2)
    summary = merge.summary(merged, run)
    assert (summary.steps, summary.steps_planned, summary.samples, summary.wall_s) == (
        4,
        3 * run.workload.train.epochs,
        8,
        40,
    )
    assert summary.au_mlperf == pytest.approx(16 / 20)
    assert first.au_mlperf == pytest.approx(16 / 20)
    assert second.au_mlperf is None, "it has one step"
    assert summary.samples_left_out == 0


def test_the_summary_of_a_run_with_known_figures() -> None:
    """Two ranks do two epochs of two steps: rank 0 waits 1 s, rank 1 waits 2 s, both compute 3 s and synchronize."""
    steps = np.zeros((2, 4, distributions.COLUMNS))
    for rank, wait in ((0, 1.0), (1, 2.0)):
        for number in range(4):
            start = 100 + 5.0 * number
            steps[rank, number] = [start, start + wait, start + wait + 3, start + 5, 4, 40, 3]
    totals = np.array([[3, 0, 4, 1.5, 4, 2.0, 1.0, 0.1], [4, 8, 4, 2.5, 4, 4.0, 0.5, 0.3]])
    histogram = np.array([distributions.histogram(np.full(4, 0.5)), distributions.histogram(np.full(4, 1.5))])
    hosts = [Host("a", "1"), Host("b", "2")]
    fetched, saved = np.array([[10.0, 0], [5, 1]]), np.zeros((2, 0, 8))
    merged = _merged(hosts, steps, histogram, totals, fetched, saved)
    merged.sums[:, distributions.READ] = [[2.0, 0.5], [6.0, 1.5]]
    run = _run_of(2)
    summary = merge.summary(merged, run)
    assert (summary.samples, summary.steps, summary.bytes_read, summary.opens, summary.reads) == (32, 4, 320, 7, 8)
    assert summary.wall_s == 20
    assert summary.samples_per_s == 32 / 20
    assert summary.au == pytest.approx(24 / (24 + 12))
    assert summary.au_mlperf == pytest.approx(3 * 2 / 10), "one step of five seconds counts in each epoch"
    assert summary.io_time_s == 3
    assert summary.preprocess_s == 2
    assert summary.overhead_s == pytest.approx(0.2)
    assert summary.io_hidden_fraction == pytest.approx(1.5 / 6)
    assert (summary.wait_s.mean, summary.wait_s.max, summary.sync_s.mean) == (1.5, 2, 0.5)
    assert summary.read_latency_s is not None
    assert summary.read_latency_s.mean == 1
    assert (summary.overhead_bytes_read, summary.storage_bytes_read) == (8, 16)
    assert (summary.slowest_rank.rank, summary.slowest_rank.host) == (1, "b")
    first, second = merge.epochs(merged, run)
    assert (first.epoch, first.steps, first.samples, first.bytes_read, first.wall_s) == (1, 2, 16, 160, 10)
    assert first.wait_s + first.compute_s + first.sync_s == pytest.approx(first.wall_s)
    assert (first.storage_bytes_read, second.storage_bytes_read) == (15, 1)


def test_opens_and_closes_with_known_figures() -> None:
    """Rank 0 opens three files in 1 s each, rank 1 opens four files, three in 0.5 s and one in 8 s. Closes take 1 s."""
    steps = np.zeros((2, 1, distributions.COLUMNS))
    steps[..., distributions.SYNCED] = 10.0
    totals = np.zeros((2, 8))
    totals[:, merge.OPENS] = [3, 4]
    reads = np.array([distributions.histogram(np.full(4, 0.5)), distributions.histogram(np.full(4, 1.5))])
    merged = _merged([Host("a", "1"), Host("b", "2")], steps, reads, totals, np.zeros((2, 1)), np.zeros((2, 0, 8)))
    merged.sums[:, distributions.READ] = [[2.0, 0.5], [6.0, 1.5]]
    summary = merge.summary(merged, _run_of(1))
    assert (summary.opens_per_s, summary.open_latency_s, summary.metadata_fraction) == (0.7, None, None), "untimed"
    for rank, opens in enumerate(([1.0] * 3, [0.5, 0.5, 8.0, 0.5])):
        for kind, times in ((distributions.OPEN, np.array(opens)), (distributions.CLOSE, np.ones(len(opens) - 1))):
            merged.histograms[rank, kind] = distributions.histogram(times)
            merged.sums[rank, kind] = times.sum(), times.max()
    summary = merge.summary(merged, _run_of(1))
    opened, closed = summary.open_latency_s, summary.close_latency_s
    assert opened is not None
    assert closed is not None
    assert (opened.max, opened.p99, opened.p999, closed.mean) == (8.0, 8.0, 8.0, 1.0)
    assert opened.mean == pytest.approx(12.5 / 7)
    assert opened.p50 == pytest.approx(1.0, rel=0.05)
    assert summary.metadata_fraction == pytest.approx((12.5 + 5) / (12.5 + 5 + 8))
    merged.totals[0, merge.OPENS] = 4
    assert merge.summary(merged, _run_of(1)).open_latency_s is None, "one open was not timed"


def test_what_lies_between_epochs_does_not_count() -> None:
    """Two ranks do two epochs of a step of 1 s. An evaluation pass of 45 s, with its preparation, lies between."""
    steps = np.zeros((2, 2, distributions.COLUMNS))
    steps[:, 0, :4], steps[:, 1, :4] = [0, 0, 1, 1], [46, 46, 47, 47]
    steps[..., distributions.SAMPLES] = 1
    hosts, none = [Host("a", "1"), Host("a", "1")], np.zeros((2, 272), np.int64)
    merged = _merged(hosts, steps, none, np.zeros((2, 8)), np.zeros((2, 2)), np.zeros((2, 0, 8)))
    passes = np.zeros((2, 2, evaluation.COLUMNS))
    passes[..., evaluation.EPOCH] = [0, 1]
    passes[..., evaluation.TOOK_S] = [[45, 9], [43, 9]]  # no epoch follows the second pass
    passes[..., evaluation.WALL_S] = 2
    summary = merge.summary(merged._replace(evaluated=passes), _run_of(1))
    assert (summary.wall_s, summary.samples_per_s) == (2, 2)
    assert summary.evaluation is not None
    assert summary.evaluation.wall_s == 4


def test_checkpoints_with_known_figures() -> None:
    """Two ranks do one epoch of two steps with a checkpoint after each: root writes 4 MB in 1 s + 1 s, twice."""
    steps = np.zeros((2, 2, distributions.COLUMNS))
    steps[:, 0, :4] = [0, 1, 2, 3]
    steps[..., distributions.SAMPLES], steps[..., distributions.ASKED] = 1, 1
    steps[:, 1, :4] = [9.5, 10, 11, 12]  # dlio-hpc makes contents for 4 s before each checkpoint
    saved = np.zeros((2, 2, 8))
    saved[0] = [[0, 1, 2.5, 4, 1, 1, 0, 4e6], [0, 2, 2.5, 4, 1, 1, 0, 4e6]]
    saved[1] = [[0, 1, 2.5, 4, 0, 0, 0, 0], [0, 2, 2.5, 4, 0, 0, 0, 0]]
    hosts, none = [Host("a", "1"), Host("a", "1")], np.zeros((2, 272), np.int64)
    merged = _merged(hosts, steps, none, np.zeros((2, 8)), np.zeros((2, 1)), saved)
    (epoch,) = merge.epochs(merged, _run_of(2))
    assert (epoch.wall_s, epoch.checkpoint_s) == (10.5, 5)
    assert epoch.wait_s + epoch.compute_s + epoch.sync_s + epoch.checkpoint_s == epoch.wall_s
    summary = merge.summary(merged, _run_of(2))
    assert summary.wall_s == 8, "to the end of the last step"
    assert (summary.samples_per_s, summary.au_mlperf, epoch.au_mlperf) == (4 / 8, 1 / 5, 1 / 5)
    assert summary.checkpoint is not None
    assert summary.checkpoint.own_s == 8
    assert (summary.checkpoint.count, summary.checkpoint.bytes_written, summary.checkpoint.write_MBps) == (
        2,
        8_000_000,
        2,
    )
    assert (summary.checkpoint.pause_s.mean, summary.checkpoint.write_s.mean, summary.checkpoint.fsync_s.max) == (
        2.5,
        1,
        1,
    )
    assert summary.checkpoint.read_s is None
    assert summary.checkpoint.read_MBps is None


def _tally(starts: Floats, ends: Floats, size: int = 1000) -> Tally:
    """Return the tally of a batch whose reads have `size` bytes each."""
    tally = Tally()
    tally.starts, tally.ends, tally.sizes = starts.tolist(), ends.tolist(), [size] * len(starts)
    tally.requests, tally.bytes_read = len(starts), size * len(starts)
    return tally


def test_folding_often_gives_what_folding_once_gives() -> None:
    """Eight threads have batches of twenty reads that overlap in time and arrive one after the other."""
    random = np.random.default_rng(1)
    steps = np.zeros((200, distributions.COLUMNS))
    steps[:, distributions.STARTED] = np.arange(200)
    steps[:, distributions.READY] = np.arange(200) + 0.3
    steps[:, distributions.COMPUTED] = np.arange(200) + 0.9
    once, often = distributions.ReadLog(), distributions.ReadLog()
    for done in range(1, 200):
        starts = np.sort(random.uniform(max(0, done - 8), done + 0.3, 20))
        ends = np.minimum(starts + random.uniform(0, 0.3, 20), done + 0.3)
        tally = _tally(starts, ends)
        tally.opened = list(zip((starts - 0.01).tolist(), starts.tolist(), strict=True))
        for log in (once, often):
            log.add(tally)
        often.fold(steps[:done], max(0.0, done + 1 - 8))
    for log in (once, often):
        log.fold(steps)
    assert (once.histograms == often.histograms).all()
    assert list(once.histograms.sum(axis=1)) == [199 * 20, 199 * 20, 0]
    assert once.activity.amounts[OPENS].sum(axis=1) == pytest.approx([199 * 20, 199 * 20 * 0.01])
    assert often.sums[:, 0] == pytest.approx(once.sums[:, 0])
    assert list(often.sums[:, 1]) == list(once.sums[:, 1])
    assert often.io_s == pytest.approx(once.io_s, rel=1e-9)
    assert often.hidden_s == pytest.approx(once.hidden_s, rel=1e-9)
    assert often.waited_s == pytest.approx(once.waited_s, rel=1e-9)
    assert 0 < once.hidden_s < once.io_s
    assert often.activity.time_bins == once.activity.time_bins
    assert often.activity.amounts == pytest.approx(once.activity.amounts, rel=1e-6, abs=1e-6)
    assert once.activity.amounts[BUSY].sum() == pytest.approx(once.io_s, rel=1e-9)
    assert often.sizes.sum() == once.sizes.sum() == 199 * 20


def test_a_wait_for_the_opening_of_a_file_is_not_a_wait_without_reads() -> None:
    steps = np.zeros((1, distributions.COLUMNS))
    steps[:, distributions.STARTED : distributions.SYNCED + 1] = [0, 4, 5, 5]
    log, tally = distributions.ReadLog(), _tally(np.array([1.0]), np.array([2.0]))
    tally.opened, tally.closed = [(0.5, 1.0)], [(2.0, 3.0)]
    log.add(tally)
    log.fold(steps)
    assert (log.io_s, log.waited_s) == (1.0, 2.5)


def test_a_log_asks_to_be_folded_before_it_grows_large() -> None:
    log = distributions.ReadLog()
    many = _tally(np.zeros(1 << 15), np.zeros(1 << 15))
    assert not log.add(many)
    assert log.add(many)
    log.fold(np.zeros((1, distributions.COLUMNS)), 1.0)
    assert not log.add(many)


def test_ranks_that_are_not_where_they_should_be(tmp_path: Path) -> None:
    plan = planning.make(load("demo"), load_site("local"), planning.Request(runs=tmp_path))
    assert _placement_faults(plan, plan.runs[0], ["a"] * 4) == []
    (fault,) = _placement_faults(plan, plan.runs[0], ["a", "a", "a", "b"])
    assert fault == "1 node x 4 ranks were planned, but the actual placement is 3 on a, 1 on b"


@pytest.mark.parametrize(
    ("name", "keys", "needs_order"),
    [
        ("metadata_own", (), True),
        ("metadata_own", ("metadata.shift_nodes=0",), False),
        ("demo", (), False),
        ("demo", ("checkpoint={every_steps: 2, reads: 1, reorder: 1}",), True),
        ("demo", ("checkpoint={every_steps: 2, reads: 1}",), False),
    ],
)
def test_ranks_that_work_on_other_nodes_have_consecutive_numbers_on_a_node(
    tmp_path: Path, name: str, keys: tuple[str, ...], needs_order: bool
) -> None:
    request = planning.Request(runs=tmp_path, data=tmp_path / "data", nodes=3, ranks_per_node=2)
    plan = planning.make(load(name, keys), load_site("slurm"), request)
    assert _placement_faults(plan, plan.runs[-1], ["b", "b", "a", "a", "c", "c"]) == []
    faults = _placement_faults(plan, plan.runs[-1], ["a", "b", "c", "a", "b", "c"])
    said = ["the launcher placed the ranks on a, b, c, a, b, c; set it" in fault for fault in faults]
    assert said == [True] * needs_order


_READS = st.lists(st.tuples(st.floats(0, 3000), st.floats(0, 500), st.integers(0, 2**40)), min_size=1, max_size=30)


@given(st.lists(_READS, min_size=1, max_size=4), st.floats(-1e6, 1e6), st.integers(1, 70_000))
def test_activity_keeps_every_byte_however_its_bins_grow_and_move(
    folds: list[list[tuple[float, float, int]]], offset: float, ranks: int
) -> None:
    kept, total = Activity(), 0
    for reads in folds:
        begins, lengths, sizes = np.array(reads).T
        intervals = np.array([begins, begins + lengths])
        kept.add(BUSY, intervals, sizes[np.newaxis])
        total += sum(size for _, _, size in reads)
        assert 1 <= kept.time_bins.bins <= 512
        assert kept.time_bins.start <= begins.min()
        assert kept.time_bins.end > intervals[1].max()
        assert kept.amounts.shape == (5, kept.time_bins.bins)
        assert kept.amounts[BUSY].sum() == pytest.approx(total, rel=1e-9)
    time_bins = common(kept.time_bins.width, kept.time_bins.start + offset, kept.time_bins.end + offset, ranks)
    assert time_bins.bins <= (512 if ranks <= 2048 else max(64, 2**20 // ranks))
    assert np.log2(time_bins.width / LEAST_S) % 1 == 0
    moved = kept.by(offset, time_bins)
    assert moved.shape == (5, time_bins.bins)
    assert (moved >= 0).all()
    assert moved.sum() == pytest.approx(total, rel=1e-6)  # of very long runs under clocks that are days apart


def test_a_rank_that_read_nothing_sends_as_much_as_others() -> None:
    moved = Activity().by(0.5, TimeBins(LEAST_S, 7, 9))
    assert moved.shape == (5, 9)
    assert moved.dtype == np.float64
    assert not moved.any()


@given(_READS, st.integers(0, 6), st.integers(-40, 40))
def test_ranks_with_one_clock_merge_as_if_they_had_recorded_so(
    reads: list[tuple[float, float, int]], doublings: int, ahead: int
) -> None:
    """Bins of several widths fit whole into bins of the common width."""
    begins, lengths, sizes = np.array(reads).T
    intervals, amounts = np.array([begins, begins + lengths]), sizes[np.newaxis]
    kept = Activity()
    kept.add(BUSY, intervals, amounts)
    width = kept.time_bins.width * 2**doublings
    first = int(kept.time_bins.start // width) - max(ahead, 0)
    time_bins = TimeBins(width, first, int(kept.time_bins.end // width) + 1 - first)
    rounding = 1e-14 * float(amounts.sum())
    assert kept.by(0.0, time_bins)[BUSY] == pytest.approx(spread(intervals, amounts, time_bins), rel=1e-9, abs=rounding)


def test_a_short_read_across_an_edge_leaves_nothing_in_later_bins() -> None:
    time_bins = TimeBins(8.0, -33, 512)
    times = np.array([[3000 - 2.0**-41, 2999.0], [3000 + 2.0**-40, 3100.0]])
    amounts = spread(times, np.array([[1e12, 1010.0]]), time_bins)[0]
    at = 3000 // 8 + 33
    assert amounts[at - 1 : at + 1].sum() == pytest.approx(1e12 + 90, rel=1e-15)
    assert amounts[at + 1 : at + 12] == pytest.approx(80)
    assert not amounts[at + 13 :].any()


@given(_INTERVALS)
def test_reads_are_spread_as_counting_tick_by_tick_says(reads: list[tuple[int, int]]) -> None:
    intervals = np.array([[a for a, _ in reads], [a + length for a, length in reads]], float)
    ticks = np.zeros(232)
    for begin, length in reads:
        for tick in range(begin, begin + max(length, 1)):
            ticks[tick] += 12.0 / max(length, 1)
    for width in (1, 4, 8):
        binned = spread(intervals, np.full((1, len(reads)), 12.0), TimeBins(width, 0, 232 // width))
        assert binned[0] == pytest.approx(ticks.reshape(-1, width).sum(axis=1))


@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 10**9), st.floats(0, 1)), max_size=5), max_size=6))
def test_what_a_librarys_calls_brought_is_shared_out_within_their_batch(
    batches: list[list[tuple[bool, int, float]]],
) -> None:
    """Known requests keep their bytes; the sum of a batch equals its tally."""
    flat = [read for batch in batches for read in batch]
    latencies = np.array([latency for _, _, latency in flat], float)
    sizes = np.array([size if known else UNKNOWN for known, size, _ in flat], np.int64)
    tallies = np.array([[len(batch), sum(size for _, size, _ in batch) + 7, len(batch) + 3] for batch in batches])
    amounts = distributions.shared_out(latencies, sizes, tallies.reshape(-1, 3).astype(np.int64))
    at = 0
    for batch, (reads, brought, requests) in zip(batches, tallies.tolist(), strict=True):
        mine = amounts[:, at : at + reads]
        if batch:
            assert mine.sum(axis=1) == pytest.approx([brought, requests])
        if any(not known for known, _, _ in batch):
            assert [mine[0, n] for n, (known, _, _) in enumerate(batch) if known] == [s for k, s, _ in batch if k]
        at += reads


@given(st.lists(st.integers(1, 2**45), max_size=50))
def test_request_sizes_lie_between_their_bins_edges(sizes: list[int]) -> None:
    edges = distributions.size_edges()
    assert len(edges) == 161
    assert (edges[0], edges[-1]) == (1, 2**40)
    expected = np.zeros(160, int)
    for size in sizes:
        expected[max(n for n in range(160) if edges[n] <= size)] += 1
    assert (distributions.size_histogram(np.array(sizes, np.int64)) == expected).all()


def test_powers_of_two_begin_a_bin_of_request_sizes() -> None:
    sizes = 2 ** np.arange(40)
    assert (np.flatnonzero(distributions.size_histogram(sizes)) == 4 * np.arange(40)).all()
    assert not distributions.size_histogram(np.array([0, UNKNOWN])).any()
