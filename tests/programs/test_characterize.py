"""A workload is derived from any Darshan log: each value matches the program or is reported as unknown."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.analysis.log import merged_program
from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.config import workload
from dlio_hpc.config.workload import Workload
from dlio_hpc.darshan import log_reader
from dlio_hpc.programs.characterize import characterize, from_counters
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.files import auxiliary_files, file_roles
from dlio_hpc.programs.files.file_stats import FileStats
from dlio_hpc.programs.reports import workload_yaml
from tests.conftest import Run, runner
from tests.support import characters
from tests.support.places import LOGS
from tests.support.standins import darshanlog, libdarshan
from tests.support.standins.darshanlog import Traced

KIB, MIB = 1 << 10, 1 << 20


class Call(NamedTuple):
    """A request of a made-up program."""

    rank: int
    path: str
    offset: int
    length: int
    start: float
    seconds: float = 1e-4
    write: bool = False


def _log(
    path: Path, calls: Iterable[Call], ranks: int = 2, traced: bool = True, renamed: dict[str, str] | None = None,
    **changes: Any,
) -> Path:  # fmt: skip
    """Write the log that Darshan would write of these calls, with all counters that the tests ask for. renamed: former
    path of each file that the program renamed.
    """
    groups: dict[tuple[str, int], list[Call]] = {}
    for call in calls:
        groups.setdefault((call.path, call.rank), []).append(call)
    traces, rows = [], []
    for (name, rank), mine in groups.items():
        mine.sort(key=lambda call: call.start)
        reads, writes = ([call for call in mine if call.write is kind] for kind in (False, True))
        rows_of = [[[*call[2:5], call.start + call.seconds] for call in part] for part in (reads, writes)]
        traces.append(Traced(name, rank, rows_of[0], rows_of[1]))
        rows.append((name, rank, {**darshanlog.counters_of(traces[-1:])[0][2], **_counters(reads, "READ", "READ"),
                                  **_counters(writes, "WRITE", "WRITTEN"), "OPENS": 1}))  # fmt: skip
    for name, _, values in rows:
        if renamed and name in renamed:
            values |= {"RENAME_TARGETS": 1, "RENAMED_FROM": darshanlog.number(renamed[name])}
    last = max(call.start for group in groups.values() for call in group)
    darshanlog.write(path, ranks, traces if traced else [], counted=rows, **{"seconds": last + 0.1, **changes})
    return path


def _counters(calls: list[Call], kind: str, done: str) -> dict[str, float]:
    if not calls:
        return {}
    sizes, counts = np.unique([call.length for call in calls], return_counts=True)
    ahead = sum(b.offset > a.offset + a.length - 1 for a, b in itertools.pairwise(calls))
    counters = {
        f"MAX_BYTE_{done}": max(call.offset + call.length for call in calls) - 1,
        f"F_{kind}_START_TIMESTAMP": calls[0].start,
        f"F_{kind}_END_TIMESTAMP": calls[-1].start + calls[-1].seconds,
        f"SEQ_{kind}S": ahead,
    }
    for at, most in enumerate(np.argsort(-counts)[:4].tolist(), 1):
        counters |= {f"ACCESS{at}_ACCESS": int(sizes[most]), f"ACCESS{at}_COUNT": int(counts[most])}
    return counters


def _character(path: Path, *others: Path, only: str | None = None, force: bool = False) -> Character:
    return characterize.load([path, *others], only, force)


def _workload(character: Character, folder: Path) -> Workload:
    path = folder / "derived.yaml"
    path.write_text(workload_yaml.write(character, "derived"))
    return workload.load(str(path))


def _values(character: Character) -> dict[str, Any]:
    return {key: estimate.value for key, estimate in character.derived.keys.items()}


def _sure(character: Character, key: str) -> str:
    return character.derived.keys[key].confidence


def _in_batches(samples: list[list[Call]], batch: int, pause: float, start: float = 1.0) -> list[Call]:
    """Return the calls of one rank in batches of samples with a pause between, in order of time."""
    made, now = [], start
    for number, sample in enumerate(samples, 1):
        for call in sample:
            made.append(call._replace(start=now))
            now += call.seconds + 2e-6
        now += pause if number % batch == 0 else 0.0
    return made


def _numpy_load(rank: int, path: str, size: int) -> list[Call]:
    """The requests with which numpy.load reads a stored archive of one array: its end, its directory, the array."""
    pieces = [(0, 4096), (size - 22, 22), (size - 146, 124), (0, 4096), (4096, 4096), (8192, size - 8192 - 600)]
    return [Call(rank, path, *piece, 0.0) for piece in [*pieces, (size - 600, 600)]]


def _archives(epochs: int = 2, ranks: int = 2, files: int = 40, size: int = 400_000) -> list[Call]:
    """Each sample is a file for numpy.load, in a new order each epoch; batches of 4 take 50 ms of computing."""
    calls = []
    for rank in range(ranks):
        mine = []
        for epoch in range(epochs):
            order = np.random.default_rng(epoch).permutation(files)[rank::ranks]
            mine += [_numpy_load(rank, f"/d/train/case_{number:03}.npz", size) for number in order]
        calls += _in_batches(mine, 4, 0.05)
    return calls


def test_a_program_that_loads_archives(tmp_path: Path) -> None:
    character = _character(_log(tmp_path / "x.darshan", _archives()))
    values = _values(character)
    assert (values["dataset.format"], values["reader.mode"], values["dataset.file_access"]) == (
        "npz",
        "framework",
        "multi",
    )
    assert (values["dataset.files"], values["dataset.samples_per_file"]) == (40, 1)
    assert values["dataset.sample.bytes"] == 400_000
    assert (values["reader.shuffle.files"], values["train.epochs"], values["reader.batch_size"]) == (True, 2, 4)
    assert values["compute.time"] == pytest.approx(0.05, rel=0.02)
    assert (values["reader.prefetch"], values["reader.load"], values["reader.shard"]) == (0, "on_demand", True)
    assert (_sure(character, "dataset.format"), _sure(character, "compute.time")) == ("high", "medium")
    assert _sure(character, "dataset.samples_per_file") != "high", "nobody can look into a file"
    assert _workload(character, tmp_path).dataset.files == 40


@pytest.mark.parametrize(
    ("first", "expected", "sure"), [(4096, None, "high"), (65_536, 65_536, "high"), (400_000, 4 * MIB, "low")]
)
def test_numpys_requests_go_through_the_buffer_of_a_file(
    tmp_path: Path, first: int, expected: int | None, sure: str
) -> None:
    """The buffer is a page on most file systems; a program that reads a whole file at once has one for Lustre."""
    calls = [call._replace(length=first) if call.offset == 0 else call for call in _archives(size=400_000)]
    character = _character(_log(tmp_path / "x.darshan", calls))
    assert (_values(character)["reader.transfer_size"], _sure(character, "reader.transfer_size")) == (expected, sure)
    made = _workload(character, tmp_path)
    assert (made.dataset.format, made.reader.mode, made.reader.transfer_size) == ("npz", "framework", expected)


@pytest.mark.parametrize(("ending", "name"), [("jpg", "jpeg"), ("PNG", "png"), ("gif", "raw")])
@pytest.mark.parametrize("is_whole", [True, False])
def test_images_are_read_whole(tmp_path: Path, is_whole: bool, ending: str, name: str) -> None:
    """A whole file and the request that finds its end come from read(). Images are read whole in pieces, too."""
    if name == "raw" and not is_whole:
        return
    size = 100_000
    pieces = [(0, size), (size, 0)] if is_whole else [(0, 60_000), (60_000, 40_000)]
    files = [[Call(0, f"/d/{number:04}.{ending}", *piece, 0.0) for piece in pieces] for number in range(80)]
    character = _character(_log(tmp_path / "x.darshan", _in_batches(files, 8, 0.05), ranks=1), force=True)
    assert character.derived.against == ["its 80 data files were not read repeatedly (1 times per rank)"]
    values = _values(character)
    assert (values["dataset.format"], values["dataset.files"], values["dataset.sample.bytes"]) == (name, 80, size)
    assert (values["reader.mode"], _sure(character, "reader.mode")) == ("framework", "high" if is_whole else "medium")
    assert values["reader.batch_size"] == 8
    assert _workload(character, tmp_path).dataset.format == name


def test_samples_smaller_than_hdf5s_sieve_lie_in_chunks(tmp_path: Path) -> None:
    """HDF5 would read 64 KiB at once from a contiguous dataset."""
    for size, chunk in ((16 * KIB, 16 * KIB), (256 * KIB, None)):
        order = np.random.default_rng(0).permutation(200)
        head = [Call(0, "/d/x.h5", 0, 8, 0.0)]
        samples = [[Call(0, "/d/x.h5", 4096 + size * int(at), size, 0.0)] for at in order]
        calls = _in_batches([head, *samples], 4, 0.02)
        character = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True)
        assert _values(character).get("dataset.chunk") == chunk
        assert _values(character)["dataset.sample.bytes"] == size


def test_steps_show_on_a_busy_machine(tmp_path: Path) -> None:
    """Some reads are delayed, one pause is as long as an epoch, and the pauses of steps differ by half."""
    random = np.random.default_rng(1)
    files = [_numpy_load(0, f"/d/case_{number:03}.npz", 400_000) for number in range(96)]
    calls, now = [], 1.0
    for number, sample in enumerate(files, 1):
        for call in sample:
            calls.append(call._replace(start=now))
            now += call.seconds + (float(random.uniform(0.0007, 0.008)) if random.random() < 0.2 else 1e-5)
        if number % 4 == 0:
            now += 0.03 * float(random.uniform(1, 1.5)) + (2.0 if number == 48 else 0.0)
    character = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True)
    assert _values(character)["reader.batch_size"] == 4
    assert 0.03 <= _values(character)["compute.time"] <= 0.05


def test_threads_that_share_a_sample_are_no_files_in_turn(tmp_path: Path) -> None:
    """Four threads each read a quarter of a sample at a time, file after file."""
    calls = []
    for number in range(40):
        for at in range(4):
            for piece in range(4):
                offset = (at * 4 + piece) * 65_536
                begin = 1.0 + (number * 4 + at) * 0.01 + piece * 1e-4
                calls.append(Call(0, f"/d/{number:03}.bin", offset, 65_536, begin, 1e-3))
    values = _values(_character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True))
    assert (values["reader.read_threads"], values["reader.interleave"]) == (4, None)


def test_a_buffer_may_be_of_any_size(tmp_path: Path) -> None:
    """The first request for the archive reads 700 MiB."""
    big = 700 * MIB
    calls = [Call(0, f"/d/{number}.npz", *piece, 0.0, 0.1)
             for number in range(4) for piece in ((0, big), (2 * big - 22, 22), (big, big - 22))]  # fmt: skip
    character = _character(_log(tmp_path / "x.darshan", _in_batches([calls], 1, 0.1), ranks=1), force=True)
    assert _values(character)["reader.transfer_size"] == big


def test_scraps_in_temporary_folders_are_no_outputs(tmp_path: Path) -> None:
    calls = [*_archives(), Call(0, "/tmp/x81jd", 0, 12, 0.5, write=True), Call(0, "/o/notes", 0, 12, 0.5, write=True)]
    roles = {role.file.path: role.role for role in _character(_log(tmp_path / "x.darshan", calls)).derived.roles}
    assert (roles["/tmp/x81jd"], roles["/o/notes"]) == ("other", "output")


def test_a_checkpoint_is_one_though_its_front_is_written_last(tmp_path: Path) -> None:
    """ZIP writes its header again once its sizes are known; the transfer size is that of the usual write."""
    calls = _archives(epochs=2)
    ends = [max(call.start for call in calls[:140]), max(call.start for call in calls) + 0.1]
    for number, end in enumerate(ends):
        pieces = [(0, 58), (58, 500_000), (0, 58), (500_058, 200)]
        calls += [Call(0, f"/o/model_{number}.npz", *piece, end + 1e-4 * at, 5e-5, True)
                  for at, piece in enumerate(pieces, 1)]  # fmt: skip
    character = _character(_log(tmp_path / "x.darshan", calls))
    values = _values(character)
    assert values["checkpoint.every_steps"] is None
    assert len(values["checkpoint.files"]) == 1
    assert values["checkpoint.transfer_size"] == 500_000


@pytest.mark.parametrize(
    ("writes", "size"),
    [
        ([(0, 96), (9000, 1000), (96, 4000), (0, 96)], 10_000),  # HDF5 fills a file in any order, and leaves gaps
        ([(0, 4000), (4000, 1000), (5100, 20)], 5020),  # reads through the same descriptor moved the offset
    ],
)
def test_the_size_of_a_checkpoint_whose_writes_leave_gaps(writes: list[tuple[int, int]], size: int) -> None:
    offset, length = (np.array(column) for column in zip(*writes, strict=True))
    zeros = np.zeros(len(writes), np.int32)
    start, thread = np.arange(len(writes)).astype(float), zeros.astype(np.uint64)
    requests = Requests(
        zeros, zeros, zeros == 0, offset, length, start * 1e-5, start * 1e-5 + 1e-6, thread, ["/o/x.h5"], ["n1"]
    )  # fmt: skip
    made = auxiliary_files.checkpoints([_seen("/o/x.h5", written=int(length.sum()))], requests, None, 1)
    assert made is not None
    assert made.keys["files"].value == [size]


@pytest.mark.parametrize(
    ("times", "opened_by", "epochs", "is_shared", "level"),
    [
        (3, 1, 3, True, "medium"),
        (3, 2, 3, True, "medium"),  # no multiple of the ranks: they share the dataset
        (4, 2, 2, False, "low"),  # or four epochs of half the dataset each
        (3.4, 1, 3, True, "low"),
    ],
)
def test_epochs_and_shares_from_counters(
    times: float, opened_by: int, epochs: int, is_shared: bool, level: str
) -> None:  # fmt: skip
    files = [_seen(f"/d/{at}.h5", read=int(times * MIB), size=MIB, ranks=opened_by) for at in range(8)]
    made = from_counters.epochs(files, 2)
    assert (made["train.epochs"].value, made["reader.shard"].value) == (epochs, is_shared)
    assert made["train.epochs"].confidence == level


def test_each_rank_that_writes_its_own_file_is_seen_in_the_counters() -> None:
    files = [
        _seen(f"/o/rank{rank}.bin", written=2 * MIB, size=MIB, rank=rank, written_s=(rank / 1e4, 2.0))
        for rank in range(4)
    ]
    made = auxiliary_files.checkpoints(files, None, None, 2)
    assert made is not None
    assert (made.keys["by"].value, made.keys["files"].value, made.number) == ("all", [MIB], 2)


def test_a_stream_of_records_hides_its_samples(tmp_path: Path) -> None:
    size, buffer = 10 * MIB + 777, 256 * KIB
    offsets = [*range(0, size, buffer)]
    calls = []
    for rank in range(2):
        files = [number for number in range(8) if number % 2 == rank]
        stream = [[Call(rank, f"/d/part-{number:05}.tfrecord", at, min(buffer, size - at), 0.0)]
                  for _ in range(3) for number in files for at in offsets]  # fmt: skip
        calls += _in_batches(stream, 10**9, 0.0)
    character = _character(_log(tmp_path / "x.darshan", calls))
    values = _values(character)
    assert (values["dataset.format"], values["reader.mode"]) == ("tfrecord", "framework")
    assert (values["reader.transfer_size"], _sure(character, "reader.transfer_size")) == (256 * KIB, "high")
    assert (values["train.epochs"], values["reader.shuffle.files"]) == (3, False)
    assert (_sure(character, "dataset.sample.bytes"), _sure(character, "reader.batch_size")) == ("unknown", "unknown")
    assert (values["compute.time"], _sure(character, "compute.time")) == (0, "unknown")
    made = _workload(character, tmp_path).dataset
    assert made.size == pytest.approx(8 * size, rel=0.01)


def _chunked(order: Iterable[int], rank: int, chunks: int = 8, chunk: int = 2 * KIB) -> list[list[Call]]:
    head = [Call(rank, "/d/train.h5", 0, 8, 0.0), Call(rank, "/d/train.h5", 48, 48, 0.0)]
    samples = [[Call(rank, "/d/train.h5", 8192 + (sample * chunks + piece) * chunk, chunk, 0.0)
                for piece in range(chunks)] for sample in order]  # fmt: skip
    return [head + samples[0], *samples[1:]]


def test_shuffled_samples_of_a_shared_file_in_chunks(tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(640)
    calls = [call for rank in range(2) for call in _in_batches(_chunked(order[rank::2], rank), 16, 0.02)]
    character = _character(_log(tmp_path / "x.darshan", calls), force=True)
    values = _values(character)
    assert (values["dataset.format"], values["dataset.file_access"], values["dataset.files"]) == ("hdf5", "shared", 1)
    assert (values["dataset.sample.bytes"], values["dataset.chunk"]) == (16 * KIB, 2 * KIB)
    assert values["dataset.samples_per_file"] in (640, 641)
    assert (values["reader.shuffle.samples"], values["reader.shuffle.files"]) == (True, False)
    assert (values["reader.batch_size"], values["train.epochs"]) == (16, 1)
    assert "8 requests each" in character.derived.keys["dataset.sample.bytes"].evidence
    made = _workload(character, tmp_path)
    assert (made.dataset.chunk_shape, made.reader.transfer_size) == ((1, 2 * KIB), None)


def test_samples_of_any_file_next_with_threads_and_reading_ahead(tmp_path: Path) -> None:
    """Samples have 100,000 bytes, 16 in a file; two threads read; three batches are ahead of the first step."""
    calls = []
    for rank in range(2):
        order = np.random.default_rng(3).permutation(20 * 16)[rank::2]
        batches = np.array_split(order, len(order) // 4)
        for number, batch in enumerate(batches):
            begin = 1.0 + max(0, number - 3) * 0.03 + 2e-3 * min(number, 3)
            for at, sample in enumerate(batch.tolist()):
                calls.append(Call(rank, f"/d/{sample // 16:04}.npz", 4096 + sample % 16 * 100_000, 100_000,
                                  begin + 4e-4 * (at // 2) + 1e-5 * (at % 2), 3e-4))  # fmt: skip
    character = _character(_log(tmp_path / "x.darshan", calls), force=True)
    values = _values(character)
    assert (values["dataset.sample.bytes"], values["dataset.samples_per_file"]) == (100_000, 16)
    assert (values["reader.shuffle.files"], values["reader.shuffle.samples"]) == (True, True)
    assert (values["reader.mode"], values["reader.read_threads"], values["reader.batch_size"]) == ("posix", 2, 4)
    assert values["reader.prefetch"] == 3
    assert values["compute.time"] == pytest.approx(0.03, rel=0.05)
    _workload(character, tmp_path)


def test_samples_in_pieces_of_a_transfer_size(tmp_path: Path) -> None:
    """A sample of 3 MiB + 1000 B is read in requests of 1 MiB, the last one short."""
    size = 3 * MIB + 1000
    samples = [[Call(0, "/d/0.npz", 4096 + sample * size + at, min(MIB, size - at), 0.0) for at in range(0, size, MIB)]
               for sample in range(12)]  # fmt: skip
    values = _values(_character(_log(tmp_path / "x.darshan", _in_batches(samples, 1, 0.01), ranks=1), force=True))
    assert (values["dataset.sample.bytes"], values["reader.transfer_size"]) == (size, MIB)


def test_samples_that_differ_in_size(tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).normal(4e6, 8e5, 60).astype(int).tolist()
    calls = _in_batches([_numpy_load(0, f"/d/{at}.npz", size) for at, size in enumerate(sizes)], 2, 0.1)
    character = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True)
    values = _values(character)
    assert values["dataset.sample.bytes"] == pytest.approx(4e6, rel=0.1)
    assert values["dataset.sample.stdev"] == pytest.approx(8e5, rel=0.3)
    assert _workload(character, tmp_path).dataset.sample.stdev


def _saved(at: float, number: int | None = None, size: int = 4 * MIB) -> list[Call]:
    name = "/out/model.ckpt" if number is None else f"/out/step_{number}.ckpt"
    return [
        Call(0, name, offset, MIB, at + 1e-3 * piece, write=True) for piece, offset in enumerate(range(0, size, MIB))
    ]


def test_all_data_in_memory_and_a_checkpoint_each_epoch(tmp_path: Path) -> None:
    loaded = [call for call in _archives(epochs=1) if call.start < 99]
    loaded = [call._replace(start=1 + number * 2e-4) for number, call in enumerate(loaded)]
    saved = [call for epoch in range(5) for call in _saved(12 + 10 * epoch)]
    character = _character(_log(tmp_path / "x.darshan", [*loaded, *saved]))
    values = _values(character)
    assert (values["reader.load"], values["train.epochs"], _sure(character, "train.epochs")) == ("memory", 5, "low")
    assert values["checkpoint.files"] == [4 * MIB]
    assert (values["checkpoint.every_steps"], values["checkpoint.by"]) == (None, "root")
    assert _workload(character, tmp_path).reader.load == "memory"


@pytest.mark.parametrize("is_one_file", [True, False])
def test_checkpoints_every_so_many_steps(tmp_path: Path, is_one_file: bool) -> None:
    """The program runs 30 steps and saves a checkpoint every 5 steps."""
    calls = _archives(epochs=3, files=80)
    begins = sorted(call.start for call in calls if call.rank == 0 and call.length == 22)[::4]
    saved = [
        call for number in range(5, 30, 5) for call in _saved(begins[number] - 0.02, None if is_one_file else number)
    ]
    character = _character(_log(tmp_path / "x.darshan", [*calls, *saved]))
    values = _values(character)
    assert values["checkpoint.every_steps"] == 5
    assert values["checkpoint.files"] == [4 * MIB]
    assert (values["checkpoint.fsync"], values["checkpoint.read_back"]) == (False, False)
    assert _workload(character, tmp_path).checkpoint is not None


def test_what_is_no_data_is_told_apart(tmp_path: Path) -> None:
    others = [
        Call(0, "/opt/env/lib/python3.11/site-packages/numpy/core.so", 0, 30 * MIB, 0.1),
        Call(0, "/home/me/train.py", 0, 4000, 0.1),
        Call(0, "/d/train/labels.csv", 0, 9000, 0.2),
        Call(1, "/d/train/labels.csv", 0, 9000, 0.2),
        Call(0, "/out/train.log", 0, 100, 1.5, write=True),
        *(call for epoch in range(2) for call in _saved(1.4 + epoch)),
    ]
    character = _character(_log(tmp_path / "x.darshan", [*_archives(), *others]))
    roles = {role.file.path: role.role for role in character.derived.roles}
    assert roles["/opt/env/lib/python3.11/site-packages/numpy/core.so"] == "library"
    assert roles["/home/me/train.py"] == "library"
    assert roles["/d/train/labels.csv"] == "auxiliary file"
    assert (roles["/out/train.log"], roles["/out/model.ckpt"]) == ("output", "checkpoint")
    assert sum(role == "dataset" for role in roles.values()) == 40
    sides = {side.name: side for side in _workload(character, tmp_path).dataset.auxiliary_files}
    assert (sides["labels.csv"].access, sides["labels.csv"].bytes, sides["labels.csv"].by) == ("read", 9000, "all")
    assert (sides["train.log"].access, sides["train.log"].bytes) == ("write", 100)
    assert "Left out: 2 files, library" in workload_yaml.write(character, "x")


def _seen(path: str, read: int = 0, written: int = 0, size: int | None = None, **changes: Any) -> FileStats:
    size = max(read, written) if size is None else size
    whole = FileStats(path, read, written, 1, 1, 1, 0, size, 1, None, None, 0, 0)
    return whole._replace(**changes)


def test_files_written_again_and_again_are_states_and_logs_are_none() -> None:
    files = [
        _seen("/d/a.h5", 10 * MIB),
        _seen("/o/state.bin", written=9 * MIB, size=3 * MIB),
        *(_seen(f"/o/part{at}.dat", written=MIB, written_s=(at, at + 0.5)) for at in range(3)),
        _seen("/o/events.out", written=300, size=100),
        _seen("/o/result.dat", written=MIB),
        _seen("/d/empty.h5"),
        _seen("<STDOUT>", written=100),
    ]
    roles = [(role.role, role.why) for role in file_roles.classify(files)]
    kinds = ["dataset", "checkpoint", *["checkpoint"] * 3, "output", "output", "other", "other"]
    assert [role for role, _ in roles] == kinds
    assert roles[1][1] == "written 3 times over"


def _simulation() -> list[Call]:
    read = [Call(rank, "/d/input.nc", 0, 64 * KIB, 0.1) for rank in range(2)]
    return read + [Call(rank, f"/o/dump_{step}.dat", rank * MIB, MIB, step, write=True)
                   for step in range(1, 6) for rank in range(2)]  # fmt: skip


def test_a_simulation_is_described_and_no_workload(run: Run, tmp_path: Path) -> None:
    path = _log(tmp_path / "sim.darshan", _simulation())
    done = run("dlio-hpc", "characterize", path, "-o", "w.yaml")
    assert done.code == 2
    assert "does not look like training: it read only 64 KiB of data, in 2 requests" in done.err
    assert "--force derives a workload anyway" in done.err
    assert "dump_1.dat" in done.out
    assert "10 MiB were written, 128 KiB read" in done.out
    assert not (tmp_path / "w.yaml").exists()
    forced = run("dlio-hpc", "characterize", path, "--force")
    assert forced.code == 0, forced.err
    assert "# Forced despite: it read only 64 KiB of data, in 2 requests" in forced.out
    nothing = run("dlio-hpc", "characterize", path, "--only", "nowhere")
    assert (nothing.code, "--only nowhere: no path matches it" in nothing.err) == (2, True)


def test_counters_alone_tell_less_and_say_so(tmp_path: Path) -> None:
    character = _character(_log(tmp_path / "x.darshan", _archives(), traced=False))
    values = _values(character)
    assert (values["dataset.format"], values["dataset.files"], values["train.epochs"]) == ("npz", 40, 2)
    assert (values["reader.shuffle.files"], _sure(character, "reader.shuffle.files")) == (True, "medium")
    assert {_sure(character, key) for key in ("reader.batch_size", "reader.read_threads")} == {"unknown"}
    assert (values["reader.mode"], _sure(character, "reader.mode")) == ("framework", "low")
    assert values["compute.time"] == pytest.approx(0.05 / 4, rel=0.3), "of a sample, as nobody knows the batch"
    text = workload_yaml.write(character, "x")
    assert "# Note: derived from counters alone, without a trace (DXT)" in text
    assert "# unknown: not recorded without a trace (DXT)" in text
    _workload(character, tmp_path)


def test_a_trace_that_is_cut_is_not_used(tmp_path: Path) -> None:
    character = _character(LOGS / "mpi4_dxtpartial.darshan")
    assert not character.derived.traced
    assert any(note.startswith("DXT cut") for note in character.notes)
    assert _values(character)["reader.transfer_size"] == 512
    _workload(character, tmp_path)


@pytest.mark.parametrize("name", ["mpi4_forkcorrupt", "mpi4_npz_truncated"])
def test_a_log_that_is_not_whole_is_refused(name: str) -> None:
    with pytest.raises(InvalidRun, match="is incomplete or corrupted, so no workload is derived from it"):
        _character(LOGS / f"{name}.darshan")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Two arrays in a file of 197,226 bytes, with headers and a directory of 490 bytes.
        ("mpi4_npz", {"dataset.format": "npz", "dataset.files": 8, "dataset.sample.bytes": 196_736, "train.epochs": 2,
                      "reader.mode": "framework", "dataset.file_access": "multi"}),
        ("main_dxtv2_npz", {"dataset.format": "npz", "dataset.files": 8, "train.epochs": 2, "reader.read_threads": 1}),
        ("mpi4_tfrecord", {"dataset.format": "tfrecord", "reader.transfer_size": 64 * KIB, "train.epochs": 1,
                           "dataset.files": 8, "reader.load": "on_demand"}),
        ("mpi4_h5shared_noreduction", {"dataset.file_access": "shared", "dataset.sample.bytes": 48 * KIB,
                                       "dataset.samples_per_file": 16, "reader.shard": False, "train.epochs": 1}),
    ],
)  # fmt: skip
def test_real_logs_tell_what_their_programs_did(tmp_path: Path, name: str, expected: dict[str, Any]) -> None:
    character = _character(LOGS / f"{name}.darshan", force=True)
    values = _values(character)
    assert {key: values[key] for key in expected} == expected
    _workload(character, tmp_path)


def test_logs_of_processes_are_one_program(tmp_path: Path) -> None:
    """Without MPI each process leaves its own log, of rank 0; the processes began at different times."""
    calls = _archives()
    paths = []
    for rank in range(2):
        mine = [call._replace(rank=0, start=call.start + 0.5 * rank) for call in calls if call.rank == rank]
        began = 1_700_000_000 - 0.5 * rank
        paths.append(_log(tmp_path / f"me_python_id7-{rank}_x.darshan", mine, ranks=1, started=began))
    character = _character(*paths)
    values = _values(character)
    assert character.log.job.ranks == 2
    assert (values["dataset.files"], values["train.epochs"], values["reader.batch_size"]) == (40, 2, 4)
    assert values["compute.time"] == pytest.approx(0.05, rel=0.02)
    with pytest.raises(ConfigError, match="comes from an MPI program: pass it on its own"):
        _character(paths[0], _log(tmp_path / "mpi.darshan", calls))


def test_forked_workers_count_as_the_process_they_came_from(tmp_path: Path) -> None:
    logs = []
    for pid in (10, 11, 12):
        calls = [Call(0, f"/d/{pid}.npz", 0, 1000, 1.0)]
        logs.append(log_reader.load(_log(tmp_path / f"me_python_id7-{pid}_x.darshan", calls, ranks=1)))
    forked = [log._replace(job=structs.replace(log.job, metadata={"fork_parent": parent}))
              for log, parent in zip(logs, ("", "10", "99"), strict=True)]  # fmt: skip
    made = merged_program.merge(forked)
    ranks = {made.names[int(row["id"])]: int(row["rank"]) for row in made.traced["DXT_POSIX"].files}
    assert ranks == {"/d/10.npz": 0, "/d/11.npz": 0, "/d/12.npz": 1}
    assert made.job.ranks == 2


def test_launchers_and_commands_are_no_ranks(tmp_path: Path) -> None:
    """torchrun starts three ranks, and one of them a command. The launcher reads more than the last rank."""
    logs = []
    for pid, program, size in (
        (9, "/usr/bin/python3 -m torch.distributed.run --nproc-per-node 3 train.py", 2000),
        (10, "/usr/bin/python3 -u train.py --local-rank=0", 7000), (11, "/usr/bin/uname -p", 0),
        (12, "/usr/bin/python3 -u train.py --local-rank=1", 5000),
        (13, "/usr/bin/python3 -u train.py --local-rank=2", 1000),
    ):  # fmt: skip
        calls = [Call(0, f"/d/{pid}.npz", 0, size, 1.0, write=not size)]
        log = log_reader.load(_log(tmp_path / f"me_x_id7-{pid}_x.darshan", calls, ranks=1))
        logs.append(log._replace(job=structs.replace(log.job, program=program)))
    made = merged_program.merge(logs)
    ranks = {made.names[int(row["id"])]: int(row["rank"]) for row in made.traced["DXT_POSIX"].files}
    assert ranks == {"/d/9.npz": 0, "/d/10.npz": 0, "/d/11.npz": 0, "/d/12.npz": 1, "/d/13.npz": 2}
    assert made.job.ranks == 3


_CALLS = st.lists(
    st.builds(
        Call,
        st.integers(0, 2),
        st.sampled_from(
            [
                "/d/a.npz",
                "/d/b.npz",
                "/d/1.h5",
                "/d/x.csv",
                "/d/t.tfrecord",
                "/d/p.parquet",
                "/o/m.pt",
                "/d/noname",
                "/o/y",
            ]
        ),
        st.integers(0, 1 << 40),
        st.integers(0, 1 << 32),
        st.floats(0.001, 1000),
        st.floats(0, 10),
        st.booleans(),
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(_CALLS, st.booleans(), st.sampled_from(["x train.py", "", 'a "b\\ \n#: \u2603', "-m torch.run", "0"]))
def test_whatever_a_log_holds_its_workload_loads(
    tmp_path_factory: pytest.TempPathFactory, calls: list[Call], traced: bool, program: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    character = _character(_log(folder / "x.darshan", calls, ranks=3, traced=traced, program=program), force=True)
    if not character.derived.keys:
        assert character.derived.against
        return
    path = folder / "derived.yaml"
    path.write_text(workload_yaml.write(character, workload_yaml.default_name(character)))
    made = workload.load(str(path))
    assert made.dataset.files == _values(character)["dataset.files"]


WORKLOAD = """\
name: mine
dataset: {{format: npz, files: 24, samples_per_file: {per_file}, sample: {{shape: [100, 250], dtype: float32}}}}
reader: {{batch_size: 3, read_threads: 1, prefetch: 0, shuffle: {{files: {files}, samples: {samples}}}}}
compute: {{time: 12 ms}}
train: {{epochs: 2}}
"""


@pytest.mark.job
@pytest.mark.parametrize(("per_file", "files", "samples"), [(4, "true", "true"), (2, "false", "false")])
def test_a_job_of_ours_is_derived_again(tmp_path: Path, per_file: int, files: str, samples: str) -> None:
    """A workload runs as a job under Darshan's stand-in; the workload derived from its log is the same."""
    (tmp_path / "w.yaml").write_text(WORKLOAD.format(per_file=per_file, files=files, samples=samples))
    library = libdarshan.install(tmp_path / "lib")
    site = ("-s", "local", "-S", f"site.darshan={library}", "-S", libdarshan.rank_environment(), "--ppn", "2")
    for options in (("--no-darshan", "--generate", "only"), ()):
        done = runner(tmp_path)(
            "dlio-submit", "w.yaml", *site, "-d", "data", "-o", "jobs", "--wait", "--quiet", *options
        )
        assert done.code == 0, done.err
    (log,) = (tmp_path / "jobs").glob("mine-*/runs/01-measure/darshan/*.darshan")
    character = _character(log)
    values = _values(character)
    truth = workload.load(str(tmp_path / "w.yaml"))
    derived = _workload(character, tmp_path)
    assert (derived.dataset.files, derived.dataset.samples_per_file) == (24, per_file)
    assert derived.dataset.sample_bytes == truth.dataset.sample_bytes
    assert (derived.reader.shuffle.files, derived.train.epochs) == (truth.reader.shuffle.files, 2)
    if truth.reader.shuffle.samples:
        assert derived.reader.shuffle.samples
    assert derived.reader.batch_size == 3
    assert derived.compute.time.mean == pytest.approx(0.012, rel=0.5)
    assert values["reader.mode"] == "posix"
    assert not derived.dataset.auxiliary_files, "Darshan's clock and the dataset's note are no data"


