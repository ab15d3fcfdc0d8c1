"""Loaders, which deliver batches to the training loop."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from dlio_hpc.config.reader_keys import LoaderName
from dlio_hpc.config.workload import Train, Workload
from dlio_hpc.core import darshan_workers
from dlio_hpc.core.darshan_workers import WorkerLogs
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.formats import format_table
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.loaders.inference import InferenceLoader
from dlio_hpc.core.loaders.loader import Loader
from dlio_hpc.core.loaders.memory import MemoryLoader
from dlio_hpc.core.loaders.metadata import MetadataLoader
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.dataset.rank_shares import steps_per_epoch
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Inputs(NamedTuple):
    """Data from which a loader is created. paths: function that returns the path of the file with a given number.
    steps: steps of an epoch. comm: communicator for collective access, or None. whole: whether the rows of a batch must
    hold whole samples. worker_logs: Darshan's logs of worker processes, or None.
    """

    workload: Workload
    paths: Paths
    steps: int
    comm: "Intracomm | None" = None
    whole: bool = False
    worker_logs: WorkerLogs | None = None


def _native(inputs: Inputs) -> Loader:
    reader = format_table.reader(inputs.workload, inputs.paths, inputs.comm)
    return NativeLoader(inputs.workload, reader, inputs.steps)


def _tensorflow(inputs: Inputs) -> Loader:
    from dlio_hpc.core.loaders.tensorflow.tensorflow_loader import TensorFlowLoader

    whole = inputs.whole or inputs.workload.reader.verify_content == "all"
    return TensorFlowLoader(inputs.workload, inputs.paths, whole)


def _pytorch(inputs: Inputs) -> Loader:
    from dlio_hpc.core.loaders.pytorch import PyTorchLoader

    return PyTorchLoader(inputs.workload, inputs.paths, inputs.worker_logs)


# Frameworks are imported when a loader that needs them is made.
LOADERS: dict[LoaderName, Callable[[Inputs], Loader]] = {
    "native": _native,
    "tensorflow": _tensorflow,
    "pytorch": _pytorch,
}


def open_loader(
    comm: "Intracomm", run: Run, ranks_on_node: int, whole: bool = False, stop: Stop | None = None
) -> Loader:
    """Return the loader that the run's workload selects. whole: whether the rows of a batch must hold whole samples,
    even if their contents are not compared. stop: check for the time limit during long steps.
    """
    workload = run.workload
    if workload.metadata is not None:
        return MetadataLoader(comm, run, workload.metadata, ranks_on_node, stop)
    if workload.inference is not None:
        return InferenceLoader(comm, run, workload.inference, stop)
    if workload.reader.load == "memory":
        return _in_memory(comm, run, ranks_on_node)
    paths = dataset_folder.paths(run.stored)
    logs = darshan_workers.of_rank(comm.rank, workload) if run.darshan else None
    return LOADERS[workload.reader.loader](Inputs(workload, paths, run.steps_per_epoch, comm, whole, logs))


def _in_memory(comm: "Intracomm", run: Run, ranks_on_node: int) -> Loader:
    """Return a loader that reads all samples of the rank once and keeps them in memory. It also reads samples that the
    steps of an epoch leave out.
    """
    keys = structs.replace(run.workload.reader, load="on_demand", drop_last=False)
    whole = structs.replace(run.workload, reader=keys, train=Train())
    steps = steps_per_epoch(whole, comm.size)
    loader = open_loader(comm, structs.replace(run, workload=whole, steps_per_epoch=steps), ranks_on_node, whole=True)
    return MemoryLoader(run.workload, loader, steps, ranks_on_node)
