"""What runs are expected to take: time, bytes read and written, room; from what the site says of its nodes."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from dlio_hpc.config.site import Rates
from dlio_hpc.errors import DlioError
from dlio_hpc.plan import dataset
from dlio_hpc.plan.plan import Plan, Run


class Cost(NamedTuple):
    """Of one run. Seconds are a guess, bytes are what is planned; files: of a dataset that is generated."""

    seconds: float
    bytes_read: int
    bytes_written: int
    files: int = 0


class JobCost(Struct, frozen=True):
    """Of a batch job. space: bytes that its datasets are still to take, and a checkpoint; files: of datasets.
    limit_node_hours: if it lasts to its time limit.
    """

    job: str
    nodes: int
    runs: int
    walltime_s: int
    expected_s: float
    node_hours: float
    limit_node_hours: float
    bytes_read: int
    bytes_written: int
    space: int
    files: int


def of_run(run: Run, nodes: int, ranks: int, rates: Rates) -> Cost:
    """Reading (or preparing, what takes longer) and computing one after the other, at the rates of so many nodes;
    starting the ranks comes on top.
    """
    if run.kind == "generate":
        written, files = _needs(run)
        return Cost(rates.launch + written / (nodes * rates.write), 0, written, files)
    work = run.workload
    saved = _checkpoints(run) * _checkpoint(run, ranks)
    is_read_back = work.checkpoint is not None and work.checkpoint.read_back
    read = run.bytes + _beside(run, ranks, "read") + saved * is_read_back
    written = _beside(run, ranks, "write") + saved
    preparing = run.samples / ranks * work.reader.preprocess_time / work.reader.preprocess_threads
    if work.reader.load == "memory":
        preparing /= work.train.epochs
    reading, writing = max(read / (nodes * rates.read), preparing), written / (nodes * rates.write)
    return Cost(rates.launch + computing(run) + reading + writing, read, written)


def computing(run: Run) -> float:
    """Seconds that the emulated computation of a run takes."""
    if run.kind == "generate":
        return 0.0
    return run.steps_per_epoch * run.workload.train.epochs * run.workload.compute.time.mean


def of_job(plan: Plan, begun: set[str]) -> JobCost:
    """`begun`: folders of datasets that jobs before this one write; those of this job are put in."""
    costs, space, files = [], 0, 0
    for run in plan.runs:
        cost = of_run(run, plan.nodes, plan.ranks, plan.site.expected_rates)
        if run.kind == "generate" and run.dataset in begun:
            cost = Cost(plan.site.expected_rates.launch, 0, 0)
        elif run.kind == "generate":
            begun.add(run.dataset)
            space, files = space + cost.bytes_written, files + cost.files
        costs.append(cost)
    expected = sum(cost.seconds for cost in costs)
    space += max((_checkpoint(run, plan.ranks) for run in plan.runs if _checkpoints(run)), default=0)
    return JobCost(
        plan.job,
        plan.nodes,
        len(plan.runs),
        int(plan.walltime),
        expected,
        plan.nodes * min(expected, plan.walltime) / 3600,
        plan.nodes * plan.walltime / 3600,
        sum(cost.bytes_read for cost in costs),
        sum(cost.bytes_written for cost in costs),
        space,
        files,
    )


def of_jobs(plans: Iterable[Plan]) -> list[JobCost]:
    """One after the other: what an earlier one has written, a later one finds."""
    begun: set[str] = set()
    return [of_job(plan, begun) for plan in plans]


def _needs(run: Run) -> tuple[int, int]:
    """Bytes and files that the dataset is still to take; all of them where nobody may look at it."""
    try:
        size, files = dataset.needs(run)
    except DlioError:
        size, files = run.bytes, run.workload.dataset.files
    return int(size), files


def _beside(run: Run, ranks: int, access: str) -> int:
    """Bytes of auxiliary files."""
    train = run.workload.train
    times = {"start": 1, "end": 1, "epoch": train.epochs, "step": run.steps_per_epoch * train.epochs}
    return sum(
        side.bytes * side.count * times[side.when] * (ranks if side.by == "all" else 1)
        for side in run.workload.dataset.auxiliary_files
        if side.access == access
    )


def _checkpoints(run: Run) -> int:
    """How many a run makes."""
    checkpoint, epochs = run.workload.checkpoint, run.workload.train.epochs
    if checkpoint is None:
        return 0
    return epochs if checkpoint.every_steps is None else run.steps_per_epoch * epochs // checkpoint.every_steps


def _checkpoint(run: Run, ranks: int) -> int:
    """Bytes of one, which takes the place of the one before."""
    checkpoint = run.workload.checkpoint
    return 0 if checkpoint is None else sum(checkpoint.sizes) * (ranks if checkpoint.by == "all" else 1)
