"""Logs that are easily misread: what they do not show is not derived, or has low confidence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_hpc.analysis.log import merged_program
from dlio_hpc.darshan import log_reader
from dlio_hpc.programs.characterize import characterize, unproven
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.files import file_stats
from dlio_hpc.programs.reports import accepted_workload
from tests.conftest import Run
from tests.programs.test_characterize import (
    KIB,
    MIB,
    Call,
    _archives,
    _character,
    _in_batches,
    _log,
    _numpy_load,
    _saved,
    _sure,
    _values,
    _workload,
)

StdioRows = list[tuple[str, int, dict[str, float]]]


def _roles(character: Character) -> dict[str, str]:
    return {role.file.path: role.role for role in character.derived.roles}


def _written(path: str, size: int, start: float, seconds: float = 1e-3) -> list[Call]:
    return [Call(0, path, 0, size, start, seconds, write=True)]


# Blocks of files that are read in turn.


def _in_turn(
    files: int, at_once: int, requests: int, blocks: int, block: int, ending: str, seconds: float = 1e-3, gap: int = 0
) -> list[Call]:
    """A rank reads `requests` blocks of a file, then as many of the next of `at_once` files, until all are read.
    seconds: time of a request. gap: bytes that are not read before each turn.
    """
    made = []
    for first in range(0, files, at_once):
        for begin in range(0, blocks, requests):
            for file in range(first, first + at_once):
                pieces = range(begin, min(begin + requests, blocks))
                skipped = gap * (begin // requests + 1)
                made += [
                    Call(0, f"/d/part-{file:05}{ending}", skipped + at * block, block, 0.0, seconds) for at in pieces
                ]
    return _in_batches([made], 1, 0.0)


@pytest.mark.parametrize("requests", [1, 7])
@pytest.mark.parametrize("ending", [".tfrecord", ".bin"])
@pytest.mark.parametrize("seconds", [2e-5, 1e-3])
def test_files_are_read_in_turn_several_requests_at_a_time(
    tmp_path: Path, requests: int, ending: str, seconds: float
) -> None:
    once = _in_turn(12, 4, requests, 35, 256 * KIB, ending, seconds)
    calls = [call._replace(start=call.start + 10 * epoch) for epoch in range(2) for call in once]
    character = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True)
    value = character.derived.keys["reader.interleave"]
    assert value.value == 4
    assert value.confidence in (("high", "medium", "low") if requests == 1 else ("medium", "low"))
    assert f"turns of {requests} read" in value.evidence
    _workload(character, tmp_path)


def test_headers_between_turns_do_not_hide_them(tmp_path: Path) -> None:
    calls = _in_turn(12, 4, 7, 35, 256 * KIB, ".bin", gap=512)
    value = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True).derived.keys["reader.interleave"]
    assert value.value == 4


def test_files_that_are_read_one_after_the_other_are_not_read_in_turn(tmp_path: Path) -> None:
    calls = _in_turn(12, 1, 7, 35, 256 * KIB, ".tfrecord")
    value = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True).derived.keys["reader.interleave"]
    assert (value.value, value.confidence) == (None, "high")


# Whole files that are drawn with replacement.


def _loads(order: list[list[int]], size: int = 400_000) -> list[Call]:
    return [
        call
        for rank, files in enumerate(order)
        for call in _in_batches([_numpy_load(rank, f"/d/case_{file:03}.npz", size) for file in files], 4, 0.05)
    ]


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("traced", [True, False])
def test_files_that_are_drawn_at_random_have_no_sure_epochs(tmp_path: Path, ranks: int, traced: bool) -> None:
    drawn = np.random.default_rng(3).integers(0, 60, (ranks, 184 // ranks)).tolist()
    character = _character(_log(tmp_path / "x.darshan", _loads(drawn), ranks=ranks, traced=traced), force=True)
    keys = character.derived.keys
    assert keys["train.epochs"].confidence == "low"
    assert keys["train.steps"].confidence in ("low", "unknown")
    assert "drawn at random" in keys["train.epochs"].evidence
    assert keys["reader.shard"].confidence in ("low", "unknown")
    _workload(character, tmp_path)


@pytest.mark.parametrize("ranks", [1, 2])
def test_files_of_shuffled_epochs_are_not_drawn(tmp_path: Path, ranks: int) -> None:
    """The program looks at three files before its first epoch."""
    random = np.random.default_rng(3)
    epochs = [random.permutation(60).tolist() for _ in range(3)]
    order = [[0, 1, 2] + [file for epoch in epochs for file in epoch[rank::ranks]] for rank in range(ranks)]
    character = _character(_log(tmp_path / "x.darshan", _loads(order), ranks=ranks))
    assert (_values(character)["train.epochs"], _sure(character, "train.epochs")) == (3, "high")
    assert "drawn at random" not in character.derived.keys["train.epochs"].evidence


def test_requests_that_are_made_unequally_often_do_not_prove_passes(tmp_path: Path) -> None:
    """Windows of three blocks begin at each of 20 blocks of a file in each of three epochs: most blocks are read
    nine times, the first three times, and the second six times.
    """
    windows = [
        [Call(0, f"/d/{file:02}.bin", (begin + at) * 64 * KIB, 64 * KIB, 0.0) for at in range(3) if begin + at < 20]
        for _ in range(3) for file in range(8) for begin in range(20)
    ]  # fmt: skip
    value = _character(_log(tmp_path / "x.darshan", _in_batches(windows, 4, 0.05), ranks=1)).derived.keys[
        "train.epochs"
    ]
    assert value.confidence in ("medium", "low")
    assert "% of the requests were made" in value.evidence


def test_a_program_that_converts_tables_is_no_training(tmp_path: Path) -> None:
    """The program reads each of 12 tables once, in blocks, and writes a file in pieces at the same time. A program that
    writes after all its reads may have trained on them.
    """

    def calls(begin: float) -> list[Call]:
        read = [
            Call(0, f"/d/{table:02}.csv", at * 256 * KIB, 256 * KIB, 0.5 * table + 0.1 * at)
            for table in range(12) for at in range(5)
        ]  # fmt: skip
        written = [
            call._replace(path=call.path.replace("csv", "out"), length=7000, offset=call.offset // 40, write=True)
            for call in read
        ]
        return [*read, *(call._replace(start=begin + call.start + 0.01) for call in written)]

    converted = _character(_log(tmp_path / "x.darshan", calls(0.0), ranks=1))
    assert not converted.derived.keys
    assert "were not read repeatedly" in converted.derived.against[0]
    assert _character(_log(tmp_path / "y.darshan", calls(10.0), ranks=1)).derived.keys


def test_two_passes_in_order_are_no_training(tmp_path: Path) -> None:
    """The mean of 40 files in one pass, their deviation in a second. A third pass may be an epoch."""

    def passes(number: int) -> Character:
        steps = [[Call(0, f"/d/{file:02}.bin", 0, 110_000, 0.0)] for _ in range(number) for file in range(40)]
        return _character(_log(tmp_path / f"{number}.darshan", _in_batches(steps, 1, 0.003), ranks=1))

    assert not passes(2).derived.keys
    assert passes(2).derived.against == [
        "its data were read only 2 times, and not in steps of several samples in random order"
    ]
    assert passes(3).derived.keys


@pytest.mark.parametrize(("lookups", "is_training"), [(False, True), (True, False)])
def test_random_reads_without_steps_are_no_training(tmp_path: Path, lookups: bool, is_training: bool) -> None:
    """A program that answers requests reads 8 to 40 random records for each. A training that draws its samples reads 24
    for each step.
    """
    random = np.random.default_rng(3)
    counts = random.integers(8, 41, 300) if lookups else [24] * 300
    calls, time = [], 1.0
    for count in counts:
        for file, record in zip(random.integers(0, 4, count), random.integers(0, 850, count), strict=True):
            calls.append(Call(0, f"/d/{file}.tab", int(record) * 4096, 4096, time, 1e-4))
            time += 2e-4
        time += 0.02
    made = _character(_log(tmp_path / "x.darshan", calls, ranks=1))
    assert bool(made.derived.keys) is is_training
    forced = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True)
    assert forced.derived.keys["train.epochs"].confidence == "low"


@pytest.mark.parametrize(
    ("key", "value", "workers", "most"),
    [
        ("compute.time", 0.03, 1, "medium"), ("compute.time", 0.0, 1, "high"), ("reader.read_threads", 4, 1, "medium"),
        ("reader.read_threads", 4, 4, "high"), ("reader.read_threads", 1, 1, "high"),
        ("reader.shuffle.samples", False, 1, "medium"), ("reader.shuffle.samples", True, 1, "high"),
        ("reader.shuffle.files", False, 1, "high"),
    ],
)  # fmt: skip
def test_values_that_requests_do_not_prove_are_not_high(key: str, value: Any, workers: int, most: str) -> None:
    for level in ("high", "medium", "low", "unknown"):
        keys = {key: DerivedValue(value, level, "of the test")}
        made = {**keys, **unproven.limited(keys, workers)}[key]
        assert made.confidence == (most if level == "high" else level)
        assert made.evidence.startswith("of the test; ") is (level == "high" != most)


# Data that the program itself wrote.


def _staged(first: float = 0.2, folder: str = "/local") -> list[Call]:
    """Copies of 40 archives on a local disk, which the program then reads in two epochs, and the originals."""
    read = [Call(0, f"/d/train/case_{at:03}.npz", 0, 400_000, first + 0.01 * at) for at in range(40)]
    copied = [call for at in range(40) for call in _written(f"{folder}/case_{at:03}.npz", 400_000, 0.205 + 0.01 * at)]
    used = [
        call._replace(path=call.path.replace("/d/train", folder), rank=0, start=call.start + 1)
        for call in _archives(ranks=1)
    ]
    return [*read, *copied, *used]


@pytest.mark.parametrize("traced", [True, False])
def test_copies_that_the_program_made_are_no_dataset_and_no_checkpoint(tmp_path: Path, traced: bool) -> None:
    log = _log(tmp_path / "x.darshan", _staged(), ranks=1, traced=traced)
    character = _character(log, force=True)
    roles = _roles(character)
    assert {roles[f"/local/case_{at:03}.npz"] for at in range(40)} == {"other"}
    assert (roles["/d/train/case_000.npz"], _values(character)["dataset.files"]) == ("dataset", 40)
    assert not [key for key in character.derived.keys if key.startswith("checkpoint.")]
    (note,) = [note for note in character.notes if "--only" in note]
    assert note.startswith("40 files, such as /local/case_000.npz, are left out, because the program itself wrote")
    selected = _character(log, only="^/local/", force=True)
    assert (_values(selected)["dataset.files"], _values(selected)["train.epochs"]) == (40, 2)
    assert "the program itself wrote 40 of the 40 files of its dataset before it read them" in selected.notes


def test_a_program_that_reads_only_what_it_wrote_is_described_so(run: Run, tmp_path: Path) -> None:
    calls = [call for call in _staged() if call.path.startswith("/local/")]
    path = _log(tmp_path / "x.darshan", calls, ranks=1)
    done = run("dlio-hpc", "characterize", path)
    assert (done.code, "--only" in done.err) == (2, True)
    assert "all of which it had itself written to 40 files before" in done.err


def test_a_program_that_reads_the_originals_once_is_described_so(tmp_path: Path) -> None:
    character = _character(_log(tmp_path / "x.darshan", _staged(), ranks=1))
    assert not character.derived.keys
    assert character.derived.against[1] == (
        "30.84 MiB of data were read from 40 files that it had itself written; --only selects them"
    )


def test_data_that_a_program_makes_and_reads_again_and_again_are_its_dataset(tmp_path: Path) -> None:
    made = [call for at in range(20) for call in _written(f"/d/{at:02}.bin", MIB, 0.5 + 0.01 * at)]
    steps = [[Call(0, f"/d/{at:02}.bin", 0, MIB, 0.0)] for _ in range(10) for at in range(20)]
    character = _character(_log(tmp_path / "x.darshan", [*made, *_in_batches(steps, 4, 0.05)], ranks=1))
    assert (_values(character)["dataset.files"], _values(character)["train.epochs"]) == (20, 10)
    assert "the program itself wrote 20 of the 20 files of its dataset before it read them" in character.notes


@pytest.mark.parametrize("is_counted", [True, False])
@pytest.mark.parametrize("name", ["cache.data-00000-of-00001.tmp", "cache_0.data-00000-of-00001.tempstate16469"])
def test_a_cache_that_is_written_once_and_read_in_each_epoch_is_no_checkpoint(
    tmp_path: Path, is_counted: bool, name: str
) -> None:
    """The cache of tf.data is written in the first epoch, under a temporary name, and read in all others."""
    calls, final = _archives(ranks=1), "/scratch/cache.data-00000-of-00001"
    end, temporary = max(call.start for call in calls), f"/scratch/{name}"
    written = [Call(0, temporary, at * MIB, MIB, 1.0 + 0.01 * at, write=True) for at in range(8)]
    read = [Call(0, final, at * MIB, MIB, end + 1 + epoch + 0.01 * at) for epoch in range(3) for at in range(8)]
    log = _log(
        tmp_path / "x.darshan",
        [*calls, *written, *read],
        ranks=1,
        renamed={final: temporary} if is_counted else {},
    )
    character = _character(log)
    roles = _roles(character)
    assert (roles[final], roles[temporary]) == ("other", "other")
    assert not [key for key in character.derived.keys if key.startswith("checkpoint.")]
    assert not character.derived.sides


@pytest.mark.parametrize("is_renamed", [True, False])
@pytest.mark.parametrize("times", [1, 2])
def test_a_checkpoint_that_is_read_back_stays_one(tmp_path: Path, is_renamed: bool, times: int) -> None:
    """Two ranks read a checkpoint of the first."""
    calls = _archives()
    end = max(call.start for call in calls) + 0.5
    name = "/o/model.pt.tmp" if is_renamed else "/o/model.pt"
    written = [Call(0, name, at * MIB, MIB, end + 0.01 * at, write=True) for at in range(4)]
    read = [Call(rank, "/o/model.pt", at * MIB, MIB, end + 1 + 0.01 * at) for rank in range(times) for at in range(4)]
    log = _log(tmp_path / "x.darshan", [*calls, *written, *read], renamed={"/o/model.pt": name} if is_renamed else None)
    character = _character(log)
    assert _roles(character)["/o/model.pt"] == "checkpoint"
    values = _values(character)
    assert (values["checkpoint.files"], values["checkpoint.read_back"]) == ([4 * MIB], True)
    assert not [note for note in character.notes if "itself wrote" in note]


def test_times_of_processes_count_from_the_first_one(tmp_path: Path) -> None:
    """A worker process that started 5 s later reads what its parent wrote; each log counts from its own start."""
    pieces = [_written("/local/a.npz", MIB, 3.0), [Call(0, "/local/a.npz", 0, MIB, 0.5)]]
    paths = [
        _log(tmp_path / f"me_python_id7-{at}_x.darshan", calls, ranks=1, started=1_700_000_000 + 5 * at)
        for at, calls in enumerate(pieces)
    ]
    (file,) = file_stats.take(merged_program.merge([log_reader.load(path) for path in paths]))
    assert file.written_s is not None
    assert file.read_s is not None
    assert (file.written_s[0], file.read_s[0]) == pytest.approx((3.0, 5.5))


# Parquet.


def _row_groups(epochs: int, files: int = 8, groups: int = 12, size: int = 380 * KIB) -> list[Call]:
    """The requests of pyarrow: the end of a file, then a row group in two requests at a time."""
    whole, steps = groups * size + 100_000, []
    for _ in range(epochs):
        for file in range(files):
            path = f"/d/month={file:02}.parquet"
            footer = [Call(0, path, whole - 64 * KIB, 64 * KIB, 0.0)]
            for group in range(groups):
                pieces = [(4 + group * size, size - 4096), (4 + (group + 1) * size - 4096, 4096)]
                steps.append(footer * (group == 0) + [Call(0, path, *piece, 0.0) for piece in pieces])
    return _in_batches(steps, 1, 0.04)


@pytest.mark.parametrize("traced", [True, False])
def test_parquet_files_are_row_groups_that_pyarrow_reads(tmp_path: Path, traced: bool) -> None:
    log = _log(tmp_path / "x.darshan", _row_groups(epochs=3), ranks=1, traced=traced)
    character, _ = accepted_workload.write(_character(log, force=True), "tables")
    values = _values(character)
    assert (values["dataset.format"], values["reader.mode"], values["dataset.files"]) == ("parquet", "framework", 8)
    assert (values["train.epochs"], values["train.steps"], values["reader.transfer_size"]) == (3, None, None)
    hidden = ("dataset.samples_per_file", "dataset.sample.bytes", "dataset.row_group", "reader.batch_size")
    assert {_sure(character, key) for key in hidden} <= {"low", "unknown"}
    assert not [note for note in character.notes if "left at its default" in note]
    made = _workload(character, tmp_path)
    assert (made.dataset.format, made.dataset.row_group) == ("parquet", 1)
    if traced:
        assert (values["dataset.samples_per_file"], values["dataset.sample.bytes"]) == (12, 380 * KIB)
        assert values["compute.time"] == pytest.approx(0.04, rel=0.05)


def test_a_row_group_of_any_size_gives_an_accepted_workload(tmp_path: Path) -> None:
    calls = [
        Call(0, f"/d/{file}.parquet", 4, 5 << 30, 1.0 + epoch + file / 8) for epoch in range(3) for file in range(8)
    ]
    character = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True)
    made = _workload(character, tmp_path).dataset
    assert made.size == pytest.approx(8 * (5 << 30), rel=0.01)


def test_files_called_parquet_are_no_sign_of_training(tmp_path: Path) -> None:
    character = _character(_log(tmp_path / "x.darshan", _row_groups(epochs=1), ranks=1))
    assert not character.derived.keys
    assert "were not read repeatedly" in character.derived.against[0]


# Files that name the latest checkpoint.


@pytest.mark.parametrize(
    "tracker",
    ["latest_checkpointed_iteration.txt", "latest", "checkpoint", "checkpoint.tmp0a1b2c", "last_checkpoint"],
)
@pytest.mark.parametrize("folder", ["/o/checkpoints", "/o"])
@pytest.mark.parametrize("traced", [True, False])
def test_a_file_that_names_the_latest_checkpoint_is_none(
    tmp_path: Path, tracker: str, folder: str, traced: bool
) -> None:
    calls = _archives(epochs=3)
    begins = sorted(call.start for call in calls if call.rank == 0 and call.length == 22)[::4]
    saved = [call for number in (5, 10) for call in _saved(begins[number] - 0.02, number)]
    names = [Call(0, f"{folder}/{tracker}", 0, 130, call.start + 1e-4, write=True) for call in saved[3::4]]
    character = _character(_log(tmp_path / "x.darshan", [*calls, *saved, *names], traced=traced))
    assert _values(character)["checkpoint.files"] == [4 * MIB]
    assert _roles(character)[f"{folder}/{tracker}"] == "output"


# Reads beyond the end of a file.


def _with_excess(has_writes: bool) -> list[Call]:
    """Files of 100,000 bytes are read in requests of 64 KiB, the second of which reaches beyond the end."""
    size = 100_000
    written = [call for at in range(40) for call in _written(f"/d/{at:02}.bin", size, 0.5 + 0.01 * at)]
    steps = [
        [Call(0, f"/d/{at:02}.bin", offset, 64 * KIB, 0.0) for offset in (0, 64 * KIB, 128 * KIB)]
        for _ in range(2) for at in range(40)
    ]  # fmt: skip
    return [*(written if has_writes else []), *_in_batches(steps, 4, 0.05, start=2.0)]


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(("has_writes", "size"), [(True, 100_000), (False, 192 * KIB)])
def test_reads_beyond_the_end_of_a_file_have_no_data(tmp_path: Path, has_writes: bool, size: int, traced: bool) -> None:
    log = _log(tmp_path / "x.darshan", _with_excess(has_writes), ranks=1, traced=traced)
    character = _character(log, only="^/d/", force=True)
    assert {role.file.size for role in character.derived.roles} == {size}
    assert sum(role.file.bytes_read for role in character.derived.roles) == 80 * size
    values = _values(character)
    assert values["dataset.samples_per_file"] * values["dataset.sample.bytes"] == pytest.approx(size, rel=0.02)
    assert values["train.epochs"] == 2
    assert not [note for note in character.notes if "times the bytes" in note]


@pytest.mark.parametrize("traced", [True, False])
def test_reads_of_other_files_with_the_descriptor_of_a_checkpoint_do_not_count(tmp_path: Path, traced: bool) -> None:
    """libdarshan misses that PyTorch closes a file, and counts a read of another, larger file for it."""
    calls = _archives()
    end = max(call.start for call in calls) + 0.5
    strange = [Call(0, "/o/model.pt", 0, 20 * MIB, end + 1), Call(0, "/o/model.pt", 20 * MIB, 8, end + 2)]
    written = [Call(0, "/o/model.pt", at * MIB, MIB, end + 0.01 * at, write=True) for at in range(4)]
    character = _character(_log(tmp_path / "x.darshan", [*calls, *written, *strange], traced=traced))
    assert _roles(character)["/o/model.pt"] == "checkpoint"
    keys = character.derived.keys
    assert keys["checkpoint.files"].value == [4 * MIB]
    assert (keys["checkpoint.read_back"].value, keys["checkpoint.read_back"].confidence) == (
        (False, "high") if traced else (True, "low")
    )


def test_a_write_at_the_beginning_of_an_existing_file_does_not_shorten_it(tmp_path: Path) -> None:
    """HDF5 reads the head of a file and marks it as open for writing."""
    calls = [Call(0, "/d/x.h5", 0, 8, 0.1), Call(0, "/d/x.h5", 0, 96, 0.2, write=True)]
    calls += _in_batches([[Call(0, "/d/x.h5", 4096 + at * MIB, MIB, 0.0)] for at in range(40)], 4, 0.05)
    character = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True)
    (role,) = character.derived.roles
    assert (role.role, role.file.size, role.is_own) == ("dataset", 4096 + 40 * MIB, False)


@pytest.mark.parametrize(
    "strange", [[(4 * MIB, 4), (4 * MIB + 4, 507), (0, 300)], [(0, 5 * MIB), (100, 300)], [(0, 118), (118, 0)]]
)
def test_requests_of_other_files_that_are_possible_in_a_saved_file_do_not_count(
    tmp_path: Path, strange: list[tuple[int, int]]
) -> None:
    """libdarshan misses that PyTorch closes a file. What it counts for it until it is saved again is none of it, writes
    included.
    """
    calls, reads = _archives(ranks=1), []
    end = max(call.start for call in calls)
    for saved in range(3):
        begin = end + 1 + saved
        calls += [Call(0, "/o/state", at * MIB, MIB, begin + 0.01 * at, write=True) for at in range(4)]
        reads += [Call(0, "/o/state", *part, begin + 0.1 + 0.01 * at) for at, part in enumerate(strange)]
        calls += [Call(0, "/o/state", 7 * MIB, 800, begin + 0.2, write=True)]
    made = _character(_log(tmp_path / "x.darshan", [*calls, *reads], ranks=1))
    (saved_file,) = [role for role in made.derived.roles if role.file.path == "/o/state"]
    assert (saved_file.role, saved_file.file.size, saved_file.file.bytes_read) == ("checkpoint", 4 * MIB, 0)
    assert (saved_file.file.bytes_written, saved_file.file.writes, saved_file.file.reads) == (12 * MIB, 12, 0)
    assert _values(made)["checkpoint.files"] == [4 * MIB]


# Data in memory.


def _loaded(late: float, is_late_in_steps: bool = True) -> list[Call]:
    """A program loads 100 files within a second, except for a share that it reads in the 5 s after."""
    first = round(100 * (1 - late))
    at = [1 + 0.01 * number for number in range(first)]
    at += [2 + 5 * number / (100 - first) for number in range(100 - first)]
    loads = [Call(0, f"/d/{number:03}.bin", 0, MIB, time, 5e-3) for number, time in enumerate(at)]
    saved = [call for epoch in range(5) for call in _saved((3 if is_late_in_steps else 8) + 4 * epoch)]
    return [*loads, *saved]


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize("is_late_in_steps", [True, False])
def test_data_of_which_a_part_is_read_during_the_steps_are_not_in_memory(
    tmp_path: Path, traced: bool, is_late_in_steps: bool
) -> None:
    log = _log(tmp_path / "x.darshan", _loaded(0.19, is_late_in_steps), ranks=1, traced=traced)
    load = _character(log, force=True).derived.keys["reader.load"]
    assert load.value == "on_demand"
    assert load.confidence in ("low", "unknown")


@pytest.mark.parametrize("traced", [True, False])
def test_data_that_are_read_before_the_steps_are_in_memory(tmp_path: Path, traced: bool) -> None:
    log = _log(tmp_path / "x.darshan", _loaded(0.0), ranks=1, traced=traced)
    load = _character(log, force=True).derived.keys["reader.load"]
    assert (load.value, load.confidence) == ("memory", "high" if traced else "medium")


def test_two_times_of_a_single_file_do_not_show_what_was_read_late(tmp_path: Path) -> None:
    calls = [call._replace(path="/d/all.bin", offset=at * MIB) for at, call in enumerate(_loaded(0.0)[:100])]
    saved = [call for epoch in range(5) for call in _saved(3 + epoch)]
    log = _log(tmp_path / "x.darshan", [*calls, *saved], ranks=1, traced=False)
    load = _character(log, force=True).derived.keys["reader.load"]
    assert (load.value, load.confidence) == ("memory", "low")


# STDIO, which has counters but no trace.


def _stdio(files: int, size: int, read_at: Any, seconds: float = 0.001, epochs: int = 2) -> StdioRows:
    """Counters of numpy.load for .npy files: the data of each file are read through STDIO."""
    return [
        (f"/d/{at:03}.npy", 0, {
            "OPENS": epochs, "READS": epochs, "BYTES_READ": epochs * size, "MAX_BYTE_READ": size - 1,
            "F_READ_START_TIMESTAMP": read_at(at), "F_READ_END_TIMESTAMP": read_at(at) + (epochs - 1) * 10.0 + seconds,
            "F_READ_TIME": epochs * seconds, "F_META_TIME": epochs * seconds,
        })
        for at in range(files)
    ]  # fmt: skip


def _headers(files: int, read_at: Any, epochs: int = 2) -> list[Call]:
    return [
        Call(0, f"/d/{at:03}.npy", 0, 4096, read_at(at) - 1e-3 + 10.0 * epoch) for epoch in range(epochs)
        for at in range(files)
    ]  # fmt: skip


@pytest.mark.parametrize("traced", [True, False])
def test_bytes_and_times_of_stdio_count(tmp_path: Path, traced: bool) -> None:
    """The trace has the headers of files alone: 4 KiB of each. A pass takes 8 s, of which 4 s are in STDIO's calls."""
    order = np.random.default_rng(0).permutation(200)
    at = {int(file): 1.0 + 0.04 * place for place, file in enumerate(order)}
    rows = _stdio(200, 100_000, at.get, seconds=0.01)
    log = _log(tmp_path / "x.darshan", _headers(200, at.get), ranks=1, traced=traced, stdio=rows, seconds=20.0)
    character = _character(log, force=True)
    keys = character.derived.keys
    assert {role.file.bytes_read for role in character.derived.roles} == {2 * (100_000 + 4096)}
    assert (keys["train.epochs"].value, keys["reader.shuffle.files"].value) == (2, True)
    spent = 400 * 0.02 + 400 * 1e-4
    assert keys["compute.time"].value == pytest.approx((18.0 - spent) / 400, rel=0.1)
    (note,) = [note for note in character.notes if "STDIO" in note]
    assert note == "38.15 MiB of 39.71 MiB of the dataset were read through STDIO, which is not traced"