def test_on_the_terminal_into_a_file_and_as_a_document(run: Run, tmp_path: Path) -> None:
    log = LOGS / "apps" / "tf_records.darshan"
    shown = run("dlio-hpc", "characterize", log)
    assert shown.code == 0, shown.err
    assert max(map(len, shown.out.splitlines())) <= 120
    assert "  format: tfrecord " in shown.out
    assert " end in .tfrecord" in shown.out
    kept = run("dlio-hpc", "characterize", log, "-o", "w.yaml", "--name", "my own: program")
    assert (kept.code, kept.out, kept.err) == (0, "", "wrote w.yaml\n")
    assert workload.load(str(tmp_path / "w.yaml")).name == "my own: program"
    document = run("dlio-hpc", "characterize", log, "--json").json
    assert document["estimates"]["train.epochs"]["value"] == 2
    assert document["roles"][0]["role"] == "dataset"
    assert document["yaml"].startswith("# Inconclusive: ")
    assert "\n# Derived by dlio-hpc" in document["yaml"]
    assert run("dlio-hpc", "characterize", log, "-o", "new/folder/w.yaml").code == 0
    assert workload.load(str(tmp_path / "new" / "folder" / "w.yaml"))


def test_places_drawn_at_random_are_no_epochs(tmp_path: Path) -> None:
    """Two ranks draw samples at random, some of them more than once; a file that is read twice has epochs."""
    drawn = np.random.default_rng(5).integers(0, 640, (2, 600))
    drawn[:, 60:120] = drawn[:, :60]
    calls = [
        call
        for rank in range(2)
        for call in _in_batches(
            [[Call(rank, "/d/volume.h5", 4096 + 64_000 * int(place), 64_000, 0.0)] for place in drawn[rank]], 8, 0.02
        )
    ]
    values = _values(character := _character(_log(tmp_path / "x.darshan", calls), force=True))
    assert (values["train.epochs"], values["train.steps"], values["reader.shard"]) == (1, 75, False)
    assert (_sure(character, "train.epochs"), values["reader.shuffle.samples"]) == ("low", True)
    again = [call._replace(offset=4096 + 64_000 * (at % 20)) for at, call in enumerate(calls)]
    twice = _values(_character(_log(tmp_path / "y.darshan", again)))
    assert twice["train.steps"] is None
    assert twice["train.epochs"] > 1


