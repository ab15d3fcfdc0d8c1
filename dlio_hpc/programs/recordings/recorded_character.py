"""Characterisation of a program by its recording."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import counted, format_size
from dlio_hpc.darshan.log import Log, LogJob
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.characterize.derive import Derived
from dlio_hpc.programs.characterize.evidence import DerivedValue
from dlio_hpc.programs.files import named_formats
from dlio_hpc.programs.files.file_roles import Role
from dlio_hpc.programs.files.file_stats import FileStats
from dlio_hpc.programs.recordings import (
    doubted_data,
    kept_samples,
    own_loop,
    recorded_checkpoints,
    recorded_files,
    recorded_program,
    recorded_steps,
    recorded_training,
    recorded_values,
    recording_files,
    unseen_bytes,
)
from dlio_hpc.programs.recordings.recorded_files import RecordedData
from dlio_hpc.programs.recordings.recorded_program import RecordedProgram
from dlio_hpc.programs.recordings.recorded_training import RecordedTraining
from dlio_hpc.programs.recordings.recording_files import ProcessRecording

# Loops and readers that no hook sees.
_OWN_LOOP = (
    "no loader returned a batch: the program reads without a loader; its batches, passes and computation are derived "
    "from the times of its reads"
)

# Bytes of a step, divided by those of a batch of samples, that leave the size of a sample sure.
_LEAST_OF_STEP, _MOST_OF_STEP = 0.7, 1.4


def load(folder: Path, is_forced: bool = False) -> Character:
    """Characterise the program of a recording. is_forced: True to derive a workload even if there is no evidence of
    training.
    """
    recordings = recording_files.load(folder)
    program = recorded_program.of(recordings)
    made = recorded_training.training(program)
    data = _data(program, made)
    keys, against = _workload(program, made, data, is_forced)
    roles = [] if data is None else _roles(program, data)
    nodes = {one.process.host for rank in program.ranks for one in rank.processes}
    log = Log(folder, "", _job(program), {}, {}, {}, {}, [], {})
    derived = Derived(keys, [], roles, against, False)
    notes = list(_notes(recordings, program, made, data))
    if made is not None and keys:
        notes += _left_evaluation(made, "evaluation.files" in keys)
    steps = None
    if made is not None and data is not None and keys:
        steps = recorded_steps.of(program, made, data, keys["reader.load"].value == "memory")
        kept = None if steps.lost else kept_samples.of(program, made, data)
        if kept is not None:
            notes.insert(0, kept.note)
            keys.update(kept.keys(keys))
            steps = steps._replace(kept=kept.bytes, cause=kept.note)
        keys.update(_other_sizes(data, keys, steps.bytes if kept is None else kept.bytes.first))
        missing = doubted_data.missing(made, data)
        if steps.doubt:
            notes.append(steps.doubt)
            keys.update(_doubted(keys))
        elif missing:
            notes.append(missing)
            steps = steps._replace(doubt=missing)
    return Character(log, [folder], len(nodes), derived, notes, lambda _: True, True, steps)


def _doubted(keys: Mapping[str, DerivedValue]) -> dict[str, DerivedValue]:
    """Return the keys of the dataset and `reader.load`, with their confidence lowered to at most low, because the
    dataset is in doubt.
    """
    return {
        key: value.at_most("low") for key, value in keys.items() if key.startswith("dataset.") or key == "reader.load"
    }


def _other_sizes(data: RecordedData, keys: Mapping[str, DerivedValue], read: float | None) -> dict[str, DerivedValue]:
    """Return the size of a sample with less confidence, if it does not agree with the bytes of a step that the kernel
    counted. read: number of bytes of a step that the kernel counted; None if it is unknown.
    """
    name = "dataset.sample.bytes"
    if read is None or name not in keys or data.arrays is not None or keys["reader.load"].value == "memory":
        return {}
    batch = keys["reader.batch_size"].value * keys[name].value
    if _LEAST_OF_STEP * batch <= read <= _MOST_OF_STEP * batch:
        return {}
    return {
        name: keys[name].at_most("medium", f"a step read {format_size(round(read))}, a batch has {format_size(batch)}")
    }


def _spans(made: RecordedTraining | None) -> list[tuple[float, float]]:
    """Return the begin and the end of the passes of the training loader. Without a loader, the span is infinite. If the
    loader has no workers, evaluations in the middle of a pass are cut out, because the loader reads nothing meanwhile.
    """
    if made is None:
        return [(-math.inf, math.inf)]
    has_workers = bool(made.settings.get("workers"))
    return [
        part
        for passes, others in zip(made.passes, made.evaluation, strict=True)
        for one in passes
        for part in recorded_program.parts(one, () if has_workers else others)
    ]


def _data(program: RecordedProgram, made: RecordedTraining | None) -> RecordedData | None:
    if made is not None and made.pipeline is not None:
        named = recorded_files.of_pipeline(program.ranks, made.loader)
        if named is not None:
            return named
    return recorded_files.of(program.ranks, _spans(made))


def _workload(
    program: RecordedProgram, made: RecordedTraining | None, data: RecordedData | None, is_forced: bool
) -> tuple[dict[str, DerivedValue], list[str]]:
    """Return the keys of the workload, and the reasons why the recording does not show that the program trains."""
    if data is None:
        return {}, ["no read of a file was recorded, apart from files that the program wrote itself"]
    if made is None:
        loop = own_loop.of(program.ranks, data)
        against = own_loop.reasons(loop, recorded_checkpoints.models(program))
        keys = recorded_values.of_own_loop(program, data, loop) if not against or is_forced else {}
        return _of_form(keys, data, program), against
    against = recorded_training.reasons(program, made)
    keys = recorded_values.values(program, made, data) if not against or is_forced else {}
    return _of_form(keys, data, program), against


def _of_form(keys: dict[str, DerivedValue], data: RecordedData, program: RecordedProgram) -> dict[str, DerivedValue]:
    """Return the keys after the changes for a special format of raw files, such as that of images."""
    if not keys:
        return keys
    others = {path for rank in program.ranks for process in rank.processes for path in process.files.values()}
    form = named_formats.of_names(list(data.files), others)
    if data.form and not data.is_mapped and (form is None or not form.stores):
        return keys
    changed = keys | named_formats.fitted(keys, form, data.usual, data.is_mapped)
    named_formats.withdraw(changed)
    return changed


def _notes(
    recordings: Sequence[ProcessRecording],
    program: RecordedProgram,
    made: RecordedTraining | None,
    data: RecordedData | None,
) -> Iterator[str]:
    """Yield limitations of the recording that the user must know about."""
    for one in recordings:
        yield from (f"{one.path.name}: {fault}" for fault in one.faults)
        if not one.has_end:
            yield f"{one.path.name}: killed, or not ended yet"
    if program.others:
        yield (
            f"{counted(len(program.others), 'process')} of other scripts, or of other runs of this script, are left out"
        )
    yield from _states(program, data)
    if data is None:
        return
    if made is None:
        yield _OWN_LOOP
    elif data.reads and not data.is_mapped:
        spans = _spans(made)
        begin, end = min(begin for begin, _ in spans), max(end for _, end in spans)
        yield from filter(None, [unseen_bytes.note(program.ranks, data, begin, end)])
    if made is not None:
        yield from _other_loaders(made)
    if data.made:
        yield f"the program itself wrote {data.made:,} of the files of its dataset before it read them"


def _states(program: RecordedProgram, data: RecordedData | None) -> Iterator[str]:
    """Yield notes on states that were restored."""
    restored, later = recorded_checkpoints.restored(program, data.files if data is not None else {})
    if restored:
        yield f"{counted(restored, 'state')} were restored, as after a restart; the workload does not read them"
    if later:
        yield (
            f"{counted(later, 'state')} were loaded later, such as the state of the best model; the workload does "
            "not read them"
        )


def _other_loaders(made: RecordedTraining) -> Iterator[str]:
    """Yield notes on loaders other than the training loader."""
    if made.other_loaders:
        yield (
            f"{counted(len(made.other_loaders), 'other loader')} with steps are left out, such as loaders of other "
            "phases"
        )
    if made.beside_it:
        yield (
            f"{counted(len(made.beside_it), 'other loader')} returned batches between the batches of the training; the "
            "workload has one "
            "loader, and does not read the data of the others"
        )


def _left_evaluation(made: RecordedTraining, is_taken: bool) -> list[str]:
    """Return a note on passes without steps that are missing from the workload. is_taken: whether the workload includes
    some of the passes without steps.
    """
    taken = recorded_training.evaluation_of_epochs(made) if is_taken else [[] for _ in made.evaluation]
    count = max((len(mine) - len(kept) for mine, kept in zip(made.evaluation, taken, strict=True)), default=0)
    if not count:
        return []
    return [
        f"{counted(count, 'pass')} without a step, such as passes of an evaluation or a test, are left out of "
        "the workload"
    ]


def _job(program: RecordedProgram) -> LogJob:
    events = [event.time for rank in program.ranks for event in rank.main.events]
    begun = min(rank.main.process.begun for rank in program.ranks)
    if not events:
        raise ConfigError("the recording has no event")
    script = program.script
    return LogJob(0, 0, len(program.ranks), begun, max(events), script, "", {}, {})


def _roles(program: RecordedProgram, data: RecordedData) -> list[Role]:
    usual = data.usual
    return [
        Role(
            FileStats(path, size or usual, 0, 0, 0, 1, 0, size or usual, len(program.ranks), None, None, 0, 0),
            "dataset", "read during the passes of the loader",
        )
        for path, size in data.files.items()
    ]  # fmt: skip
