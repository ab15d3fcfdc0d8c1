"""Recordings that no recorder wrote, that are very large, or that do not show all that the program does."""

import json
from pathlib import Path

import pytest

from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.cli import characterize_check
from dlio_hpc.config import workload
from dlio_hpc.plan.options import Options
from dlio_hpc.programs import emulated_steps
from dlio_hpc.programs.recordings import recorded_character, recording_files
from dlio_hpc.programs.reports import accepted_workload
from dlio_hpc.programs.step_check import StepProfile
from tests.conftest import Run
from tests.programs.test_recordings import _SETTINGS, Events, _files, _one, _passes


def _trained(folder: Path) -> Events:
    events = Events(folder)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    return events


_AXIS = 1 << 50
_ODD: dict[str, str] = {
    "a fit without its dataset": '[1,"fit",{}]',
    "a place without rows": '[1,"read","h5py",0.1,0,1,1,[0]]',
    "a place without their number": '[1,"read","h5py",0.1,0,1,1,[0,1]]',
    "an array that no disk holds": json.dumps([1, "array", 0, 0, [_AXIS] * 40, 4, None, None, "f4"]),
    "a chunk that no disk holds": json.dumps([1, "array", 0, 0, [16], 4, [_AXIS, _AXIS], None, "f4"]),
    "an array of a hundred axes": json.dumps([1, "array", 0, 0, [1] * 100, 4, None, None, "f4"]),
    "lists in lists": '[1,"stage",0,null,"x",' + "[" * 100_000 + "]" * 100_000 + ",{}]",
    "objects in objects": '[1,"stage",0,null,"x",[],' + '{"a":' * 5000 + "1" + "}" * 5000 + "]",
}


@pytest.mark.parametrize("odd", _ODD)
def test_a_line_that_would_end_the_verb_is_left_out_with_a_note(tmp_path: Path, odd: str) -> None:
    right = _one(tmp_path, _trained(tmp_path))
    (path,) = tmp_path.rglob("*.jsonl")
    with path.open("a") as file:
        file.write(f"\n{_ODD[odd]}\n")
    made = recorded_character.load(tmp_path)
    assert made.derived.keys == right.derived.keys
    assert [note for note in made.notes if "1 torn line" in note]


@pytest.mark.parametrize("head", [None, "[" * 100_000, ""])
def test_a_folder_and_a_file_without_a_head_are_named_as_no_recording(tmp_path: Path, head: str | None) -> None:
    path = tmp_path / "processes/node/x.jsonl"
    if head is None:
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True)
        path.write_text(head)
    with pytest.raises(InvalidRun, match=r"node/x[.]jsonl is not a recording of a process"):
        recorded_character.load(tmp_path)


@pytest.mark.parametrize(("limit", "most"), [("_MOST_IN_ALL", 3000), ("_MOST_EVENTS", 150)])
def test_a_recording_that_is_too_large_in_all_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    """Two ranks have 91 events each, and some 3 kB."""
    for rank in range(2):
        events = Events(tmp_path, rank, 2)
        _files(events, 14)
        _passes(events, 5, 5, True, 0.5, [21, 0, 9, [4, 2]])
        events.write()
    assert len(recording_files.load(tmp_path)) == 2
    monkeypatch.setattr(recording_files, limit, most)
    with pytest.raises(InvalidRun, match=f"{tmp_path.name} is too large: .*; record fewer ranks, or a shorter run"):
        recording_files.load(tmp_path)


def test_events_that_are_alike_share_their_values_and_unused_ones_are_dropped(tmp_path: Path) -> None:
    events = _trained(tmp_path)
    events.add("fetch", 3, 0.01, 300)
    events.write()
    with next(tmp_path.rglob("*.jsonl")).open("a") as file:
        file.write('\n[1,"fetch","x"]')
    (made,) = recording_files.load(tmp_path)
    assert "fetch" not in {event.kind for event in made.events}
    assert made.faults[0].startswith("1 torn line")
    assert len({id(event.values) for event in made.events if event.kind == "step"}) == 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """Options of the jobs that a check would run."""
    made: list[Options] = []

    def submit(options: Options) -> Path:
        made.append(options)
        return Path("the-job")

    monkeypatch.setattr(characterize_check, "_submit", submit)
    monkeypatch.setattr(emulated_steps, "of_job", lambda *rest: StepProfile(7, 0, 0.5, None))
    return made


