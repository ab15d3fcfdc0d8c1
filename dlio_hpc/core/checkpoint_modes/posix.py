"""Checkpoints in plain POSIX requests. A file holds the bytes of its tensors, without headers."""

import io
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.base.errors import InfrastructureError, InvalidRun
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.config.reader_keys import BLOCK, LARGEST_REQUEST
from dlio_hpc.core import buffers, content
from dlio_hpc.core.checkpoint_modes.parts import CheckpointPart, File, Restored, Saved, compare
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.files import write_all

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Number of bytes that are generated at a time, before they are written.
_READY = 8 * content.BLOCK


def start(comm: "Intracomm | None", keys: Checkpoint) -> None:
    """Do nothing, because no framework is needed."""


def stop(framework: None) -> None:
    """Do nothing."""


def names(part: CheckpointPart) -> list[str]:
    """Return the names of the files on storage."""
    return [_name(part, file) for file in part.files]


def write(part: CheckpointPart) -> Saved:
    """Write the files in turn. Raise InfrastructureError if the file system fails."""
    saved = Saved()
    for file in part.files:
        saved = saved.plus(_write(part, file))
    return saved


def read(part: CheckpointPart, compares: bool) -> Restored:
    """Read the files in turn. Raise InfrastructureError if the file system fails, and InvalidRun if a file is too
    short, or if `compares` is true and the contents read differ from the contents written.
    """
    restored = Restored()
    for file in part.files:
        restored = restored.plus(_read(part, file, compares))
    return restored


def _name(part: CheckpointPart, file: File) -> str:
    return f"{part.prefix}{file.name}.ckpt"


def _flags(part: CheckpointPart) -> int:
    return os.O_DIRECT if part.keys.direct else 0


def _write(part: CheckpointPart, file: File) -> Saved:
    """Write a file with bytes of the content stream, which start at the position `file.begin` of the stream."""
    name, started = _name(part, file), now()
    try:
        with part.outputs.opened(name, "wb", _flags(part)) as opened:
            fill = _fill_in_any_order if part.keys.requests else _fill
            own_s = fill(part, opened.fileno(), file)
            written = now()
            if part.keys.fsync:
                os.fsync(opened.fileno())
            synced = now()
    except OSError as fault:
        raise InfrastructureError(f"cannot write {part.outputs.path(name)}: {fault.strerror}") from fault
    fsync_s = synced - written if part.keys.fsync else 0.0
    return Saved(written - started - own_s, fsync_s, 0.0, part.keys.written(file.size), own_s)


def _fill(part: CheckpointPart, descriptor: int, file: File) -> float:
    """Write a file in requests of `transfer_size` bytes. Return the seconds that dlio-hpc took to make the contents.
    O_DIRECT writes whole blocks, so the file is truncated to its size afterwards.
    """
    begun = now()
    size = file.size
    most = part.keys.transfer_size or min(size, LARGEST_REQUEST)
    whole = -(-size // BLOCK) * BLOCK if part.keys.direct else size
    ready = _memory(min(whole, max(most, _READY // most * most)))
    own_s = now() - begun
    for first in range(0, whole, len(ready)):
        piece = ready[: whole - first]
        begun = now()
        content.fill(piece, file.begin + first)
        own_s += now() - begun
        for at in range(0, len(piece), most):
            write_all(descriptor, piece[at : at + most].data)
    if whole > size:
        os.ftruncate(descriptor, size)
    return own_s


def _fill_in_any_order(part: CheckpointPart, descriptor: int, file: File) -> float:
    """Write a file in the requests that the workload lists, which may leave gaps, and then set the size of the file.
    Return the seconds that dlio-hpc took to make the contents.
    """
    requests, begun = part.keys.requests, now()
    ready = np.empty(max(length for _, length in requests), np.uint8)
    content.fill(ready, file.begin)
    own_s = now() - begun
    for offset, length in requests:
        os.lseek(descriptor, offset, os.SEEK_SET)
        write_all(descriptor, ready[:length].data)
    os.ftruncate(descriptor, file.size)
    return own_s


def _read(part: CheckpointPart, file: File, compares: bool) -> Restored:
    """Read a file in requests of `transfer_size` bytes, and compare its contents if `compares` is true."""
    path, verify_s, started = part.outputs.path(_name(part, file)), 0.0, now()
    try:
        with part.outputs.opened(_name(part, file), "rb", _flags(part)) as opened:
            spent = now() - started
            for data, done, seconds in _pieces(part, opened, path, file.size):
                spent += seconds
                if compares:
                    compared = now()
                    compare(path, data, done, file.begin)
                    verify_s += now() - compared
    except OSError as fault:
        raise InfrastructureError(f"cannot read {path}: {fault.strerror}") from fault
    return Restored(spent, file.size, verify_s)


def _pieces(part: CheckpointPart, file: io.FileIO, path: str, size: int) -> Iterator[tuple[Rows, int, float]]:
    """Yield three values for each piece of a file: the piece, the number of bytes before it, and the seconds that its
    request took. A piece is valid only until the next piece is requested.
    """
    most = part.keys.transfer_size or min(size, LARGEST_REQUEST)
    buffer = _memory(-(-most // BLOCK) * BLOCK)
    done = 0
    while done < size:
        started = now()
        count = file.readinto(buffer[: most if part.keys.direct else min(most, size - done)].data)
        seconds = now() - started
        if not count:
            raise InvalidRun(f"{path} has {done} bytes, but {size} were written")
        yield buffer[:count], done, seconds
        done += count


def _memory(size: int) -> Rows:
    """Allocate memory that is aligned for O_DIRECT."""
    rows: Rows = buffers.allocate(1, size).rows[0]
    return rows
