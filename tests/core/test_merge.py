"""Figures of three unequal ranks on two nodes, in epochs of three and two steps, compared with sums written out."""

import itertools
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.config import site, workload
from dlio_hpc.core import cache_accounting, checkpoint, distributions, evaluation, merge, node_activity, restore
from dlio_hpc.core.merge import Host, Merged
from dlio_hpc.core.read_activity import TimeBins
from dlio_hpc.core.train import PHASE_COLUMNS
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.run_result import Summary
from tests.support import planning, recordings

RANKS, EPOCHS = range(3), (range(3), range(3, 5))
HOSTS = [Host("a", "1"), Host("a", "1"), Host("b", "2")]
# Seconds of each phase of a step, of each rank: waiting, computing, and waiting for the others.
WAIT = [[1.0, 2.0, 0.5, 3.0, 0.25], [0.5, 0.75, 4.0, 1.0, 2.5], [2.0, 0.125, 1.5, 0.5, 1.25]]
COMPUTE = [[3.0, 3.5, 2.0, 2.5, 4.0], [2.0, 5.0, 1.0, 3.25, 2.75], [1.5, 2.25, 3.0, 4.5, 0.5]]
ASKED = [[2.0, 3.0, 1.0, 2.0, 3.5], [1.5, 4.0, 0.5, 3.0, 2.5], [1.0, 2.0, 2.5, 4.0, 0.25]]
SAMPLES = [[4, 4, 3, 4, 2], [4, 5, 1, 2, 7], [6, 4, 4, 3, 1]]
BYTES = [[40, 41, 30, 44, 20], [42, 50, 10, 21, 70], [60, 43, 45, 33, 11]]
# Seconds between two epochs, in which an evaluation pass runs, and the latest arrival of a rank at each barrier.
BETWEEN = 100.0


def _steps() -> tuple[Any, list[float], list[float]]:
    """Return the steps, and when each of them begins and ends for all ranks."""
    steps = np.zeros((3, 5, distributions.COLUMNS))
    now, begins, ends = 1000.0, [], []
    for number in range(5):
        if number == EPOCHS[1].start:
            now += BETWEEN
        end = now + max(WAIT[rank][number] + COMPUTE[rank][number] for rank in RANKS)
        begins.append(now)
        ends.append(end)
        for rank in RANKS:
            ready = now + WAIT[rank][number]
            steps[rank, number] = [
                now, ready, ready + COMPUTE[rank][number], end, SAMPLES[rank][number], BYTES[rank][number],
                ASKED[rank][number],
            ]  # fmt: skip
        now = end
    return steps, begins, ends


# Checkpoints: after the second step of epoch 0, after its last step, and after the last step of the run. Of each rank:
# seconds of the pause, of dlio-hpc itself, of writing, of fsync and of reading back, and bytes. Rank 1 writes nothing.
SAVED = [
    [
        (0, 2, 5.0, 0.5, 2.0, 1.0, 0.25, 100),
        (0, 3, 6.0, 0.25, 3.0, 0.5, 0.5, 100),
        (1, 2, 4.0, 1.0, 1.0, 1.5, 1.0, 100),
    ],
    [(0, 2, 5.5, 0.0, 0.0, 0.0, 0.0, 0), (0, 3, 6.5, 0.0, 0.0, 0.0, 0.0, 0), (1, 2, 4.5, 0.0, 0.0, 0.0, 0.0, 0)],
    [
        (0, 2, 5.25, 1.0, 4.0, 0.5, 0.75, 300),
        (0, 3, 7.0, 0.5, 2.0, 2.5, 0.25, 300),
        (1, 2, 4.0, 2.0, 3.0, 0.25, 2.0, 300),
    ],
]
# Reads of two checkpoints: seconds since they were written, of reading, bytes, and seconds of comparing.
RESTORED = [
    [(9.0, 2.0, 50, 0.5), (8.0, 3.0, 50, 0.25)], [(7.0, 5.0, 70, 1.0), (6.5, 1.0, 70, 2.0)], [(np.nan, 0, 0, 0)] * 2
]  # fmt: skip
# Evaluation passes after both epochs: seconds that training waits, of the steps, of waiting, computing and the barrier,
# steps, samples, bytes.
PASSES = [
    [(0, 20.0, 10.0, 4.0, 5.0, 1.0, 2, 8, 80), (1, 33.0, 14.0, 6.0, 7.0, 0.5, 2, 8, 81)],
    [(0, 22.0, 11.0, 3.0, 6.0, 2.0, 2, 7, 70), (1, 31.0, 12.0, 5.0, 4.0, 3.0, 2, 6, 60)],
    [(0, 21.0, 9.0, 2.0, 4.5, 2.5, 2, 9, 90), (1, 32.0, 15.0, 8.0, 6.5, 0.25, 2, 5, 50)],
]
ARRIVED = [[(10, 20, 30, 1, 100, 25), (11, 21, 31, 2, 100, 50)], [(12, 22, 32, 3, 100, 5), (13, 23, 33, 4, 100, 10)],
           [(14, 24, 34, 5, 100, 15), (15, 25, 35, 6, 100, 20)]]  # fmt: skip
