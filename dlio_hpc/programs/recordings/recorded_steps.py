"""Steps of a recorded program, from the loader and from the byte counts of the kernel."""

import statistics

from dlio_hpc.base.units import counted
from dlio_hpc.programs.recordings import doubted_data, read_counts
from dlio_hpc.programs.recordings.recorded_files import RecordedData
from dlio_hpc.programs.recordings.recorded_program import RecordedProgram
from dlio_hpc.programs.recordings.recorded_training import RecordedTraining
from dlio_hpc.programs.step_check import StepFigure, StepProfile


def of(program: RecordedProgram, made: RecordedTraining, data: RecordedData, is_in_memory: bool) -> StepProfile:
    """Return the steps of the training loader. is_in_memory: whether the workload reads the dataset into memory. The
    program may read the dataset in the first pass, which is then ignored. The bytes are unknown if the dataset may be
    mapped into memory, because the kernel only counts bytes of system calls.
    """
    doubt = doubted_data.doubt(program, made, data)
    is_in_doubt = data.is_mapped or (data.is_memory and bool(doubt))
    may_be_mapped = is_in_doubt and not doubted_data.notable_reads(program, made, data)
    passes = [one for mine in made.passes for one in mine if one.batches]
    batches = [batch for one in passes for batch in one.batches]
    waits = [batch.wait for one in passes for batch in one.batches[1:]]
    computed = [batch.compute for batch in batches if batch.compute is not None]
    # A step of fit is not told apart from the wait for its batch, nor that of another thread.
    if made.is_in_thread or any(batch.is_step for batch in batches):
        waits, computed = [], []
    first = 1 if is_in_memory else 0
    reads = None if may_be_mapped else read_counts.of_passes(program.ranks, made.passes, first, made.evaluation)
    lost, lacking = _lost(program)
    repeats = (made.pipeline and made.pipeline.repeats) or 1
    return StepProfile(
        steps=statistics.median(len(one.batches) for one in passes) / repeats,
        bytes=None if reads is None else reads[0] / reads[1],
        compute_s=statistics.mean(computed) if computed else None,
        wait_s=statistics.mean(waits) if waits else None,
        doubt=doubt,
        lost=lost,
        lacking=lacking,
    )


def _lost(program: RecordedProgram) -> tuple[str, frozenset[StepFigure]]:
    """Return the reason why the recording lacks the last events of processes, and the figures that may be wrong because
    of these events. A worker reads and makes no steps. The computation of a step is a mean, so it loses nothing.
    """
    cut = [process for rank in program.ranks for process in rank.processes if not process.has_end]
    if not cut:
        return "", frozenset()
    lacking: frozenset[StepFigure] = frozenset({"bytes"})
    if any(not rank.main.has_end for rank in program.ranks):
        lacking |= {"steps"}
    were = "was" if len(cut) == 1 else "were"
    return f"{counted(len(cut), 'process')} {were} killed, or did not end yet, so the last events are missing", lacking
