"""Studies with made-up figures, as their jobs would have left them."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.base import serialization
from dlio_hpc.batch import job_record
from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.config import site, workload
from dlio_hpc.files import rundir
from dlio_hpc.plan import packing, study, sweep
from dlio_hpc.plan.plan import Plan, Run
from dlio_hpc.plan.study import JobRequest, PartRequest, Study
from dlio_hpc.results.run_result import (
    DatasetFacts,
    Distribution,
    Disturbance,
    Generated,
    Level,
    Result,
    SlowestRank,
    Summary,
)

# Of a point and a repeat: samples/s; None: not measured.
Values = Callable[[int, int], float | None]
# Other activity, by point and repeat.
Disturbed = Callable[[int, int], Disturbance | None] | None


def asked(
    name: str = "demo", *axes: str, settings: Sequence[str] = ("reader.prefetch=null",), **rest: Any
) -> PartRequest:
    """Return a part that varies these axes, such as reader.read_threads=1,2,4."""
    return PartRequest(workload.draft(name, tuple(settings)), site.load("local"), tuple(map(sweep.axis, axes)), **rest)


def make(folder: Path, *parts: PartRequest, repeat: int = 3, name: str = "tune", **request: Any) -> Study:
    wanted = JobRequest(folder, data=folder / "data", seed=7, repeat=repeat, **request)
    return study.make(name, parts or [asked()], wanted, study.About("what is made up"))


def summary(samples_per_s: float, **figures: Any) -> Summary:
    """Return the summary of a run of 1000 samples of 1 MB each."""
    some = Distribution(0.1, 0.1, 0.1, 0.1, 0.1)
    plain = Summary(
        samples=1000, samples_left_out=0, steps=10, steps_planned=10, bytes_read=10**9, overhead_bytes_read=0,
        storage_bytes_read=None, wall_s=1000 / samples_per_s, samples_per_s=samples_per_s, read_MBps=samples_per_s,
        au=0.5, au_mlperf=0.5, io_time_s=300 / samples_per_s, io_hidden_fraction=0.5, opens=10, reads=1000, wait_s=some,
        compute_s=some, sync_s=some, read_latency_s=some, compute_asked_s=0.1,
        slowest_rank=SlowestRank(0, "n1", 1.0, 1.0),
    )  # fmt: skip
    return structs.replace(plain, **figures)


def measured(made: Study, values: Values, **figures: Any) -> list[Measured]:
    """Return the measurements of every point and repeat that has a value."""
    return [
        Measured(point.number, repeat, "tune-1", "run", "", "", summary(value, **figures))
        for point in made.points
        for repeat in range(made.repeat)
        if (value := values(point.number, repeat)) is not None
    ]


def disturbance(others: float = 0.0, io: float | None = 0.0, host: str = "n1") -> Disturbance:
    """Return the disturbance of nodes with two cores. others: cores that other processes use; io: I/O pressure; None:
    unknown.
    """
    pressure = None if io is None else Level(io, io, host)
    level = Level(0.0, 0.0, host)
    return Disturbance(60.0, 2, Level(others, others, host), level, level, level, pressure, level)


def write(made: Study, values: Values, state: State = "completed", disturbed: Disturbed = None, **figures: Any) -> Path:
    """Write the study's folder with its jobs beside it, or its only job. Every run that has a value has a result."""
    folder = Path(made.runs, made.study)
    if not made.is_plain:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / rundir.STUDY).write_bytes(serialization.encode(made))
    for plan in packing.plans(made):
        _write_job(made, plan, values, state, disturbed, figures)
    return folder


def _write_job(
    made: Study, plan: Plan, values: Values, state: State, disturbed: Disturbed, figures: dict[str, Any]
) -> None:
    folder = Path(plan.directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((rundir.STUDY, made), (rundir.PLAN, plan)):
        if name == rundir.PLAN or not made.is_plain:
            (folder / name).write_bytes(serialization.encode(content))
    record = job_record.planned(plan, "bash job.sh", ())
    job_record.save(folder, job_record.with_state(structs.replace(record, batch_id="42"), state))
    for run in plan.runs:
        point = 0 if run.point is None else run.point
        value = values(point, run.repeat)
        if value is None:
            continue
        directory = rundir.run_directory(folder, run.number, run.name)
        directory.mkdir(parents=True)
        written = result(plan, run, value, figures)
        if disturbed is not None and run.kind == "measure":
            written = structs.replace(written, disturbance=disturbed(point, run.repeat))
        (directory / rundir.RESULT).write_bytes(serialization.encode(written))


def result(plan: Plan, run: Run, value: float, figures: dict[str, Any]) -> Result:
    """Return the result of a run with these samples/s."""
    dataset = run.workload.dataset
    generates = run.kind == "generate"
    return Result(
        run=rundir.run_name(run.number, run.name), kind=run.kind,
        plan_sha256=hashlib.sha256(serialization.encode(plan)).hexdigest(), started="2026-11-21T10:00:00Z",
        ended="2026-11-21T10:00:10Z", ranks=plan.ranks, nodes=plan.nodes, ranks_per_node=plan.ranks_per_node,
        dataset=DatasetFacts(run.dataset, "0" * 12, dataset.format, dataset.files, dataset.samples, dataset.size),
        hosts=["n1"], versions={}, epochs=[], summary=None if generates else summary(value, **figures),
        generated=Generated(False, run.dataset, dataset.files, dataset.size, 1.0, 100.0) if generates else None,
    )  # fmt: skip
