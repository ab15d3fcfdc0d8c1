"""Plain reading of a dataset's files before a measured run: a reference for the rate of the run.

All requests use O_DIRECT, so the probe neither reads pages from memory nor leaves any there, and the cache is unchanged
for the run. Threads read different parts of the dataset, and each probe begins at another place.
"""

import mmap
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dlio_hpc.base import units
from dlio_hpc.base.errors import DlioError
from dlio_hpc.config.reader_keys import BLOCK
from dlio_hpc.core import clock, fio
from dlio_hpc.core.files import OpenFile, open_file
from dlio_hpc.dataset import dataset_folder, stored_parts
from dlio_hpc.files import filesystem, storage_proofs
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.probe_result import Pattern, ProbeRate, StorageProbe

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Bytes of a sequential request; maximum number of bytes of a random request.
_SEQUENTIAL, _RANDOM = 4 << 20, 1 << 20
# Files that a thread keeps open for random requests.
_OPEN = 16


class ThreadPart(NamedTuple):
    """Part of the dataset that a thread reads. run: run whose dataset it is. number: number of the thread among all
    `threads` of all ranks. shift: number of places by which the beginning of each part is shifted, so that each probe
    reads different bytes. Each file has `threads` places at which a part can begin.
    """

    run: Run
    number: int
    threads: int
    shift: int

    @property
    def begin(self) -> tuple[int, float]:
        """Number of the file in which the part begins, and the fraction of this file that is before the beginning of
        the part.
        """
        files = stored_parts.total(self.run.workload.dataset)
        first, place = divmod((self.number * files + self.shift) % (files * self.threads), self.threads)
        return first, place / self.threads if files < self.threads else 0.0

    def paths(self) -> Iterator[str]:
        """Yield the paths of all files of the dataset, beginning with the file in which the part begins."""
        files, (first, _) = stored_parts.total(self.run.workload.dataset), self.begin
        for number in range(first, first + files):
            yield dataset_folder.file_path(self.run.stored, number % files)


def probe(comm: "Intracomm", run: Run, seconds: float) -> StorageProbe | None:
    """Read the dataset of the run for `seconds` in each pattern, on all ranks at the same time. Return the result on
    rank 0, and None on other ranks. If storage fails, the result contains the fault.
    """
    from mpi4py import MPI

    threads = run.workload.reader.read_threads
    shift = comm.bcast(random.randrange(stored_parts.total(run.workload.dataset) * comm.size * threads))
    parts = [ThreadPart(run, comm.rank * threads + own, comm.size * threads, shift) for own in range(threads)]
    requests: dict[Pattern, int] = {"sequential": _SEQUENTIAL, "random": _random_request(run)}
    why_not = _unsuitable(run)
    rates: list[ProbeRate] = []
    for pattern, request in requests.items():
        if why_not is None:
            rate, why_not = _measured(comm, parts, pattern, request, seconds)
            rates.append(rate)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    own_parts = [part for parts in node.gather(parts) or [] for part in parts]
    without_fio = why_not
    for pattern, request in requests.items():
        if without_fio is None:
            rate, without_fio = _with_fio(comm, own_parts, pattern, request, seconds)
            rates.append(rate)
    node.Free()
    if comm.rank:
        return None
    valid = [rate for rate in rates if rate.tool == "loop" or without_fio is None]
    return StorageProbe(
        units.utc_now(fraction=True), comm.size * threads, valid if why_not is None else [], why_not, without_fio
    )


