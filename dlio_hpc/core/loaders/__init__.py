"""Loaders: how batches come to the training loop."""

from functools import partial
from typing import TYPE_CHECKING

from dlio_hpc.core import dataset
from dlio_hpc.core.formats import FORMATS
from dlio_hpc.core.loaders.loader import Loader
from dlio_hpc.core.loaders.memory import MemoryLoader
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def open_loader(comm: "Intracomm", run: Run, ranks_on_node: int) -> Loader:
    """The one that the run's workload asks for."""
    workload = run.workload
    paths = partial(dataset.file_path, run)
    loader: Loader
    if workload.reader.loader == "tensorflow":
        from dlio_hpc.core.loaders.tensorflow import TensorFlowLoader

        loader = TensorFlowLoader(workload, paths)
    elif workload.reader.loader == "pytorch":
        from dlio_hpc.core.loaders.pytorch import PyTorchLoader

        loader = PyTorchLoader(workload, paths)
    else:
        reader = FORMATS[workload.dataset.format].reader(workload, paths, comm)
        loader = NativeLoader(workload, reader, run.steps_per_epoch)
    return MemoryLoader(workload, loader, ranks_on_node) if workload.reader.load == "memory" else loader
