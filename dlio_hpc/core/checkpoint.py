"""Checkpoints: write model state while training waits or continues, and read it after the last step. The time of
checkpoints is reported separately from the time of the steps.
"""

import math
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from dlio_hpc.config.checkpoint_keys import Checkpoint, Mode
from dlio_hpc.core import clock, page_cache
from dlio_hpc.core.checkpoint_modes import keras_weights, posix, torch_distributed, torch_files
from dlio_hpc.core.checkpoint_modes.parts import CheckpointPart, File, Restored, Saved
from dlio_hpc.core.output_folder import OutputFolder
from dlio_hpc.dataset import checkpoint_files
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Columns of the record of a written checkpoint. EPOCH: index of the epoch. STEPS: number of its steps that were done.
# PAUSE_S: seconds that training waited. OWN_S: seconds in addition to the pause in which dlio-hpc made contents,
# compared those that it read back, or waited for ranks that did so. WRITE_S, FSYNC_S, BACK_S, SIZE: the fields of Saved
# (checkpoint_modes/parts.py).
EPOCH, STEPS, PAUSE_S, OWN_S, WRITE_S, FSYNC_S, BACK_S, SIZE = range(8)
COLUMNS = 8
# Distance in bytes between the beginnings of two files in the content stream; larger than any file.
_STRIDE = 1 << 44


class _Library(Protocol):
    """The functions of a mode: a module of checkpoint_modes, or its MODE."""

    def start(self, comm: "Intracomm | None", keys: Checkpoint, /) -> Any: ...
    def stop(self, framework: Any, /) -> None: ...
    def names(self, part: CheckpointPart, /) -> list[str]: ...
    def write(self, part: CheckpointPart, /) -> Saved: ...
    def read(self, part: CheckpointPart, compares: bool, /) -> Restored: ...


_LIBRARIES: dict[Mode, _Library] = {
    "posix": posix,
    "torch": torch_files.MODE,
    "torch_distributed": torch_distributed,
    "keras": keras_weights.MODE,
}


class Checkpoints:
    """The checkpoints of a rank. The newest `keep` checkpoints of a run stay on storage. ranks: number of ranks.
    distance: number of ranks between the rank that writes a file and the rank that reads it after the last step. comm:
    communicator of all ranks; None if the mode needs none.

    write_ended: time at which this rank's last write ended, fsync included; NaN if the rank has written nothing. own_s:
    seconds of the last call of save() or begin() in which dlio-hpc made or compared contents, or waited until contents
    were made or compared.
    """

    def __init__(
        self, run: Run, keys: Checkpoint, rank: int, ranks: int = 1, distance: int = 0, comm: "Intracomm | None" = None
    ) -> None:
        self._keys = keys
        self._outputs = OutputFolder(run.outputs)
        self._rank, self._ranks = rank, ranks
        self._other = (rank + distance) % ranks
        self._every = keys.every_steps or run.steps_per_epoch
        self._library = _LIBRARIES[keys.mode]
        self._framework = self._library.start(comm, keys)
        self._count = 0
        self.write_ended = math.nan
        self.own_s = 0.0
        self._writer = ThreadPoolExecutor(1, "checkpoint")  # starts a thread when begin() is called
        self._pending: Future[Saved] | None = None

    def is_due(self, steps: int) -> bool:
        """Return whether a checkpoint is due after `steps` steps of the run in total."""
        return steps % self._every == 0

    def save(self) -> Saved:
        """Write this rank's files of a checkpoint, and read them back if the workload asks for it. Return the times and
        the bytes written. Raise InfrastructureError if the file system fails, and InvalidRun if the contents read back
        differ from the contents written.
        """
        self._count += 1
        saved = self._save(self._count)
        self.own_s = saved.own_s
        return saved

    def begin(self) -> "Future[Saved]":
        """Write this rank's files of a checkpoint while training continues. Return a future of the times and the bytes
        written. Wait until the previous checkpoint is written, and raise its error if writing failed.
        """
        self.finish()
        self._count += 1
        self._pending = self._writer.submit(self._save, self._count)
        return self._pending

    def finish(self) -> None:
        """Wait until the last checkpoint is written. Raise its error if writing failed."""
        started = clock.now()
        saved = Saved() if self._pending is None else self._pending.result()
        self.own_s = min(clock.now() - started, saved.own_s)

    def _save(self, number: int) -> Saved:
        part = self._part(self._rank, number)
        saved = self._library.write(part)
        if saved.bytes:
            self.write_ended = clock.now()
        if not self._keys.read_back:
            return saved
        started = clock.now()
        self._drop(number)
        read_s = self._library.read(part, True).read_s
        return saved._replace(read_s=read_s, own_s=saved.own_s + clock.now() - started - read_s)

    def restorable(self) -> list[int]:
        """Return the numbers of the checkpoints on storage, the oldest first."""
        return list(range(max(1, self._count - self._keys.keep + 1), self._count + 1))

    def paths(self, number: int) -> list[str]:
        """Return the paths of the files of a checkpoint that this rank reads."""
        return [self._outputs.path(name) for name in self._library.names(self._part(self._other, number))]

    def forget(self) -> None:
        """Drop the files that this rank has written from the page cache of its node."""
        for number in self.restorable():
            self._drop(number)

    def _drop(self, number: int) -> None:
        for name in self._library.names(self._part(self._rank, number)):
            page_cache.drop(self._outputs.path(name))

    def restore(self, number: int) -> Restored:
        """Read this rank's files of a checkpoint. Raise InfrastructureError if the file system fails. Raise InvalidRun
        if a file is too short, if it cannot be loaded, or if its contents are compared and differ.
        """
        return self._library.read(self._part(self._other, number), self._keys.verify)

    def close(self) -> None:
        """Close the output folder, and release the framework, after the last checkpoint."""
        self._writer.shutdown()
        self._library.stop(self._framework)
        self._outputs.close()

    def _part(self, rank: int, number: int) -> CheckpointPart:
        """Return the files that `rank` writes of the checkpoint `number`. A later checkpoint that overwrites an earlier
        one uses the file names of the earlier one.

        No two files of a run have equal blocks, unless a rank has more than 1024 files.
        """
        keep, first = self._keys.keep, (number * self._ranks + rank) * 1024
        prefix = "" if keep == 1 else f"checkpoint{number % keep:03}-"
        files = (
            File(file.name, file.arrays, (first + place) * _STRIDE)
            for place, file in enumerate(checkpoint_files.of_rank(self._keys, rank))
        )
        return CheckpointPart(self._outputs, self._keys, prefix, rank, tuple(files), self._framework)
