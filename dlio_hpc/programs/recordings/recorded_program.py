"""A recorded program: its ranks with their workers, and the passes over their loaders."""

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dlio_hpc.programs.recordings.recording_files import Event, ProcessRecording

_DIGIT = re.compile(r"\d")
# Loader of a fit of Keras whose own loader is unknown.
FIT = "keras fit"


class RecordedBatch(NamedTuple):
    """A batch that a loader returned. time: time at which it was returned. wait: seconds that the program waited for
    it. samples: number of samples; None if it is unknown. bytes: size of its arrays in memory. compute: seconds until
    the program requested the next batch; the time of passes of other loaders, and of checkpoints, is subtracted. None
    for the last batch of a pass that the program left early. is_step: whether `compute` is the time of a step of fit,
    which includes the wait for its batch.
    """

    time: float
    wait: float
    samples: int | None
    bytes: int
    compute: float | None = None
    is_step: bool = False


class PipelineStage(NamedTuple):
    """A stage of a tf.data pipeline. before: number of the stage that feeds it; None for a source. settings: arguments
    by position (as text) and by name. files: files that a source names.
    """

    before: int | None
    name: str
    settings: dict[str, Any]
    files: list[str]


class Pass(NamedTuple):
    """A pass over a loader. loader: name of the loader. begin, end: times of the pass. steps: optimizer steps during
    the pass. is_whole: whether the loader was exhausted. order: number of samples, number of pairs with consecutive
    numbers, number of pairs with rising numbers, and the first numbers, as the sampler yielded them; None if unknown.
    """

    loader: str
    begin: float
    end: float
    batches: list[RecordedBatch]
    steps: int
    is_whole: bool
    order: list[Any] | None


def parts(one: Pass, others: Sequence[Pass]) -> list[tuple[float, float]]:
    """Return the spans of a pass. The spans of other passes inside the pass, such as an evaluation, are cut out.
    others: other passes, sorted by their begin.
    """
    first = bisect_right(others, one.begin, key=lambda other: other.begin)
    last = bisect_right(others, one.end, key=lambda other: other.begin)
    made, begin = [], one.begin
    for hole in others[first:last]:
        if hole.end < one.end:
            made += [(begin, hole.begin)] if begin < hole.begin else []
            begin = max(begin, hole.end)
    return [*made, (begin, one.end)]


class Transfer(NamedTuple):
    """A state that was saved or restored. library: library that saved or restored the state. file: path; None for a
    stream without a name. bytes: size of the file; None if the size is unknown. steps: number of steps of the rank
    before this event.
    """

    kind: str
    library: str
    time: float
    seconds: float
    file: str | None
    bytes: int | None
    rank: int
    steps: int

    @property
    def begin(self) -> float:
        return self.time - self.seconds


def stages_of(recording: ProcessRecording) -> dict[int, PipelineStage]:
    """Return the stages of all pipelines of a process, by number."""
    made: dict[int, PipelineStage] = {}
    for event in recording.events:
        if event.kind == "stage" and event.values[0] is not None:
            number, before, name, given, settings = event.values
            by_place = {str(place): value for place, value in enumerate(given)}
            made[number] = PipelineStage(before, name, by_place | settings, [])
        elif event.kind == "source" and event.values[0] in made:
            made[event.values[0]].files.extend(
                recording.files[number] for number in event.values[1] if number is not None
            )
    return made


def chain(stages: Mapping[int, PipelineStage], number: int) -> list[PipelineStage]:
    """Return the stages of a pipeline from its source to stage `number`. A reader inside interleave or flat_map reads
    the files of the source.
    """
    made: list[PipelineStage] = []
    at: int | None = number
    while at is not None and at in stages and len(made) < len(stages):
        made.insert(0, stages[at])
        at = stages[at].before
    return made


def loader_name(settings: Mapping[str, Any]) -> str:
    """Return a name for a loader. Loaders with the same settings get the same name."""
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None and name != "seed")


def chain_name(stages: Sequence[PipelineStage]) -> str:
    """Return a name for a pipeline. Pipelines get the same name under two conditions: they have the same stages, and
    their files are in the same folder and have the same name up to the first digit. Different ranks may name different
    files of a dataset.
    """
    name, first = (
        " > ".join(stage.name for stage in stages),
        next((stage.files[0] for stage in stages if stage.files), ""),
    )
    folder, slash, file = first.rpartition("/")
    return f"{name} of {folder}{slash}{_DIGIT.split(file)[0]}*" if first else name


class Write(NamedTuple):
    """A file that the program opened to write. bytes: size of the file at the end of the process; None if unknown.
    steps: number of steps of the rank before the open.
    """

    time: float
    path: str
    bytes: int | None
    rank: int
    steps: int


