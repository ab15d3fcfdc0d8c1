"""Workloads that follow from recordings: of the programs of the tests, run here, and of events that a test writes."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.config import workload
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.recordings import (
    read_counts,
    recorded_character,
    recorded_checkpoints,
    recorded_program,
    recorded_run,
    recording_files,
    tensorflow_pipelines,
)
from dlio_hpc.programs.recordings.recorded_program import Pass, PipelineStage
from dlio_hpc.programs.reports import accepted_workload, workload_yaml
from tests.support import characters, fidelity
from tests.support.places import ROOT

CASES = {case.name: case for case in characters.cases()}
# Programs with a loader of PyTorch, a pipeline of TensorFlow, and a fit of Keras; with their ranks under MPI.
LOADERS = {"torch_loader": 0, "galaxies": 2, "tf_records": 2, "tf_sharded": 2}
# Programs that read in a loop of their own.
LOOPS = {"h5_contiguous_shuffled": 2, "csv_chunks": 0, "parameter_sweep": 0, "beam_scan": 2, "postprocess": 0}
# Truth about the language of workloads, not about the program: a workload's step is at least this long; its prefetch
# counts the samples of a buffer to shuffle.
_FLOOR = {"compute.time"}


def _recorded(name: str, ranks: int, folder: Path) -> Character:
    """Run a program of the tests under the recorder and return what follows."""
    pytest.importorskip(fidelity.NEEDS.get(name, "numpy"))
    half = {"known": "apps"}.get(CASES[name].half, CASES[name].half)
    program = [sys.executable, "-m", f"tests.{half}.{name}"]
    data, recording = folder / "data", folder / "recording"
    subprocess.run([*program, "prepare", data], cwd=ROOT, check=True, capture_output=True)
    recorded_run.prepare(recording)
    launcher = ["mpiexec", "-n", str(ranks)] if ranks else []
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [*launcher, *program, "train", data], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | recorded_run.variables(recording, False) | {"PATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "dlio-hpc record" not in done.stderr
    return recorded_character.load(recording)


@pytest.mark.job
@pytest.mark.framework
@pytest.mark.parametrize("name", LOADERS)
def test_recorded_values_are_those_of_the_program(name: str, tmp_path: Path) -> None:
    made = _recorded(name, LOADERS[name], tmp_path)
    keys = made.derived.keys
    assert not made.derived.against
    wrong = [
        (key, keys[key].value, truth) for key, truth in CASES[name].truth.items()
        if key in keys and keys[key].confidence == "recorded" and key not in _FLOOR
        and not characters.is_right(key, keys[key].value, truth)
    ]  # fmt: skip
    assert not wrong
    assert sum(value.confidence == "recorded" for value in keys.values()) >= 14
    assert keys["compute.time"].value >= 0.9 * CASES[name].truth["compute.time"]
    assert made.log.job.ranks == max(LOADERS[name], 1)
    path = tmp_path / "derived.yaml"
    path.write_text(workload_yaml.write(made, name))
    assert workload.load(str(path)).name == name


@pytest.mark.job
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_of_its_own_is_said_to_be_one(name: str, tmp_path: Path) -> None:
    made = _recorded(name, LOOPS[name], tmp_path)
    assert any("reads without a loader" in note for note in made.notes)
    assert bool(made.derived.against) != CASES[name].is_training
    sure = {key for key, value in made.derived.keys.items() if value.confidence in ("recorded", "high")}
    assert sure <= {"dataset.format", "dataset.chunk", "dataset.compression"}


_DISTRIBUTED = """
import torch, torch.distributed, torch.distributed.checkpoint as checkpoints
torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(100, 100)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([torch.zeros(100)] * 64, batch_size=8)
for epoch in range(3):
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
    checkpoints.save({"model": model.state_dict()}, checkpoint_id=f"state{epoch}")
