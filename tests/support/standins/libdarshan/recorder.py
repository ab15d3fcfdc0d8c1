"""The behaviour of libdarshan 3.5, as far as our runs depend on it, by its documented rules.

From MPI_Init on it records os.open, os.close, os.read, os.pread, os.preadv, os.write and os.pwrite, which the native
loader uses in posix mode. It does not record the calls of C libraries and of Python's own files. Before MPI_Finalize
the records of the ranks are gathered in one log. A process that does not get there leaves the file in
DARSHAN_MMAP_LOGPATH.
"""

import atexit
import math
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

from tests.support.standins.libdarshan import settings as config

_HEAD, _SEGMENT, _LEAST_SEGMENTS = 104, 32, 64


class Faults(NamedTuple):
    """LIBDARSHAN_FAULTS, several joined with semicolons. hide=RANK:NAME: reads of that file on that rank leave no
    record of any kind. alone: records without MPI, as with DARSHAN_ENABLE_NONMPI. mpi: built for another MPI.
    """

    hide: tuple[int, str] | None = None
    alone: bool = False
    mpi: bool = False

    @classmethod
    def of_environment(cls) -> "Faults":
        parts = [part.partition("=") for part in os.environ.get("LIBDARSHAN_FAULTS", "").split(";")]
        named = {name: value for name, _, value in parts}
        rank, _, file = named.get("hide", "").partition(":")
        return cls((int(rank), file) if rank else None, "alone" in named, "mpi" in named)


def install() -> None:
    """Begin the record at MPI_Init, which is the import of mpi4py.MPI, or now with DARSHAN_ENABLE_NONMPI."""
    faults = Faults.of_environment()
    if faults.alone or "DARSHAN_ENABLE_NONMPI" in os.environ:
        _Recorder(faults, None).begin()
    else:
        sys.meta_path.insert(0, _BeginsWithMPI(faults))


class _BeginsWithMPI:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != "mpi4py.MPI":
            return None
        if self._faults.mpi:
            raise ImportError("libmpi.so.12: cannot open shared object file: No such file or directory")
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others))
        assert spec.loader is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def begun(module: ModuleType) -> None:
            execute(module)
            _Recorder(self._faults, module).begin()

        loader.exec_module = begun
        return spec


class _File:
    """The requests to one path: rows of offset, length, start, end."""

    def __init__(self, is_traced: bool) -> None:
        self.is_traced = is_traced
        self.opens = 0
        self.reads: list[tuple[int, int, float, float]] = []
        self.writes: list[tuple[int, int, float, float]] = []


class _Mine(NamedTuple):
    """The data of a rank in the log: counters by path, and path -> (reads, writes) of the trace."""

    counted: dict[str, dict[str, float]]
    traced: dict[str, tuple[list[Any], list[Any]]]
    partial: set[str]


