"""Steps of a recorded program, as the loader gave them and as the kernel counted their bytes."""

import statistics

from dlio_hpc.programs.recordings import unseen_bytes
from dlio_hpc.programs.recordings.recorded_program import RecordedProgram
from dlio_hpc.programs.recordings.recorded_values import RecordedTraining
from dlio_hpc.programs.step_check import StepProfile


def of(program: RecordedProgram, made: RecordedTraining, reads_in_steps: bool) -> StepProfile:
    """Return the steps of the training loader. reads_in_steps: whether steps read the dataset by system calls, whose
    bytes the kernel counts; not if it is in memory or mapped into memory.
    """
    passes = [one for mine in made.passes for one in mine if one.batches]
    batches = [batch for one in passes for batch in one.batches]
    waits = [batch.wait for one in passes for batch in one.batches[1:]]
    computed = [batch.compute for batch in batches if batch.compute is not None]
    if any(batch.is_step for batch in batches):  # a step of fit is not told apart from the wait for its batch
        waits, computed = [], []
    repeats = (made.pipeline and made.pipeline.repeats) or 1
    return StepProfile(
        steps=statistics.median(len(one.batches) for one in passes) / repeats,
        bytes=_bytes_of_a_step(program, made) if reads_in_steps else None,
        compute_s=statistics.mean(computed) if computed else None,
        wait_s=statistics.mean(waits) if waits else None,
    )


def _bytes_of_a_step(program: RecordedProgram, made: RecordedTraining) -> float | None:
    """Return the bytes that the processes of a rank read in its passes, by the kernel's count, divided by its steps."""
    counts = [
        (unseen_bytes.counted([rank], one.begin, one.end), len(one.batches))
        for rank, passes in zip(program.ranks, made.passes, strict=True)
        for one in passes
        if one.batches
    ]
    known = [(size, steps) for size, steps in counts if size is not None]
    return sum(size for size, _ in known) / sum(steps for _, steps in known) if known else None