def test_a_check_of_steps_generates_no_files_of_evaluation(tmp_path: Path, run: Run, asked: list[Options]) -> None:
    """The dataset of a check has a limit, which thousands of files of evaluation would exceed."""
    events = Events(tmp_path)
    _files(events, 200)
    events.add("loader", 0, _SETTINGS)
    events.add("loader", 1, _SETTINGS | {"sampler": "SequentialSampler"})
    for _ in range(2):
        _passes(events, 1, 14, True, 0.5, [42, 0, 9, [4, 2]])
        events.add("pass", 1, 0.0)
        for number in range(14, 200):
            events.add("open", number, 0)
            events.add("batch", 1, 0.01, 3, 300, after=0.01)
        events.add("end_of_pass", 1, 0.0, None)
    events.write()
    assert recorded_character.load(tmp_path).derived.keys["evaluation.files"].value == 186
    run("dlio-hpc", "characterize", tmp_path, "--check")
    (options,) = asked
    assert {"evaluation=null", "checkpoint=null"} <= set(options.overrides)


def test_a_check_runs_without_a_value_that_no_workload_may_have(tmp_path: Path, run: Run, asked: list[Options]) -> None:
    """A pipeline that repeats its files 10^18 times in a pass has too many epochs, which are left at their default."""
    events = Events(tmp_path)
    _files(events, 16)
    events.add("stage", 0, None, "TFRecordDatasetV2", [], {})
    events.add("source", 0, list(range(16)))
    events.add("stage", 1, 0, "repeat", [10**18], {})
    events.add("stage", 2, 1, "batch", [4], {})
    events.add("pass", ["tf.data", 2], 0.0, None)
    for _ in range(4):
        events.add("batch", ["tf.data", 2], 0.01, 4, 4000, after=0.01)
        events.add("gradient", 0.01)
    events.add("end_of_pass", ["tf.data", 2], 0.0, None)
    events.write()
    assert run("dlio-hpc", "characterize", tmp_path, "--check").code in (1, 7)
    assert "train.epochs=1" in asked[0].overrides


def _in_memory(folder: Path, size: int, read: int, in_passes: int, held: int, passes: int = 2) -> Events:
    """Add a file of `size` bytes that is opened before the passes. The kernel counts `read` bytes before them, and
    `in_passes` in each. A batch holds `held` bytes.
    """
    events = Events(folder)
    events.add("file", 0, "/data/all.bin", size)
    events.add("moved", 0, 0)
    events.add("open", 0, 0, after=0.5)
    events.add("loader", 0, _SETTINGS, after=0.5)
    for number in range(passes):
        events.add("pass", 0, 0.0)
        events.add("moved", read + in_passes * number, 0)
        for _ in range(7):
            events.add("batch", 0, 0.25, 3, held, after=0.25)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [21, 0, 9, [4, 2]])
        events.add("moved", read + in_passes * (number + 1), 0)
    return events


@pytest.mark.parametrize(("in_passes", "doubt"), [(200, ""), (88_000, "the kernel counted 85.94 KiB in the only pass")])
def test_a_few_bytes_in_a_single_pass_may_be_data(tmp_path: Path, in_passes: int, doubt: str) -> None:
    made = _one(tmp_path, _in_memory(tmp_path, 88_000, 1_000_000, in_passes, 12_500, 1))
    assert made.steps is not None
    assert made.derived.keys["reader.load"].value == "memory"
    assert made.steps.doubt.startswith(doubt)
    assert bool(made.steps.doubt) == bool(doubt)


@pytest.mark.parametrize(
    ("size", "read", "in_passes", "held", "load", "doubt"),
    [
        (2_000_000, 2_100_000, 200, 300_000, ("memory", "recorded"), ""),
        (2_000_000, 2_100_000, 200, 1_200_000, ("memory", "recorded"), ""),  # decoded
        (2_000_000, 2_100_000, 2_000_000, 300_000, ("on_demand", "low"), ""),
        (88_000, 1_000_000, 88_000, 12_500, ("on_demand", "low"), ""),  # a file that stays open
        (2_000_000, 500_000, 200, 300_000, ("on_demand", "low"), "none in the passes: the program may have mapped"),
        (320, 900_000, 200, 300_000, ("memory", "low"), "far more than the 320 B of the files that were read"),
    ],
)
def test_data_are_in_memory_if_they_were_read_before_the_passes_and_can_be_the_batches(
    tmp_path: Path, size: int, read: int, in_passes: int, held: int, load: tuple[str, str], doubt: str
) -> None:
    made = _one(tmp_path, _in_memory(tmp_path, size, read, in_passes, held))
    value = made.derived.keys["reader.load"]
    assert (value.value, value.confidence) == load
    assert made.steps is not None
    assert doubt in made.steps.doubt
    assert bool(made.steps.doubt) == bool(doubt)
    assert made.steps.doubt in (made.notes[-1] if doubt else "")
    assert made.derived.keys["dataset.files"].confidence == ("low" if doubt else "recorded")