class RankRecording(NamedTuple):
    """A rank. main: process of the rank. helpers: processes that the main process started, such as workers. passes:
    passes over all loaders, sorted by their begin. steps: number of optimizer steps. writes: files that the main
    process wrote.
    """

    number: int
    main: ProcessRecording
    helpers: list[ProcessRecording]
    passes: list[Pass]
    transfers: list[Transfer]
    steps: int
    writes: list[Write]

    @property
    def processes(self) -> list[ProcessRecording]:
        return [self.main, *self.helpers]


class RecordedProgram(NamedTuple):
    """A program. others: processes of other scripts in the same recording."""

    script: str
    ranks: list[RankRecording]
    others: list[ProcessRecording]


def of(recordings: Sequence[ProcessRecording]) -> RecordedProgram:
    """Return the program of a recording. If several scripts were recorded, return the one with the most batches and
    steps or, if no script has any, with the most reads and opens. If the script ran several times, return the run with
    the most batches and steps. Processes are ranks of the same run if they ran at the same time and have different rank
    numbers from a launcher or a library.
    """
    families = _families(recordings)
    weights: dict[str, tuple[int, int]] = {}
    for family in families:
        before = weights.get(family[0].process.script, (0, 0))
        weights[family[0].process.script] = (before[0] + _count(family, _STEPS), before[1] + 1 + _count(family, _READS))
    script = max(weights, key=weights.__getitem__)
    same = [family for family in families if family[0].process.script == script]
    same.sort(key=lambda family: (_count(family, _STEPS), _count(family, _READS)), reverse=True)
    mine = _ranks(same)
    others = [member for family in families if family not in mine for member in family]
    numbered = sorted(mine, key=lambda family: (_rank(family[0]) or 0, family[0].process.begun))
    return RecordedProgram(script, [_ranked(number, family) for number, family in enumerate(numbered)], others)


def _ranks(families: Sequence[list[ProcessRecording]]) -> list[list[ProcessRecording]]:
    """Return the ranks of the first run of a script. They are the first family and, if this family has a rank number,
    all families with other rank numbers that ran at the same time.
    """
    first = families[0]
    if _rank(first[0]) is None:
        return [first]
    ranks: dict[int | None, list[ProcessRecording]] = {None: []}
    for family in families:
        if _overlap(family[0], first[0]):
            ranks.setdefault(_rank(family[0]), family)
    return [family for family in ranks.values() if family]


_STEPS, _READS = frozenset({"batch", "step", "train_batch"}), frozenset({"read", "open", "map"})


def _count(family: Sequence[ProcessRecording], kinds: frozenset[str]) -> int:
    return sum(event.kind in kinds for recording in family for event in recording.events)


def _overlap(one: ProcessRecording, other: ProcessRecording) -> bool:
    """Return whether two processes ran at the same time."""
    ends = [max((event.time for event in recording.events), default=math.inf) for recording in (one, other)]
    return one.process.begun <= ends[1] and other.process.begun <= ends[0]


def _families(recordings: Sequence[ProcessRecording]) -> list[list[ProcessRecording]]:
    """Return processes grouped by rank. Each group begins with the rank's own process. A process is a rank itself if it
    has a rank number of its own, or if it trains and is not a worker of a loader. It does not matter which process
    started it.
    """
    by_number = {(recording.process.host, recording.process.process): recording for recording in recordings}
    families: dict[int, list[ProcessRecording]] = {}
    for recording in recordings:
        head = recording
        for _ in recordings:
            parent = by_number.get((head.process.host, head.process.parent))
            if parent is None or parent is head or _is_own(head, parent):
                break
            head = parent
        families.setdefault(id(head), [head]).append(recording)
    return [[members[0], *(one for one in members[1:] if one is not members[0])] for members in families.values()]


def _is_own(process: ProcessRecording, parent: ProcessRecording) -> bool:
    """Return whether a process is not a helper of its parent process."""
    kinds = {event.kind for event in process.events}
    trains = bool(kinds & _STEPS) and "worker" not in kinds
    return trains or (_rank(process) is not None and _rank(process) != _rank(parent))


def _rank(recording: ProcessRecording) -> int | None:
    """Return the rank number from the launcher or, if the launcher gave none, the rank number from a library."""
    if recording.process.rank is not None:
        return recording.process.rank[0]
    return next((event.values[0] for event in recording.events if event.kind == "rank"), None)