VERIFIED = [[(0.5, 3), (0.75, 2)], [(1.0, 4), (0.25, 1)], [(2.0, 5), (1.5, 7)]]
SIDES = [(1, 2, 3, 40, 50, 0.5), (2, 3, 4, 41, 51, 1.5), (4, 5, 6, 42, 52, 4.0)]
# Opens, overhead bytes, requests, seconds of preprocessing, timed requests; seconds of I/O, hidden, of dlio-hpc itself.
TOTALS = [(3, 5, 40, 1.5, 4, 2.0, 1.0, 0.1), (4, 8, 41, 2.5, 4, 4.0, 0.5, 0.3), (6, 9, 43, 0.5, 4, 7.0, 2.5, 0.8)]
# For each rank, the sum and the maximum of the seconds in reads, in opens and in closes.
SUMS = [((2.0, 0.5), (0.3, 0.2), (0.1, 0.1)), ((6.0, 1.5), (0.9, 0.8), (0.2, 0.1)),
        ((1.0, 0.25), (0.4, 0.1), (0.7, 0.6))]  # fmt: skip


@pytest.fixture(scope="module")
def run() -> Run:
    sides = "dataset.auxiliary_files=[{name: m, bytes: 1000}]"
    keys = ("train.epochs=2", "evaluation={files: 2}", "checkpoint={}", sides)
    made = planning.make(workload.load("demo", keys), site.load("local"), planning.Request(runs=Path("r"))).runs[-1]
    return structs.replace(made, steps_per_epoch=3)


@pytest.fixture(scope="module")
def merged() -> Merged:
    passes = np.zeros((3, 2, evaluation.COLUMNS))
    passes[..., : evaluation.ARRIVALS] = PASSES
    restored = np.zeros((3, 2, restore.COLUMNS))
    restored[..., : restore.ARRIVALS] = np.array(RESTORED, float)
    passes[..., evaluation.ARRIVALS :] = restored[..., restore.ARRIVALS :] = ARRIVED
    amounts = [((0.5, 4), (0.1, 3), (0.1, 2)), ((1.5, 4), (0.1, 4), (0.1, 3)), ((0.25, 4), (0.1, 6), (0.1, 5))]
    histograms = np.array([[distributions.histogram(np.full(n, s)) for s, n in of_rank] for of_rank in amounts])
    return Merged(
        HOSTS, TimeBins(1, 0, 1), np.zeros((3, 1)), _steps()[0], histograms, np.array(SUMS), np.array(TOTALS, float),
        np.array(ARRIVED, float), np.array(SAVED, float), restored, passes, np.array(VERIFIED, float),
        np.array(SIDES, float), np.zeros((3, 160), np.int64), np.zeros((3, 5, 1)), np.zeros((3, 0, 2)),
        np.zeros((3, 3, node_activity.COLUMNS)), np.zeros((3, 0, PHASE_COLUMNS)), np.zeros((3, 0, 0), np.int64),
        *recordings.unserved(3),
    )  # fmt: skip


@pytest.fixture(scope="module")
def summary(merged: Merged, run: Run) -> Summary:
    return merge.summary(merged, run)


def _total(table: list[list[Any]], epoch: range = range(5)) -> Any:
    return sum(table[rank][number] for rank in RANKS for number in epoch)


def _column(rows: list[list[Any]], column: int, place: int | None = None) -> Any:
    chosen = [row if place is None else [row[place]] for row in rows]
    return sum(record[column] for record in itertools.chain(*chosen))


