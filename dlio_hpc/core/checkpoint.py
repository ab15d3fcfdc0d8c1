"""Checkpoints: write model state, and optionally read it back, while training waits. The time of checkpoints is
reported separately from the time of the steps.
"""

import os
from typing import NamedTuple

import numpy as np

from dlio_hpc.config.reader_keys import LARGEST_REQUEST
from dlio_hpc.config.workload import Checkpoint
from dlio_hpc.core import content
from dlio_hpc.core.clock import now
from dlio_hpc.core.file_comparison import difference
from dlio_hpc.core.files import write_all
from dlio_hpc.core.output_folder import OutputFolder
from dlio_hpc.errors import InfrastructureError, InvalidRun
from dlio_hpc.plan.plan import Run

# Number of bytes that are generated at once, before they are written.
_READY = 8 * content.BLOCK
# Size in bytes of each request that reads a checkpoint back.
_READ_BACK = 4 * content.BLOCK


class Saved(NamedTuple):
    """Seconds that a rank spent on its files of a checkpoint, and bytes of these files. All fields are zero on ranks
    that do not write checkpoints.
    """

    write_s: float = 0.0
    fsync_s: float = 0.0
    read_s: float = 0.0
    bytes: int = 0


class Checkpoints:
    """The checkpoints of a rank. Each checkpoint of a run overwrites the previous one."""

    def __init__(self, run: Run, keys: Checkpoint, rank: int) -> None:
        self._keys = keys
        self._outputs = OutputFolder(run.outputs)
        self._rank = rank
        self._every = keys.every_steps or run.steps_per_epoch
        self._writes = keys.by == "all" or rank == 0
        self._count = 0

    def is_due(self, steps: int) -> bool:
        """Return whether a checkpoint is due after `steps` steps of the run in total."""
        return steps % self._every == 0

    def save(self) -> Saved:
        """Write this rank's files of a checkpoint, and read them back if the workload asks for it. Return the times,
        and the bytes written. Raise InfrastructureError if the file system fails, and InvalidRun if the contents that
        are read back differ from those written.
        """
        if not self._writes:
            return Saved()
        self._count += 1
        saved = Saved()
        for number, size in enumerate(self._keys.sizes):
            name = f"rank{self._rank:05}-{number}.ckpt"
            write_s, fsync_s = self._write(name, size)
            read_s = self._read_back(name, size) if self._keys.read_back else 0.0
            saved = Saved(
                saved.write_s + write_s, saved.fsync_s + fsync_s, saved.read_s + read_s,
                saved.bytes + self._keys.written(size),
            )  # fmt: skip
        return saved

    def close(self) -> None:
        """Close the output folder after the last checkpoint."""
        self._outputs.close()

    def _write(self, name: str, size: int) -> tuple[float, float]:
        """Write a file. Its contents differ from those in the previous checkpoint. Return the seconds of writing and
        the seconds of fsync.
        """
        started = now()
        try:
            with self._outputs.opened(name, "wb") as file:
                fill = self._fill_in_any_order if self._keys.requests else self._fill
                write_s = now() - started + fill(file.fileno(), size)
                written = now()
                if self._keys.fsync:
                    os.fsync(file.fileno())
                synced = now()
        except OSError as fault:
            raise InfrastructureError(f"cannot write {self._outputs.path(name)}: {fault.strerror}") from fault
        return write_s, synced - written

    @property
    def _position(self) -> int:
        """Position in the content stream at which every file of the current checkpoint begins."""
        return self._count * content.BLOCK

    def _fill(self, descriptor: int, size: int) -> float:
        """Write `size` bytes in requests of `transfer_size` bytes. Return the seconds that the requests took, without
        the time to generate the contents.
        """
        most = self._keys.transfer_size or min(size, LARGEST_REQUEST)
        ready = np.empty(min(size, max(most, _READY // most * most)), np.uint8)
        spent = 0.0
        for first in range(0, size, len(ready)):
            part = ready[: size - first]
            content.fill(part, self._position + first)
            started = now()
            for at in range(0, len(part), most):
                write_all(descriptor, part[at : at + most].data)
            spent += now() - started
        return spent

    def _fill_in_any_order(self, descriptor: int, size: int) -> float:
        """Write a file in the requests that the workload lists. They may leave gaps; the file gets its size. Return the
        seconds of the requests.
        """
        requests = self._keys.requests
        ready = np.empty(max(length for _, length in requests), np.uint8)
        content.fill(ready, self._position)
        started = now()
        for offset, length in requests:
            os.lseek(descriptor, offset, os.SEEK_SET)
            write_all(descriptor, ready[:length].data)
        os.ftruncate(descriptor, size)
        return now() - started

    def _read_back(self, name: str, size: int) -> float:
        """Read the file back and compare it with the written contents. Before that, ask the kernel to drop the file
        from the page cache. Return the seconds that the reads took, without the time to compare. Raise InvalidRun if
        the contents differ.
        """
        path, buffer = self._outputs.path(name), np.empty(min(size, _READ_BACK), np.uint8)
        done, spent = 0, 0.0
        try:
            with self._outputs.opened(name, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                while done < size:
                    started = now()
                    count = file.readinto(buffer[: size - done].data)
                    spent += now() - started
                    if not count:
                        raise InvalidRun(f"{path} has {done} bytes, but {size} were written")
                    self._compare(path, buffer[:count], done)
                    done += count
        except OSError as fault:
            raise InfrastructureError(f"cannot read {path}: {fault.strerror}") from fault
        return spent

    def _compare(self, path: str, data: content.Rows, offset: int) -> None:
        begin = 0
        for piece in content.pieces(self._position + offset, len(data)):
            expected = np.frombuffer(piece, np.uint8)
            at = difference(data[begin : begin + len(expected)], expected)
            if at is not None:
                raise InvalidRun(
                    f"{path}: byte {offset + begin + at} is {data[begin + at]:#04x} when it is read back, "
                    f"{expected[at]:#04x} was written"
                )
            begin += len(expected)