def _ranked(number: int, family: Sequence[ProcessRecording]) -> RankRecording:
    main, *helpers = family
    walk = _Walk(stages_of(main))
    for event in main.events:
        walk.take(event)
    transfers = [
        Transfer(
            event.kind, event.values[0], event.time, event.values[1],
            None if event.values[2] is None else main.files.get(event.values[2]), event.values[3],
            number, steps,
        )
        for event, steps in walk.transfers
    ]  # fmt: skip
    sizes = {event.values[0]: event.values[1] for event in main.events if event.kind == "written"}
    writes = [Write(time, main.files[file], sizes.get(file), number, steps) for time, file, steps in walk.writes]
    return RankRecording(number, main, helpers, list(walk.finished()), transfers, walk.steps, writes)


class _OpenPass:
    """A pass that has not ended yet."""

    def __init__(self, loader: str, begin: float) -> None:
        self.loader, self.begin = loader, begin
        self.end: float | None = None
        self.batches: list[RecordedBatch] = []
        self.steps = 0
        self.is_whole = False
        self.order: list[Any] | None = None

    @property
    def last(self) -> float:
        if self.end is not None:
            return self.end
        return self.batches[-1].time if self.batches else self.begin


class _Walk:
    """Passes, steps and transfers of a process, collected from its events in order. stages: stages of tf.data
    pipelines.
    """

    def __init__(self, stages: Mapping[int, PipelineStage]) -> None:
        self._pipelines = {number: chain_name(chain(stages, number)) for number in stages}
        self._names: dict[int, str] = {}
        self._open: dict[Any, _OpenPass] = {}
        self._passes: list[_OpenPass] = []
        self._current: _OpenPass | None = None
        # The epoch of a fit, the loader that feeds it, the pass of its evaluation, and the begin of its step.
        self._epoch: _OpenPass | None = None
        self._fed_by = FIT
        self._is_in_fit = False
        self._test: _OpenPass | None = None
        self._step_begin = 0.0
        self.steps = 0
        self.transfers: list[tuple[Event, int]] = []
        # Time, file and steps before it of each file that is opened to be written.
        self.writes: list[tuple[float, int, int]] = []

    def take(self, event: Event) -> None:
        action = _ACTIONS.get(event.kind)
        if action is not None:
            action(self, event)

    def _loader(self, number: Any) -> str | None:
        """Return the name of a loader. Some programs create a new loader for each epoch. Therefore, loaders with the
        same settings have the same name. Pipelines of tf.data with the same stages also have the same name. Return None
        for iterators that TensorFlow creates for itself.
        """
        if not isinstance(number, list):
            return self._names.get(number, str(number))
        return self._pipelines.get(number[1])

    def loader(self, event: Event) -> None:
        self._names[event.values[0]] = loader_name(event.values[1])

    def begin(self, event: Event) -> None:
        loader = self._loader(event.values[0])
        if loader is None:
            return
        if self._is_in_fit:  # an iterator that is made between steps is that of the evaluation
            if self._epoch is not None and not self._epoch.batches and self._test is None:
                self._epoch.loader = self._fed_by = loader
            return
        self._begin(event, loader)

    def _begin(self, event: Event, loader: str) -> _OpenPass:
        """Begin a pass. The pass begins before its event, because workers begin to read, and the program begins to
        wait, before the event is written.
        """
        made = self._open[_key(event.values[0])] = _OpenPass(loader, event.time - event.values[1])
        self._passes.append(made)
        return made

    def batch(self, event: Event) -> None:
        number, wait, samples, size = event.values
        loader = self._loader(number)
        if loader is None or self._is_in_fit:
            return
        self._current = self._open.get(_key(number)) or self._begin(event, loader)
        self._current.batches.append(RecordedBatch(event.time, wait, samples, size))

    def end_of_pass(self, event: Event) -> None:
        made = self._open.pop(_key(event.values[0]), None)
        if made is not None:
            made.end, made.is_whole, made.order = event.time - event.values[1], True, event.values[2]

    def step(self, event: Event) -> None:
        if self._is_in_fit:  # the optimizer of a fit is called while its function is compiled
            return
        self.steps += 1
        if self._current is not None and self._current.end is None:
            self._current.steps += 1

    def transfer(self, event: Event) -> None:
        self.transfers.append((event, self.steps))

    def opened(self, event: Event) -> None:
        if event.values[1]:
            self.writes.append((event.time, event.values[0], self.steps))

    def written(self, event: Event) -> None:
        if event.values[2] is not None:
            self.writes.append((event.time, event.values[2], self.steps))

    def fit(self, event: Event) -> None:
        self._is_in_fit = event.kind == "train_begin"
        if not self._is_in_fit:
            self._fed_by = FIT

    def epoch_begin(self, event: Event) -> None:
        self._epoch = _OpenPass(self._fed_by, event.time)
        self._passes.append(self._epoch)

    def train_batch_begin(self, event: Event) -> None:
        self._step_begin = event.time

    def train_batch(self, event: Event) -> None:
        self.steps += 1
        if self._epoch is not None:
            self._epoch.steps += 1
            step_s = event.time - self._step_begin
            self._epoch.batches.append(RecordedBatch(event.time, 0.0, None, 0, step_s, True))
            self._epoch.end = event.time

    def epoch_end(self, event: Event) -> None:
        if self._epoch is not None:
            self._epoch.is_whole = True
        self._epoch = None

    def test_begin(self, event: Event) -> None:
        self._test = _OpenPass(f"{FIT} evaluation", event.time)
        self._passes.append(self._test)

    def test_batch(self, event: Event) -> None:
        if self._test is not None:
            self._test.batches.append(RecordedBatch(event.time, 0.0, None, 0))

    def test_end(self, event: Event) -> None:
        if self._test is not None:
            self._test.end, self._test.is_whole = event.time, True
        self._test = None

    def finished(self) -> Iterator[Pass]:
        spans = [(made.begin, made.last) for made in self._passes]
        spans = sorted(spans + [(event.time - event.values[1], event.time) for event, _ in self.transfers])
        _tell_apart(self._passes)
        for made in self._passes:
            own, until = (made.begin, made.last), made.end if made.is_whole else None
            batches = _computed(made.batches, until, [span for span in _begun(spans, *own) if span != own])
            yield Pass(made.loader, *own, batches, made.steps, made.is_whole, made.order)