# Without a libdarshan here, by what the core counted; of h5py that is the kernel's word, which has other files as well.
@pytest.mark.job
@pytest.mark.parametrize(("log", "least"), [("mpi4_npz", 0.95), ("mpi4_h5shared_noreduction", 0.5)])
def test_check_runs_it_here_and_compares(run: Run, log: str, least: float) -> None:
    done = run(
        "dlio-hpc", "characterize", LOGS / f"{log}.darshan", "--force", "--check", "--json", "--tolerance", least
    )
    check = done.json["check"]
    assert check["pattern"]["similarity"] > least
    # Of h5py, the core knows one factor, which is not enough for a verdict.
    verdict, code = ("pass", 0) if log == "mpi4_npz" else ("incomplete", 7)
    assert (done.code, check["verdict"], check["tolerance"]) == (code, verdict, least)
    assert check["b"]["ranks"] == 4


@pytest.mark.job
def test_a_workload_that_does_otherwise_fails_its_check(run: Run) -> None:
    log = LOGS / "apps" / "npz_archives.darshan"
    done = run("dlio-hpc", "characterize", log, "--check", "-S", "reader.mode=posix", "-S", "reader.transfer_size=4KiB")
    assert done.code == 1, done.err
    assert done.out.startswith("Bad: pattern similarity 0.")


def test_shards_are_recognised_by_their_names() -> None:
    """The program was not written for this note. Datasets of other files have none."""
    cases = {case.name: case for case in characters.cases()}
    (note,) = [note for note in characters.character(cases["tar_patches"]).notes if "tar file" in note]
    assert note.startswith("10 tar files of the dataset are read in requests of 10,240 bytes on average")
    assert "--existing reads them member by member" in note
    assert not [note for note in characters.character(cases["bird_calls"]).notes if "tar file" in note]