def test_a_part_of_the_data_through_stdio_makes_values_of_requests_less_sure(tmp_path: Path) -> None:
    calls = _archives(ranks=1)
    rows: StdioRows = [
        (f"/d/train/case_{at:03}.npz", 0, {
            "OPENS": 2, "READS": 2, "BYTES_READ": 200_000, "MAX_BYTE_READ": 399_999, "F_READ_TIME": 0.02,
            "F_READ_START_TIMESTAMP": 1.5, "F_READ_END_TIMESTAMP": 3.0,
        })
        for at in range(40)
    ]  # fmt: skip
    keys = _character(_log(tmp_path / "x.darshan", calls, ranks=1, stdio=rows)).derived.keys
    without = _character(_log(tmp_path / "y.darshan", calls, ranks=1)).derived.keys
    assert (without["train.epochs"].confidence, keys["train.epochs"].confidence) == ("high", "medium")
    assert keys["compute.time"].value == pytest.approx(without["compute.time"].value - 40 * 0.02 / 20, abs=1e-4)
    assert "% of the bytes were read through STDIO" in keys["compute.time"].evidence


def test_the_size_of_a_checkpoint_counts_what_stdio_wrote(tmp_path: Path) -> None:
    """numpy.save writes the header of a file itself, and its data through STDIO."""
    calls = _archives(epochs=3, ranks=1)
    begins = sorted(call.start for call in calls if call.length == 22)[::4]
    calls += [Call(0, "/o/weights.npy", 0, 128, begins[number] - 0.02, write=True) for number in (5, 10, 15)]
    rows: StdioRows = [("/o/weights.npy", 0, {
        "OPENS": 3, "WRITES": 3, "BYTES_WRITTEN": 3 * MIB, "MAX_BYTE_WRITTEN": 128 + MIB - 1,
        "F_WRITE_START_TIMESTAMP": begins[5], "F_WRITE_END_TIMESTAMP": begins[15],
    })]  # fmt: skip
    character = _character(_log(tmp_path / "x.darshan", calls, ranks=1, stdio=rows))
    assert _values(character)["checkpoint.files"] == [128 + MIB]
    assert _sure(character, "checkpoint.files") == "medium"
    assert "checkpoint.requests" not in character.derived.keys