checkpoints.load({"model": model.state_dict()}, checkpoint_id="state2")
torch.distributed.destroy_process_group()
"""


@pytest.mark.job
@pytest.mark.framework
def test_ranks_of_torchrun_save_distributed_checkpoints(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(_DISTRIBUTED)
    recorded_run.prepare(tmp_path / "recording")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | recorded_run.variables(tmp_path / "recording", False),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    program = recorded_program.of(recording_files.load(tmp_path / "recording"))
    assert program.script.endswith("train.py")
    assert [rank.number for rank in program.ranks] == [0, 1]
    for rank in program.ranks:
        saved = [(one.library, Path(one.file or "").name, one.steps) for one in rank.transfers if one.kind == "save"]
        assert saved == [("torch.distributed", f"state{epoch}", 8 * (epoch + 1)) for epoch in range(3)]
        assert [one.kind for one in rank.transfers].count("restore") == 1
    keys = recorded_checkpoints.keys_of(program, 3, [8, 16, 24])
    assert (keys["checkpoint.by"].value, keys["checkpoint.every_steps"].value) == ("all", None)


class Events:
    """Recording of one rank whose events a test writes. Times are seconds since the start of the process."""

    def __init__(self, folder: Path, rank: int = 0, ranks: int = 1) -> None:
        self._path = folder / "processes/node" / f"{rank}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lines: list[Any] = [{
            "format": "dlio-hpc recording", "version": 1, "host": "node", "process": 100 + rank, "parent": 1,
            "begun": 1000.0, "python": "3.12.0", "script": "/train.py", "is_anonymous": False,
            "rank": [rank, ranks, "RANK"], "job": None,
        }]  # fmt: skip
        self.time = 0.0

    def add(self, kind: str, *values: Any, after: float = 0.0) -> None:
        self.time += after
        self._lines.append([round(self.time, 6), kind, *values])

    def write(self, name: str = "", **changes: Any) -> None:
        """Write the recording. name: of its file. changes: of its head."""
        head, *lines = self._lines
        path = self._path.with_name(name) if name else self._path
        path.write_text("\n".join(map(json.dumps, [head | changes, *lines, [self.time, "end"]])))


_SETTINGS = {"library": "torch", "batch_size": 3, "workers": 2, "prefetch_factor": 4, "samples": 21, "sampler": "Own"}


def _passes(events: Events, passes: int, batches: int, with_steps: bool, computes: float, order: list[Any]) -> None:
    """Add passes of loader 0: each batch is waited for 0.25 s, and computed on for `computes` seconds."""
    for number in range(passes):
        events.add("pass", 0, 0.0)
        for batch in range(batches):
            events.add("batch", 0, 0.25, 3, 300, after=0.25)
            events.add("open", number * batches + batch, 0)
            if with_steps:
                events.add("step", "SGD")
            events.time += computes
        events.add("end_of_pass", 0, 0.0, order)


def _one(folder: Path, events: Events, **keys: Any) -> Character:
    events.write()
    return recorded_character.load(folder, **keys)


def _files(events: Events, count: int, size: int = 1000) -> None:
    for number in range(count):
        events.add("file", number, f"/data/{number:03}.bin", size)


def test_wait_and_compute_are_kept_apart(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    keys = _one(tmp_path, events).derived.keys
    assert keys["compute.time"].value == 0.5
    assert keys["compute.time"].confidence == "recorded"
    assert (keys["train.epochs"].value, keys["train.steps"].value) == (2, None)
    assert (keys["reader.batch_size"].value, keys["reader.read_threads"].value, keys["reader.prefetch"].value) == (
        3,
        2,
        8,
    )
    assert keys["reader.shuffle.files"].value is True
    assert "checkpoint.by" not in keys


@pytest.mark.parametrize("computes", [0.5, 0.0])
def test_the_comment_of_the_computation_says_for_which_batches_it_holds(tmp_path: Path, computes: float) -> None:
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, computes, [21, 0, 9, [4, 2]])
    text = workload_yaml.write(_one(tmp_path, events), "x")
    comments = " ".join(line.partition("#")[2].strip() for line in text.splitlines())
    assert comments.count("holds only for batches of 3 and 2 read threads") == (1 if computes else 0)


@pytest.mark.parametrize(("orders", "reseed"), [((1, 1, 1), False), ((1, 1, 2), True), ((1, 2, 3), True)])
def test_passes_with_the_same_random_order_are_said_to_have_it(
    tmp_path: Path, orders: tuple[int, ...], reseed: bool
) -> None:
    """A DistributedSampler whose set_epoch() is not called gives the same order in each epoch."""
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS | {"seed": 7})
    for factor in orders:
        _passes(events, 1, 7, True, 0.5, [21, 0, 9, [factor * 5 * number % 21 for number in range(16)]])
    keys = _one(tmp_path, events).derived.keys
    assert (keys["reader.shuffle.seed"].value, keys["reader.shuffle.reseed"].value) == (7, reseed)
    assert keys["reader.shuffle.reseed"].confidence == "recorded"
    assert "most of 3 samples, 300 B in memory" in keys["reader.batch_size"].evidence
    path = tmp_path / "derived.yaml"
    path.write_text(workload_yaml.write(recorded_character.load(tmp_path), "x"))
    assert workload.load(str(path)).reader.shuffle.reseed is reseed


@pytest.mark.parametrize(("collate", "per_item"), [("stack", 4), ("default_collate", 1)])
def test_items_that_hold_several_samples_are_told_from_samples(tmp_path: Path, collate: str, per_item: int) -> None:
    """A function of the program makes a batch of 12 rows of three items. Each of 14 files has an item; the last batch
    has two. The first axis of batches that PyTorch makes is their number of items.
    """
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS | {"samples": 14, "collate": collate})
    for _ in range(2):
        events.add("pass", 0, 0.0)
        for batch in range(5):
            for item in range(3 * batch, min(3 * batch + 3, 14)):
                events.add("open", item, 0)
            events.add("batch", 0, 0.25, 4 * min(3, 14 - 3 * batch), 300, after=0.25)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [14, 0, 7, [4, 2]])
    keys = _one(tmp_path, events).derived.keys
    values = [keys[key].value for key in ("dataset.samples_per_file", "dataset.sample.bytes", "reader.batch_size")]
    assert values == [per_item, 1000 // per_item, 3 * per_item]
    assert keys["reader.batch_size"].confidence == ("medium" if per_item > 1 else "recorded")


def test_the_rows_of_a_row_group_are_recorded(tmp_path: Path) -> None:
    """Files of 9,000 rows in groups of 1,000 are read by a loader that gives batches of 3 groups."""
    events = Events(tmp_path)
    for number in range(3):
        events.add("file", number, f"/data/{number}.parquet", 9_000_000)
        events.add("table", number, 9000, 9, 33)
    events.add("loader", 0, _SETTINGS | {"batch_size": None, "is_iterable": True, "samples": None})
    for _ in range(2):
        events.add("pass", 0, 0.0)
        for group in range(27):
            events.add("read", "pyarrow.row_group", 0.01, group % 3, 270_000, 1000, [0, group // 3, 1], after=0.1)
            if group % 3 == 2:
                events.add("batch", 0, 0.3, 3000, 810_000)
                events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, None)
    made = _one(tmp_path, events)
    keys = made.derived.keys
    assert (keys["dataset.row_group"].value, keys["dataset.samples_per_file"].value) == (1000, 9000)
    assert keys["dataset.row_group"].confidence == "recorded"
    path = tmp_path / "derived.yaml"
    path.write_text(workload_yaml.write(made, "x"))
    assert workload.load(str(path)).dataset.row_group == 1000


@pytest.mark.parametrize(
    ("others", "spans"),
    [
        ([], [(1, 9)]), ([(3, 4)], [(1, 3), (4, 9)]), ([(2, 5), (3, 6)], [(1, 2), (6, 9)]), ([(0, 3)], [(1, 9)]),
        ([(7, 9)], [(1, 9)]), ([(2, 8), (3, 4)], [(1, 2), (8, 9)]), ([(2, 3), (5, 7)], [(1, 2), (3, 5), (7, 9)]),
    ],
)  # fmt: skip
def test_parts_of_a_pass_leave_out_what_lies_in_its_middle(
    others: list[tuple[float, float]], spans: list[tuple[float, float]]
) -> None:
    one, *rest = (Pass("x", begin, end, [], 0, True, None) for begin, end in [(1, 9), *others])
    assert recorded_program.parts(one, rest) == spans


def test_batches_that_grow_are_those_of_one_training(tmp_path: Path) -> None:
    """One epoch in batches of 3, and three in batches of 6, which are most."""
    events = Events(tmp_path)
    _files(events, 42)
    for epoch, size in enumerate((3, 6, 6, 6)):
        events.add("loader", epoch, _SETTINGS | {"batch_size": size, "samples": 42})
        events.add("pass", epoch, 0.0)
        for batch in range(42 // size):
            events.add("batch", epoch, 0.25, size, 300, after=0.25)
            for number in range(size):
                events.add("open", size * batch + number, 0)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", epoch, 0.0, [42, 0, 9, [4, 2]])
    made = _one(tmp_path, events)
    keys = made.derived.keys
    assert (keys["train.epochs"].value, keys["dataset.samples_per_file"].value) == (4, 1)
    assert (keys["reader.batch_size"].value, keys["reader.batch_size"].confidence) == (6, "medium")
    assert not [note for note in made.notes if "other loader" in note]


def test_time_between_batches_of_a_thread_is_not_said_to_be_computation(tmp_path: Path) -> None:
    """A thread of the program fills a queue: it asks for the next batch long before the step is over."""
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    events.add("unseen", "thread", "the computation between batches")
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    made = _one(tmp_path, events)
    assert made.derived.keys["compute.time"].confidence == "low"
    assert made.steps is not None
    assert (made.steps.steps, made.steps.compute_s, made.steps.wait_s) == (7, None, None)
    assert [note for note in made.notes if "not recorded: the computation between batches" in note]


@pytest.mark.parametrize("seed", [-1, 1 << 60, None])
def test_a_seed_that_no_workload_has_is_left_out(tmp_path: Path, seed: int | None) -> None:
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS | {"seed": seed})
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    keys = _one(tmp_path, events).derived.keys
    assert not {"reader.shuffle.seed", "reader.shuffle.reseed"} & set(keys)


def test_samples_in_the_order_of_the_dataset_are_not_shuffled(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 20, 20, [0, 1]])
    assert _one(tmp_path, events).derived.keys["reader.shuffle.files"].value is False


def test_checkpoints_and_passes_of_evaluation_are_no_computation(tmp_path: Path) -> None:
    """Batches are 2 s apart. The program saves a checkpoint for 0.75 s and evaluates for 1 s between two of them."""
    events = Events(tmp_path)
    _files(events, 5)
    events.add("loader", 0, _SETTINGS)
    events.add("loader", 1, _SETTINGS | {"sampler": "SequentialSampler"})
    events.add("pass", 0, 0.0)
    for number in range(5):
        events.add("batch", 0, 0.0, 3, 300)
        events.add("open", number, 0)
        events.add("step", "SGD", after=0.5)
        if number == 1:
            events.add("save", "torch", 0.75, None, 5000, after=1.0)
            events.time += 0.5
        elif number == 2:
            events.add("pass", 1, 0.0)
            events.add("batch", 1, 0.5, 3, 300, after=0.5)
            events.add("end_of_pass", 1, 0.0, None, after=0.5)
            events.time += 0.5
        else:
            events.time += 1.5
    events.add("end_of_pass", 0, 0.0, [15, 14, 14, [0]])
    keys = _one(tmp_path, events, is_forced=True).derived.keys
    assert keys["compute.time"].value == pytest.approx((2 + 1.25 + 1 + 2 + 2) / 5)
    assert (keys["checkpoint.every_steps"].value, keys["checkpoint.files"].value) == (2, [5000])
    assert keys["train.epochs"].value == 1


def test_three_unequal_ranks_share_a_dataset(tmp_path: Path) -> None:
    for rank, batches in enumerate((7, 5, 2)):
        events = Events(tmp_path, rank, 3)
        _files(events, 14)
        events.add("loader", 0, _SETTINGS | {"samples": 42, "shards": 3})
        _passes(events, 2, batches, True, 0.5, [3 * batches, 0, 5, [1]])
        if rank == 2:
            events.add("save", "torch", 0.1, None, 700)
        events.write()
    made = recorded_character.load(tmp_path)
    keys = made.derived.keys
    assert made.log.job.ranks == 3
    assert keys["reader.shard"].value is True
    assert keys["checkpoint.by"].value == "all"
    assert keys["dataset.samples_per_file"].value == 3


def test_a_pass_that_ends_early_has_steps(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    for number in range(2):
        events.add("pass", 0, 0.0)
        for batch in range(4):
            events.add("batch", 0, 0.25, 3, 300, after=0.25)
            events.add("open", 4 * number + batch, 0)
            events.add("step", "SGD", after=0.5)
    keys = _one(tmp_path, events).derived.keys
    assert (keys["train.epochs"].value, keys["train.steps"].value) == (2, 4)


def test_one_pass_without_a_step_is_not_shown_to_train(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 7)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 1, 7, False, 0.5, [21, 20, 20, [0]])
    made = _one(tmp_path, events)
    assert not made.derived.keys
    assert made.derived.against == [
        "no step of an optimizer, no fit and no gradient was recorded, and no loader made two passes of a program that "
        "saves a model"
    ]
    assert recorded_character.load(tmp_path, is_forced=True).derived.keys["train.epochs"].value == 1


def test_a_restored_state_is_said_to_be_one(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 15)
    events.add("restore", "torch", 0.1, 14, 90_000)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    note = "1 state were restored, as after a restart; the workload does not read them"
    assert note in _one(tmp_path, events).notes


def test_two_passes_without_a_step_train_if_a_model_is_saved(tmp_path: Path) -> None:
    """Statistics of a dataset take two passes as well."""
    for is_saved in (False, True):
        events = Events(tmp_path / str(is_saved))
        _files(events, 7)
        events.add("loader", 0, _SETTINGS)
        _passes(events, 2, 7, False, 0.5, [21, 20, 20, [0]])
        if is_saved:
            events.add("file", 7, "/out/model.pt", None)
            events.add("save", "torch", 0.1, 7, 90_000)
        made = _one(tmp_path / str(is_saved), events)
        assert bool(made.derived.keys) == is_saved


def test_a_pass_of_the_training_loader_without_a_step_is_evaluation(tmp_path: Path) -> None:
    """The accuracy on the training data is measured through the same loader, and a first batch is looked at."""
    events = Events(tmp_path)
    _files(events, 40)
    events.add("loader", 0, _SETTINGS)
    events.add("pass", 0, 0.0)
    events.add("batch", 0, 0.25, 3, 300, after=0.25)
    for _ in range(2):
        _passes(events, 1, 7, True, 0.5, [21, 0, 9, [4, 2]])
        _passes(events, 1, 7, False, 0.125, [21, 0, 9, [4, 2]])
    keys = _one(tmp_path, events).derived.keys
    assert (keys["train.epochs"].value, keys["train.epochs"].confidence) == (2, "recorded")
    assert keys["compute.time"].value == 0.5
    assert keys["evaluation.every_epochs"].value == 1
    assert keys["evaluation.time.mean"].value == 0.125


def test_a_look_at_the_first_batch_is_no_epoch(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 40)
    events.add("loader", 0, _SETTINGS)
    events.add("pass", 0, 0.0)
    events.add("batch", 0, 0.25, 3, 300, after=0.25)
    _passes(events, 3, 11, False, 0.5, [33, 0, 9, [4, 2]])
    events.add("gradient", 0.01)
    assert _one(tmp_path, events).derived.keys["train.epochs"].value == 3


def test_an_earlier_phase_on_other_data_is_said_to_be_left_out(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 21)
    events.add("loader", 1, _SETTINGS | {"dataset": "Coarse"})
    events.add("pass", 1, 0.0)
    for _ in range(3):
        events.add("batch", 1, 0.25, 3, 300, after=0.25)
        events.add("step", "SGD")
    events.add("end_of_pass", 1, 0.0, [9, 0, 3, [4, 2]])
    events.add("loader", 0, _SETTINGS)
    _passes(events, 3, 7, True, 0.5, [21, 0, 9, [4, 2]])
    made = _one(tmp_path, events)
    assert made.derived.keys["train.epochs"].value == 3
    assert "1 other loader with steps are left out, such as loaders of other phases" in made.notes


def test_epochs_after_the_recording_was_full_are_counted(tmp_path: Path) -> None:
    """Batches and steps are only counted then, but passes are still recorded."""
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    for _ in range(5):
        events.add("pass", 0, 0.0)
        events.add("counts", {"batch": [7, 1.75], "step": [7, 0.0]}, after=3.0)
        events.add("end_of_pass", 0, 0.0, [21, 0, 9, [4, 2]])
    keys = _one(tmp_path, events).derived.keys
    assert keys["train.epochs"].value == 7
    assert keys["reader.batch_size"].value == 3


def test_sizes_of_files_that_were_not_looked_at_are_like_the_others(tmp_path: Path) -> None:
    """The recorder looks at the sizes of the first files alone. What they hold is no unseen read."""
    events = Events(tmp_path)
    for number in range(28):
        events.add("file", number, f"/data/{number:03}.bin", 3_000_000 + 1000 * number if number < 4 else None)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 14, True, 0.5, [42, 0, 9, [4, 2]])
    events.add("moved", 28 * 3_001_500, 0)
    made = _one(tmp_path, events)
    roles = made.derived.roles
    assert sum(role.file.size for role in roles) == pytest.approx(28 * 3_001_500, rel=1e-3)
    assert not [note for note in made.notes if "not recorded" in note]


def test_files_that_are_written_before_the_first_pass_are_no_checkpoints(tmp_path: Path) -> None:
    events = Events(tmp_path)
    for number in range(14):
        events.add("file", number, f"/data/{number:03}.bin", None)
        events.add("open", number, 1, after=0.01)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    for number in range(14):
        events.add("written", number, 50_000)
    assert not [key for key in _one(tmp_path, events).derived.keys if key.startswith("checkpoint.")]


def test_what_is_cached_before_files_are_read_is_their_names(tmp_path: Path) -> None:
    """list_files().cache().map(read): each epoch reads the files."""
    for first, last, load in ((["cache"], [], "on_demand"), ([], ["cache"], "memory")):
        folder = tmp_path / load
        events = Events(folder)
        _files(events, 9)
        names = ["list_files", *first, "map", *last, "batch"]
        for number, name in enumerate(names):
            given = [3] if name == "batch" else []
            events.add("stage", number, number - 1 if number else None, name, given, {})
        events.add("source", 0, list(range(9)))
        for _ in range(2):
            events.add("pass", ["tf.data", len(names) - 1], 0.0, None)
            for _ in range(3):
                events.add("batch", ["tf.data", len(names) - 1], 0.25, 3, 300, after=0.25)
            events.add("end_of_pass", ["tf.data", len(names) - 1], 0.0, None)
        events.add("gradient", 0.01)
        assert _one(folder, events).derived.keys["reader.load"].value == load


_ODD: list[list[Any]] = [
    [1, "file"], [1, "batch", 0, "x", "y", "z"], [1, ["open"]], ["x", "open", 0, 0], [None, "open", 0, 0],
    [1, "file", [1], "x", 1], [1, "open", 99, 0], [1, "loader", 1, None], [1, "loader", 1, {"batch_size": "8"}],
    [1, "loader", 1, {"batch_size": -8}], [1, "loader", 1, {"workers": 1, "prefetch_factor": "2\n  batch_size: 7"}],
    [1, "loader", 1, {"samples": 10**30}], [1, "file", 3, 5, 1], [1, "file", 3, "/x", -5], [0], [1, "fit", "x"],
    [1, "counts", 5], [1, "moved", "x"], [1, "array", 0], [1, "end_of_pass", 0, 0.0, ["a"]], [1, "rank", "x"],
    [1, "pass", {"a": 1}, 0.0], [1e300, "open", 0, 0], [1, "read", "h5py", 0.1, 77, 1, 1, None], [1, "invented", 1],
]  # fmt: skip


@pytest.mark.parametrize("odd", _ODD, ids=json.dumps)
def test_a_line_that_no_recorder_writes_is_left_out_with_a_note(tmp_path: Path, odd: list[Any]) -> None:
    """A recording may come from anybody."""
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    right = _one(tmp_path, events)
    (path,) = tmp_path.rglob("*.jsonl")
    with path.open("a") as file:
        file.write(json.dumps(odd) + "\n")
    made = recorded_character.load(tmp_path)
    assert made.derived.keys == right.derived.keys
    assert [note for note in made.notes if "1 torn line" in note]


def test_processes_that_started_each_other_and_stages_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 14)
    for number, before in ((0, 1), (1, 0), (2, 2)):
        events.add("stage", number, before, "batch", [4], {})
        events.add("pass", ["tf.data", number], 0.0, None)
        events.add("batch", ["tf.data", number], 0.1, 4, 4)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    events.write()
    (path,) = tmp_path.rglob("*.jsonl")
    head, rest = path.read_text().split("\n", 1)
    facts = json.loads(head)
    for own, parent in ((5, 6), (6, 5)):
        path.with_name(f"{own}.jsonl").write_text(json.dumps(facts | {"process": own, "parent": parent}) + "\n" + rest)
    assert recorded_character.load(tmp_path).log.job.ranks >= 1


@pytest.mark.parametrize("kind", ["pipe", "link", "large"])
def test_what_the_recorder_does_not_write_is_refused(tmp_path: Path, kind: str) -> None:
    events = Events(tmp_path)
    events.add("start")
    events.write()
    (path,) = tmp_path.rglob("*.jsonl")
    other = path.with_name("other.jsonl")
    if kind == "pipe":
        os.mkfifo(other)
    elif kind == "link":
        other.symlink_to("/dev/zero")
    else:
        other.touch()
        os.truncate(other, 1 << 30)
    with pytest.raises(InvalidRun, match=r"other[.]jsonl is not a recording of a process"):
        recorded_character.load(tmp_path)


def test_ranks_of_a_launcher_in_python_are_ranks_and_workers_are_not(tmp_path: Path) -> None:
    """torchrun is recorded itself, and starts the ranks; a worker has the rank of the process that started it."""
    for rank in (0, 1):
        events = Events(tmp_path, rank, 2)
        _files(events, 3)
        events.add("loader", 0, _SETTINGS)
        events.add("batch", 0, 0.1, 3, 300)
        events.write()
    heads = {path.stem: path.read_text() for path in tmp_path.rglob("*.jsonl")}
    for name, text in heads.items():
        head, _, rest = text.partition("\n")
        fields = json.loads(head)
        worker = fields | {"process": fields["process"] + 50, "parent": fields["process"]}
        begun = '[0.0,"worker",0,1]\n'
        (tmp_path / "processes/node" / f"worker{name}.jsonl").write_text(json.dumps(worker) + "\n" + begun + rest)
        child = fields | {"parent": 7}
        (tmp_path / "processes/node" / f"{name}.jsonl").write_text(json.dumps(child) + "\n" + rest)
    launcher = json.loads(heads["0"].partition("\n")[0]) | {
        "process": 7,
        "rank": None,
        "script": "/torchrun",
        "begun": 999,
    }
    (tmp_path / "processes/node/launcher.jsonl").write_text(json.dumps(launcher) + '\n[0.1,"start"]\n[0.2,"end"]')
    made = recorded_character.load(tmp_path, is_forced=True)
    assert made.log.job.ranks == 2
    assert made.log.job.program == "/train.py"
    assert "1 process of other scripts, or of other runs of this script, are left out" in made.notes


def _child(folder: Path, name: str, **changes: Any) -> Events:
    """Return a process that trains for two passes of 7 batches, and that process 100 started."""
    events = Events(folder)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    events.write(f"{name}.jsonl", **{"parent": 100, "process": 200, "rank": None, **changes})
    return events


@pytest.mark.parametrize("script", ["/train.py", "/launch.py"])
def test_a_training_in_a_process_that_another_starts_is_recorded(tmp_path: Path, script: str) -> None:
    """A launcher, or the main process of multiprocessing, reads a file and trains nothing itself."""
    _child(tmp_path, "child")
    launcher = Events(tmp_path)
    launcher.add("file", 0, "/settings.json", 10)
    launcher.add("open", 0, 0)
    launcher.add("moved", 10, 0, after=60.0)
    launcher.write("launcher.jsonl", script=script, rank=None)
    made = recorded_character.load(tmp_path)
    keys = made.derived.keys
    assert (made.log.job.ranks, keys["train.epochs"].value, keys["reader.read_threads"].value) == (1, 2, 2)
    assert not [note for note in made.notes if "reads without a loader" in note]


def test_a_worker_of_a_rank_that_has_no_launcher_is_no_rank(tmp_path: Path) -> None:
    """Only the main process calls init_process_group(), which numbers it."""
    events = Events(tmp_path)
    _files(events, 14)
    events.add("rank", 0, 1, "torch.distributed")
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    events.write("main.jsonl", rank=None)
    worker = Events(tmp_path)
    worker.add("worker", 0, 1)
    worker.write("worker.jsonl", rank=None, process=200, parent=100)
    made = recorded_character.load(tmp_path)
    assert made.log.job.ranks == 1
    assert not [note for note in made.notes if "left out" in note]


def test_trainings_side_by_side_that_nothing_numbers_are_no_ranks(tmp_path: Path) -> None:
    """A shell trains three folds at the same time."""
    for number in range(3):
        _child(tmp_path, f"fold{number}", process=200 + number, parent=1)
    made = recorded_character.load(tmp_path)
    assert (made.log.job.ranks, made.derived.keys["train.epochs"].value) == (1, 2)
    assert "2 processes of other scripts, or of other runs of this script, are left out" in made.notes


def test_pipelines_with_the_same_stages_are_told_apart_by_their_files(tmp_path: Path) -> None:
    """After each pass over 14 files in batches of 3, three others are evaluated."""
    events = Events(tmp_path)
    for number in range(17):
        folder = "train" if number < 14 else "val"
        events.add("file", number, f"/data/{folder}/{number:03}.bin", 1000)
    for pipeline, files in ((0, range(14)), (10, range(14, 17))):
        events.add("stage", pipeline, None, "from_tensor_slices", [], {})
        events.add("source", pipeline, list(files))
        events.add("stage", pipeline + 1, pipeline, "map", ["function"], {})
        events.add("stage", pipeline + 2, pipeline + 1, "batch", [3], {})
    for _ in range(2):
        for pipeline, batches in ((2, 5), (12, 1)):
            events.add("pass", ["tf.data", pipeline], 0.0, None, after=0.5)
            for _ in range(batches):
                events.add("batch", ["tf.data", pipeline], 0.25, 3, 300, after=0.25)
                if pipeline == 2:
                    events.add("gradient", 0.1, after=0.5)
            events.add("end_of_pass", ["tf.data", pipeline], 0.0, None)
    keys = _one(tmp_path, events).derived.keys
    assert (keys["dataset.files"].value, keys["train.epochs"].value, keys["reader.batch_size"].value) == (14, 2, 3)


def test_ranks_name_different_files_of_one_dataset(tmp_path: Path) -> None:
    for rank in range(3):
        events = Events(tmp_path, rank, 3)
        _files(events, 15)
        events.add("stage", 0, None, "from_tensor_slices", [], {})
        events.add("source", 0, list(range(rank, 15, 3)))
        events.add("stage", 1, 0, "batch", [1], {})
        for _ in range(2):
            events.add("pass", ["tf.data", 1], 0.0, None, after=0.5)
            for _ in range(5):
                events.add("batch", ["tf.data", 1], 0.25, 1, 300, after=0.25)
                events.add("gradient", 0.1, after=0.5)
            events.add("end_of_pass", ["tf.data", 1], 0.0, None)
        events.write()
    made = recorded_character.load(tmp_path)
    assert (made.log.job.ranks, made.derived.keys["dataset.files"].value) == (3, 15)


@pytest.mark.parametrize(
    ("stages", "size"),
    [
        (["batch", 8, "map", 0, "unbatch", None, "batch", 3], 3), (["batch", 3, "batch", 5], 15),
        (["padded_batch", 3, "map", 0], 3), (["map", 0], None), (["batch", None], None),
    ],
)  # fmt: skip
def test_the_batch_of_a_pipeline_is_that_of_its_last_stages(stages: list[Any], size: int | None) -> None:
    parts = {
        at + 1: PipelineStage(at, name, {"0": value}, [])
        for at, (name, value) in enumerate(zip(stages[::2], stages[1::2], strict=True))
    }
    parts[0] = PipelineStage(None, "from_tensor_slices", {}, ["/d/1"])
    name = recorded_program.chain_name(recorded_program.chain(parts, len(parts) - 1))
    made = tensorflow_pipelines.of(dict(sorted(parts.items())), name)
    assert made is not None
    assert made.batch == size


@pytest.mark.parametrize(("steps", "every"), [(2, 6), (1, 3), (0, 9)])
def test_steps_of_a_workload_are_batches(tmp_path: Path, steps: int, every: int) -> None:
    """Two optimizers, one, or one that steps after each third batch; a checkpoint after each third step of them all."""
    events = Events(tmp_path)
    _files(events, 18)
    events.add("loader", 0, _SETTINGS | {"samples": 54})
    made_steps = 0
    for _ in range(2):
        events.add("pass", 0, 0.0)
        for batch in range(18):
            events.add("batch", 0, 0.25, 3, 300, after=0.25)
            events.add("open", batch, 0)
            for _ in range(steps or batch % 3 == 2):
                events.add("step", "SGD", after=0.25)
                made_steps += 1
                if made_steps % (3 * max(steps, 1) * (steps or 1)) == 0:
                    events.add("save", "torch", 0.1, None, 5000, after=0.1)
        events.add("end_of_pass", 0, 0.0, [54, 0, 9, [4, 2]])
    value = _one(tmp_path, events).derived.keys["checkpoint.every_steps"]
    assert (value.value, value.confidence) == (every, "recorded")


def test_steps_after_the_last_pass_do_not_train_on_its_data(tmp_path: Path) -> None:
    """A program evaluates in two passes, and then fits one number to what it kept."""
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, False, 0.5, [21, 0, 9, [4, 2]])
    events.add("step", "LBFGS", after=0.5)
    made = _one(tmp_path, events)
    assert not made.derived.keys
    assert "no step of an optimizer" in made.derived.against[0]


def test_steps_that_warm_up_are_no_epoch(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 32)
    events.add("loader", 0, _SETTINGS | {"samples": 48})
    events.add("pass", 0, 0.0)
    for batch in range(3):
        events.add("batch", 0, 0.25, 3, 300, after=0.25)
        events.add("open", batch, 0)
        events.add("step", "SGD", after=0.5)
    _passes(events, 2, 16, True, 0.5, [48, 0, 9, [4, 2]])
    keys = _one(tmp_path, events).derived.keys
    assert (keys["train.epochs"].value, keys["train.steps"].value) == (2, None)


def test_a_batch_of_unknown_length_is_not_said_to_be_known(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS | {"batch_size": None, "library": "keras", "is_iterable": True})
    for _ in range(2):
        events.add("pass", 0, 0.0)
        for batch in range(7):
            events.add("batch", 0, 0.25, None, 0, after=0.25)
            events.add("open", batch, 0)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, None)
    value = _one(tmp_path, events).derived.keys["reader.batch_size"]
    assert (value.value, value.confidence) == (1, "unknown")


@pytest.mark.parametrize("workers", [0, 2])
def test_files_of_an_evaluation_within_a_pass_are_no_training_data(tmp_path: Path, workers: int) -> None:
    """In the middle of each pass over 14 files, three others are read by a loader with the same settings. Workers go on
    reading at that time.
    """
    events = Events(tmp_path)
    _files(events, 17)
    settings = _SETTINGS | {"workers": workers, "samples": 42}
    events.add("loader", 0, settings)
    events.add("loader", 1, settings)
    moved = 0
    for _ in range(2):
        events.add("pass", 0, 0.0)
        events.add("moved", moved, 0)
        for batch in range(14):
            events.add("batch", 0, 0.25, 3, 300, after=0.25)
            events.add("open", batch, 0)
            events.add("step", "SGD", after=0.5)
            moved += 3000
            if batch == 7:
                events.add("pass", 1, 0.0, after=0.1)
                events.add("moved", moved, 0)
                for other in range(14, 17):
                    events.add("open", other, 0, after=0.01)
                    events.add("batch", 1, 0.25, 3, 300, after=0.25)
                events.add("end_of_pass", 1, 0.0, None)
                moved += 700_000
                events.add("moved", moved, 0)
        events.add("end_of_pass", 0, 0.0, [42, 0, 9, [4, 2]])
        events.add("moved", moved, 0)
    made = _one(tmp_path, events)
    keys = made.derived.keys
    assert made.steps is not None
    assert made.steps.bytes == 3000
    assert (keys["train.epochs"].value, keys["train.steps"].value) == (2, None)
    assert keys["dataset.files"].value == (17 if workers else 14)


def _trained(folder: Path, passes: int) -> Events:
    events = Events(folder)
    _files(events, 7 * passes)
    events.add("loader", 0, _SETTINGS)
    _passes(events, passes, 7, True, 0.5, [21, 0, 9, [4, 2]])
    return events


def test_a_script_with_steps_is_the_program_however_much_another_reads(tmp_path: Path) -> None:
    events = _trained(tmp_path, 2)
    events.write()
    other = Events(tmp_path)
    _files(other, 400)
    for number in range(400):
        other.add("open", number, 0)
    other.write("other.jsonl", process=99, script="/prepare.py")
    made = recorded_character.load(tmp_path)
    assert (made.log.job.program, made.log.job.ranks) == ("/train.py", 1)


def test_runs_of_a_script_one_after_the_other_are_no_ranks(tmp_path: Path) -> None:
    events = _trained(tmp_path, 2)
    events.write()
    events.write("later.jsonl", process=99, begun=5000.0)
    made = recorded_character.load(tmp_path)
    assert made.log.job.ranks == 1
    assert "1 process of other scripts, or of other runs of this script, are left out" in made.notes


def test_reads_that_the_kernel_counts_are_no_data_in_memory(tmp_path: Path) -> None:
    """A file that stays open is read by calls that no hook sees."""
    for moved, load, level in ((100, "memory", "recorded"), (40_000_000, "on_demand", "low")):
        folder = tmp_path / load
        events = Events(folder)
        events.add("file", 0, "/data/all.bin", 20_000_000)
        events.add("moved", 0, 0)
        events.add("open", 0, 0, after=0.5)
        events.add("loader", 0, _SETTINGS, after=0.5)
        events.add("moved", 20_000_000, 0)
        for number in range(2):
            events.add("pass", 0, 0.0)
            for _ in range(7):
                events.add("batch", 0, 0.25, 3, 300, after=0.25)
                events.add("step", "SGD")
            events.add("end_of_pass", 0, 0.0, [21, 0, 9, [4, 2]])
            events.add("moved", 20_000_000 + moved // (2 - number), 0)
        made = _one(folder, events)
        assert (made.derived.keys["reader.load"].value, made.derived.keys["reader.load"].confidence) == (load, level)
        assert made.steps is not None
        assert (made.steps.bytes or 0) * 14 == pytest.approx(moved, abs=60)


@pytest.mark.parametrize(("ready", "size"), [(True, 5_000), (False, 605_000)])
def test_what_a_worker_loads_before_it_reads_samples_is_not_counted(tmp_path: Path, ready: bool, size: int) -> None:
    """Three workers, of which each loads 2.8 MB of modules and then reads 7, 5 and 2 steps of 5,000 B. Recordings of
    earlier versions do not say when a worker was ready.
    """
    events = Events(tmp_path)
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    events.add("moved", 0, 0, after=0.5)
    _passes(events, 1, 14, True, 0.5, [42, 0, 9, [4, 2]])
    events.add("moved", 99_000_000, 0)
    events.write()
    for number, steps in enumerate((7, 5, 2)):
        worker = Events(tmp_path, number + 1)
        worker.add("worker", number, 3, after=0.6)
        worker.add("moved", 1000, 0)
        if ready:
            worker.add("fetcher", after=0.25)
            worker.add("moved", 2_801_000, 0)
        worker.add("moved", 2_801_000 + steps * 5_000, 0, after=9.0)
        worker.write(parent=100, rank=[0, 1, "RANK"])
    made = recorded_character.load(tmp_path)
    assert made.steps is not None
    assert made.steps.bytes == pytest.approx(size)


def _persistent(
    folder: Path, is_whole: bool = True, sizes: tuple[int, ...] = (70_000, 70_000), opens: tuple[int, ...] = (7, 7, 7)
) -> Character:
    """Record passes of seven batches with a persistent worker, which reads `sizes` bytes and opens `opens` files in
    each pass. is_whole: False for a worker that was killed before it wrote its last events.
    """
    events = Events(folder)
    _files(events, 7, 10_000)
    events.add("loader", 0, _SETTINGS | {"workers": 1, "persistent_workers": True})
    worker = Events(folder, 1)
    worker.add("worker", 0, 1, after=0.1)
    size = 3_000_000
    for number, read in enumerate(sizes):
        worker.time = events.time + 0.1
        events.add("pass", 0, 0.2, after=0.2)
        worker.add("fetcher")
        worker.add("moved", size, 0)
        for batch in range(7):
            if batch < opens[number]:
                worker.add("open", batch, 0, after=0.01)
            events.add("batch", 0, 0.25, 3, 300, after=0.25)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [21, 0, 9, [4, 2]])
        size += read
        if is_whole or number + 1 < len(sizes):
            worker.add("moved", size, 0)
    _files(worker, 7, 10_000)
    worker._lines[1:] = sorted(worker._lines[1:], key=lambda line: line[1] != "file")
    worker.write(parent=100, rank=[0, 1, "RANK"])
    if not is_whole:
        path = folder / "processes/node/1.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    events.write()
    return recorded_character.load(folder)


def test_a_persistent_worker_reads_in_each_pass(tmp_path: Path) -> None:
    _persistent(tmp_path, sizes=(70_000, 35_000, 14_000))
    program = recorded_program.of(recording_files.load(tmp_path))
    passes = [program.ranks[0].passes]
    sizes = [read_counts.of_passes(program.ranks, passes, first) for first in range(3)]
    assert sizes == [(119_000, 21), (49_000, 14), (14_000, 7)]


@pytest.mark.parametrize(
    ("later", "opens", "fit"),
    [
        (700, 0, "the later passes read nothing: the program keeps samples in memory"),
        (7_000, 1, "the later passes read 6.836 KiB altogether: the program keeps samples in memory"),
        (70_000, 0, ""),
        (700, 7, ""),
        (70_000, 7, ""),
    ],
)
def test_samples_that_a_program_keeps_in_memory_are_noticed(tmp_path: Path, later: int, opens: int, fit: str) -> None:
    """A pass without opens may read open files. Opens without bytes may be maps of files."""
    made = _persistent(tmp_path, sizes=(70_000, later), opens=(7, opens))
    keys = made.derived.keys
    assert made.steps is not None
    assert (keys["train.epochs"].value, keys["reader.load"].value) == (2, "on_demand")
    confidence = {keys[name].confidence for name in ("train.epochs", "reader.load")}
    if not fit:
        assert confidence == {"recorded"}
        assert (made.steps.kept, made.steps.cause) == (None, "")
        return
    assert confidence == {"low"}
    assert f"the first pass read 68.36 KiB, {fit}" in made.notes[0]
    assert made.steps.kept == (10_000, later / 7)
    assert made.steps.cause == made.notes[0]
    assert ("reader.load=memory" in made.notes[0]) == (opens == 0)
    assert "train.epochs=1" in made.notes[0]
    head = workload_yaml.write(made, "x").splitlines()[:6]
    assert any(line.startswith("# Note: the first pass read") for line in head)


def test_events_that_were_lost_are_no_samples_in_memory(tmp_path: Path) -> None:
    made = _persistent(tmp_path, is_whole=False, opens=(7, 0))
    assert made.steps is not None
    assert (made.steps.kept, made.derived.keys["train.epochs"].confidence) == (None, "recorded")


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_recording_whose_worker_was_killed_lacks_bytes(tmp_path: Path, is_whole: bool) -> None:
    steps = _persistent(tmp_path, is_whole).steps
    assert steps is not None
    assert steps.bytes == (10_000 if is_whole else 5_000)
    assert steps.lacking == (frozenset() if is_whole else {"bytes"})
    assert steps.lost == (
        "" if is_whole else "1 process was killed, or did not end yet, so the last events are missing"
    )


@pytest.mark.parametrize("sampler", ["Own", "Other"])
def test_loaders_that_are_iterated_together_are_told_apart(tmp_path: Path, sampler: str) -> None:
    """Two loaders, with the same or with other settings, give a batch each for a step, in three epochs of new loaders.
    The workload has one of them, and says so; the kernel counts the bytes of both.
    """
    events = Events(tmp_path)
    _files(events, 14)
    for epoch in range(3):
        first, second = 2 * epoch, 2 * epoch + 1
        events.add("loader", first, _SETTINGS)
        events.add("loader", second, _SETTINGS | {"sampler": sampler})
        events.add("pass", first, 0.0)
        events.add("moved", 42_000 * epoch, 0)
        events.add("pass", second, 0.0, after=0.25)
        for step in range(7):
            for place, loader in enumerate((first, second)):
                events.add("batch", loader, 0.25, 3, 300, after=0.25)
                events.add("open", 2 * step + place, 0)
            events.add("step", "SGD", after=0.5)
        for loader in (first, second):
            events.add("end_of_pass", loader, 0.0, [21, 0, 9, [4, 2]])
        events.add("moved", 42_000 * (epoch + 1), 0)
    made = _one(tmp_path, events)
    keys = made.derived.keys
    assert (keys["train.epochs"].value, keys["reader.batch_size"].value) == (3, 3)
    assert not [key for key in keys if key.startswith("evaluation.")]
    assert [note for note in made.notes if note.startswith("1 other loader returned batches between")]
    assert made.steps is not None
    assert (made.steps.steps, made.steps.bytes) == (7, 6000)


def test_a_recording_of_many_passes_is_read_in_linear_time(tmp_path: Path) -> None:
    """Each pass has a batch, a step and a saved state."""
    events = Events(tmp_path)
    _files(events, 5)
    events.add("loader", 0, _SETTINGS)
    for number in range(3000):
        events.add("pass", 0, 0.0, after=0.25)
        events.add("batch", 0, 0.0, 3, 300)
        events.add("open", number % 5, 0)
        events.add("step", "SGD", after=0.5)
        events.add("save", "torch", 0.25, None, 500, after=0.25)
        events.add("end_of_pass", 0, 0.0, None)
    events.write()
    calls = Counter[str]()
    sys.setprofile(lambda frame, kind, _: calls.update([frame.f_code.co_name] if kind == "call" else []))
    try:
        made = recorded_character.load(tmp_path)
    finally:
        sys.setprofile(None)
    assert made.derived.keys["compute.time"].value == 0.5
    assert made.derived.keys["train.epochs"].value == 3000
    assert sum(calls.values()) < 200 * 3000


def test_a_recording_is_characterized_by_the_verb(tmp_path: Path) -> None:
    events = Events(tmp_path / "r")
    _files(events, 14)
    events.add("loader", 0, _SETTINGS)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    events.write()
    command = [sys.executable, "-m", "dlio_hpc", "characterize", "r"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "batch_size: 3" in done.stdout
    assert "(recording)" in done.stdout
    refused = subprocess.run([*command, "--only=x"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "--only selects files in logs" in refused.stderr


def test_a_program_that_reads_its_own_files_alone_has_no_dataset(tmp_path: Path) -> None:
    events = Events(tmp_path / "r")
    _files(events, 6)
    for is_written in (1, 0, 0):
        for number in range(6):
            events.add("open", number, is_written, after=0.1)
    events.write()
    done = subprocess.run(
        [sys.executable, "-m", "dlio_hpc", "characterize", "r"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.endswith("no read of a file was recorded, apart from files that the program wrote itself\n")


def test_copies_that_a_loop_reads_in_each_epoch_are_its_dataset(tmp_path: Path) -> None:
    """Five files are read once and copied to a local disk, from which they are read in three epochs."""
    events = Events(tmp_path)
    for number in range(10):
        folder = "archive" if number < 5 else "local"
        events.add("file", number, f"/{folder}/{number % 5}.npz", 900_000)
    for number in range(5):
        events.add("open", number, 0, after=0.1)
        events.add("open", 5 + number, 1)
    for epoch in ([7, 5, 9, 6, 8], [6, 8, 5, 7, 9], [9, 8, 7, 6, 5]):
        for number in epoch:
            events.add("open", number, 0, after=0.1)
            events.add("step", "SGD", after=0.5)
    made = _one(tmp_path, events)
    assert {role.file.path for role in made.derived.roles} == {f"/local/{number}.npz" for number in range(5)}
    assert (made.derived.keys["train.epochs"].value, made.derived.keys["dataset.files"].value) == (3, 5)


def test_files_that_the_program_made_before_are_its_dataset_and_said_to_be_made(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 15)
    for number in range(14):
        events.add("open", number, 1)
    events.add("loader", 0, _SETTINGS, after=1.0)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    events.add("open", 14, 1)  # a state
    made = _one(tmp_path, events)
    assert made.derived.keys["dataset.files"].value == 14
    assert "the program itself wrote 14 of the files of its dataset before it read them" in made.notes


def test_a_memory_map_is_said_to_hide_its_reads(tmp_path: Path) -> None:
    events = Events(tmp_path)
    events.add("file", 99, "/data/tokens.bin", 9_000_000)
    _files(events, 14)
    events.add("map", "numpy", 99, 9_000_000)
    events.add("loader", 0, _SETTINGS | {"samples": 42})
    _passes(events, 2, 7, True, 0.5, [42, 0, 9, [4, 2]])
    keys = _one(tmp_path, events).derived.keys
    assert (keys["dataset.files"].value, keys["dataset.samples_per_file"].value) == (1, 42)
    assert (keys["reader.load"].value, keys["reader.load"].confidence) == ("on_demand", "medium")
    assert keys["dataset.format"].confidence == "medium"
    assert "mapped into memory" in keys["dataset.format"].evidence


def test_a_checkpoint_of_three_files_is_one(tmp_path: Path) -> None:
    """Two states are saved by a library; Python writes the name of the newest beside them."""
    events = Events(tmp_path)
    _files(events, 14)
    for number, name in enumerate(("model-1.pt", "optimizer-1.pt", "model-2.pt", "optimizer-2.pt", "newest")):
        events.add("file", 50 + number, f"/out/{name}", None)
    events.add("loader", 0, _SETTINGS)
    for number in range(2):
        _passes(events, 1, 7, True, 0.5, [21, 0, 9, [4, 2]])
        events.add("save", "torch", 0.2, 50 + 2 * number, 7000)
        events.add("save", "torch", 0.2, 51 + 2 * number, 14_000)
        events.add("open", 54, 1)
    events.add("written", 54, 6)
    keys = _one(tmp_path, events).derived.keys
    assert keys["checkpoint.files"].value == [7000, 14_000, 6]
    assert keys["checkpoint.every_steps"].value is None
    assert keys["checkpoint.every_steps"].evidence == "2 checkpoints, one after each of 2 passes"


def _loop(events: Events, passes: int, order: list[list[int]], batch: int) -> None:
    """Add reads of whole files, `batch` of them at once, and 0.5 s of computation after them."""
    for number in range(passes):
        for place, file in enumerate(order[number % len(order)]):
            events.add("open", file, 0)
            events.time += 0.001
            if place % batch == batch - 1:
                events.time += 0.5


def test_a_loop_with_another_order_in_each_pass_trains(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 24)
    orders = [[(7 * n + 5 * number) % 24 for n in range(24)] for number in range(3)]
    orders[1] = orders[1][::-1]
    _loop(events, 3, orders, 4)
    keys = _one(tmp_path, events).derived.keys
    assert (keys["train.epochs"].value, keys["reader.batch_size"].value) == (3, 4)
    assert keys["compute.time"].value == pytest.approx(0.5, rel=0.05)
    assert {keys[key].confidence for key in ("train.epochs", "reader.batch_size", "compute.time")} <= {"medium", "low"}


def test_a_loop_reads_nothing_ahead_and_counts_samples(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 24)
    _loop(events, 3, [list(range(24)), list(range(24))[::-1]], 4)
    keys = _one(tmp_path, events).derived.keys
    assert (keys["reader.prefetch"].value, keys["reader.prefetch"].confidence) == (0, "low")
    assert "18 bursts of 4 samples per rank" in keys["compute.time"].evidence
    assert keys["compute.time"].confidence == "medium"


def test_pauses_between_a_part_of_the_steps_are_uncertain(tmp_path: Path) -> None:
    """On a busy machine, the pauses of most steps are hidden: three of four are as short as a read."""
    events = Events(tmp_path)
    _files(events, 24)
    for order in (range(24), range(23, -1, -1), range(24)):
        for place, file in enumerate(order):
            events.add("open", file, 0)
            events.time += 0.5 if place % 8 in (0, 1, 7) else 0.0005
    keys = _one(tmp_path, events).derived.keys
    assert {keys[key].confidence for key in ("reader.batch_size", "compute.time")} <= {"low", "unknown"}


def test_a_loop_that_reads_its_files_once_is_not_shown_to_train(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 24)
    _loop(events, 1, [list(range(24))], 4)
    made = _one(tmp_path, events)
    assert made.derived.against == ["its data were read 1 times, and no step of an optimizer was recorded"]


def test_samples_that_are_read_at_once_last_for_several_steps(tmp_path: Path) -> None:
    events = Events(tmp_path)
    _files(events, 24)
    for number in range(24):
        events.add("read", "pyarrow.row_group", 0.001, number, 8000, 1000, [0, 0, 1])
        for _ in range(4):
            events.add("step", "SGD", after=0.1)
    batch = _one(tmp_path, events).derived.keys["reader.batch_size"]
    assert (batch.value, batch.confidence) == (250, "low")
    assert batch.evidence.startswith("250.0 samples for a step: they were read before 24 of 96 steps")


@pytest.mark.parametrize(("moved", "unseen"), [(14_000_000, None), (40_000_000, "24.8 MiB"), (18_000_000, None)])
def test_bytes_that_no_recorded_call_read_are_said(tmp_path: Path, moved: int, unseen: str | None) -> None:
    """Fourteen files of 1 MB are read in the passes; imports before them read 77 MB."""
    events = Events(tmp_path)
    for number in range(14):
        events.add("file", number, f"/data/{number:03}.bin", 1_000_000)
    events.add("loader", 0, _SETTINGS)
    events.add("moved", 77_000_000, 0, after=5.0)
    _passes(events, 2, 7, True, 0.5, [21, 0, 9, [4, 2]])
    events.add("moved", 77_000_000 + moved, 0)
    events.add("moved", 99_000_000_000, 0, after=60.0)
    notes = [note for note in _one(tmp_path, events).notes if "not recorded" in note]
    assert [unseen in note for note in notes if unseen] == [True] * (unseen is not None)
    assert len(notes) == (unseen is not None)


def test_passes_of_another_loader_without_steps_are_evaluation(tmp_path: Path) -> None:
    """After the second and the fourth of four epochs, three of 17 files are read in batches of one."""
    events = Events(tmp_path)
    _files(events, 17)
    events.add("loader", 0, _SETTINGS | {"samples": 42})
    events.add("loader", 1, _SETTINGS | {"sampler": "SequentialSampler", "batch_size": 1})
    for epoch in range(4):
        _passes(events, 1, 14, True, 0.5, [42, 0, 9, [4, 2]])
        if epoch % 2:
            events.add("pass", 1, 0.0)
            for number in range(14, 17):
                events.add("batch", 1, 0.25, 1, 100, after=0.25)
                events.add("open", number, 0)
                events.time += 0.75
            events.add("end_of_pass", 1, 0.0, None)
    made = _one(tmp_path, events)
    keys = made.derived.keys
    assert {key: keys[key].value for key in keys if key.startswith("evaluation.")} == {
        "evaluation.files": 3, "evaluation.every_epochs": 2, "evaluation.batch_size": 1, "evaluation.time.mean": 0.75,
    }  # fmt: skip
    assert keys["dataset.files"].value == 14
    path = tmp_path / "derived.yaml"
    path.write_text(workload_yaml.write(made, "x"))
    evaluation = workload.load(str(path)).evaluation
    assert evaluation is not None
    assert (evaluation.files, evaluation.every_epochs) == (3, 2)


def _of_archives(folder: Path, visit: list[tuple[int, list[int | None] | None]], other: int = 0) -> dict[str, Any]:
    """Return the keys of a program that reads two epochs of six archives. visit: size and place of each array that it
    reads of an archive. other: bytes that the last array of the last archive has more.
    """
    events = Events(folder)
    for number in range(6):
        events.add("file", number, f"/data/{number}.npz", 100_000)
    for epoch in ([3, 1, 5, 0, 2, 4], [5, 4, 1, 3, 0, 2]):
        for number in epoch:
            events.add("open", number, 0, after=0.1)
            for size, place in visit:
                more = other if number == 5 and (size, place) == visit[-1] else 0
                events.add("read", "numpy.npz", 0.01, number, size + more, 9, place)
            events.add("step", "SGD", after=0.5)
    return _one(folder, events).derived.keys


@pytest.mark.parametrize(
    ("places", "arrays", "order"),
    [
        ([None, None, None], [3000, 60_000, 24], None),
        ([[0, None, None], [2, None, None], [3, None, None]], [3000, 60_000, 24], None),
        ([[3, None, None], [0, None, None], [2, None, None]], [60_000, 24, 3000], [2, 0, 1]),
    ],
)
def test_arrays_of_an_archive_are_those_of_a_sample(
    tmp_path: Path, places: Any, arrays: list[int], order: list[int] | None
) -> None:
    keys = _of_archives(tmp_path, list(zip([3000, 60_000, 24], places, strict=True)))
    assert (keys["dataset.arrays"].value, keys["dataset.sample.bytes"].value) == (arrays, 63_024)
    assert ("reader.array_order" in keys) is (order is not None)
    if order is not None:
        assert keys["reader.array_order"].value == order


def test_archives_with_different_arrays_or_one_have_no_list_of_them(tmp_path: Path) -> None:
    several: list[tuple[int, list[int | None] | None]] = [(3000, None), (60_000, None)]
    assert "dataset.arrays" not in _of_archives(tmp_path / "a", several, other=8)
    assert "dataset.arrays" not in _of_archives(tmp_path / "b", several[:1])


@pytest.mark.parametrize(("stored", "ratio"), [(96_000, 1.25), (120_000, None), (5000, None)])
def test_compressed_arrays_have_the_ratio_of_their_files(tmp_path: Path, stored: int, ratio: float | None) -> None:
    """Two files have 40 and 80 rows of 1000 bytes. A ratio above 20 is not possible in a workload."""
    events = Events(tmp_path)
    for number, share in ((0, 3), (1, 2)):
        events.add("file", number, f"/data/{number}.h5", stored * share // 5)
        events.add("array", number, number, [40 * (number + 1), 250], 4, [8, 250], "gzip", "float32")
    for _ in range(2):
        for number, row in ((0, 8), (1, 48), (0, 24), (1, 0)):
            events.add("read", "h5py", 0.01, number, 8000, 8, [number, row, 8], after=0.1)
            events.add("step", "SGD", after=0.5)
    keys = _one(tmp_path, events).derived.keys
    assert keys["dataset.compression"].value == "gzip"
    assert (keys["dataset.compression_ratio"].value if "dataset.compression_ratio" in keys else None) == ratio


def _in_files(events: Events, orders: list[list[int]], follow: int, **settings: Any) -> None:
    """Add passes of batches of 3 samples of 21, each in a file of its own, in these orders. follow: number of samples
    that follow the one before by number, of 20 pairs.
    """
    events.add("loader", 0, _SETTINGS | settings)
    for order in orders:
        events.add("pass", 0, 0.0)
        for at, number in enumerate(order):
            events.add("open", number, 0)
            if at % 3 == 2:
                events.add("batch", 0, 0.25, 3, 3000, after=0.25)
                events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [21, follow, 12, order[:8]])


@pytest.mark.parametrize(
    ("order", "follow", "files", "confidence"),
    [
        (list(range(21)), 20, False, "recorded"),
        (list(range(21)), 9, True, "recorded"),
        ([at * 8 % 21 for at in range(21)], 20, True, "medium"),
    ],
)
def test_a_dataset_that_reads_its_files_in_another_order_than_the_sampler_is_noticed(
    tmp_path: Path, order: list[int], follow: int, files: bool, confidence: str
) -> None:
    events = Events(tmp_path)
    _files(events, 21)
    _in_files(events, [order, order], follow)
    value = _one(tmp_path, events).derived.keys["reader.shuffle.files"]
    assert (value.value, value.confidence) == (files, confidence)


@pytest.mark.parametrize("opens", [21, 7])
def test_batches_of_neighbours_are_blocks_and_opens_are_counted(tmp_path: Path, opens: int) -> None:
    """A file of 21 samples is read in batches of 3 neighbours in random order."""
    events = Events(tmp_path)
    events.add("file", 0, "/data/all.bin", 21_000)
    events.add("loader", 0, _SETTINGS | {"sampler": "BatchSampler"})
    for order in ([2, 0, 1, 6, 5, 3, 4], [4, 2, 6, 0, 1, 3, 5]):
        events.add("pass", 0, 0.0)
        for _ in order:
            for _ in range(opens // 7):
                events.add("open", 0, 0)
            events.add("batch", 0, 0.25, 3, 3000, after=0.25)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [21, 14, 16, [3 * order[0]]])
    keys = _one(tmp_path, events).derived.keys
    assert [keys[f"reader.shuffle.{name}"].value for name in ("files", "samples", "block")] == [False, True, 3]
    assert ("reader.reopen" in keys) is (opens == 21)
    accepted_workload.write(recorded_character.load(tmp_path), "blocks")


@pytest.mark.parametrize(("others", "is_missing"), [(1, False), (14, True)])
def test_reads_of_other_data_are_missing_in_the_workload(tmp_path: Path, others: int, is_missing: bool) -> None:
    """Each sample has a file of its own, and a label in another file."""
    events = Events(tmp_path)
    _files(events, 21)
    events.add("file", 30, "/data/labels.idx", 84)
    events.add("loader", 0, _SETTINGS)
    for number in range(2):
        events.add("pass", 0, 0.0)
        for at in range(21):
            events.add("open", at, 0)
            if number * 21 + at < others:
                events.add("open", 30, 0)
            if at % 3 == 2:
                events.add("batch", 0, 0.25, 3, 3000, after=0.25)
                events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [21, 0, 9, [4, 2]])
    made = _one(tmp_path, events)
    assert made.derived.keys["dataset.files"].value == 21
    assert made.steps is not None
    assert made.steps.doubt == (
        f"{others} reads and opens of other data in the passes, such as /data/labels.idx, are not in the workload"
        if is_missing else ""
    )  # fmt: skip


def test_values_that_give_another_number_of_steps_are_not_recorded(tmp_path: Path) -> None:
    """Batches of a token bucket have 1 and 5 samples, so that most have not the mean number."""
    events = Events(tmp_path)
    _files(events, 21)
    events.add("loader", 0, _SETTINGS | {"batch_size": None, "samples": 21})
    for _ in range(2):
        events.add("pass", 0, 0.0)
        for at, size in enumerate([1, 1, 1, 5, 1, 5, 7]):
            for number in range(3 * at, 3 * at + 3):
                events.add("open", number, 0)
            events.add("batch", 0, 0.25, size, 1000 * size, after=0.25)
            events.add("step", "SGD", after=0.5)
        events.add("end_of_pass", 0, 0.0, [21, 0, 9, [4, 2]])
    keys = _one(tmp_path, events).derived.keys
    assert keys["reader.batch_size"].confidence == keys["train.epochs"].confidence == "medium"
    assert keys["train.epochs"].evidence.endswith("the program took 14 batches, but these values give 42")
