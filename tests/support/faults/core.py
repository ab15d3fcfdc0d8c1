"""The operations of the ranks: they generate, read and write as a workload says."""

import contextlib
import io
from collections.abc import Iterator
from functools import partial

import h5py

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import DlioError
from dlio_hpc.config import site, workload
from dlio_hpc.core import verify_dataset
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan, Run
from dlio_hpc.results import run_result
from tests.support import planning
from tests.support.faults.ground import Done, Ground
from tests.support.faults.ground import run as run_command
from tests.support.faults.operation import Operation, once_more, ranks

_PROGRAM = "dlio_hpc.core"
_SMALL = (
    "dataset.files=3", "dataset.samples_per_file=4", "dataset.sample={shape: [30, 100], dtype: float32}",
    "reader.batch_size=4", "reader.read_threads=2", "compute.time=0", "train.epochs=1",
)  # fmt: skip
_SIDES = (
    "dataset.auxiliary_files=[{name: metadata, bytes: 100, count: 2, access: read, when: step, size: 1000}, "
    "{name: summary, bytes: 50, count: 1, access: write, when: step}]",
)
_CHECKPOINT = ("checkpoint={files: [200000, 3000], transfer_size: 64 KiB, read_back: true}",)

_PACKED = ("dataset.format=tfrecord", "dataset.random_bits=4", "reader.shuffle.samples=false")

_IMAGES = ("dataset.samples_per_file=1", "dataset.sample={bytes: 12000}")

DATASETS: dict[str, tuple[str, ...]] = {
    "npz": (),
    "npz gzip": ("dataset.compression=gzip", "dataset.random_bits=4"),
    "tfrecord": ("dataset.format=tfrecord",),
    "tfrecord gzip": (*_PACKED, "dataset.compression=gzip"),
    "hdf5": ("dataset.format=hdf5",),
    "hdf5 chunked": ("dataset.format=hdf5", "dataset.chunk=[1, 10, 100]"),
    "hdf5 gzip": ("dataset.format=hdf5", "dataset.compression=gzip", "dataset.random_bits=4"),
    "npy": ("dataset.format=npy",),
    "tar": ("dataset.format=tar", "reader.shuffle.samples=false"),
    "zarr": ("dataset.format=zarr", "dataset.chunk=[1, 10, 100]", "dataset.compression=zstd"),
    "zarr shards": ("dataset.format=zarr", "dataset.chunk=[1, 10, 100]", "dataset.zarr={shard: [2, 10, 100]}"),
    "jpeg": ("dataset.format=jpeg", *_IMAGES),
    "png": ("dataset.format=png", *_IMAGES),
    "parquet": ("dataset.format=parquet", "dataset.row_group=2"),
    "indexed": ("dataset.format=indexed", "dataset.documents={tokens: 400, stdev: 90}"),
    "raw": ("dataset.format=raw",),
    "csv": ("dataset.format=csv",),
}
_FLOOR, _FRAMEWORK = ("reader.mode=posix",), ("reader.mode=framework",)
_NULL = "dataset.format=null"
_MEMORY = ("reader.load=memory",)


def _operations() -> Iterator[Operation]:
    for name, keys in DATASETS.items():
        yield _operation(f"generate {name}", keys, 0, 1.3)
    yield _operation("generate auxiliary files", _SIDES, 0)
    yield _operation("generate npz, 2 ranks", (), 0, 0.7, 2)
    for name, keys in DATASETS.items():
        yield _operation(f"read {name}", (*keys, *_FLOOR), 1)
        yield _operation(f"read {name} framework", (*keys, *_FRAMEWORK), 1)
    yield _operation("read npz from memory", _MEMORY, 1, 0.7)
    yield _operation("read auxiliary files", _SIDES, 1, 0.7)
    yield _operation("read hdf5, 2 ranks", DATASETS["hdf5"], 1, 0.7, 2)
    yield _operation("read npy mapped", (*DATASETS["npy"], *_FRAMEWORK, "reader.mapped=true"), 1)
    yield _operation("read indexed mapped", (*DATASETS["indexed"], *_FRAMEWORK, "reader.mapped=true"), 1)
    by_workers = (
        ("npz", _FRAMEWORK), ("tfrecord", _FLOOR), ("hdf5", _FRAMEWORK), ("raw", _FLOOR), ("tar", _FRAMEWORK),
    )  # fmt: skip
    for name, mode in by_workers:
        keys = (*DATASETS[name], *mode, "reader.loader=pytorch")
        yield _operation(f"read {name} pytorch", keys, 1, 0.25)
    for name, mode in (("tfrecord", _FRAMEWORK), ("npz", _FRAMEWORK), ("hdf5", _FLOOR)):
        keys = (*DATASETS[name], *mode, "reader.loader=tensorflow")
        yield _operation(f"read {name} tensorflow", keys, 1, 0.15)
    null = (_NULL,)
    yield _operation("checkpoint", (*null, *_CHECKPOINT), 1, 3)
    yield _operation("checkpoint, 2 ranks", (*null, *_CHECKPOINT, "checkpoint.by=all"), 1, 0.7, 2)
    yield _operation("merge", null, 1, 3)
    yield _operation("merge, 2 ranks", null, 1, 0.7, 2)