def _random_request(run: Run) -> int:
    """Return the bytes of a sample, rounded up to whole blocks and limited to 1 MiB."""
    return min(-(-run.workload.dataset.sample_bytes // BLOCK) * BLOCK, _RANDOM)


def _unsuitable(run: Run) -> str | None:
    """Return the reason why the file system of the dataset cannot be probed, or None if it can be probed."""
    kind = filesystem.of(Path(run.dataset)).kind
    if kind in storage_proofs.MEMORY:
        return f"the dataset is in memory ({kind})"
    proofs = storage_proofs.of(kind)
    return None if proofs.direct or proofs.count else f"{kind} may serve O_DIRECT reads from a cache"


def _measured(
    comm: "Intracomm", parts: list[ThreadPart], pattern: Pattern, request: int, seconds: float
) -> tuple[ProbeRate, str | None]:
    """Read with all threads of all ranks. Return two values: the rate; and the first fault of any rank, or None if no
    rank has a fault.
    """
    from mpi4py import MPI

    read: Callable[[ThreadPart, int, float], int] = _sequential if pattern == "sequential" else _at_random
    clock.assemble(comm)
    comm.Barrier()
    started = clock.now()
    fault, count = None, 0
    try:
        with ThreadPoolExecutor(len(parts)) as threads:
            count = sum(threads.map(lambda part: read(part, request, started + seconds), parts))
    except (DlioError, OSError) as hindrance:
        fault = str(hindrance)
    took = comm.allreduce(clock.now() - started, MPI.MAX)
    faults = [text for text in comm.allgather(fault) if text is not None]
    return _rate(pattern, "loop", request, comm.allreduce(count), took), faults[0] if faults else None


def _rate(pattern: Pattern, tool: str, request: int, count: int, seconds: float) -> ProbeRate:
    return ProbeRate(pattern, tool, request, count, seconds, count / seconds / 1e6 if seconds else 0.0)


def _sequential(part: ThreadPart, request: int, deadline: float) -> int:
    """Read files one after the other until the deadline. Return the number of bytes read."""
    count, skipped = 0, part.begin[1]
    with closing(mmap.mmap(-1, request)) as memory, memoryview(memory) as buffer:
        while clock.now() < deadline:
            before = count
            for path in part.paths():
                with closing(open_file(path, direct=True)) as file:
                    offset = _aligned(skipped * os.fstat(file.descriptor).st_size)
                    skipped = 0.0
                    while clock.now() < deadline and (got := os.preadv(file.descriptor, [buffer], offset)):
                        count += got
                        offset += got
                        if got % BLOCK:
                            break  # the end of the file
                if clock.now() >= deadline:
                    return count
            if count == before:
                break  # all files are empty
    return count


def _at_random(part: ThreadPart, request: int, deadline: float) -> int:
    """Read blocks at random offsets of some files until the deadline. Return the number of bytes read."""
    choose = random.Random(part.number + part.shift)
    numbers = [choose.randrange(stored_parts.total(part.run.workload.dataset)) for _ in range(_OPEN)]
    files: dict[int, OpenFile] = {}
    count = 0
    try:
        with closing(mmap.mmap(-1, request)) as memory, memoryview(memory) as buffer:
            while clock.now() < deadline:
                number = choose.choice(numbers)
                if number not in files:
                    files[number] = open_file(dataset_folder.file_path(part.run.stored, number), direct=True)
                size = os.fstat(files[number].descriptor).st_size
                offset = _aligned(choose.random() * max(size - request, 0))
                count += os.preadv(files[number].descriptor, [buffer], offset)
    finally:
        for file in files.values():
            file.close()
    return count


def _aligned(offset: float) -> int:
    return int(offset) // BLOCK * BLOCK


def _with_fio(
    comm: "Intracomm", parts: list[ThreadPart], pattern: Pattern, request: int, seconds: float
) -> tuple[ProbeRate, str | None]:
    """Let fio read on each node, with a thread for each part. Return two values: the rate of all nodes; and the reason
    why fio did not run on a node, or None if fio ran on all nodes. parts: on the first rank of a node, the parts of all
    ranks of the node; empty on other ranks.
    """
    from mpi4py import MPI

    jobs = [fio.FioThread(list(islice(part.paths(), _OPEN)), part.begin[1]) for part in parts]
    request = comm.allreduce(min([request, *(job.largest_request for job in jobs)]), MPI.MIN)
    clock.assemble(comm)
    mine = fio.run(jobs, pattern, request, seconds) if jobs else fio.Count("", 0, 0.0, None)
    counts = comm.allgather(mine)
    why_not = next((count.why_not for count in counts if count.why_not), None)
    version = next((count.version for count in counts if count.version), "")
    total, took = sum(count.bytes_read for count in counts), max(count.seconds for count in counts)
    return _rate(pattern, version, request, total, took), why_not
