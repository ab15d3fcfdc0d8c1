import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc import units
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader, Shuffle
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.core.sample_layout import Places
from dlio_hpc.errors import InvalidRun
from dlio_hpc.plan import plan
from dlio_hpc.plan.sample_order import Order


class _Counting:
    """A reader that writes each sample's number into its row, after a pause that differs by sample."""

    def __init__(self, pause: bool = False, fail_at: int | None = None) -> None:
        self.pause, self.fail_at = pause, fail_at
        self.at_once = self.most_at_once = self.closed = 0
        self.calls: list[int] = []
        self._lock = threading.Lock()

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        samples = places.sample
        with self._lock:
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
            self.calls += samples.tolist()
        if self.pause:
            time.sleep(0.002 * (int(samples[0]) % 3) if len(samples) else 0)
        if self.fail_at is not None and self.fail_at in samples.tolist():
            raise InvalidRun("cannot")
        buffer.rows.view(np.uint64)[:, 0] = samples
        with self._lock:
            self.at_once -= 1

    def close(self) -> None:
        self.closed += 1


def _workload(samples: int, reader: Reader) -> Workload:
    return Workload("w", Dataset("npz", samples, 1, Sample(bytes=units.Size(8))), reader=reader)


@given(
    samples=st.integers(1, 60), ranks=st.integers(1, 5), batch=st.integers(1, 9), threads=st.integers(1, 4),
    ahead=st.integers(0, 6),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_batches_come_in_order_and_each_sample_once(
    samples: int, ranks: int, batch: int, threads: int, ahead: int
) -> None:
    threads = min(threads, ahead) if ahead else threads
    keys = Reader(batch_size=batch, read_threads=threads, prefetch=ahead, shuffle=Shuffle(True, True, 1))
    made = _workload(samples, keys)
    steps = plan.steps_per_epoch(made, ranks)
    order = Order(made.dataset, keys, 0)
    numbers: list[int] = []
    for rank in range(ranks):
        first, last = plan.share(samples, ranks, rank)
        reader = _Counting(pause=True)
        loader = NativeLoader(made, reader, 1000)
        got = [rows.view(np.uint64)[:, 0].tolist() for _, rows, *_ in loader.epoch(order, first, last, steps)]
        loader.close()
        assert len(got) == steps
        assert [number for part in got for number in part] == order.samples(first, last).tolist()
        assert reader.closed == 1
        numbers += [number for part in got for number in part]
    assert sorted(numbers) == list(range(samples))


def test_threads_read_ahead_of_the_loop_and_no_further() -> None:
    reader = _Counting()
    made = _workload(100, Reader(batch_size=1, read_threads=2, prefetch=3))
    loader = NativeLoader(made, reader, 1000)
    batches = loader.epoch(Order(made.dataset, made.reader, 0), 0, 100, 100)
    next(batches)
    deadline = time.monotonic() + 10
    while len(reader.calls) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert sorted(reader.calls) == [0, 1, 2, 3], "one in the loop's hands and three ahead"
    assert sum(1 for _ in batches) == 99
    loader.close()


def test_a_reader_threads_fault_reaches_the_loop() -> None:
    made = _workload(20, Reader(read_threads=2))
    loader = NativeLoader(made, _Counting(fail_at=7), 20)
    with pytest.raises(InvalidRun, match="cannot"):
        list(loader.epoch(Order(made.dataset, made.reader, 0), 0, 20, 20))
    loader.close()


@pytest.mark.parametrize("batch", [1, 7, 8192, 10_000])
def test_long_epochs_are_ordered_stretch_by_stretch(batch: int) -> None:
    made = _workload(50_000, Reader(batch_size=batch, read_threads=2, shuffle=Shuffle(True, True, 1)))
    loader = NativeLoader(made, _Counting(), 50_000)
    order = Order(made.dataset, made.reader, 0)
    steps = plan.steps_per_epoch(made, 2)
    got = [rows.view(np.uint64)[:, 0].copy() for _, rows, *_ in loader.epoch(order, 0, 25_000, steps)]
    loader.close()
    assert [len(part) for part in got[:-1]] == [batch] * (steps - 1)
    assert (np.concatenate(got) == order.samples(0, 25_000)).all()
