"""In framework mode TFRecord files are streams: ranks divide them as wholes among them, and one thread reads each.
Bytes and their order are checked with strace.
"""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlio_hpc.base import serialization, units
from dlio_hpc.base.units import Size
from dlio_hpc.config import site, workload
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader, Shuffle
from dlio_hpc.config.workload import Train, Workload
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.loaders.loader_choice import LOADERS, Inputs
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.dataset import interleave, planned_bytes, rank_shares
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.files import rundir
from dlio_hpc.plan import study, study_file
from dlio_hpc.plan.plan import Plan
from dlio_hpc.results.run_result import Result
from tests.conftest import BIN, Run
from tests.support import planning, straced, written
from tests.support.places import ROOT

_SHUFFLES = [Shuffle(files, samples, 3) for files in (False, True) for samples in (False, True)]
# Ranks, threads, files and shuffling of each loader. TensorFlow takes a quarter of a second for each rank's pipeline.
_WAYS = {
    "native": list(product((1, 2, 4, 8), (1, 2, 8), (8, 16, 64), _SHUFFLES)),
    "tensorflow": list(product((1, 2, 8), (1, 8), (8, 64), _SHUFFLES)),
}
_MOST = 1.02
_READ = re.compile(r"(?:pread64|preadv2?)\(\d+<([^>]*)>, .*?, (?:\d+, )?(\d+)(?:, 0)?\) += (\d+)$")

# A line of strace: the thread and its call.
Calls = list[tuple[str, str]]


def _made(files: int, per_file: int, size: int, **keys: Any) -> Workload:
    return Workload("w", Dataset("tfrecord", files, per_file, Sample(bytes=Size(size))), reader=Reader(**keys))


def _write(folder: Path, dataset: Dataset) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(dataset.files):
        written.write(str(folder / str(number)), dataset, number)


def _path(folder: Path, number: int) -> str:
    return str(folder / str(number))


def _way(loader: Any, threads: int, files: int, shuffle: Shuffle, **keys: Any) -> Workload:
    keys = {"batch_size": 8, "transfer_size": Size(4096), "read_threads": threads, "prefetch": 2 * threads} | keys
    return _made(files, 8, 2000, loader=loader, mode="framework", shuffle=shuffle, **keys)


def read_ways(folder: Path, loader: str, begin: int, step: int) -> None:
    """Read an epoch in each way, all ranks one after the other. A stat() of its name marks the begin of each way."""
    for number, (ranks, threads, files, shuffle) in list(enumerate(_WAYS[loader]))[begin::step]:
        _epoch(folder, _way(loader, threads, files, shuffle), ranks, number)


def _epoch(folder: Path, made: Workload, ranks: int, number: int) -> None:
    os.path.exists(folder / "way" / str(number))
    steps = rank_shares.steps_per_epoch(made, ranks)
    order = Order(made.dataset, made.reader, 0, ranks=ranks)
    paths = partial(_path, folder / str(made.dataset.files))
    samples = 0
    for rank in range(ranks):
        loader = LOADERS[made.reader.loader](Inputs(made, paths, steps, whole=True))
        samples += sum(
            len(batch.rows) for batch in loader.epoch(order, *rank_shares.positions(made, ranks, rank, 1), steps)
        )
        loader.close()
    assert samples == rank_shares.samples_per_epoch(made, ranks)


# Ranks, and ways to read fewer files than ranks, or to stop within files.
_PARTS = [
    (ranks, threads, files, shuffle, steps)
    for ranks, threads, files, shuffle, steps in product((1, 3), (1, 2), (2, 8), _SHUFFLES[:3], (None, 1))
    if steps or ranks > files
]


def read_parts(folder: Path, loader: str) -> None:
    """Read parts of files in each way, as in read_ways()."""
    for number, (ranks, threads, files, shuffle, steps) in enumerate(_PARTS):
        _epoch(folder, _part(loader, threads, files, shuffle, steps), ranks, number)


