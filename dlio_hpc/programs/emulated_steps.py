"""Steps of a check run, from its result and its timeline."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.base.errors import Incomplete
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset import rank_shares
from dlio_hpc.programs.step_check import StepProfile
from dlio_hpc.records import job_outcome
from dlio_hpc.results.run_result import Result, Summary


def of_job(job: Path, workload: Workload, ranks: int, is_compute_whole: bool, is_in_memory: bool) -> StepProfile:
    """Return the steps of the measured run of a job. workload: the derived workload. The run may have used a smaller
    dataset and fewer ranks. ranks: number of ranks of the program. is_compute_whole: whether the run computes for the
    full time of the workload. is_in_memory: whether the run reads the dataset into memory before the steps.
    """
    outcome = job_outcome.load(job)
    with job_outcome.evidence(job, outcome) as recorded:
        measured = [evidence for evidence in recorded if evidence.run.run.kind == "measure"]
        if not measured:
            raise Incomplete(f"{job.name} has no measured run")
        result, timeline = measured[-1].run.result, measured[-1].timeline
    assert result is not None
    assert result.summary is not None
    compute_s, wait_s = (None, None) if timeline is None else _times(timeline)
    steps, samples = _epoch(result, workload, ranks)
    of_sample = _of_sample(result.summary, is_in_memory)
    return StepProfile(
        steps=steps,
        bytes=None if of_sample is None else of_sample * samples / (steps * ranks),
        compute_s=compute_s if is_compute_whole else None,
        wait_s=wait_s,
    )


def _epoch(result: Result, workload: Workload, ranks: int) -> tuple[int, int]:
    """Return the steps of a rank and the samples of all ranks in an epoch. If the run was smaller than the workload,
    return the numbers of the whole workload.
    """
    is_whole = (result.ranks, result.dataset.files) == (ranks, workload.dataset.files)
    if is_whole and result.epochs:
        return result.epochs[0].steps, result.epochs[0].samples
    return rank_shares.steps_per_epoch(workload, ranks), rank_shares.samples_per_epoch(workload, ranks)


def _of_sample(summary: Summary, is_in_memory: bool) -> float | None:
    """Return the number of bytes that the steps of the run read for a sample. The result is 0 if the dataset was read
    into memory before the steps.
    """
    if is_in_memory:
        return 0.0
    if not summary.samples:
        return None
    return (summary.bytes_read + summary.overhead_bytes_read) / summary.samples


def _times(timeline: bytes) -> tuple[float | None, float | None]:
    """Return the mean computation time and the mean wait of a step. The mean wait does not include the first step of
    each epoch.
    """
    with timeline_reader.opened(timeline) as recorded:
        steps = timeline_reader.steps(recorded)
    return _mean(steps.compute), _mean(np.delete(steps.wait, steps.epochs))


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
