"""Loader of a metadata workload. Each batch is a phase: the rank makes its operations on files and directories."""

import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.config.metadata_keys import MetadataKeys, maker
from dlio_hpc.core import clock, distributions, metadata_operations, output_folder
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.io_counters import PhaseRecord, Tally
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.dataset.rank_shares import share
from dlio_hpc.dataset.sample_layout import Place, Places
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.files import filesystem
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.phases import Phase

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Number of operations between two looks at the clock.
_CHUNK = 256


class MetadataLoader:
    """Loader of a metadata workload. The operations are made in the output folder of the run, which becomes the working
    directory of the rank until close(): paths are then short, and no other user can replace a folder on the way.
    ranks_on_node: number of ranks on a node. stop: if the time limit of the job is near, the phase is left incomplete.
    """

    def __init__(
        self, comm: "Intracomm", run: Run, keys: MetadataKeys, ranks_on_node: int, stop: Stop | None = None
    ) -> None:
        self._comm, self._keys, self._ranks_on_node, self._stop = comm, keys, ranks_on_node, stop
        self._root, self._epoch = run.outputs, 0
        self._home = os.getcwd()
        self._made: dict[Phase, list[int]] = {}
        self._count = 0  # operations of this rank in the phase before
        output_folder.enter_together(comm, self._root)

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        """Yield a batch after each phase. The folders are made before the first phase, and are not measured."""
        self._made = {}
        for place, phase in enumerate(self._keys.order):
            if place:
                before = self._keys.order[place - 1]
                if before in ("mkdir", "create", "write"):
                    self._made[before] = self._comm.allgather(self._count)
            else:
                self._make_folders()
            tally = Tally()
            tally.phase = self._phase(place, phase)
            stamp = clock.now()
            tally.add(stamp, 0)  # a step without a dataset counts a read of no bytes
            yield Batch(Places(np.zeros((len(Place._fields), 1), np.int64)), np.zeros((1, 0), np.uint8), tally)
        self._epoch += 1

    def close(self) -> None:
        os.chdir(self._home)

    def _make_folders(self) -> None:
        """Make the folders of the epoch, level by level. One rank makes a folder that several ranks use, and the others
        wait: on GlusterFS, a folder that two nodes make at the same time may be a stale file handle to one of them.
        """
        is_own, rank = self._keys.folders == "own", self._comm.rank
        clock.assemble(self._comm)
        shared = f"{self._epoch}" if is_own else self._folder(0, 0, level=0)
        self._make([shared] if rank == 0 else [])
        if is_own:
            self._make(self._folder(rank, leaf) for leaf in range(self._keys.leaves))
            return
        for level in range(1, self._keys.depth + 1):
            numbers = range(self._keys.width**level)
            mine = numbers[slice(*share(len(numbers), self._comm.size, rank))]
            self._make(self._folder(0, number, level) for number in mine)

    def _make(self, folders: Iterable[str]) -> None:
        """Make folders, and wait until all ranks have made theirs."""
        try:
            for folder in folders:
                os.makedirs(folder, exist_ok=True)
        except OSError as fault:
            raise self._fault("mkdir", fault) from fault
        clock.assemble(self._comm)

    def _phase(self, place: int, phase: Phase) -> PhaseRecord:
        """Make the operations of a phase, until the time limit of the phase or of the job."""
        owner = self._owner(phase)
        operations, took, limit = metadata_operations.of(phase, self._keys), array("d"), self._keys.time_limit
        began = clock.now()
        try:
            for paths in self._paths(place, phase, owner):
                operations(paths, took)
                if limit is not None and phase != "rename" and clock.now() - began >= limit:
                    break
                if self._stop is not None and self._stop.cuts():
                    break
        except OSError as fault:
            raise self._fault(phase, fault) from fault
        ended = clock.now()
        self._count = len(took)
        seconds = np.frombuffer(took) if len(took) else np.empty(0)
        longest = float(seconds.max(initial=0.0))
        return PhaseRecord(began, ended, len(took), distributions.histogram(seconds), float(seconds.sum()), longest)

    def _owner(self, phase: Phase) -> int:
        """Return the rank on whose files this rank works. The ranks of a node have consecutive numbers: core/run.py
        calls a run with another placement invalid.
        """
        return (self._comm.rank + self._keys.distance(phase) * self._ranks_on_node) % self._comm.size

    def _worker(self, phase: Phase, owner: int) -> int:
        """Return the rank that works on the files of a rank in a phase."""
        return (owner - self._keys.distance(phase) * self._ranks_on_node) % self._comm.size

    def _paths(self, place: int, phase: Phase, owner: int) -> Iterator[Sequence[str]]:
        """Yield the paths of the operations of a phase, some at a time."""
        if phase == "readdir":
            folders = [self._folder(owner, leaf) for leaf in range(self._keys.leaves)]
            yield from (folders[first : first + _CHUNK] for first in range(0, len(folders), _CHUNK))
            return
        making = maker(phase)
        count = self._keys.files if phase == making else self._made[making][owner]
        if phase == "open_read_close" and "write" in self._keys.order[:place]:
            count = self._made["write"][self._worker("write", owner)]
        name = "d" if making == "mkdir" else "f"
        is_renamed = "rename" in self._keys.order[:place] and making == "create"
        end = f".{owner}{metadata_operations.RENAMED if is_renamed else ''}"
        folders = [f"{self._folder(owner, leaf)}/{name}" for leaf in range(self._keys.leaves)]
        leaves, files = self._keys.leaves, self._keys.files
        order = np.arange(count, dtype=np.int32)
        is_in_order = phase == making or (phase == "write" and self._keys.time_limit is not None)
        if self._keys.shuffle and not is_in_order:
            np.random.default_rng((self._epoch, place, owner)).shuffle(order)
        for first in range(0, count, _CHUNK):
            numbers = order[first : first + _CHUNK].tolist()
            yield [f"{folders[number * leaves // files]}{number}{end}" for number in numbers]

    def _folder(self, rank: int, number: int, level: int | None = None) -> str:
        """Return the path of a folder. rank: rank whose folder it is. number: number of the folder on its level.
        level: number of levels above it in the tree; None: those of the lowest level.
        """
        top = f"{self._epoch}/{rank if self._keys.folders == 'own' else 'shared'}"
        levels = range(self._keys.depth if level is None else level)
        digits = [str(number // self._keys.width**above % self._keys.width) for above in levels]
        return "/".join([top, *reversed(digits)])

    def _fault(self, phase: Phase, fault: OSError) -> InfrastructureError:
        """Return the error of an operation. The paths of operations are relative to the output folder."""
        place = os.path.join(self._root, os.fsdecode(fault.filename or ""))
        return InfrastructureError(f"{phase}: cannot use {place}: {filesystem.reason(fault, '.')}")