def test_a_loader_that_shuffles_data_in_memory_does_not_tell_the_order_of_the_reads(tmp_path: Path) -> None:
    """The sampler takes no sample after the one before it."""
    for read_in_passes, is_shuffled in ((200, False), (2_000_000, True)):
        folder = tmp_path / str(read_in_passes)
        made = _one(folder, _in_memory(folder, 2_000_000, 2_100_000, read_in_passes, 300_000))
        keys = made.derived.keys
        assert (keys["reader.load"].value == "memory") is not is_shuffled
        assert keys["reader.shuffle.files"].value is is_shuffled


@pytest.mark.parametrize(("held", "is_in_doubt"), [(100_000, False), (5_000_000, True)])
def test_small_files_that_are_read_beside_other_data_are_no_dataset(
    tmp_path: Path, held: int, is_in_doubt: bool
) -> None:
    """Fourteen files of 1000 B are opened in the passes. They may be labels of what comes through a map."""
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    for number in range(14):
        events.add("pass" if number % 7 == 0 else "step", *([0, 0.0] if number % 7 == 0 else ["SGD"]))
        events.add("open", number, 0)
        events.add("batch", 0, 0.25, 3, held, after=0.25)
    made = _one(tmp_path, events, is_forced=True)
    assert made.steps is not None
    assert ("far more than the 13.67 KiB" in made.steps.doubt) == is_in_doubt
    assert made.derived.keys["dataset.files"].confidence == ("low" if is_in_doubt else "recorded")


def test_a_check_of_data_in_doubt_is_no_verdict(tmp_path: Path, run: Run, asked: list[Options]) -> None:
    """The steps of the check run are those of the program."""
    right, doubted = tmp_path / "right", tmp_path / "doubted"
    _in_memory(right, 2_000_000, 2_100_000, 0, 300_000).write()
    _in_memory(doubted, 320, 900_000, 0, 300_000).write()
    assert run("dlio-hpc", "characterize", right, "--check").code == 0
    done = run("dlio-hpc", "characterize", doubted, "--check")
    assert done.code == 7
    assert done.out.startswith(
        "Not measured: the check run may read other data than the program: the batches of a pass hold 2.0"
    )
    assert len(asked) == 2


@pytest.mark.parametrize("in_passes", [200, 2_000_000])
def test_reads_beside_a_small_map_are_compared_and_said(tmp_path: Path, in_passes: int) -> None:
    """The map is an index of the data, which are read by calls that are not recorded."""
    events = Events(tmp_path)
    events.add("file", 0, "/data/all.idx", 1024)
    events.add("map", "numpy", 0, 1024)
    events.add("loader", 0, _SETTINGS)
    for number in range(2):
        events.add("pass", 0, 0.0)
        events.add("moved", in_passes * number, 0)
        for _ in range(7):
            events.add("batch", 0, 0.25, 3, 300_000, after=0.25)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [21, 0, 9, [4, 2]])
        events.add("moved", in_passes * (number + 1), 0)
    made = _one(tmp_path, events)
    assert made.steps is not None
    assert made.steps.bytes == (None if in_passes == 200 else pytest.approx(2_000_000 / 7))
    assert ("besides the files that are mapped" in made.steps.doubt) == (in_passes > 200)


def _samples_in_states(folder: Path, is_in_worker: bool) -> Events:
    """Add files that the program saved with torch.save, and that torch.load reads in the passes of a loader."""
    events, worker = Events(folder), Events(folder, 0)
    for made in (events, worker):
        for number in range(14):
            made.add("file", number, f"/data/{number:03}.pt", 100_000)
    worker.add("worker", 0, 1)
    for number in range(14):
        events.add("save", "torch", 0.01, number, 100_000, after=0.02)
    events.add("loader", 0, _SETTINGS)
    for _ in range(2):
        events.add("pass", 0, 0.0)
        for batch in range(7):
            for number in (2 * batch, 2 * batch + 1):
                worker.time = events.time
                for event in ("open", "restore") if is_in_worker else ():
                    worker.add(event, *([number, 0] if event == "open" else ["torch", 0.0, number, 100_000]))
                for event in () if is_in_worker else ("open", "restore"):
                    events.add(event, *([number, 0] if event == "open" else ["torch", 0.0, number, 100_000]))
            events.add("batch", 0, 0.25, 2, 200_000, after=0.25)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [14, 0, 7, [4, 2]])
    if is_in_worker:
        worker.write("worker.jsonl", process=200, parent=100)
    return events


