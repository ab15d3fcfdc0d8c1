"""Characterisation of a program by its recording."""

import math
from pathlib import Path

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.darshan.log import Log, LogJob
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.characterize.derive import Derived
from dlio_hpc.programs.files.file_roles import Role
from dlio_hpc.programs.files.file_stats import FileStats
from dlio_hpc.programs.recordings import (
    own_loop,
    recorded_checkpoints,
    recorded_files,
    recorded_program,
    recorded_values,
    recording_files,
)
from dlio_hpc.programs.recordings.recorded_files import RecordedData
from dlio_hpc.programs.recordings.recorded_program import RecordedProgram

# Loops and readers that no hook sees.
_OWN_LOOP = (
    "no loader gave a batch: the program reads in a loop of its own; its batches, passes and computation are derived "
    "from the times of its reads"
)


def load(folder: Path, is_forced: bool = False) -> Character:
    """Characterise the program of a recording. is_forced: True to derive a workload even if the recording does not show
    that the program trains.
    """
    recordings = recording_files.load(folder)
    program = recorded_program.of(recordings)
    made = recorded_values.training(program)
    against = recorded_values.reasons(program, made)
    spans = (
        [(-math.inf, math.inf)] if made is None else [(one.begin, one.end) for passes in made.passes for one in passes]
    )
    data = (
        recorded_files.of_pipeline(program.ranks, made.number)
        if made is not None and made.pipeline is not None
        else None
    )
    data = data or recorded_files.of(program.ranks, spans)
    notes = [f"{one.path.name}: {fault}" for one in recordings for fault in one.faults]
    notes += [f"{one.path.name}: killed, or not ended yet" for one in recordings if not one.has_end]
    if program.others:
        notes.append(f"{len(program.others)} process(es) of other scripts are left out")
    keys = {}
    if data is None:
        against = against or ["no file of a dataset was opened by Python or by a library that is recorded"]
    elif made is None:
        loop = own_loop.of(program.ranks, data)
        against = own_loop.reasons(loop, recorded_checkpoints.models(program))
        notes.append(_OWN_LOOP)
        if not against or is_forced:
            keys = recorded_values.of_own_loop(program, data, loop)
    elif not against or is_forced:
        keys = recorded_values.values(program, made, data)
    if data is not None and data.made:
        notes.append(f"the program itself wrote {data.made:,} of the files of its dataset before it read them")
    roles = [] if data is None else _roles(program, data)
    nodes = {one.process.host for rank in program.ranks for one in rank.processes}
    log = Log(folder, "", _job(program), {}, {}, {}, {}, [], {})
    return Character(log, [folder], len(nodes), Derived(keys, [], roles, against, False), notes, lambda _: True, True)


def _job(program: RecordedProgram) -> LogJob:
    events = [event.time for rank in program.ranks for event in rank.main.events]
    begun = min(rank.main.process.begun for rank in program.ranks)
    if not events:
        raise ConfigError("the recording has no event")
    script = program.script
    return LogJob(0, 0, len(program.ranks), begun, max(events), script, "", {}, {})


def _roles(program: RecordedProgram, data: RecordedData) -> list[Role]:
    return [
        Role(
            FileStats(path, size or 0, 0, 0, 0, 1, 0, size or 0, len(program.ranks), None, None, 0, 0),
            "dataset", "read during the passes of the loader",
        )
        for path, size in data.files.items()
    ]  # fmt: skip
