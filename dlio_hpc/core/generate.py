"""Generate a dataset. Each rank writes a range of consecutive files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.core import auxiliary_files, clock, darshan_fd_gate, page_cache
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.rank_zero import on_root
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.dataset.rank_shares import share
from dlio_hpc.files import safe_folders
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.run_result import Generated

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def generate(comm: "Intracomm", run: Run, progress: Progress, stop: Stop) -> Generated:
    """Generate the dataset of the run, unless it already exists. The dataset is marked as complete only when all files
    are on storage (fsync).

    If rank 0 finds a fault in the folder, raise the error on every rank. If the time limit is near, raise Incomplete on
    rank 0.
    """
    started = clock.now()
    with dataset_folder.owned(run.stored) if comm.rank == 0 else nullcontext():
        clock.assemble(comm)  # rank 0 may wait for another job that generates the same dataset
        if on_root(comm, lambda: _prepared(run)):
            return Generated(True, run.dataset, run.workload.dataset.files, 0, clock.now() - started, None)
        started = clock.now()
        written = _write_share(comm.rank, comm.size, run, progress, stop)
        clock.barrier(comm)
        wall_s = clock.now() - started
        total: int = comm.allreduce(written)
        if comm.rank == 0:
            dataset_folder.mark(run.stored, complete=True)
    clock.assemble(comm)
    return Generated(False, run.dataset, run.workload.dataset.files, total, wall_s, total / wall_s / 1e6)


def _prepared(run: Run) -> bool:
    """Return whether the dataset is complete. If it is not, mark its folder as unfinished."""
    complete = dataset_folder.is_complete(run.stored)
    if not complete:
        dataset_folder.begin(run.stored)
    return complete


def _write_share(rank: int, ranks: int, run: Run, progress: Progress, stop: Stop) -> int:
    """Write the files of this rank. Return their total size on the file system in bytes."""
    layout = run.workload.dataset
    write = FORMATS[layout.format].write
    first, last = share(layout.files, ranks, rank) if layout.format != "null" else (0, 0)
    written = 0
    with dataset_folder.filled(run.stored) as folder:
        for side in dataset_folder.sides(layout) if rank == 0 else ():
            with _created(folder, dataset_folder.side_path(run.stored, side)) as file:
                auxiliary_files.write(file, side)
            written += side.file_size
        progress.begin(last - first, "files")
        for number in range(first, last):
            stop.check(
                f"rank 0 has written {number} of its {last} files; the next job that needs the dataset generates it "
                "again"
            )
            path = dataset_folder.file_path(run.stored, number)
            with _created(folder, path) as file:
                write(file, layout, number)
                size = os.fstat(file).st_size
            written += size
            progress.add(size)
            if run.workload.reader.drop_cache:
                page_cache.drop(path)
            progress.show(progress.done, progress.total, "files", f"{written / 1e6:.0f} MB written by rank 0")
    return written


@contextmanager
def _created(folder: int, path: str) -> Iterator[int]:
    """Create the file `path` in the open folder, and yield its descriptor for writing in a `with` block. Links are not
    followed. At the end of the block, the file is synced to disk (fsync).

    Under Darshan, the file is opened by its full path, because Darshan does not resolve names relative to a directory
    descriptor.

    Raise InfrastructureError if the file cannot be written. Raise ConfigError if `path` is already a link, a pipe or a
    folder.
    """
    try:
        name = path if darshan_fd_gate.is_watched() else os.path.basename(path)
        descriptor = safe_folders.created(folder, name)
        try:
            yield descriptor
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as fault:
        raise InfrastructureError(f"cannot write {path}: {fault.strerror or fault}") from fault