@pytest.mark.parametrize("is_in_worker", [False, True])
def test_samples_that_torch_loads_are_data_and_no_states(tmp_path: Path, is_in_worker: bool) -> None:
    made = _one(tmp_path, _samples_in_states(tmp_path, is_in_worker))
    assert made.derived.keys["dataset.files"].value == 14
    assert not [key for key in made.derived.keys if key.startswith("checkpoint.")]
    assert not [note for note in made.notes if " state " in note]


def test_states_of_a_program_whose_samples_are_torchs_are_its_checkpoints(tmp_path: Path) -> None:
    """The best state is loaded in a pass, and at the end, which is no restart."""
    events = _samples_in_states(tmp_path, False)
    events.add("file", 20, "/out/best.pt", 500_000)
    events.add("pass", 0, 0.0)
    for event in ("save", "restore"):
        events.add(event, "torch", 0.1, 20, 500_000, after=0.2)
    events.add("end_of_pass", 0, 0.0, [14, 0, 7, [4, 2]])
    events.add("save", "torch", 0.1, 20, 500_000, after=0.1)
    events.add("restore", "torch", 0.1, 20, 500_000, after=0.1)
    made = _one(tmp_path, events)
    assert made.derived.keys["checkpoint.files"].value == [500_000]
    assert [note for note in made.notes if " state " in note] == [
        "1 state were loaded later, such as the state of the best model; the workload does not read them"
    ]


@pytest.mark.parametrize("others", [(), ("before",), ("after",), ("before", "after")])
def test_one_evaluation_an_epoch_is_taken_and_others_are_said(tmp_path: Path, others: tuple[str, ...]) -> None:
    """After each of two epochs, three files are read. Before the first, two batches may be looked at, and after the
    last evaluation, others are read by a loader with the same settings.
    """
    events = Events(tmp_path)
    _files(events, 20)
    events.add("loader", 0, _SETTINGS | {"samples": 42})
    events.add("loader", 1, _SETTINGS | {"sampler": "SequentialSampler", "batch_size": 1})

    def evaluate(first: int, batches: int) -> None:
        events.add("pass", 1, 0.0)
        for number in range(first, first + batches):
            events.add("batch", 1, 0.25, 1, 100, after=0.25)
            events.add("open", number, 0)
            events.time += 0.5
        if batches > 2:
            events.add("end_of_pass", 1, 0.0, None)

    if "before" in others:
        evaluate(14, 2)
    for _ in range(2):
        _passes(events, 1, 14, True, 0.5, [42, 0, 9, [4, 2]])
        evaluate(14, 3)
    if "after" in others:
        evaluate(17, 3)
    made = _one(tmp_path, events)
    keys = made.derived.keys
    assert (keys["evaluation.files"].value, keys["evaluation.every_epochs"].value) == (3, 1)
    notes = [note for note in made.notes if "without a step" in note]
    assert [note.partition(" ")[0] for note in notes] == ([str(len(others))] if others else [])


def test_bytes_beside_those_of_recorded_reads_are_said_without_a_cause(tmp_path: Path) -> None:
    events = Events(tmp_path)
    for number in range(14):
        events.add("file", number, f"/data/{number:03}.bin", 1_000_000)
    events.add("loader", 0, _SETTINGS)
    events.add("moved", 0, 0)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    events.add("moved", 40_000_000, 0)
    assert _one(tmp_path, events).notes == [
        "the kernel counted 38.15 MiB in the passes; 24.8 MiB of them do not belong to recorded reads, but to other "
        "loaders, to libraries that read more than was requested, or to calls that are not recorded"
    ]


@pytest.mark.parametrize("library", ["pandas.read_csv", "h5py"])
def test_an_empty_table_or_array_gives_an_accepted_workload(tmp_path: Path, library: str) -> None:
    events = Events(tmp_path)
    for number in range(3):
        events.add("file", number, f"/data/{number}.bin", 1000)
        events.add("table", number, 0, 0, 0)
        events.add("array", number, number, [16, 10], 0, None, None, "V0")
    events.add("loader", 0, _SETTINGS)
    for _ in range(2):
        events.add("pass", 0, 0.0)
        for number in range(7):
            place = [number % 3, 0, 1] if library == "h5py" else None
            events.add("read", library, 0.01, number % 3, 80, 1, place, after=0.1)
            events.add("batch", 0, 0.25, 3, 300, after=0.25)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [21, 0, 9, [4, 2]])
    accepted_workload.write(_one(tmp_path, events), "x")


@pytest.mark.parametrize(("load", "epochs"), [("on_demand", 2), ("memory", 7)])
def test_a_check_of_data_in_memory_has_the_checkpoints_of_all_epochs(load: str, epochs: int) -> None:
    made = workload.load("demo", (f"reader.load={load}", "train.epochs=7"))
    assert characterize_check._epochs(made) == epochs
