"""Loader of an inference workload. An epoch is one batch: the rank serves the requests of its users."""

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.core import clock, kv_blocks, kv_serving, kv_summary, output_folder
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.kv_record import InferenceRecord
from dlio_hpc.core.kv_serving import KVServing, Served
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.dataset import kv_requests, kv_search, kv_tiers
from dlio_hpc.dataset.kv_search import UserCount
from dlio_hpc.dataset.kv_tiers import KVPlan
from dlio_hpc.dataset.sample_layout import Place, Places
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Folder of the blocks in the output folder, and the number of blocks of a rank in the content stream of an epoch.
FOLDER, _BLOCKS = "kv", 1 << 32


class InferenceLoader:
    """Loader of an inference workload. Blocks are in the output folder of the run, which becomes the working directory
    of the rank until close(). stop: if the time limit of the job is near, the epoch is left incomplete.
    """

    def __init__(self, comm: "Intracomm", run: Run, keys: InferenceKeys, stop: Stop | None = None) -> None:
        self._comm, self._keys, self._stop = comm, keys, stop
        self._planned: dict[int, KVPlan] = {}
        self._tries: list[UserCount] = []
        self._epoch, self._home = 0, os.getcwd()
        output_folder.enter_together(comm, run.outputs)

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        """Yield the batch of an epoch. Blocks that exist before are written first, and are not measured. The files are
        removed after the batch.
        """
        folder = f"{FOLDER}/{self._epoch}/{self._comm.rank}"
        if self._comm.rank == 0:  # on some file systems, two nodes cannot make a folder at the same time
            self._try(os.makedirs, os.path.dirname(folder))
        clock.assemble(self._comm)
        try:
            blocks = kv_blocks.opened(folder, self._keys)
        except OSError as fault:
            raise kv_serving.fault_of("create", os.path.abspath(folder), fault, self._keys) from fault
        keys = self._keys_of_epoch()
        position = (self._epoch * self._comm.size + self._comm.rank) * _BLOCKS
        serving = KVServing(keys, self._plan(keys), blocks, position, self._cuts)
        serving.prepare()
        clock.assemble(self._comm)  # the requests of all ranks begin to arrive at the same time
        served = serving.serve()
        yield Batch(
            Places(np.zeros((len(Place._fields), 1), np.int64)),
            np.zeros((1, 0), np.uint8),
            _tally(served, keys.block_bytes),
        )
        if served is not None and keys.search is not None:
            self._judge(served.record, keys)
        self._try(blocks.close)
        self._epoch += 1

    def close(self) -> None:
        os.chdir(self._home)

    def _keys_of_epoch(self) -> InferenceKeys:
        """Return the keys of the epoch. A search chooses the number of users."""
        search = self._keys.search
        if search is None:
            return self._keys
        return structs.replace(self._keys, users=kv_search.following(self._keys.users, search.most, self._tries))

    def _plan(self, keys: InferenceKeys) -> KVPlan:
        """Return the plan of an epoch. Epochs with the same number of users have the same plan."""
        if keys.users not in self._planned:
            requests = kv_requests.of_rank(keys, self._comm.size, self._comm.rank)
            self._planned = {keys.users: kv_tiers.plan(keys, requests)}
        return self._planned[keys.users]

    def _judge(self, record: InferenceRecord, keys: InferenceKeys) -> None:
        """Note whether the requests of all ranks were served in time. All ranks come to the same result."""
        columns, histograms = zip(*self._comm.allgather((record.columns, record.histograms)), strict=True)
        whole = structs.replace(keys, search=None)
        summary = kv_summary.of_ranks(np.stack(columns)[:, None], np.stack(histograms)[:, None], whole)
        assert summary is not None
        self._tries.append(UserCount(keys.users, summary.is_in_time))

    def _cuts(self) -> bool:
        return self._stop is not None and self._stop.cuts()

    def _try(self, operation: Callable[..., object], *arguments: str) -> None:
        """Make or remove folders."""
        try:
            operation(*arguments)
        except OSError as fault:
            path = os.path.abspath(os.fsdecode(fault.filename or FOLDER))
            raise kv_serving.fault_of("use", path, fault, self._keys) from fault


def _tally(served: Served | None, size: int) -> Tally:
    """Return the counts of an epoch. served: None if it was left incomplete. size: bytes of a block."""
    tally = Tally()
    if served is not None:
        tally.served = served.record
        tally.starts += [began for began, _ in served.reads]
        tally.ends += [ended for _, ended in served.reads]
        tally.count_all([size] * len(served.reads))
    if not tally.starts:
        tally.add(clock.now(), 0)  # a step without a dataset counts a read of no bytes
    return tally
