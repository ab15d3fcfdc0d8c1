"""The part of a checkpoint that a rank writes or reads, and its measurements."""

from typing import Any, NamedTuple

import numpy as np

from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.core import content
from dlio_hpc.core.content import Rows
from dlio_hpc.core.file_comparison import difference
from dlio_hpc.core.output_folder import OutputFolder


class Saved(NamedTuple):
    """Seconds that a rank spent on its files of a checkpoint, and bytes of these files. own_s: seconds in which
    dlio-hpc made the contents and compared the contents that were read back. No other field includes these seconds. All
    fields are zero on ranks that do not write checkpoints.
    """

    write_s: float = 0.0
    fsync_s: float = 0.0
    read_s: float = 0.0
    bytes: int = 0
    own_s: float = 0.0

    def plus(self, other: "Saved") -> "Saved":
        return Saved(
            self.write_s + other.write_s, self.fsync_s + other.fsync_s, self.read_s + other.read_s,
            self.bytes + other.bytes, self.own_s + other.own_s,
        )  # fmt: skip


class Restored(NamedTuple):
    """Measurements of reading a checkpoint on a rank: seconds of opening and reading its files, bytes read, and seconds
    of comparing these bytes with the written data.
    """

    read_s: float = 0.0
    bytes: int = 0
    verify_s: float = 0.0

    def plus(self, other: "Restored") -> "Restored":
        return Restored(self.read_s + other.read_s, self.bytes + other.bytes, self.verify_s + other.verify_s)


class File(NamedTuple):
    """A file of a checkpoint. arrays: size of each tensor in the file, in bytes. begin: position of the first tensor in
    the content stream; the other tensors follow it.
    """

    name: str
    arrays: tuple[int, ...]
    begin: int

    @property
    def size(self) -> int:
        return sum(self.arrays)


class CheckpointPart(NamedTuple):
    """The files that a rank writes of a checkpoint. prefix: beginning of the names of all files of this checkpoint; a
    later checkpoint with the same prefix overwrites this checkpoint. rank: number of the rank that writes. framework:
    return value of start().
    """

    outputs: OutputFolder
    keys: Checkpoint
    prefix: str
    rank: int
    files: tuple[File, ...]
    framework: Any


def compare(where: str, data: Rows, offset: int, position: int) -> None:
    """Compare a piece of a file or of a tensor with the written contents. Raise InvalidRun if they differ. where:
    description of the file or tensor for the message. offset: number of bytes in the file or tensor before the piece.
    position: position in the content stream at which the file or tensor begins.
    """
    begin = 0
    for piece in content.pieces(position + offset, len(data)):
        expected = np.frombuffer(piece, np.uint8)
        at = difference(data[begin : begin + len(expected)], expected)
        if at is not None:
            raise InvalidRun(
                f"{where}: byte {offset + begin + at} is {data[begin + at]:#04x} when it is read back, "
                f"but {expected[at]:#04x} was written"
            )
        begin += len(expected)
