"""Checkpoints: write model state while training waits or goes on, and read it after the last step. The time of
checkpoints is reported separately from the time of the steps.
"""

import io
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from dlio_hpc.config.checkpoint_keys import Checkpoint, CheckpointFile
from dlio_hpc.config.reader_keys import BLOCK, LARGEST_REQUEST
from dlio_hpc.core import buffers, content, page_cache
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.file_comparison import difference
from dlio_hpc.core.files import write_all
from dlio_hpc.core.output_folder import OutputFolder
from dlio_hpc.errors import InfrastructureError, InvalidRun
from dlio_hpc.plan.plan import Run

# Number of bytes that are generated at once, before they are written.
_READY = 8 * content.BLOCK
# Size in bytes of each request that reads a checkpoint back.
_READ_BACK = 4 * content.BLOCK
# Distance in bytes between the beginnings of two files in the content stream; larger than any file.
_STRIDE = 1 << 44


class Saved(NamedTuple):
    """Seconds that a rank spent on its files of a checkpoint, and bytes of these files. All fields are zero on ranks
    that do not write checkpoints.
    """

    write_s: float = 0.0
    fsync_s: float = 0.0
    read_s: float = 0.0
    bytes: int = 0


class Restored(NamedTuple):
    """Seconds that a rank spent on opening and reading files of a checkpoint, bytes that it read, and seconds that it
    compared them with the written data.
    """

    read_s: float = 0.0
    bytes: int = 0
    verify_s: float = 0.0


