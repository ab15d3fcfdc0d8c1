"""Generate a dataset. Each rank writes consecutive files, and creates the subfolders that hold them."""

import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.core import auxiliary_files, clock, darshan_fd_gate, page_cache, write_back
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.files import write_all
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.rank_zero import on_root
from dlio_hpc.dataset import dataset_folder, dataset_space, dataset_tree, stored_parts, written_files
from dlio_hpc.dataset.written_files import Span
from dlio_hpc.files import filesystem, safe_folders
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.run_result import Generated

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Size in bytes from which each file is synced by itself.
_LARGE = 1 << 20
# Seconds and bytes after which a rank records the files that it has written. A sync of more bytes would take so long
# that rank 0 misses the warning before the time limit.
_RECORD_S, _RECORD_BYTES = 10.0, 64 << 20
# Number of files that are written between two looks at the clock.
_MOST_FILES = 256


def generate(comm: "Intracomm", run: Run, progress: Progress, stop: Stop) -> Generated:
    """Generate the dataset of the run, unless it already exists. The dataset is marked as complete only when all files
    are on storage (fsync or syncfs).

    If rank 0 finds a fault in the folder, raise the error on every rank. If the time limit is near, raise Incomplete on
    rank 0.
    """
    started = clock.now()
    with dataset_folder.owned(run.stored) if comm.rank == 0 else nullcontext():
        clock.assemble(comm)  # rank 0 may wait for another job that generates the same dataset
        written = on_root(comm, lambda: _prepared(run, comm.size))
        if written is None:
            return Generated(
                True, run.dataset, stored_parts.total(run.workload.dataset), 0, clock.now() - started, None
            )
        started = clock.now()
        missing = _missing(comm, run, written)
        made = _write_share(comm.rank, comm.size, run, missing, progress, stop)
        clock.barrier(comm)
        wall_s = clock.now() - started
        files, total = comm.allreduce(made.files), comm.allreduce(made.size)
        if comm.rank == 0:
            _complete(run)
    clock.assemble(comm)
    return Generated(False, run.dataset, files, total, wall_s, total / wall_s / 1e6 if total else None)


def _complete(run: Run) -> None:
    """Remove the records of the generation, and mark the dataset as complete."""
    with _written_to(run):
        with dataset_folder.filled(run.stored) as folder:
            written_files.clear(folder)
        dataset_folder.mark(run.stored, complete=True)


@contextmanager
def _written_to(run: Run) -> Iterator[None]:
    """Raise InfrastructureError, with the path and the reason, if the dataset's folder cannot be written to."""
    try:
        yield
    except OSError as fault:
        raise InfrastructureError(f"cannot write {filesystem.named(fault, run.stored.folder)}") from fault


def _prepared(run: Run, ranks: int) -> list[Span] | None:
    """Return None if the dataset is complete. If it is not, mark its folder as unfinished, and return the sample files
    that an interrupted generation left on storage, according to its records.
    """
    if dataset_folder.is_complete(run.stored):
        return None
    dataset_space.begin(run.stored, ranks)
    with dataset_folder.filled(run.stored) as folder:
        return written_files.recorded(folder)


def _missing(comm: "Intracomm", run: Run, written: list[Span]) -> list[Span]:
    """Return the sample files to write. written: files that are recorded. Each rank looks at some of them, because they
    may have been removed or changed since. All ranks must call this.
    """
    lost: list[int] = []
    if written:
        with dataset_folder.filled(run.stored) as folder:
            for span in written_files.of_rank(written, comm.size, comm.rank):
                lost += _lost(folder, run, span)
    every_lost = sorted(itertools.chain(*comm.allgather(lost)))
    kept = written_files.without(written, every_lost)
    if every_lost:  # a rank may be killed while it writes a lost file again
        on_root(comm, lambda: _record_only(run, kept))
    return written_files.missing(dataset_folder.file_count(run.workload.dataset), kept)


def _lost(folder: int, run: Run, span: Span) -> Iterator[int]:
    """Yield the numbers of recorded files that are missing, or that do not have the size that the format gives them.
    Raise ConfigError if one of them is not a regular file or is of another user. folder: descriptor of the dataset's
    folder.
    """
    layout = run.workload.dataset
    for inner, first, end in dataset_folder.blocks(layout, *span, _MOST_FILES):
        with ExitStack() as opened:
            try:
                leaf = opened.enter_context(dataset_tree.opened(folder, inner))
            except FileNotFoundError:
                yield from range(first, end)
                continue
            except OSError as fault:
                raise dataset_tree.unusable(folder, inner, fault) from fault
            yield from _lost_in(leaf, run, range(first, end))


