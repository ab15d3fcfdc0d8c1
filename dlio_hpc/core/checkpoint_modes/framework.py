"""Writing and reading of checkpoints through a framework: the common part of the modes torch, torch_distributed and
keras.

The tensors hold bytes of the content stream. They are generated before the framework's call is timed, and compared
after it. The time of the call includes serialisation, which is the framework's own cost. Before a collective call, the
ranks wait for each other, so that no rank waits in the call while another rank still generates its tensors.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlio_hpc.base.errors import InfrastructureError, InvalidRun
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.core import content
from dlio_hpc.core.checkpoint_modes import system_error
from dlio_hpc.core.checkpoint_modes.parts import CheckpointPart, File, Restored, Saved, compare
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Tensors = dict[str, Rows]
Meet = Callable[[], None]
_HELD = re.compile(r"/proc/self/fd/\d+/?")


class CheckpointUnit(NamedTuple):
    """Files that one call of the framework writes or reads. name: name of the file or folder that is passed to the
    call. files: files of the checkpoint whose tensors the call writes or reads. stored: names of the files on storage.
    All names are relative to the output folder.
    """

    name: str
    files: tuple[File, ...]
    stored: tuple[str, ...]


class Calls(NamedTuple):
    """The calls of a framework. prepare: make a state from tensors. save: write a state to a path. blank: make a state
    with tensors of given sizes. load: read a path into a blank state, and return the state with the data. tensors:
    return the tensors of a state. Only save and load are timed.
    """

    prepare: Callable[[Tensors], Any]
    save: Callable[[Any, str], None]
    blank: Callable[[dict[str, int]], Any]
    load: Callable[[Any, str], Any]
    tensors: Callable[[Any], Tensors]


def names(units: list[CheckpointUnit]) -> list[str]:
    """Return the names of all files of these units."""
    return [name for unit in units for name in unit.stored]


def _alone() -> None:
    """Return immediately, because the call is not collective."""


def write(part: CheckpointPart, units: list[CheckpointUnit], calls: Calls, meet: Meet = _alone) -> Saved:
    """Write the units in turn. Return the times, and the bytes of the files on storage. Raise InfrastructureError if
    the framework fails. meet: wait for the ranks that take part in the call.
    """
    saved = Saved()
    for unit in units:
        saved = saved.plus(_write(part, unit, calls, meet))
    return saved


def read(
    part: CheckpointPart, units: list[CheckpointUnit], calls: Calls, compares: bool, meet: Meet = _alone
) -> Restored:
    """Read the units in turn. Return the times, and the bytes of the files on storage. Raise InvalidRun if the
    framework cannot load the units, or if `compares` is true and tensors differ from the tensors written. meet: wait
    for the ranks that take part in the call.
    """
    restored = Restored()
    for unit in units:
        restored = restored.plus(_read(part, unit, calls, compares, meet))
    return restored


def _write(part: CheckpointPart, unit: CheckpointUnit, calls: Calls, meet: Meet) -> Saved:
    begun = now()
    state = calls.prepare({name: _generated(size, begin) for name, size, begin in _tensors(unit)})
    meet()
    with faults(part, "write", part.outputs.path(unit.name), InfrastructureError):
        path = part.outputs.held(unit.name)
        started = now()
        calls.save(state, path)
        written = now()
        fsync_s = 0.0
        if part.keys.fsync:
            for name in unit.stored:
                with part.outputs.opened(name, "rb") as file:
                    os.fsync(file.fileno())
            fsync_s = now() - written
        return Saved(written - started, fsync_s, 0.0, _size(part, unit), started - begun)


def _read(part: CheckpointPart, unit: CheckpointUnit, calls: Calls, compares: bool, meet: Meet) -> Restored:
    shown = part.outputs.path(unit.name)
    blank = calls.blank({name: size for name, size, _ in _tensors(unit)})
    meet()
    with faults(part, "read", shown, InvalidRun):
        path, size = part.outputs.held(unit.name), _size(part, unit)
        started = now()
        state = calls.load(blank, path)
        loaded = now()
    if compares:
        _compare(shown, unit, calls.tensors(state))
    return Restored(loaded - started, size, now() - loaded if compares else 0.0)


def _tensors(unit: CheckpointUnit) -> Iterator[tuple[str, int, int]]:
    """Yield three values for each tensor: its name, its size in bytes, and its position in the content stream."""
    for file in unit.files:
        begin = file.begin
        for number, size in enumerate(file.arrays):
            yield f"{file.name}.{number}", size, begin
            begin += size


def _generated(size: int, begin: int) -> Rows:
    tensor = np.empty(size, np.uint8)
    content.fill(tensor, begin)
    return tensor


def _compare(path: str, unit: CheckpointUnit, tensors: Tensors) -> None:
    for name, size, begin in _tensors(unit):
        data = tensors.get(name)
        if data is None or data.dtype != np.uint8 or data.shape != (size,):
            raise InvalidRun(f"{path}: tensor {name} is missing, or its size or type differs from what was written")
        compare(f"{path}: tensor {name}", data, 0, begin)


def _size(part: CheckpointPart, unit: CheckpointUnit) -> int:
    return sum(os.stat(part.outputs.held(name)).st_size for name in unit.stored)


@contextmanager
def faults(part: CheckpointPart, verb: str, path: str, kind: type[InfrastructureError | InvalidRun]) -> Iterator[None]:
    """Raise an error of the system as InfrastructureError, and an error of the framework as `kind`. The message of
    either error names the file, or `path` if the file is unknown. If an error of the system caused an error of the
    framework, InfrastructureError is raised.
    """
    behind = system_error.watched()
    try:
        yield
    except MemoryError:
        raise
    except Exception as fault:  # frameworks raise errors of many kinds
        if (number := behind(fault)) is not None:
            named = _named(part, fault) or path
            raise InfrastructureError(f"cannot {verb} {named}: {os.strerror(number)}") from fault
        raise kind(f"cannot {verb} {path}: {described(fault)}") from fault


def _named(part: CheckpointPart, fault: Exception) -> str | None:
    """Return the path that an OSError names, as text for messages. Return None if the exception is no OSError or names
    no path.
    """
    name = fault.filename if isinstance(fault, OSError) else None
    if not isinstance(name, str):
        return None
    within = _HELD.sub("", name)
    return part.outputs.path(within).rstrip("/")  # which is `within` itself if that is absolute


def described(fault: BaseException) -> str:
    """Return the type of an exception and the first line of its message, without the path that leads through the
    folder's descriptor.
    """
    line = _HELD.sub("", str(fault).strip().partition("\n")[0])
    return f"{type(fault).__name__}: {line}" if line else type(fault).__name__


class SingleFiles(NamedTuple):
    """A mode of checkpoints in which each call of the framework writes or reads one file. Each file of the checkpoint
    is one file on storage. suffix: suffix of the file names. start: function that imports the framework and returns its
    calls.
    """

    suffix: str
    start: Callable[["Intracomm | None", Checkpoint], Calls]

    def stop(self, calls: Calls) -> None:
        """Do nothing."""

    def names(self, part: CheckpointPart) -> list[str]:
        """Return the names of the files on storage."""
        return names(self._units(part))

    def write(self, part: CheckpointPart) -> Saved:
        """Write the files in turn. Raise InfrastructureError if a file cannot be written."""
        return write(part, self._units(part), part.framework)

    def read(self, part: CheckpointPart, compares: bool) -> Restored:
        """Read the files in turn. Raise InvalidRun if a file cannot be loaded, or if tensors are compared and
        differ.
        """
        return read(part, self._units(part), part.framework, compares)

    def _units(self, part: CheckpointPart) -> list[CheckpointUnit]:
        stored = [f"{part.prefix}{file.name}{self.suffix}" for file in part.files]
        return [CheckpointUnit(name, (file,), (name,)) for name, file in zip(stored, part.files, strict=True)]