class Checkpoints:
    """The checkpoints of a rank. The newest `keep` checkpoints of a run stay on storage. ranks: number of ranks.
    distance: number of ranks between the rank that writes a file and the rank that reads it after the last step.
    """

    def __init__(self, run: Run, keys: Checkpoint, rank: int, ranks: int = 1, distance: int = 0) -> None:
        self._keys = keys
        self._outputs = OutputFolder(run.outputs)
        self._rank, self._ranks = rank, ranks
        self._other = (rank + distance) % ranks
        self._every = keys.every_steps or run.steps_per_epoch
        self._files = keys.files_of(rank)
        self._count = 0
        self._writer = ThreadPoolExecutor(1, "checkpoint")  # starts a thread when begin() is called
        self._pending: Future[Saved] | None = None

    def is_due(self, steps: int) -> bool:
        """Return whether a checkpoint is due after `steps` steps of the run in total."""
        return steps % self._every == 0

    def save(self) -> Saved:
        """Write this rank's files of a checkpoint, and read them back if the workload asks for it. Return the times and
        the bytes written. Raise InfrastructureError if the file system fails, and InvalidRun if the contents that are
        read back differ from those written.
        """
        self._count += 1
        return self._save(self._count)

    def begin(self) -> "Future[Saved]":
        """Write this rank's files of a checkpoint while training goes on. Return a future of the times and the bytes
        written. Wait until the previous checkpoint is written, and raise its error if writing failed.
        """
        self.finish()
        self._count += 1
        self._pending = self._writer.submit(self._save, self._count)
        return self._pending

    def finish(self) -> None:
        """Wait until the last checkpoint is written. Raise its error if writing failed."""
        if self._pending is not None:
            self._pending.result()

    def _save(self, number: int) -> Saved:
        saved = Saved()
        for place, file in enumerate(self._files):
            begin = self._begin(self._rank, number, place)
            write_s, fsync_s = self._write(self._name(file, number), file.size, begin)
            read_s = self._read_back(self._name(file, number), file.size, begin) if self._keys.read_back else 0.0
            saved = Saved(
                saved.write_s + write_s, saved.fsync_s + fsync_s, saved.read_s + read_s,
                saved.bytes + self._keys.written(file.size),
            )  # fmt: skip
        return saved

    def restorable(self) -> list[int]:
        """Return the numbers of the checkpoints on storage, the oldest first."""
        return list(range(max(1, self._count - self._keys.keep + 1), self._count + 1))

    def paths(self, number: int) -> list[str]:
        """Return the paths of the files that this rank reads of a checkpoint."""
        files = self._keys.files_of(self._other)
        return [self._outputs.path(self._name(file, number)) for file in files]

    def forget(self) -> None:
        """Drop the files that this rank has written from the page cache of its node."""
        for number in self.restorable():
            for file in self._files:
                page_cache.drop(self._outputs.path(self._name(file, number)))

    def restore(self, number: int) -> Restored:
        """Read the files of a checkpoint. Raise InfrastructureError if the file system fails, and InvalidRun if a file
        is too short, or if its contents are compared and differ.
        """
        restored = Restored()
        for place, file in enumerate(self._keys.files_of(self._other)):
            begin = self._begin(self._other, number, place)
            read_s, verify_s = self._read(self._name(file, number), file.size, begin)
            restored = Restored(restored.read_s + read_s, restored.bytes + file.size, restored.verify_s + verify_s)
        return restored

    def close(self) -> None:
        """Close the output folder after the last checkpoint."""
        self._writer.shutdown()
        self._outputs.close()

    def _name(self, file: CheckpointFile, number: int) -> str:
        """Return the name of a file. A later checkpoint has the names of the one it overwrites."""
        keep = self._keys.keep
        return f"{file.name}.ckpt" if keep == 1 else f"checkpoint{number % keep:03}-{file.name}.ckpt"

    def _begin(self, rank: int, number: int, place: int) -> int:
        """Return the position in the content stream at which a file begins. No two files of a run have equal blocks,
        unless a rank has more than 1024 files.
        """
        file = (number * self._ranks + rank) * 1024 + place
        return file * _STRIDE

    def _write(self, name: str, size: int, begin: int) -> tuple[float, float]:
        """Write a file, whose contents are those of the stream from `begin`. Return the seconds of writing and the
        seconds of fsync.
        """
        started = now()
        try:
            with self._outputs.opened(name, "wb", os.O_DIRECT if self._keys.direct else 0) as file:
                fill = self._fill_in_any_order if self._keys.requests else self._fill
                write_s = now() - started + fill(file.fileno(), size, begin)
                written = now()
                if self._keys.fsync:
                    os.fsync(file.fileno())
                synced = now()
        except OSError as fault:
            raise InfrastructureError(f"cannot write {self._outputs.path(name)}: {fault.strerror}") from fault
        return write_s, synced - written

    def _fill(self, descriptor: int, size: int, begin: int) -> float:
        """Write `size` bytes in requests of `transfer_size` bytes. Return the seconds that the requests took, without
        the time to generate the contents. O_DIRECT writes whole blocks; the file is cut to its size afterwards.
        """
        most = self._keys.transfer_size or min(size, LARGEST_REQUEST)
        whole = -(-size // BLOCK) * BLOCK if self._keys.direct else size
        ready = _memory(min(whole, max(most, _READY // most * most)))
        spent = 0.0
        for first in range(0, whole, len(ready)):
            part = ready[: whole - first]
            content.fill(part, begin + first)
            started = now()
            for at in range(0, len(part), most):
                write_all(descriptor, part[at : at + most].data)
            spent += now() - started
        if whole > size:
            os.ftruncate(descriptor, size)
        return spent

    def _fill_in_any_order(self, descriptor: int, size: int, begin: int) -> float:
        """Write a file in the requests that the workload lists. They may leave gaps; the file gets its size. Return the
        seconds of the requests.
        """
        requests = self._keys.requests
        ready = np.empty(max(length for _, length in requests), np.uint8)
        content.fill(ready, begin)
        started = now()
        for offset, length in requests:
            os.lseek(descriptor, offset, os.SEEK_SET)
            write_all(descriptor, ready[:length].data)
        os.ftruncate(descriptor, size)
        return now() - started

    def _read_back(self, name: str, size: int, begin: int) -> float:
        """Read the file back and compare it with the written contents. Before that, ask the kernel to drop the file
        from the page cache. Return the seconds that the reads took, without the time to compare. Raise InvalidRun if
        the contents differ.
        """
        spent = 0.0
        try:
            with self._outputs.opened(name, "rb", 0) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                for data, done, seconds in self._pieces(file, name, size, min(size, _READ_BACK)):
                    spent += seconds
                    self._compare(self._outputs.path(name), data, done, begin)
        except OSError as fault:
            raise InfrastructureError(f"cannot read {self._outputs.path(name)}: {fault.strerror}") from fault
        return spent

    def _read(self, name: str, size: int, begin: int) -> tuple[float, float]:
        """Read a file in requests of `transfer_size` bytes. Return the seconds of opening and reading, and the seconds
        of comparing the contents.
        """
        verify_s, started = 0.0, now()
        most = self._keys.transfer_size or min(size, LARGEST_REQUEST)
        try:
            with self._outputs.opened(name, "rb", os.O_DIRECT if self._keys.direct else 0) as file:
                spent = now() - started
                for data, done, seconds in self._pieces(file, name, size, most):
                    spent += seconds
                    if self._keys.verify:
                        compared = now()
                        self._compare(self._outputs.path(name), data, done, begin)
                        verify_s += now() - compared
        except OSError as fault:
            raise InfrastructureError(f"cannot read {self._outputs.path(name)}: {fault.strerror}") from fault
        return spent, verify_s

    def _pieces(self, file: io.FileIO, name: str, size: int, most: int) -> Iterator[tuple[Rows, int, float]]:
        """Yield each piece of a file, the number of bytes before it, and the seconds that its request took. A piece is
        valid only until the next piece is requested. most: bytes of a request.
        """
        buffer = _memory(-(-most // BLOCK) * BLOCK)
        done = 0
        while done < size:
            started = now()
            count = file.readinto(buffer[: most if self._keys.direct else min(most, size - done)].data)
            seconds = now() - started
            if not count:
                raise InvalidRun(f"{self._outputs.path(name)} has {done} bytes, but {size} were written")
            yield buffer[:count], done, seconds
            done += count

    def _compare(self, path: str, data: Rows, offset: int, position: int) -> None:
        """Compare a piece of a file with the written contents. offset: bytes before the piece. position: position in
        the content stream at which the file begins.
        """
        begin = 0
        for piece in content.pieces(position + offset, len(data)):
            expected = np.frombuffer(piece, np.uint8)
            at = difference(data[begin : begin + len(expected)], expected)
            if at is not None:
                raise InvalidRun(
                    f"{path}: byte {offset + begin + at} is {data[begin + at]:#04x} when it is read back, "
                    f"{expected[at]:#04x} was written"
                )
            begin += len(expected)


def _memory(size: int) -> Rows:
    """Allocate aligned memory, as O_DIRECT needs it."""
    rows: Rows = buffers.allocate(1, size).rows[0]
    return rows
