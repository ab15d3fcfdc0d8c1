import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.base import units
from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader, Shuffle
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import procfs
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.core.loaders.tensorflow.records import Records
from dlio_hpc.dataset import rank_shares
from dlio_hpc.dataset.sample_layout import Places
from dlio_hpc.dataset.sample_order import Order
from tests.conftest import Run


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
    steps = rank_shares.steps_per_epoch(made, ranks)
    order = Order(made.dataset, keys, 0)
    numbers: list[int] = []
    for rank in range(ranks):
        first, last = rank_shares.share(samples, ranks, rank)
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
    steps = rank_shares.steps_per_epoch(made, 2)
    got = [rows.view(np.uint64)[:, 0].copy() for _, rows, *_ in loader.epoch(order, 0, 25_000, steps)]
    loader.close()
    assert [len(part) for part in got[:-1]] == [batch] * (steps - 1)
    assert (np.concatenate(got) == order.samples(0, 25_000)).all()


@pytest.mark.parametrize("epochs", [1, 3])
def test_bytes_that_no_file_holds_are_no_samples(monkeypatch: pytest.MonkeyPatch, epochs: int) -> None:
    """Two TFRecord files of 3 records of 100 bytes. The process also reads 20 bytes of /dev/urandom in each epoch."""
    dataset, whole = Dataset("tfrecord", 2, 3, Sample(bytes=units.Size(100))), 3 * (100 + 16)
    keys = Reader(loader="tensorflow", mode="framework")
    source = Records(None, Workload("w", dataset, reader=keys), "file{}".format, whole=True)
    requested = 0
    monkeypatch.setattr(procfs, "process_io", lambda: procfs.IO(requested, 0, 0, 0))
    monkeypatch.setattr(procfs, "thread_io", lambda: procfs.IO(0, 0, 0, 0))
    for epoch in range(epochs):
        source.begin(Order(dataset, keys, epoch, 0, 1))
        counted = []
        for number, read in ((0, 20 + whole), (1, whole - 50), (None, 50)):
            if number is not None:
                source._path(number)
            requested += read
            counted.append(source.taken(np.zeros((2, 100), np.uint8))[1].bytes_read)
        assert sum(counted) == 2 * whole


@pytest.mark.job
@pytest.mark.parametrize("keys", [(), ("reader.interleave=4", "reader.read_threads=4")])
def test_tensorflow_reads_the_bytes_of_the_files(run: Run, tmp_path: Path, keys: tuple[str, ...]) -> None:
    pytest.importorskip("tensorflow")
    (tmp_path / "w.yaml").write_text(
        "name: w\ndataset: {format: tfrecord, files: 4, samples_per_file: 5, sample: {bytes: 4000}}\n"
        "reader: {loader: tensorflow, mode: framework, batch_size: 2}\ncompute: {time: 1 ms}\ntrain: {epochs: 2}\n"
    )
    settings = [word for key in keys for word in ("-S", key)]
    done = run("dlio-submit", "w.yaml", "-s", "local", "--ppn", 1, "-d", "data", *settings, "--wait", "--json")
    assert done.code in {0, 4}, done.err
    epochs = done.job["runs"][-1]["result"]["epochs"]
    files = sum(path.stat().st_size for path in (tmp_path / "data").rglob("*.tfrecord"))
    assert [epoch["bytes_read"] for epoch in epochs] == [files, files]