class _Recorder:
    def __init__(self, faults: Faults, mpi: Any) -> None:
        self._faults, self._mpi = faults, mpi
        self._rank = mpi.COMM_WORLD.rank if mpi else 0
        self._settings = config.load()
        self._started = time.time()
        self._paths: dict[int, str] = {}
        self._files: dict[str, _File] = {}
        self._partial: set[str] = set()
        self._name_bytes = 0
        name = f"0_python_id{os.getpid()}_mmap-log-{os.getppid()}-{self._rank}.darshan"
        self._live = os.path.join(os.environ.get("DARSHAN_MMAP_LOGPATH", "/tmp"), name)

    def begin(self) -> None:
        """Begin the record. It stays off if its live record cannot be written."""
        try:
            with open(self._live, "wb") as file:
                file.write(struct.pack("<8sqB", b"3.41", 6567223, 2).ljust(1328, b"\0"))
        except OSError:
            config.warn(f"unable to create darshan log file {self._live}")
            return
        self._wrap()
        atexit.register(self._end)

    def _wrap(self) -> None:
        opening, closing = os.open, os.close

        def opened(path: Any, *arguments: Any, **named: Any) -> int:
            descriptor = opening(path, *arguments, **named)
            if not isinstance(path, int):
                self._paths[descriptor] = os.path.join(os.getcwd(), os.fsdecode(path))
                if (file := self._file(self._paths[descriptor])) is not None:
                    file.opens += 1
            return descriptor

        def closed(fd: int) -> None:
            self._paths.pop(fd, None)
            closing(fd)

        os.open, os.close = opened, closed
        for name, column, place in (
            ("read", "reads", None), ("pread", "reads", 1), ("preadv", "reads", 1),
            ("write", "writes", None), ("pwrite", "writes", 1),
        ):  # fmt: skip
            setattr(os, name, self._watched(getattr(os, name), column, place))

    def _watched(self, call: Callable[..., Any], column: str, place: int | None) -> Callable[..., Any]:
        """Return the call with a record of it. `place`: the argument after the descriptor that gives the offset; None:
        the file's position.
        """

        def watched(descriptor: int, *arguments: Any) -> Any:
            began = time.time() - self._started
            result = call(descriptor, *arguments)
            ended = time.time() - self._started
            path = self._paths.get(descriptor)
            file = None if path is None else self._file(path)
            if file is not None:
                length = result if isinstance(result, int) else len(result)
                offset = os.lseek(descriptor, 0, os.SEEK_CUR) - length if place is None else arguments[place]
                getattr(file, column).append((offset, length, began, ended))
            return result

        return watched

    def _file(self, path: str) -> _File | None:
        """Return the record of a path; None if it has none."""
        file = self._files.get(path)
        if file is not None:
            return file
        if not self._settings.records_name(path) or self._faults.hide == (self._rank, os.path.basename(path)):
            return None
        self._name_bytes += len(os.fsencode(path)) + 9
        if len(self._files) >= self._settings.records or self._name_bytes > self._settings.name_bytes:
            self._partial.add("POSIX")
            return None
        return self._files.setdefault(path, _File(self._settings.traces))

    def _end(self) -> None:
        if self._mpi is None:
            self._write([self._mine()])
        elif not self._mpi.Is_finalized():
            gathered = self._mpi.COMM_WORLD.gather(self._mine())
            if gathered is not None:
                self._write(gathered)
        else:
            return
        with suppress(OSError):
            os.unlink(self._live)

    def _mine(self) -> _Mine:
        """Return the records that fit. The room for segments doubles, from 64 of each file on, used or not."""
        left = self._settings.trace_bytes
        traced = {}
        for path, file in self._files.items():
            kept = []
            for rows in (file.reads, file.writes):
                room = 1 << math.ceil(math.log2(max(len(rows), _LEAST_SEGMENTS)))
                fits = min(len(rows), max(0, (left - _HEAD) // _SEGMENT))
                left -= _HEAD + _SEGMENT * room if rows else 0
                self._partial |= {"DXT_POSIX"} if fits < len(rows) else set()
                kept.append(rows[:fits])
            if file.is_traced and any(kept):
                traced[path] = (kept[0], kept[1])
        return _Mine({path: _counters(file) for path, file in self._files.items()}, traced, self._partial)

    def _write(self, ranks: list[_Mine]) -> None:
        from pathlib import Path

        from tests.support.standins import darshanlog

        path = Path(os.environ.get("DARSHAN_LOGFILE", ""))
        if not path.is_absolute() or path.exists() or not path.parent.is_dir():
            print(f"darshan_library_warning: unable to create log file {path}.", file=sys.stderr, flush=True)
            return
        if self._settings.traces and self._settings.pool_bytes < self._settings.trace_bytes:
            message = f"unable to write DXT_POSIX module data to log file {path}"
            print(f"darshan_library_warning: {message}", file=sys.stderr, flush=True)
            return
        darshanlog.write(
            path,
            len(ranks),
            [
                darshanlog.Traced(name, rank, reads, writes, os.uname().nodename)
                for rank, mine in enumerate(ranks)
                for name, (reads, writes) in mine.traced.items()
            ],
            counted=[(name, rank, row) for rank, mine in enumerate(ranks) for name, row in mine.counted.items()],
            started=self._started,
            seconds=time.time() - self._started,
            partial=tuple(set().union(*(mine.partial for mine in ranks))),
        )


def _counters(file: _File) -> dict[str, float]:
    """Return the counters of all requests, including those for which the trace had no room."""
    return {
        "OPENS": file.opens,
        "READS": len(file.reads),
        "WRITES": len(file.writes),
        "BYTES_READ": sum(row[1] for row in file.reads),
        "BYTES_WRITTEN": sum(row[1] for row in file.writes),
        "F_READ_TIME": sum(row[3] - row[2] for row in file.reads),
        "F_WRITE_TIME": sum(row[3] - row[2] for row in file.writes),
    }