def _lost_in(folder: int, run: Run, numbers: range) -> Iterator[int]:
    """Yield the numbers of lost files; see _lost(). folder: descriptor of the folder of these files."""
    path, is_whole = dataset_folder.paths(run.stored), _whole(run.workload.dataset)
    for number in numbers:
        where = path(number)
        try:
            status = os.stat(os.path.basename(where), dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{where} is a link or not a regular file; nothing was written; remove it")
            _require_mine(status, where, folder)
            if not is_whole(where, number, status):
                yield number
        except FileNotFoundError:
            yield number
        except OSError as fault:
            raise InfrastructureError(f"cannot read {of_system(fault, where)}") from fault


def _whole(layout: Dataset) -> Callable[[str, int, os.stat_result], bool]:
    """Return a function that takes the path, the number and the status of a file, and returns whether the file has the
    size that the format gives it.
    """
    made = FORMATS[layout.format]
    if made.sizes is not None:
        size = made.sizes(layout)
        return lambda path, number, status: status.st_size == size(number)
    return lambda path, number, status: made.fault(path, layout, number, True) is None


def _require_mine(status: os.stat_result, path: str, folder: int) -> None:
    """Raise ConfigError if a file is of another user, unless its folder is shared with a group. folder: descriptor of
    the folder.
    """
    owner = os.fstat(folder).st_uid
    if status.st_uid in (os.geteuid(), owner) or safe_folders.is_shared(folder, safe_folders.held(folder) / ".."):
        return
    raise ConfigError(
        f"{path} is of user {status.st_uid}, but its folder is of user {owner}; the file was not written; remove it, "
        "or choose another --data"
    )


def _record_only(run: Run, kept: list[Span]) -> None:
    """Replace the records of the generation by records of the files that are still there."""
    with _written_to(run), dataset_folder.filled(run.stored) as folder:
        written_files.replace(folder, kept)


class _Written(NamedTuple):
    """Files that a rank wrote. files: number of sample files. size: size of all files on the file system in bytes."""

    files: int
    size: int


def _write_share(rank: int, ranks: int, run: Run, missing: list[Span], progress: Progress, stop: Stop) -> _Written:
    """Write the files of this rank. missing: sample files that all ranks together write."""
    layout = run.workload.dataset
    with _written_to(run), dataset_folder.filled(run.stored) as folder:
        sides = dataset_folder.sides(layout) if rank == 0 else []
        for side in sides:
            with _created(folder, dataset_folder.side_path(run.stored, side), is_synced=True) as file:
                auxiliary_files.write(file, side)
        spans = list(written_files.of_rank(missing, ranks, rank))
        progress.begin(sum(span.end - span.first for span in spans), "files")
        size = sum(_write_span(folder, run, span, progress, stop) for span in spans)
    return _Written(progress.done, size + sum(side.file_size for side in sides))


def _write_span(folder: int, run: Run, span: Span, progress: Progress, stop: Stop) -> int:
    """Write consecutive sample files, and record those that are on storage. Return their total size in bytes. folder:
    descriptor of the dataset's folder.
    """
    layout, size = run.workload.dataset, 0
    recorder = _Recorder(folder, span.first, is_synced_together=_is_synced_together(run))
    most = max(1, min(_MOST_FILES, _LARGE // max(1, _file_bytes(layout))))
    made = ""
    for path, first, end in dataset_folder.blocks(layout, *span, most):
        stop.check(
            f"rank 0 has written {progress.done} of its {progress.total} files; the next job that needs the dataset "
            "continues the generation"
        )
        if path != made:
            dataset_tree.make(folder, path)
            made = path
        with dataset_tree.opened(folder, path) as inner:
            written = _write_files(inner, run, range(first, end), not recorder.is_synced_together)
        size += written
        progress.add(written, end - first)
        recorder.add(end - first, written)
        if progress.is_due(progress.done, progress.total):
            rest = f"{progress.bytes / 1e6:.0f} MB written by rank 0"
            progress.show(progress.done, progress.total, "files", rest)
    recorder.save()
    return size


def _write_files(folder: int, run: Run, numbers: range, is_synced: bool) -> int:
    """Write consecutive sample files to an open folder. Return their total size in bytes."""
    layout = run.workload.dataset
    contents = None if _is_large(layout) else FORMATS[layout.format].contents
    if contents is None:
        return sum(_write_file(folder, run, number, is_synced) for number in numbers)
    return _write_small(folder, run, numbers, contents(layout, numbers.start, numbers.stop), is_synced)


def _write_file(folder: int, run: Run, number: int, is_synced: bool) -> int:
    """Write the sample file `number` to an open folder. Return its size in bytes."""
    layout, path = run.workload.dataset, dataset_folder.file_path(run.stored, number)
    with _created(folder, path, is_synced) as file:
        FORMATS[layout.format].write(file, layout, number)
        size = os.fstat(file).st_size
    if run.workload.reader.drop_cache:
        page_cache.drop(path)
    return size


def _write_small(folder: int, run: Run, numbers: range, contents: Iterable[memoryview], is_synced: bool) -> int:
    """Write consecutive sample files to an open folder, given their contents. Return their total size in bytes. Runs
    that drop the page cache drop these files before they read them. The loop has as few statements as possible, because
    creating a file in memory takes only a few microseconds.
    """
    layout, size = run.workload.dataset, 0
    path = os.path.join(run.stored.folder, dataset_folder.file_name(layout, numbers.start))
    above = f"{os.path.dirname(path)}/"
    names = dataset_folder.base_names(layout, numbers)
    prefix = above if darshan_fd_gate.is_watched() else ""
    try:
        for name, data in zip(names, contents, strict=True):
            file, is_new = safe_folders.writable(folder, prefix + name)
            try:
                if not is_new:
                    _require_mine(os.fstat(file), above + name, folder)
                write_all(file, data)
                if not is_new:
                    os.ftruncate(file, len(data))
                if is_synced:
                    os.fsync(file)
            finally:
                os.close(file)
            size += len(data)
    except OSError as fault:
        raise InfrastructureError(f"cannot write {above}{name}: {filesystem.reason(fault, folder)}") from fault
    return size


def _is_large(layout: Dataset) -> bool:
    """Return whether the files are so large that each is synced by itself."""
    return _file_bytes(layout) >= _LARGE


def _file_bytes(layout: Dataset) -> int:
    """Return the mean bytes of samples in a stored file, before compression. Small parts of large containers do not
    matter, unless the container is a folder of many files.
    """
    parts = stored_parts.of(layout)
    return layout.bytes_of(layout.samples_per_file) // (parts.number if parts.folder else 1)


def _is_synced_together(run: Run) -> bool:
    """Return whether the files are synced together and not one by one. A sync of each file takes longer than writing it
    if files are small. syncfs(2) is reliable on local file systems only.
    """
    is_reliable = write_back.reports_faults_of_file_system()
    return (
        is_reliable
        and not _is_large(run.workload.dataset)
        and filesystem.of(Path(run.stored.folder)).kind in filesystem.LOCAL
    )


class _Recorder:
    """Recorder of the sample files of a rank that are on storage. It records them every ten seconds. folder: descriptor
    of the dataset's folder. first: number of the first file. is_synced_together: whether add() is called before a file
    is synced.
    """

    def __init__(self, folder: int, first: int, is_synced_together: bool) -> None:
        self.is_synced_together = is_synced_together
        self._folder = folder
        self._written = self._recorded = Span(first, first)
        self._due = clock.now() + _RECORD_S
        self._unsynced = 0

    def add(self, count: int, size: int) -> None:
        """Note that the next `count` files are written, which have `size` bytes together."""
        self._written = Span(self._written.first, self._written.end + count)
        self._unsynced += size
        if clock.now() >= self._due or self._unsynced >= _RECORD_BYTES:
            self.save()

    def save(self) -> None:
        """Sync the files if necessary, and record them. If the sync fails, no further files are recorded, because the
        system reports a failed write only once.
        """
        if self.is_synced_together:
            try:
                write_back.sync_file_system(self._folder)
            except OSError:
                self._written = self._recorded
                raise
        written_files.record(self._folder, self._written, self._recorded)
        self._recorded, self._due, self._unsynced = self._written, clock.now() + _RECORD_S, 0


@contextmanager
def _created(folder: int, path: str, is_synced: bool) -> Iterator[int]:
    """Create the file `path` in the open folder, and yield its descriptor for writing in a `with` block. Links are not
    followed. is_synced: whether the file is synced to disk (fsync) at the end of the block.

    Under Darshan, the file is opened by its full path, because Darshan does not resolve names relative to a directory
    descriptor.

    Raise InfrastructureError if the file cannot be written. Raise ConfigError if `path` is already a link, a pipe, a
    folder, or a file of another user.
    """
    try:
        name = path if darshan_fd_gate.is_watched() else os.path.basename(path)
        descriptor = safe_folders.created(folder, name)
        try:
            _require_mine(os.fstat(descriptor), path, folder)
            yield descriptor
            if is_synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as fault:
        raise InfrastructureError(f"cannot write {path}: {filesystem.reason(fault, folder)}") from fault
