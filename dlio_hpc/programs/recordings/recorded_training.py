"""Training of a recorded program: the loader that feeds it, the passes over it, and the passes for evaluation."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dlio_hpc.programs.recordings import recorded_checkpoints, tensorflow_pipelines
from dlio_hpc.programs.recordings.recorded_program import (
    Pass,
    RecordedBatch,
    RecordedProgram,
    by_loader,
    is_between,
    loader_name,
    stages_of,
)
from dlio_hpc.programs.recordings.tensorflow_pipelines import Pipeline

_BATCH = re.compile(r"\bbatch_size \d+, ")
# Share of the batches of a pass up to which a pass that was left is a look at the data.
_LOOK = 0.25


class RecordedTraining(NamedTuple):
    """Training of a program. loader: name of its loader. settings: settings of the loader, with the names of its
    library. passes: passes of each rank over the loader. evaluation: passes of each rank for evaluation, which have no
    steps. is_proven: whether optimizer steps, steps of fit, or gradients were recorded. other_loaders: names of other
    loaders with steps. beside_it: names of loaders whose batches alternate with the batches of the training loader.
    per_item: samples per item of the dataset. is_in_thread: whether a thread of the program requests the batches. Such
    a thread may wait for the program in between.
    """

    loader: str
    settings: dict[str, Any]
    passes: list[list[Pass]]
    evaluation: list[list[Pass]]
    is_proven: bool
    pipeline: Pipeline | None = None
    other_loaders: Sequence[str] = ()
    beside_it: Sequence[str] = ()
    per_item: int = 1
    is_in_thread: bool = False

    @property
    def batches(self) -> list[RecordedBatch]:
        return [batch for passes in self.passes for one in passes for batch in one.batches]


def training(program: RecordedProgram) -> RecordedTraining | None:
    """Return the training of a program. Its loader is the one with the most batches among the loaders with steps, or
    among all loaders if none has steps. Return None if no loader returned a batch.
    """
    loaders = [by_loader(rank) for rank in program.ranks]
    batches: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for one in (one for rank in program.ranks for one in rank.passes if one.batches):
        batches[one.loader] += len(one.batches)
        steps[one.loader] += one.steps
    if not batches:
        return None
    loader = max(batches, key=lambda name: (steps[name] > 0, batches[name]))
    names = _with_other_batches(loader, steps)
    mine = [_of_training(_of_loaders(passes_of, names), steps[loader] > 0) for passes_of in loaders]
    parallel = [_beside(passes, rank.passes) for passes, rank in zip(mine, program.ranks, strict=True)]
    beside_it = sorted({one.loader for passes in parallel for one in passes})
    others = [_evaluating(passes_of, names, steps[loader] > 0, beside_it) for passes_of in loaders]
    mine = [[_from_first(one, together) for one in passes] for passes, together in zip(mine, parallel, strict=True)]
    other_loaders = sorted(name for name in steps if steps[name] and name not in (*names, *beside_it))
    pipeline = tensorflow_pipelines.of(stages_of(program.ranks[0].main), loader)
    pipeline = pipeline if pipeline is not None and pipeline.files else None
    is_proven = bool(steps[loader] or _kinds(program, "gradient"))
    settings = _settings(program, loader, pipeline)
    per_item = _per_item(settings, mine)
    is_in_thread = any(
        event.kind == "unseen" and event.values[0] == "thread" for rank in program.ranks for event in rank.main.events
    )
    return RecordedTraining(
        loader, settings, mine, others, is_proven, pipeline, other_loaders, beside_it, per_item, is_in_thread
    )


def _evaluating(
    passes_of: Mapping[str, Sequence[Pass]], names: set[str], has_steps: bool, beside_it: Sequence[str]
) -> list[Pass]:
    """Return the passes of a rank for evaluation, sorted by their begin: passes without steps over other loaders and,
    if the training loader has steps, complete passes without steps over the training loader. names: names of the
    training loader. beside_it: names of loaders that are iterated together with it.
    """
    made = [
        one
        for name, passes in passes_of.items()
        for one in passes
        if one.batches
        and not one.steps
        and name not in beside_it
        and (name not in names or (has_steps and one.is_whole))
    ]
    return sorted(made, key=lambda one: one.begin)


def _with_other_batches(loader: str, steps: Mapping[str, int]) -> set[str]:
    """Return all names of a loader. Loaders with steps that differ only in batch size are the same loader, because the
    batch size may grow during the training.
    """
    rest = _BATCH.sub("", loader)
    return {loader, *(name for name in steps if steps[name] and _BATCH.sub("", name) == rest)}


def _of_loaders(passes_of: Mapping[str, Sequence[Pass]], names: set[str]) -> list[Pass]:
    return sorted((one for name in names for one in passes_of.get(name, ())), key=lambda one: one.begin)


def _per_item(settings: Mapping[str, Any], passes: Sequence[Sequence[Pass]]) -> int:
    """Return the samples per item of the dataset. There is more than one if the program's own collate function makes
    all batches longer than their number of items. The factor must be the same for all batches.
    """
    items = settings.get("batch_size")
    if settings.get("library") != "torch" or not items or str(settings.get("collate")).startswith("default"):
        return 1
    lengths = {batch.samples for mine in passes for one in mine for batch in one.batches[:-1]}
    length = lengths.pop() if len(lengths) == 1 else None
    return int(length // items) if length and length % items == 0 else 1


def _beside(mine: Sequence[Pass], passes: Sequence[Pass]) -> list[Pass]:
    """Return the passes over other loaders, if these loaders returned batches between batches of the training
    loader.
    """
    batches = sorted((batch for one in mine for batch in one.batches), key=lambda batch: batch.time)
    loaders = {one.loader for one in mine}
    return [one for one in passes if one.loader not in loaders and is_between(batches, one.batches)]


def _from_first(one: Pass, together: Sequence[Pass]) -> Pass:
    """Return the pass with its begin moved back to the begin of the earliest pass that overlaps it, because the workers
    of these passes begin to read together.
    """
    begins = [other.begin for other in together if other.begin <= one.end and one.begin <= other.end]
    return one._replace(begin=min([one.begin, *begins]))


def _of_training(passes: Sequence[Pass], has_steps: bool) -> list[Pass]:
    """Return the training passes over a loader. A pass without steps is for evaluation if other passes have steps. A
    pass that the program left after a few batches is a look at the data or a warm-up. has_steps: whether the loader has
    passes with steps.
    """
    longest = max((len(one.batches) for one in passes if one.is_whole), default=0)
    kept = [one for one in passes if one.is_whole or not one.batches or len(one.batches) > _LOOK * longest]
    return [one for one in kept if one.steps or not one.batches] if has_steps else kept


def _kinds(program: RecordedProgram, kind: str) -> int:
    return sum(event.kind == kind for rank in program.ranks for event in rank.main.events)


def _settings(program: RecordedProgram, loader: str, pipeline: Pipeline | None) -> dict[str, Any]:
    if pipeline is not None:
        return {
            "library": "tensorflow", "batch_size": pipeline.batch, "drop_last": pipeline.drop_last, "is_iterable": True,
            "dataset": loader,
        }  # fmt: skip
    fits = [event for rank in program.ranks for event in rank.main.events if event.kind == "fit"]
    if fits and fits[-1].values[0]["dataset"] == "arrays":
        return dict(fits[-1].values[0])
    for rank in program.ranks:
        for event in rank.main.events:
            if event.kind == "loader" and loader_name(event.values[1]) == loader:
                return dict(event.values[1])
    return {}


def reasons(program: RecordedProgram, made: RecordedTraining) -> list[str]:
    """Return the reasons why the recording does not show that the program trains."""
    if made.is_proven:
        return []
    if max(map(len, made.passes)) > 1 and recorded_checkpoints.models(program):
        return []
    return [
        "no step of an optimizer, no fit and no gradient was recorded, and no loader made two passes of a program that "
        "saves a model"
    ]


def evaluation_of_epochs(made: RecordedTraining) -> list[list[Pass]]:
    """Return the evaluation passes of each rank that a workload can have. If there are more evaluation passes than
    epochs, return only the first one after the begin of each epoch. Other passes check the data before the training, or
    test the model after it.
    """
    return [
        others if len(others) <= len(mine) else _first_of_each(others, [one.begin for one in mine])
        for mine, others in zip(made.passes, made.evaluation, strict=True)
    ]


def _first_of_each(passes: Sequence[Pass], begins: Sequence[float]) -> list[Pass]:
    first: dict[int, Pass] = {}
    for one in passes:
        first.setdefault(bisect_right(begins, one.begin), one)
    return [one for place, one in first.items() if place]