@pytest.mark.parametrize(("seconds", "is_possible"), [(60.0, True), (2.5, False)])
@pytest.mark.parametrize("traced", [True, False])
def test_a_table_that_each_rank_loads_before_a_long_computation_is_possible_training(
    tmp_path: Path, traced: bool, seconds: float, is_possible: bool
) -> None:
    """CANDLE's benchmarks do so, and save a history that has no model's name."""
    calls = [
        Call(rank, "/d/train.csv", at * MIB, MIB, at / 20 + rank / 100) for rank in range(4) for at in range(40)
    ]  # fmt: skip
    calls.append(Call(0, "/o/history.out", 0, 9000, 2.2, write=True))
    made = characterize.load([_log(tmp_path / "x.darshan", calls, 4, traced, seconds=seconds)], None, False)
    assert made.derived.against
    assert ("training on data in memory is possible (all data were read once" in made.derived.against[0]) == is_possible


def test_files_of_the_recorder_are_none_of_the_program(tmp_path: Path) -> None:
    path = "/home/me/rec/processes/node7/4711-1795827954193606802.jsonl"
    calls = [*_loads([[0, 1, 2, 2, 0, 1, 1, 2, 0]]), Call(0, path, 0, 51, 0.05, write=True)]
    made = _character(_log(tmp_path / "x.darshan", calls, ranks=1), force=True)
    assert path not in {role.file.path for role in made.derived.roles}
    assert len(made.derived.roles) == 3