def _operation(name: str, keys: tuple[str, ...], number: int, share: float = 1.0, count: int = 1) -> Operation:
    return Operation(
        name,
        partial(_prepare, keys, number, count),
        lambda ground: ranks(ground.job / rundir.PLAN, 0 if _NULL in keys else number, count),
        lambda ground: [ground.data, ground.runs],
        _PROGRAM,
        _written if number == 0 else _read,
        once_more,
        share,
        count,
        forks="reader.loader" not in "".join(keys),
    )


def _prepare(keys: tuple[str, ...], number: int, count: int, ground: Ground) -> None:
    """Write the plan of a job, and its dataset if the job reads it."""
    ground.data.mkdir()
    request = planning.Request(ground.runs, ground.archive, ground.data, ranks_per_node=count)
    compared = () if _NULL in keys else ("reader.verify_content=all",)
    plan = planning.make(workload.load("demo", (*_SMALL, *compared, *keys)), site.load("local"), request)
    (ground.runs / plan.job).mkdir(parents=True)
    rundir.write(ground.runs / plan.job / rundir.PLAN, serialization.encode(plan))
    if number and plan.runs[0].kind == "generate":
        done = run_command(ranks(ground.job / rundir.PLAN, 0, count), ground.live, {}, 60)
        assert done.code == 0, done.out


def _result(ground: Ground) -> run_result.Result:
    """Return the result of the last run that has one."""
    *_, path = sorted(ground.job.glob(f"{rundir.RUNS}/*/{rundir.RESULT}"))
    return run_result.decode(path.read_bytes(), str(path))


def _run(ground: Ground, name: str) -> Run:
    plan = serialization.decode((ground.job / rundir.PLAN).read_bytes(), Plan, "plan")
    return next(run for run in plan.runs if rundir.run_name(run.number, run.name) == name)


def _written(ground: Ground, _: Done) -> str | None:
    return unsound(ground) or _odd_result(ground, "generate")


def unsound(ground: Ground) -> str | None:
    """Return the fault of a dataset that is marked as complete; None if it is as it was to be generated."""
    known = dataset_folder.read(ground.dataset)
    if known is None or not known.complete:
        return "the dataset is not whole"
    with contextlib.redirect_stderr(io.StringIO()):
        findings = verify_dataset.verify(ground.dataset, quick=False)
    return f"the dataset has faults: {findings.faults[0]}" if findings.faults else None


def _odd_result(ground: Ground, kind: str) -> str | None:
    try:
        result = _result(ground)
    except (DlioError, ValueError, OSError) as fault:
        return f"no sound result: {fault}"
    return None if result.kind == kind and not result.faults else f"the result is of {result.kind}: {result.faults}"


def _read(ground: Ground, _: Done) -> str | None:
    """Check that the counts are as planned, that all samples were compared and that the timeline is complete."""
    if (odd := _odd_result(ground, "measure")) is not None:
        return odd
    result = _result(ground)
    run, summary = _run(ground, result.run), result.summary
    if summary is None or summary.samples != run.samples or summary.steps != summary.steps_planned:
        return "the counts are not those planned"
    if run.workload.dataset.is_stored and summary.samples_verified != run.samples:
        return f"{summary.samples_verified} of {run.samples} samples were compared"
    try:
        with h5py.File(rundir.run_directory(ground.job, run.number, run.name) / rundir.TIMELINE) as file:
            if int(file["steps/samples"][...].sum()) != run.samples:
                return "the timeline has another count of samples"
    except (OSError, KeyError, RuntimeError) as fault:
        return f"the timeline cannot be read: {fault}"
    return None


OPERATIONS = list(_operations())
