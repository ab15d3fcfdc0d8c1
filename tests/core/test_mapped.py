"""Files that are mapped into memory: no call shows the data, so that strace sees only the headers."""

import contextlib
import mmap
import os
import re
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Draft, Workload
from dlio_hpc.core import buffers, page_cache, procfs
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader_choice import LOADERS
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.run_result import Summary
from tests.conftest import BIN
from tests.core.test_counts import RANKS, measured
from tests.support import existing, straced, written

_KEYS = ("dataset.format=npy", "reader.mode=framework", "reader.mapped=true")


@pytest.mark.job
@pytest.mark.strace
@pytest.mark.parametrize(
    "keys",
    [
        *((f"reader.loader={loader}",) for loader in LOADERS),
        ("dataset.file_access=shared", "dataset.files=1", "dataset.samples_per_file=37"),
    ],
    ids=" ".join,
)
def test_calls_read_headers_and_page_faults_read_samples(tmp_path: Path, small: Path, keys: tuple[str, ...]) -> None:
    straced.needed()
    if "reader.loader=tensorflow" in keys:
        pytest.importorskip("tensorflow")
    run, summary = measured(tmp_path, small, *_KEYS, *keys)
    _check_calls_and_faults(tmp_path, run, summary)


def _check_calls_and_faults(job: Path, run: Run, summary: Summary) -> None:
    """Check that calls read headers alone, as strace records them, and that page faults read the samples."""
    traced = straced.requests(job, RANKS, run.dataset)
    assert (summary.reads, summary.overhead_bytes_read) == (len(traced), sum(traced))
    assert summary.opens == straced.opens(job, RANKS, run.dataset)
    assert summary.bytes_read == summary.samples * run.workload.dataset.sample.size
    assert summary.page_faults is not None
    assert summary.page_faults.major + summary.page_faults.minor > 0


@pytest.mark.job
@pytest.mark.strace
@pytest.mark.parametrize("loader", LOADERS)
def test_calls_read_headers_of_indexes_and_page_faults_read_tokens(tmp_path: Path, small: Path, loader: str) -> None:
    straced.needed()
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    keys = ("dataset.format=indexed", "reader.mode=framework", "reader.mapped=true", f"reader.loader={loader}")
    documents = ("dataset.sample={shape: [1025], dtype: int32}", "dataset.documents={tokens: 300, stdev: 99}")
    run, summary = measured(tmp_path, small, *keys, *documents)
    _check_calls_and_faults(tmp_path, run, summary)


def _read(folder: Path, made: Workload, samples: list[int]) -> tuple[list[bytes], Tally]:
    reader = FORMATS[made.dataset.format].reader(made, lambda number: str(folder / str(number)), None)
    places = SampleLayout(made.dataset).of(np.array(samples, np.uint64))
    rows, tally = np.zeros((len(samples), made.dataset.largest_in_memory), np.uint8), Tally()
    reader.read(places, buffers.over(rows), tally)
    reader.close()
    return [row[: place.size].tobytes() for place, row in zip(places, rows, strict=True)], tally


def _workload(dataset: Dataset, mapped: bool = True) -> Workload:
    return Workload("w", dataset, reader=Reader(mode="framework", mapped=mapped))


@pytest.mark.parametrize("sample", [Sample(shape=(30, 7), dtype="int16"), Sample(bytes=Size(5000), stdev=Size(900))])
def test_samples_are_those_that_are_read_without_a_map(tmp_path: Path, sample: Sample) -> None:
    dataset = Dataset("npy", 3, 5, sample)
    for number in range(3):
        written.write(tmp_path / str(number), dataset, number)
    samples = [3, 14, 2, 4, 10, 0]
    mapped, tally = _read(tmp_path, _workload(dataset), samples)
    plain, _ = _read(tmp_path, _workload(dataset, mapped=False), samples)
    assert mapped == plain
    assert tally.bytes_read == sum(map(len, plain))
    assert tally.opens == 3 * 5, "files 0, 2, 0, 2 and 0 are mapped, each by three opens"
    assert len(tally.sizes) == 5 + 6, "a latency for each header and for each sample"


