"""Steps of a recorded program, as the loader gave them and as the kernel counted their bytes."""

import statistics
from collections.abc import Sequence

from dlio_hpc.programs.recordings import unseen_bytes
from dlio_hpc.programs.recordings.recorded_program import Pass, RecordedProgram
from dlio_hpc.programs.recordings.recorded_values import RecordedTraining
from dlio_hpc.programs.step_check import StepProfile


def of(program: RecordedProgram, made: RecordedTraining, reads_in_steps: bool) -> StepProfile:
    """Return the steps of the training loader. reads_in_steps: whether steps read the dataset by system calls, whose
    bytes the kernel counts; not if it is in memory or mapped into memory.
    """
    passes = [one for mine in made.passes for one in mine if one.batches]
    steady = [batch for one in passes for batch in one.batches[1:]]
    are_steps = any(batch.is_step for batch in steady)
    computed = [batch.compute for batch in steady if batch.compute is not None]
    return StepProfile(
        steps=statistics.median(len(one.batches) for one in passes) / ((made.pipeline and made.pipeline.repeats) or 1),
        bytes=_bytes_of_a_step(program, passes) if reads_in_steps else None,
        compute_s=statistics.mean(computed) if computed and not are_steps else None,
        wait_s=statistics.mean(batch.wait for batch in steady) if steady and not are_steps else None,
    )


def _bytes_of_a_step(program: RecordedProgram, passes: Sequence[Pass]) -> float | None:
    """Return the bytes that the processes of a rank read in the passes, by the kernel's count, divided by the steps."""
    begin, end = min(one.begin for one in passes), max(one.end for one in passes)
    counted = unseen_bytes.counted(program.ranks, begin, end)
    return None if counted is None else counted / sum(len(one.batches) for one in passes)