def _part(loader: str, threads: int, files: int, shuffle: Shuffle, steps: int | None) -> Workload:
    return replace(_way(loader, threads, files, shuffle, batch_size=3), train=Train(steps=steps))


def read_in_threads(folder: Path) -> None:
    """Read all of 16 files with different numbers of threads."""
    for number, threads in enumerate(_THREADS):
        os.path.exists(folder / "way" / str(number))
        made = _large(threads)
        reader = FORMATS["tfrecord"].reader(made, partial(_path, folder), None)
        loader = NativeLoader(made, reader, made.dataset.samples)
        order = Order(made.dataset, made.reader, 0)
        assert sum(len(batch.rows) for batch in loader.epoch(order, 0, made.dataset.samples, made.dataset.samples))
        loader.close()


_THREADS = (1, 8, 16)


def _large(threads: int) -> Workload:
    keys = {"batch_size": 32, "transfer_size": Size(1000), "read_threads": threads, "prefetch": 2 * threads}
    return _made(16, 100, 20_000, mode="framework", shuffle=Shuffle(files=True), **keys)


def _traced(folder: Path, name: str, call: str) -> Calls:
    """Lines of strace for a call of a function of this module, in order of time."""
    straced.needed()
    command = ["strace", "-f", "-qq", "--seccomp-bpf", "-y", "-s", "0", "-e", "signal=none", "-o", str(folder / name)]
    calls = "trace=read,pread64,preadv,preadv2,?newfstatat,?stat,?statx"
    program = f"from pathlib import Path; import tests.core.test_streams as streams; streams.{call}"
    done = subprocess.run(
        [*command, "-e", calls, sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return _whole((folder / name).read_text(errors="replace").splitlines())


def _whole(lines: list[str]) -> Calls:
    """Threads and their calls. A call that strace splits is joined at the place where it begins."""
    places: dict[str, int] = {}
    calls: Calls = []
    for line in lines:
        thread, call = line.split(maxsplit=1)
        if call.startswith("<... ") and thread in places:
            place = places.pop(thread)
            calls[place] = (thread, calls[place][1] + call.partition(" resumed>")[2])
            continue
        if call.endswith("<unfinished ...>"):
            places[thread] = len(calls)
        calls.append((thread, call.removesuffix("<unfinished ...>")))
    return calls


class Request(NamedTuple):
    """One read of a file of the dataset."""

    thread: str
    path: str
    offset: int
    length: int


def _by_way(folder: Path, calls: Calls) -> dict[int, list[Request]]:
    """Reads of the dataset's files, by way."""
    read: dict[int, list[Request]] = {}
    way = -1
    for thread, call in calls:
        if f'"{folder}/way/' in call:
            way = int(call.partition(f'"{folder}/way/')[2].partition('"')[0])
            read[way] = []
        elif (read_call := _READ.match(call)) and read_call[1].startswith(f"{folder}/"):
            read[way].append(Request(thread, read_call[1], int(read_call[2]), int(read_call[3])))
    return read


def _bytes(requests: list[Request]) -> int:
    return sum(request.length for request in requests)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        for files in (2, 8, 16, 64):
            _write(folder / str(files), _made(files, 8, 2000).dataset)
    return folder


def _needs(loader: str) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")


@pytest.mark.strace
@pytest.mark.timeout(900)  # half a minute on an idle computer
@pytest.mark.parametrize("loader", ["native", "tensorflow"])
def test_ranks_together_read_the_dataset_once(stored: Path, loader: str) -> None:
    _needs(loader)
    calls = [f"read_ways(Path({str(stored)!r}), {loader!r}, {begin}, 2)" for begin in range(2)]
    with ThreadPoolExecutor() as both:
        traces = both.map(partial(_traced, stored), ("trace-0", "trace-1"), calls)
        read = {way: requests for trace in traces for way, requests in _by_way(stored, trace).items()}
    assert len(read) == len(_WAYS[loader])
    factors = {way: _bytes(read[number]) / (way[2] * 8 * 2000) for number, way in enumerate(_WAYS[loader])}
    wrong = {way: factor for way, factor in factors.items() if not 1 <= factor <= _MOST}
    assert not wrong


@pytest.mark.strace
@pytest.mark.timeout(600)
@pytest.mark.parametrize("loader", ["native", "tensorflow"])
def test_what_is_read_beyond_the_samples_is_known_before(stored: Path, loader: str) -> None:
    """The planned volume holds for ranks that share files, and for epochs that end within files."""
    _needs(loader)
    read = _by_way(stored, _traced(stored, "trace", f"read_parts(Path({str(stored)!r}), {loader!r})"))
    factors = []
    for number, (ranks, threads, files, shuffle, steps) in enumerate(_PARTS):
        made = _part(loader, threads, files, shuffle, steps)
        planned = planned_bytes.planned(made, ranks, rank_shares.samples_per_epoch(made, ranks))
        # TensorFlow reads the byte before its first offset to check that it exists.
        requests = [request for request in read[number] if request.length > 1]
        assert _bytes(requests) == pytest.approx(planned * 2016 / 2000, abs=ranks * 2), _PARTS[number]
        factors.append(planned_bytes.factor(made, ranks))
    assert min(factors) >= 1
    assert max(factors) > 4, "a file that is read whole for three samples of it"


@pytest.mark.strace
def test_threads_read_streams_of_their_own(tmp_path: Path) -> None:
    """One thread reads each file from its front to its end, for any number of threads."""
    _write(tmp_path, _large(1).dataset)
    read = _by_way(tmp_path, _traced(tmp_path, "trace", f"read_in_threads(Path({str(tmp_path)!r}))"))
    for number, threads in enumerate(_THREADS):
        of_file: dict[str, list[Request]] = defaultdict(list)
        for request in read[number]:
            of_file[request.path].append(request)
        follows = [
            other.offset == one.offset + one.length
            for requests in of_file.values()
            for one, other in pairwise(requests)
        ]
        assert len(of_file) == 16
        assert len(follows) > 16 * 2000
        assert sum(follows) / len(read[number]) >= 0.999
        assert all(len({request.thread for request in requests}) == 1 for requests in of_file.values())
        assert len({request.thread for request in read[number]}) == threads


@given(
    files=st.integers(1, 40), per_file=st.integers(1, 12), ranks=st.integers(1, 12), threads=st.integers(1, 9),
    shuffle=st.sampled_from(_SHUFFLES[:3]), batch=st.integers(1, 9), drop_last=st.booleans(),
    steps=st.none() | st.integers(1, 4), loader=st.sampled_from(sorted(LOADERS)),
)  # fmt: skip
@settings(deadline=None)
def test_ranks_share_files_and_every_sample_is_one_ranks(
    files: int, per_file: int, ranks: int, threads: int, shuffle: Shuffle, batch: int, drop_last: bool,
    steps: int | None, loader: str,
) -> None:  # fmt: skip
    made = _made(
        files, per_file, 100, mode="framework", loader=loader, read_threads=threads, shuffle=shuffle,
        batch_size=batch, drop_last=drop_last,
    )  # fmt: skip
    made = replace(made, train=Train(steps=steps))
    order, most = Order(made.dataset, made.reader, 1, ranks=ranks), rank_shares.steps_per_epoch(made, ranks) * batch
    shares = [order.samples(*rank_shares.positions(made, ranks, rank, 1)) for rank in range(ranks)]
    assert sorted(sample for share in shares for sample in share.tolist()) == list(range(made.dataset.samples))
    assert sum(min(len(share), most) for share in shares) == rank_shares.samples_per_epoch(made, ranks)
    assert max(map(len, shares)) == rank_shares.largest_share(made, ranks)
    if drop_last:
        assert min(map(len, shares)) >= most
    elif steps is None:
        assert max(map(len, shares)) <= most
    read_by = Counter(file for share in shares for file in set((share // per_file).tolist()))
    if files >= ranks:
        assert set(read_by.values()) == {1}, "a file that two ranks read"
        for share in shares:
            at_once = min(threads, len(share) // per_file)
            assert len(set((share[:at_once] // per_file).tolist())) == at_once, "as many files in turn as threads"


@given(
    files=st.integers(1, 40), per_file=st.integers(1, 12), at_once=st.integers(1, 9), shares=st.integers(1, 12),
    share=st.integers(0, 11), begin=st.integers(0, 100), length=st.integers(0, 500),
)  # fmt: skip
def test_parts_of_a_share_are_of_one_group_or_of_whole_groups(
    files: int, per_file: int, at_once: int, shares: int, share: int, begin: int, length: int
) -> None:
    shares = min(shares, files)
    order = interleave.FileGroups(files, per_file, min(at_once, files), shares)
    first, last = (bound * per_file for bound in rank_shares.share(files, shares, share % shares))
    first = min(first + begin, last)
    last = min(first + length, last)
    parts = list(order.parts(first, last))
    assert [position for part in parts for position in range(*part)] == list(range(first, last))
    assert len(parts) <= 3
    for one, other in parts:
        groups = {order.group(position) for position in range(one, other)}
        assert len(groups) == 1 or (one, other) == (min(groups)[0], max(groups)[1])


def _planned(folder: Path, name: str, ranks: int, *overrides: str, size: int | None = None) -> Plan:
    request = planning.Request(
        folder, data=folder / "data", walltime=units.walltime("1h"), ranks_per_node=ranks, dataset_size=size
    )
    return planning.make(workload.load(name, ("compute.time=0", *overrides)), site.load("local"), request)


_JOBS: dict[str, tuple[int, tuple[str, ...], float]] = {
    "imagenet on 4 ranks": (4, ("dataset.samples_per_file=16", "reader.read_threads=8"), 1.0),
    "the same, natively": (
        4, ("dataset.samples_per_file=16", "reader.read_threads=8", "reader.loader=native"), 1.0
    ),
    "samples shuffled, two files for three ranks": (
        3, ("dataset.files=2", "dataset.samples_per_file=60", "reader.shuffle={samples: true}"), 3.0
    ),
}  # fmt: skip


@pytest.mark.job
@pytest.mark.parametrize("name", _JOBS)
def test_jobs_read_what_was_planned(tmp_path: Path, name: str) -> None:
    straced.needed()
    ranks, keys, factor = _JOBS[name]
    _needs("native" if "reader.loader=native" in keys else "tensorflow")
    made = _planned(tmp_path, "imagenet", ranks, "train.steps=null", "reader.preprocess_time=0", *keys, size=32 << 20)
    (tmp_path / rundir.PLAN).write_bytes(serialization.encode(made))
    straced.core(tmp_path, ranks, 0)
    straced.core(tmp_path, ranks, 1, tmp_path / "log")
    run = made.runs[1]
    result = serialization.decode((tmp_path / "runs/01-measure/result.json").read_bytes(), Result, "result.json")
    size = run.workload.dataset.size
    assert result.faults == []
    assert run.bytes == pytest.approx(factor * size, rel=0.001)
    assert factor * size <= straced.bytes_read(tmp_path, ranks, run.dataset) <= _MOST * factor * size
    assert result.summary is not None
    assert run.bytes <= result.summary.bytes_read <= _MOST * run.bytes + ranks * (1 << 20)


@pytest.mark.job
@pytest.mark.parametrize("keys", [(), ("reader.shuffle={files: true, samples: true}",)], ids=str)
def test_more_than_was_planned_is_a_fault(tmp_path: Path, keys: tuple[str, ...]) -> None:
    made = _planned(
        tmp_path, "imagenet", 2, "reader.loader=native", "train.steps=null", "reader.preprocess_time=0",
        "dataset.samples_per_file=16", *keys, size=16 << 20,
    )  # fmt: skip
    generate, measure = made.runs
    less = replace(made, runs=(generate, replace(measure, bytes=int(measure.bytes / 1.5))))
    (tmp_path / rundir.PLAN).write_bytes(serialization.encode(less))
    straced.core(tmp_path, 2, 0)
    core = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", rundir.PLAN, "--run", "1"]
    done = subprocess.run(
        [BIN / "mpiexec", "-n", "2", *core], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert f"bytes were read, 1.5 times the planned {less.runs[1].bytes} bytes" in done.stderr


def _study(name: str, full: bool) -> study.Study:
    machine = site.load("theta" if full else "local")
    asked = study_file.asked_of(study_file.load(name), machine, study_file.FileChanges(full))
    return study.make(name, asked, study.JobRequest(Path("/r"), data=Path("/d")))


def test_applications_as_shipped_read_their_datasets_once() -> None:
    assert planned_bytes.factor(workload.load("cosmoflow"), 512) == 1
    for name in ("cosmoflow", "imagenet", "cosmoflow_h100", "resnet50_h100"):
        assert planned_bytes.factor(workload.load(name), 512) <= _MOST
    points = _study("fig14", full=True).points
    assert max(point.ranks for point in points) == 8192
    for point in points:
        assert planned_bytes.factor(point.workload, point.ranks) == 1
        assert point.workload.dataset.files >= point.ranks


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", ["fig9", "fig10"])
def test_studies_of_read_threads_vary_the_files_that_are_read_at_once(name: str, full: bool) -> None:
    """Each of a rank's threads has files of its own to read."""
    made = _study(name, full)
    points = [point for point in made.points if point.part == "b"]
    threads = [point.workload.reader.read_threads for point in points]
    assert threads == ([1, 2, 4, 8, 16] if full else [1, 2, 4])
    for point in points:
        work = point.workload
        order = interleave.of(work.dataset, work.reader, point.ranks)
        assert (order.at_once, order.shares) == (work.reader.read_threads, point.ranks)
        assert work.dataset.files // point.ranks >= work.reader.read_threads
        assert planned_bytes.factor(work, point.ranks) == 1


@pytest.mark.job
def test_reading_more_than_the_samples_is_told_before_and_costs(tmp_path: Path, run: Run) -> None:
    """Three ranks that want samples of two files in any order read both of them whole."""
    keys = [
        word
        for key in (
            "dataset.files=2", "dataset.samples_per_file=60", "reader.shuffle={samples: true}", "reader.loader=native",
            "train.steps=null", "reader.preprocess_time=0", "compute.time=0", "dataset.sample.bytes=10000",
        )
        for word in ("-S", key)
    ]  # fmt: skip
    options = ("imagenet", "-s", "local", "--ppn", 3, *keys, "-t", "10m")
    cost_ = run("dlio-hpc", "estimate", *options, "--json")
    assert cost_.json["total"]["bytes_read"] == 3 * 2 * 60 * 10_000
    done = run("dlio-submit", *options, "--wait")
    assert done.code == 0, done.err
    assert "3 x the bytes of the samples are read: with shuffled samples, a rank reads whole files" in done.err
    assert "use at least 3 files (now 2)" in done.err
    assert "3 x the bytes of the samples" in done.out


def test_unequal_shares_are_told(tmp_path: Path) -> None:
    (note,) = [note for note in _planned(tmp_path, "imagenet", 3, "dataset.files=4").notes if "dataset.files" in note]
    assert "1 of 3 ranks read 2 of the 4 files, the other ranks read 1 and wait" in note
    assert not [note for note in _planned(tmp_path, "imagenet", 3, "dataset.files=6").notes if "dataset.files" in note]