def test_faults_are_those_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three copies with 3, 5 and 9 major faults, and twice as many minor ones."""
    faults = iter([(0, 0), (3, 6), (10, 20), (15, 30), (100, 200), (109, 218)])
    monkeypatch.setattr(procfs, "page_faults", lambda: procfs.PageFaults(*next(faults)))
    dataset = Dataset("npy", 1, 3, Sample(bytes=Size(5000)))
    written.write(tmp_path / "0", dataset, 0)
    _, tally = _read(tmp_path, _workload(dataset), [0, 1, 2])
    assert (tally.major_faults, tally.minor_faults) == (17, 34)


def test_the_kernel_counts_the_pages_that_faults_bring(tmp_path: Path) -> None:
    """mincore(2) shows which pages of a file of 64 MiB are in memory after two samples were copied. With readahead,
    they are more than those of the samples.
    """
    dataset = Dataset("npy", 1, 16, Sample(bytes=Size(4 << 20)))
    path = tmp_path / "0"
    written.write(path, dataset, 0)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    page_cache.drop(str(path))
    if page_cache.resident([str(path)])[1]:
        pytest.skip("the page cache of this file system cannot be dropped")
    before = procfs.thread_io()
    _, tally = _read(tmp_path, _workload(dataset), [2, 9])
    after = procfs.thread_io()
    assert tally.major_faults > 0
    assert before is not None
    assert after is not None
    fetched = after.since(before).fetched
    for _ in range(100):  # readahead goes on
        _, cached = page_cache.resident([str(path)])
        if cached * mmap.PAGESIZE >= fetched:
            break
        time.sleep(0.05)
    assert fetched == pytest.approx(cached * mmap.PAGESIZE, rel=0.02)
    assert fetched >= tally.bytes_read == 8 << 20


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("dtype", [">u2", "c8", "?"])
def test_existing_arrays_are_mapped(tmp_path: Path, rows: bool, dtype: str) -> None:
    contents = existing.typed(tmp_path / "data", "npy", np.dtype(dtype))
    if not rows:
        contents = [b"".join(contents[begin:end]) for begin, end in ((0, 5),)]
        for number in (1, 2):
            (tmp_path / "data" / f"{number}.npy").unlink()
    made = existing.unscanned("npy", "*", {"rows": rows}, mode="framework", mapped=True)
    made = existing.scanned(tmp_path / "data", tmp_path, made)
    for number, path in enumerate(sorted((tmp_path / "data").iterdir())):
        (tmp_path / str(number)).symlink_to(path)
    actual, _ = _read(tmp_path, made, list(range(made.dataset.samples)))
    assert actual == contents


def test_an_array_in_fortran_order_is_mapped_without_a_copy(tmp_path: Path) -> None:
    """The copy would wait for storage where nothing is counted. The bytes come in the order of the file."""
    (tmp_path / "data").mkdir()
    values = np.arange(4 << 20, dtype="i4").reshape(2048, 2048)
    np.save(tmp_path / "data" / "0.npy", np.asfortranarray(values))
    (tmp_path / "0").symlink_to(tmp_path / "data" / "0.npy")
    made = existing.unscanned("npy", "*", mode="framework", mapped=True)
    made = existing.scanned(tmp_path / "data", tmp_path, made)
    before = procfs.page_faults()
    (row,), tally = _read(tmp_path, made, [0])
    after = procfs.page_faults()
    assert row == values.T.tobytes()
    pages = len(row) // mmap.PAGESIZE
    assert tally.minor_faults + tally.major_faults > 0
    outside = after.minor + after.major - before.minor - before.major - tally.minor_faults - tally.major_faults
    assert outside < 1.5 * pages, "only the memory of the row is new"


@pytest.mark.parametrize("left", [0, 3, 100, 5000])
def test_cut_files_are_named(tmp_path: Path, left: int) -> None:
    dataset = Dataset("npy", 1, 3, Sample(bytes=Size(5000)))
    written.write(tmp_path / "0", dataset, 0)
    os.truncate(tmp_path / "0", left)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0"):
        _read(tmp_path, _workload(dataset), [0])


@pytest.mark.parametrize(
    ("keys", "need"),
    [
        ({"mode": "posix"}, "reader.mode=framework, not posix"),
        *(({"format": kind}, f"format=npy or indexed; files of format={kind}") for kind in ("npz", "raw", "hdf5")),
    ],
)
def test_other_formats_are_not_mapped(keys: dict[str, Any], need: str) -> None:
    kind, mode = keys.get("format", "npy"), keys.get("mode", "framework")
    dataset = {"format": kind, "files": 4, "samples_per_file": 1, "sample": {"bytes": 9000}}
    data = {"name": "w", "dataset": dataset, "reader": {"mapped": True, "mode": mode}}
    with pytest.raises(ConfigError, match=rf"reader\.mapped=true needs {need}"):
        Draft(data, "test").with_settings({})


def test_samples_of_mapped_files_may_be_interleaved() -> None:
    """Each sample of another file would take a load of the whole file without a map."""
    made = partial(Dataset, "npy", 4, 4, Sample(bytes=Size(100)))
    reader = Reader(mode="framework", interleave=2)
    with pytest.raises(ValueError, match="interleave"):
        Workload("w", made(), reader=reader)
    Workload("w", made(), reader=Reader(mode="framework", interleave=2, mapped=True))


@pytest.mark.job
def test_a_file_that_is_cut_while_it_is_mapped_is_the_reason(tmp_path: Path) -> None:
    """The kernel ends the rank, whose last lines do not tell why."""
    path = tmp_path / "data" / "a.npy"
    path.parent.mkdir()
    np.save(path, np.zeros((4000, 2000), "f4"))
    (tmp_path / "w.yaml").write_text(
        "name: w\ndataset: {format: npy, existing: {glob: '*.npy', rows: true}}\n"
        "reader: {mode: framework, mapped: true}\ncompute: {time: 20 ms}\n"
    )
    command = [str(BIN / "dlio-submit"), "w.yaml", "-s", "local", "--ppn", "1", "--wait", "-d", "data"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        while job.poll() is None and not _is_mapped(path):
            time.sleep(0.1)
        os.truncate(path, 5000)
        out, _ = job.communicate(timeout=120)
    assert job.returncode == 6
    status = r"exit status (7|135)"  # SIGBUS; 128 more if the limits of the shell allow a core file
    assert re.search(rf"ended as failed \({status}\); a file that was mapped was cut meanwhile, or cannot be read", out)


def _is_mapped(path: Path) -> bool:
    """Return whether a process has mapped a file."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(path) in maps.read_text():
                return True
    return False