def test_the_epochs(merged: Merged, run: Run) -> None:
    _, begins, ends = _steps()
    for number, (epoch, made) in enumerate(zip(EPOCHS, merge.epochs(merged, run), strict=True)):
        assert (made.epoch, made.steps) == (number + 1, len(epoch))
        assert (made.samples, made.bytes_read) == (_total(SAMPLES, epoch), _total(BYTES, epoch))
        assert made.wait_s == pytest.approx(_total(WAIT, epoch) / 3)
        assert made.compute_s == pytest.approx(_total(COMPUTE, epoch) / 3)
        synced = sum(
            ends[step] - begins[step] - WAIT[rank][step] - COMPUTE[rank][step] for rank in RANKS for step in epoch
        )
        assert made.sync_s == pytest.approx(synced / 3)
        assert made.verify_s == pytest.approx(fmean(VERIFIED[rank][number][0] for rank in RANKS))
        assert made.storage_bytes_read == _column(ARRIVED, cache_accounting.FETCHED, number)
        assert made.client_bytes_asked == _column(ARRIVED, cache_accounting.ASKED, number)
        assert made.client_bytes_read == _column(ARRIVED, cache_accounting.ARRIVED, number)
        assert made.client_bytes_kept == _column(ARRIVED, cache_accounting.KEPT, number)
        assert made.page_cache_fraction == pytest.approx(_column(ARRIVED, cache_accounting.RESIDENT, number) / 300)
        saved = [place for place in range(3) if SAVED[0][place][0] == number]
        assert made.checkpoint_s == pytest.approx(sum(_column(SAVED, checkpoint.PAUSE_S, place) for place in saved) / 3)


def test_the_time_of_an_epoch_has_its_checkpoints_but_not_the_tools_own_work(merged: Merged, run: Run) -> None:
    """A checkpoint after the last step counts with the pause of its slowest rank. One before it lies in the steps, with
    what dlio-hpc itself did.
    """
    _, begins, ends = _steps()
    first, second = merge.epochs(merged, run)
    assert first.wall_s == pytest.approx(ends[2] - begins[0] + 7.0 - (0.5 + 0.0 + 1.0) / 3)
    assert second.wall_s == pytest.approx(ends[4] - begins[3] + 4.5)


def test_mlperfs_utilisation_leaves_out_the_first_step_of_each_epoch(
    merged: Merged, run: Run, summary: Summary
) -> None:
    _, _, ends = _steps()
    asked = [_total(ASKED, range(epoch.start + 1, epoch.stop)) / 3 for epoch in EPOCHS]
    running = [ends[2] - ends[0] - (0.5 + 0.0 + 1.0) / 3, ends[4] - ends[3]]
    first, second = merge.epochs(merged, run)
    assert first.au_mlperf == pytest.approx(asked[0] / running[0])
    assert second.au_mlperf == pytest.approx(asked[1] / running[1])
    assert summary.au_mlperf == pytest.approx(sum(asked) / sum(running))


def test_the_summary(summary: Summary) -> None:
    assert (summary.samples, summary.bytes_read, summary.steps) == (_total(SAMPLES), _total(BYTES), 5)
    assert (summary.opens, summary.reads, summary.overhead_bytes_read) == (13, 124, 22)
    assert summary.storage_bytes_read == _column(ARRIVED, cache_accounting.FETCHED)
    assert summary.au == pytest.approx(_total(COMPUTE) / (_total(COMPUTE) + _total(WAIT)))
    assert summary.compute_asked_s == pytest.approx(_total(ASKED) / 15)
    assert summary.io_time_s == pytest.approx(13.0 / 3)
    assert summary.io_hidden_fraction == pytest.approx(4.0 / 13.0)
    assert summary.preprocess_s == pytest.approx(1.5)
    assert summary.overhead_s == pytest.approx(0.4)
    assert summary.verify_s == pytest.approx(_column(VERIFIED, 0) / 3)
    assert summary.samples_verified == 22
    assert summary.read_latency_s is not None
    assert summary.read_latency_s.mean == pytest.approx(9.0 / 12)
    assert summary.read_latency_s.max == 1.5
    assert summary.open_latency_s is not None
    assert summary.close_latency_s is not None
    assert (summary.open_latency_s.max, summary.close_latency_s.max) == (0.8, 0.6)
    assert summary.open_latency_s.mean == pytest.approx(1.6 / 13)
    assert summary.close_latency_s.mean == pytest.approx(1.0 / 10)
    assert summary.metadata_fraction == pytest.approx(2.6 / 11.6)
    assert summary.opens_per_s == pytest.approx(13 / summary.wall_s)


def test_the_time_of_the_run_leaves_out_passes_and_the_tools_own_work(summary: Summary) -> None:
    """The pass after the first epoch lies between epochs, with the time of its slowest rank; the one after the last
    epoch lies behind the last step.
    """
    _, begins, ends = _steps()
    own = (0.5 + 0.0 + 1.0) / 3 + (0.25 + 0.0 + 0.5) / 3
    wall_s = ends[4] - begins[0] - 22.0 - own
    assert summary.wall_s == pytest.approx(wall_s)
    assert summary.samples_per_s == pytest.approx(_total(SAMPLES) / wall_s)
    assert summary.read_MBps == pytest.approx(_total(BYTES) / wall_s / 1e6)