def _key(number: Any) -> Any:
    """Return the key of an open loader: its number, or the number of a tf.data pipeline."""
    return tuple(number) if isinstance(number, list) else number


def _begun(spans: Sequence[tuple[float, float]], begin: float, end: float) -> Sequence[tuple[float, float]]:
    """Return the spans that begin between two times. spans: sorted by their begin."""
    return spans[bisect_left(spans, (begin, -math.inf)) : bisect_right(spans, (end, math.inf))]


def _tell_apart(passes: Sequence[_OpenPass]) -> None:
    """Give different names to loaders of the same name that are iterated at the same time."""
    latest: dict[str, list[_OpenPass]] = defaultdict(list)
    for made in sorted(passes, key=lambda made: made.begin):
        same = latest[made.loader]
        place = next((place for place, one in enumerate(same) if not is_between(one.batches, made.batches)), len(same))
        same[place : place + 1] = [made]
        made.loader += f", {place + 1} of its kind" if place else ""


def is_between(some: Sequence[RecordedBatch], others: Sequence[RecordedBatch]) -> bool:
    """Return whether a loader returned a batch between the first and the last of other batches."""
    if not others:
        return False
    first = bisect_right(some, others[0].time, key=lambda batch: batch.time)
    return first < len(some) and some[first].time < others[-1].time


_ACTIONS: dict[str, Callable[[_Walk, Event], None]] = {
    "loader": _Walk.loader, "pass": _Walk.begin, "batch": _Walk.batch, "end_of_pass": _Walk.end_of_pass,
    "step": _Walk.step, "open": _Walk.opened, "write": _Walk.written, "save": _Walk.transfer, "restore": _Walk.transfer,
    "train_begin": _Walk.fit, "train_end": _Walk.fit,
    "epoch_begin": _Walk.epoch_begin, "epoch_end": _Walk.epoch_end, "train_batch_begin": _Walk.train_batch_begin,
    "train_batch": _Walk.train_batch, "test_begin": _Walk.test_begin, "test_batch": _Walk.test_batch,
    "test_end": _Walk.test_end,
}  # fmt: skip


def _computed(
    batches: Sequence[RecordedBatch], end: float | None, others: Sequence[tuple[float, float]]
) -> list[RecordedBatch]:
    """Return the batches with the computation time after each. end: time at which the program requested a batch after
    the last one. others: spans of passes over other loaders and of transfers. They are not part of the computation of a
    step.
    """
    asked = [*(batch.time - batch.wait for batch in batches[1:]), end]
    made = []
    for batch, until in zip(batches, asked, strict=False):
        if until is None or batch.compute is not None:
            made.append(batch)
            continue
        apart = sum(
            max(0.0, min(until, last) - max(batch.time, first))
            for first, last in _begun(others, batch.time - 1e-9, until)
        )
        made.append(batch._replace(compute=max(0.0, until - batch.time - apart)))
    return made


def by_loader(rank: RankRecording) -> dict[str, list[Pass]]:
    """Return the passes of a rank by loader."""
    passes: dict[str, list[Pass]] = defaultdict(list)
    for one in rank.passes:
        passes[one.loader].append(one)
    return passes
