"""Loaders, which deliver batches to the training loop."""

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from dlio_hpc.config.workload import Train
from dlio_hpc.core import darshan_workers
from dlio_hpc.core.formats import format_table
from dlio_hpc.core.loaders.loader import Loader
from dlio_hpc.core.loaders.memory import MemoryLoader
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.dataset.rank_shares import steps_per_epoch
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def open_loader(comm: "Intracomm", run: Run, ranks_on_node: int, whole: bool = False) -> Loader:
    """Return the loader that the run's workload selects. whole: whether the rows of a batch must hold whole samples,
    even if their contents are not compared.
    """
    workload = run.workload
    if workload.reader.load == "memory":
        return _in_memory(comm, run, ranks_on_node)
    paths = partial(dataset_folder.file_path, run.stored)
    if workload.reader.loader == "tensorflow":
        from dlio_hpc.core.loaders.tensorflow.tensorflow_loader import TensorFlowLoader

        return TensorFlowLoader(workload, paths, whole or workload.reader.verify_content == "all")
    if workload.reader.loader == "pytorch":
        from dlio_hpc.core.loaders.pytorch import PyTorchLoader

        return PyTorchLoader(workload, paths, darshan_workers.of_rank(comm.rank, workload) if run.darshan else None)
    return NativeLoader(workload, format_table.reader(workload, paths, comm), run.steps_per_epoch)


def _in_memory(comm: "Intracomm", run: Run, ranks_on_node: int) -> Loader:
    """Return a loader that reads all samples of the rank once, including those that the steps of an epoch leave out,
    and keeps them in memory.
    """
    keys = structs.replace(run.workload.reader, load="on_demand", drop_last=False)
    whole = structs.replace(run.workload, reader=keys, train=Train())
    steps = steps_per_epoch(whole, comm.size)
    loader = open_loader(comm, structs.replace(run, workload=whole, steps_per_epoch=steps), ranks_on_node, whole=True)
    return MemoryLoader(run.workload, loader, steps, ranks_on_node)