def test_the_phases_of_the_steps(summary: Summary) -> None:
    _, begins, ends = _steps()
    sync = [ends[step] - begins[step] - WAIT[rank][step] - COMPUTE[rank][step] for rank in RANKS for step in range(5)]
    for made, values in (
        (summary.wait_s, list(itertools.chain(*WAIT))),
        (summary.compute_s, list(itertools.chain(*COMPUTE))),
        (summary.sync_s, sync),
    ):
        assert (made.mean, made.max) == pytest.approx((fmean(values), max(values)))


def test_the_slowest_rank_is_the_one_that_was_busy_longest(summary: Summary) -> None:
    busy = [sum(WAIT[rank]) + sum(COMPUTE[rank]) for rank in RANKS]
    slowest = summary.slowest_rank
    assert (slowest.rank, slowest.host) == (busy.index(max(busy)), "a")
    assert slowest.busy_s == pytest.approx(max(busy))
    assert slowest.ratio == pytest.approx(max(busy) / sorted(busy)[1])


def test_the_checkpoints(summary: Summary) -> None:
    saved = summary.checkpoint
    assert saved is not None
    safe = [max(SAVED[rank][place][4] + SAVED[rank][place][5] for rank in (0, 2)) for place in range(3)]
    back = [max(SAVED[rank][place][6] for rank in (0, 2)) for place in range(3)]
    assert (saved.count, saved.bytes_written) == (3, 1200)
    assert saved.write_MBps == pytest.approx(1200 / sum(safe) / 1e6)
    assert saved.read_MBps == pytest.approx(1200 / sum(back) / 1e6)
    assert saved.safe_s is not None
    assert (saved.safe_s.mean, saved.safe_s.max) == pytest.approx((fmean(safe), max(safe)))
    assert saved.own_s == pytest.approx(_column(SAVED, checkpoint.OWN_S) / 3)
    assert saved.pause_s.mean == pytest.approx(_column(SAVED, checkpoint.PAUSE_S) / 9)
    writers = [SAVED[0], SAVED[2]]
    assert saved.write_s.mean == pytest.approx(_column(writers, checkpoint.WRITE_S) / 6)
    assert saved.fsync_s.mean == pytest.approx(_column(writers, checkpoint.FSYNC_S) / 6)
    assert saved.read_s is not None
    assert saved.read_s.mean == pytest.approx(_column(writers, checkpoint.BACK_S) / 6)


def test_the_checkpoints_that_were_read(summary: Summary) -> None:
    made = summary.restored
    assert made is not None
    assert (made.count, made.bytes_read) == (2, 240)
    assert made.read_MBps == pytest.approx(240 / (5.0 + 3.0) / 1e6)
    assert (made.slowest_s.mean, made.slowest_s.max) == pytest.approx((4.0, 5.0))
    assert made.read_s.mean == pytest.approx((2.0 + 3.0 + 5.0 + 1.0) / 4)
    assert made.gap_s == 7.0
    assert made.verify_s == pytest.approx((0.75 + 3.0 + 0.0) / 3)
    assert made.storage_bytes_read == _column(ARRIVED, cache_accounting.FETCHED)


def test_the_evaluation_passes(summary: Summary) -> None:
    made = summary.evaluation
    assert made is not None
    assert (made.count, made.samples, made.bytes_read) == (2, 43, 431)
    assert made.wall_s == pytest.approx(11.0 + 15.0)
    assert made.samples_per_s == pytest.approx(43 / 26.0)
    assert made.read_MBps == pytest.approx(431 / 26.0 / 1e6)
    assert made.wait_s == pytest.approx((4.0 + 6.0 + 3.0 + 5.0 + 2.0 + 8.0) / 3)
    assert made.compute_s == pytest.approx((5.0 + 7.0 + 6.0 + 4.0 + 4.5 + 6.5) / 3)
    assert made.sync_s == pytest.approx((1.0 + 0.5 + 2.0 + 3.0 + 2.5 + 0.25) / 3)


def test_the_auxiliary_files(summary: Summary) -> None:
    made = summary.auxiliary_files
    assert made is not None
    assert (made.opens, made.reads, made.writes, made.bytes_read, made.bytes_written) == (7, 10, 13, 123, 153)
    assert structs.astuple(made)[-1] == pytest.approx(2.0)


def test_a_run_with_a_single_checkpoint_counts_the_ranks_that_wrote() -> None:
    saved = np.zeros((3, 1, checkpoint.COLUMNS))
    saved[:, 0, checkpoint.SIZE] = [300, 0, 500]
    saved[:, 0, checkpoint.WRITE_S] = [2.0, 9.0, 4.0]
    made = merge._checkpoint(saved)
    assert (made.count, made.bytes_written) == (1, 800)
    assert made.write_MBps == pytest.approx(800 / 4.0 / 1e6), "a rank that writes nothing is not the slowest"
