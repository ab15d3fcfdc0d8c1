"""Checkpoints of a recorded program: states that a library saved, or files that look like states."""

import math
from collections import Counter
from collections.abc import Container, Sequence
from itertools import pairwise
from typing import NamedTuple

from dlio_hpc.base.units import counted
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue
from dlio_hpc.programs.files import file_roles
from dlio_hpc.programs.recordings.recorded_files import is_in, merged
from dlio_hpc.programs.recordings.recorded_program import RankRecording, RecordedProgram, Transfer


class SavedState(NamedTuple):
    """A file of a saved state. bytes: size; None if it is unknown. steps: number of steps of the rank before the save;
    0 if steps are unknown.
    """

    time: float
    path: str
    bytes: int | None
    rank: int
    steps: int


def keys_of(program: RecordedProgram, epochs: int, ends: Sequence[int]) -> dict[str, DerivedValue]:
    """Return the checkpoint keys. They are derived from states that a library saved or, if there are none, from files
    that look like states. ends: steps of a rank at the end of each pass.
    """
    saves = _saves(program)
    states = [SavedState(one.time, one.file or "", one.bytes, one.rank, one.steps) for one in saves]
    level: Confidence = "recorded"
    if not states:
        states, level = _written_states(program), "medium"
    if not states:
        return {}
    by_moment = _moments(states)
    writers = {one.rank for one in states}
    count = len({moment for rank, moment in by_moment if rank == min(writers)})
    keys = {
        "checkpoint.by": DerivedValue(
            "root" if writers == {0} else "all", level, f"saved by {counted(len(writers), 'rank')}"
        ),
    }
    every = _every(sorted({one.steps for one in states}), count, epochs, ends)
    keys["checkpoint.every_steps"] = every.at_most(level)
    sizes = [one.bytes for one in by_moment[max(by_moment)] if one.bytes]
    if saves:
        sizes += _trackers(program, {one.path for one in states}, {(one.rank, one.steps) for one in states})
    if sizes:
        name = saves[0].library if saves else "Python"
        keys["checkpoint.files"] = DerivedValue(sizes, level, f"{counted(count, 'checkpoint')} by {name}")
    return keys


def models(program: RecordedProgram) -> int:
    """Return the number of saves of a model. Three kinds of saves are included: states that a library saved, writes of
    files with the name of a model, and writes of files that look like states and are written several times.
    """
    states = _written_states(program)
    by_path = Counter(one.path for one in states)
    named = {round(one.time, 1) for one in states if file_roles.is_model(one.path) or by_path[one.path] > 1}
    return len(named) + len([one for one in _saves(program) if one.rank == 0])


def restored(program: RecordedProgram, dataset: Container[str]) -> tuple[int, int]:
    """Return how many states the ranks restored: before the first step of the rank (as after a restart), and later
    (such as the best model). Files that are loaded during a pass of the dataset, or that are in `dataset`, are data and
    are not counted. dataset: paths of the dataset.
    """
    first = later = 0
    for rank in program.ranks:
        parts = merged([(one.begin, one.end) for one in rank.passes])
        begin = min((part[0] for part in parts), default=math.inf)
        for one in rank.transfers:
            if one.kind != "restore" or is_in(one.begin, parts) or one.file in dataset:
                continue
            is_first = one.steps == 0 and (rank.steps > 0 or one.begin < begin)
            first, later = first + is_first, later + (not is_first)
    return first, later


def _saves(program: RecordedProgram) -> list[Transfer]:
    """Return the states that a library saved. A file that is saved once and then loaded in a pass is a sample, not a
    state.
    """
    data = {path for rank in program.ranks for path in _loaded(rank)}
    saves = [one for rank in program.ranks for one in rank.transfers if one.kind == "save"]
    times = Counter((one.rank, one.file) for one in saves)
    return [one for one in saves if one.file not in data or times[one.rank, one.file] > 1]


def _loaded(rank: RankRecording) -> set[str]:
    """Return the files that a library loaded in the passes of a rank, or in its workers."""
    parts = merged([(one.begin, one.end) for one in rank.passes])
    made = {one.file for one in rank.transfers if one.kind == "restore" and one.file and is_in(one.begin, parts)}
    for helper in rank.helpers:
        if any(event.kind == "worker" for event in helper.events):
            numbers = {event.values[2] for event in helper.events if event.kind == "restore"}
            made |= {helper.files[number] for number in numbers if number is not None}
    return made


def _moments(states: Sequence[SavedState]) -> dict[tuple[int, int], list[SavedState]]:
    """Return the states by rank and number of the checkpoint. A checkpoint contains each file once. The next checkpoint
    begins when a file appears again, or when a file with the same name but another number appears.
    """
    made: dict[tuple[int, int], list[SavedState]] = {}
    for rank in {one.rank for one in states}:
        number, present = 0, set[str]()
        last: SavedState | None = None
        for one in sorted((one for one in states if one.rank == rank), key=lambda one: one.time):
            name = file_roles.pattern(one.path)
            if last is not None and (one.steps != last.steps or name in present):
                number, present = number + 1, set()
            present.add(name)
            made.setdefault((rank, number), []).append(one)
            last = one
    return made


def _trackers(program: RecordedProgram, states: set[str], moments: set[tuple[int, int]]) -> list[int]:
    """Return the sizes of the small files that Python writes with each checkpoint, such as a file with the name of the
    newest checkpoint.
    """
    made: dict[str, set[tuple[int, int]]] = {}
    sizes: dict[str, int] = {}
    for rank in program.ranks:
        for one in rank.writes:
            if one.path not in states and one.bytes:
                made.setdefault(file_roles.pattern(one.path), set()).add((one.rank, one.steps))
                sizes[file_roles.pattern(one.path)] = one.bytes
    return [sizes[name] for name, written in made.items() if written == moments and len(moments) > 1]


def _written_states(program: RecordedProgram) -> list[SavedState]:
    """Return the files that look like states: they are written repeatedly, or with numbers in their names, or have the
    name of a model. Small files are left out, because they are logs and notes.
    """
    groups: dict[str, list[SavedState]] = {}
    data = {path for rank in program.ranks for path in _loaded(rank)}
    for rank in program.ranks:
        last = ""
        first = min((one.begin for one in rank.passes), default=-math.inf)  # what is written before it, is data
        for one in rank.writes:
            is_state = one.path != last and one.path not in data
            if one.time >= first and is_state and (one.bytes is None or one.bytes >= file_roles.LEAST_STATE):
                groups.setdefault(file_roles.pattern(one.path), []).append(SavedState(*one))
            last = one.path
    return [
        one for name, states in groups.items() for one in states
        if states[0].bytes is not None and (len(states) > len(program.ranks) or file_roles.is_model(name))
    ]  # fmt: skip


def _every(moments: Sequence[int], count: int, epochs: int, ends: Sequence[int]) -> DerivedValue:
    """Return `checkpoint.every_steps`. The value is None if there is a checkpoint at the end of each pass."""
    if count == epochs and (not any(moments) or set(moments) <= set(ends)):
        return DerivedValue(
            None, "recorded", f"{counted(count, 'checkpoint')}, one after each of {counted(epochs, 'pass')}"
        )
    if not any(moments):
        return DerivedValue(
            None, "low", f"{counted(count, 'checkpoint')} in {counted(epochs, 'pass')}; steps were not recorded"
        )
    gaps = Counter(later - earlier for earlier, later in pairwise([0, *moments]))
    gaps.pop(0, None)
    steps = gaps.most_common(1)[0][0] if gaps else None
    return DerivedValue(steps, "recorded", f"checkpoints after {', '.join(map(str, moments[:4]))} steps")
