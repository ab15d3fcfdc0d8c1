"""Worker processes of PyTorch's DataLoader: the folder of their sockets, and how their faults reach the rank.

A worker passes a batch to its rank in shared memory. The descriptor of this memory goes through a socket that a thread
of the worker serves. Another thread feeds the pipe of results. If one of these threads raises an exception, Python only
prints it, and the rank would wait for the batch until the time limit.
"""

import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from multiprocessing import Pipe, ProcessError, active_children
from multiprocessing.connection import Connection
from multiprocessing.queues import Queue
from types import FrameType

from dlio_hpc.base.errors import InfrastructureError

# The path of a socket has at most 107 bytes (unix(7)). multiprocessing adds 32 bytes to the path of the folder of
# temporary files, for a private folder and the socket in it: /pymp-xxxxxxxx/listener-xxxxxxxx.
_LONGEST_FOLDER = 64
# A message is written to a pipe atomically, as pipe(7) guarantees for 4096 bytes.
_LONGEST_MESSAGE = 2000
# Seconds in which a worker that has closed its socket writes its message.
_LAST_WORDS_S = 2.0
# What DataLoader raises in a rank if a worker has ended, or has closed the connection.
FAULTS = (RuntimeError, EOFError, ConnectionError, ProcessError, pickle.UnpicklingError)


@contextmanager
def started() -> Iterator[None]:
    """Return a context manager; workers must be started in its `with` block. These workers use a short path for the
    folder of temporary files. If a worker fails, a handler of SIGCHLD raises the fault.
    """
    _on_feeder_fault(partial(_end_workers, _messages().pipe[1]))
    if not isinstance(threading.excepthook, _FeederWatch):
        threading.excepthook = _FeederWatch(_messages().pipe[1], threading.excepthook)
    with _short_temporary_folder():
        yield
    if threading.current_thread() is threading.main_thread():
        _watch_ends()


@contextmanager
def _short_temporary_folder() -> Iterator[None]:
    """If the path of the folder of temporary files is too long for sockets, let processes that are started in the
    `with` block use this folder by a shorter path.
    """
    folder, variable = tempfile.gettempdir(), os.environ.get("TMPDIR")
    short = _short_path(folder) if len(os.fsencode(folder)) > _LONGEST_FOLDER else None
    if short is None:
        yield
        return
    tempfile.tempdir = os.environ["TMPDIR"] = short
    try:
        yield
    finally:
        tempfile.tempdir = folder
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable


@cache
def _short_path(folder: str) -> str | None:
    """Return a path of `folder` that leads through a descriptor of this process. The descriptor stays open, so the
    workers can use the path as long as this process lives. Return None if there is no such path.
    """
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        short = f"/proc/{os.getpid()}/fd/{descriptor}"
        return short if os.path.samefile(short, folder) else None
    except OSError:
        return None


class _Messages:
    """Messages in which the workers of this process say why they end. pipe: the reading end and the writing end of a
    pipe. received: messages that have been read. These messages are kept, because an exception that a signal handler
    raises may be lost. is_told: whether a fault has already been reported to the rank.
    """

    def __init__(self) -> None:
        self.pipe = Pipe(duplex=False)
        self.received: list[str] = []
        self.is_told = False

    def first(self, patience_s: float = 0.0) -> str | None:
        """Return the first message, or None if there is none. patience_s: seconds to wait for it."""
        while self.pipe[0].poll(0.0 if self.received else patience_s):
            self.received.append(self.pipe[0].recv_bytes().decode(errors="replace"))
        return self.received[0] if self.received else None


@cache
def _messages() -> _Messages:
    return _Messages()


def begin(also: Callable[[int], None] | None) -> Callable[[int], None]:
    """Return the function that each worker calls first, with the number of the worker as argument. The function calls
    `also`, too. After this call, an exception in a thread of the worker ends the worker.
    """
    return partial(_begin, _messages().pipe[1], also)


def _begin(messages: Connection, also: Callable[[int], None] | None, worker: int) -> None:
    if also is not None:
        also(worker)
    _on_feeder_fault(partial(_end, messages))
    threading.excepthook = lambda thread: _end(messages, thread.exc_value)
    sys.excepthook = lambda _kind, fault, _trace: _end(messages, fault)  # the thread of the socket calls it


def _on_feeder_fault(handle: Callable[[BaseException], None]) -> None:
    """Call `handle` with each exception of a thread of this process that feeds a pipe. Python's queues have a method as
    a hook for this; concurrent.futures overrides the method for the same reason.
    """
    Queue._on_queue_feeder_error = staticmethod(lambda fault, _: handle(fault))  # type: ignore[attr-defined]


def _end(messages: Connection, fault: BaseException | None) -> None:
    """Report an exception to the rank, and end this worker. If the rank has closed the connection, only return, because
    the rank then waits for no batch.
    """
    if _told(messages, fault):
        os._exit(InfrastructureError.exit_code)


def _end_workers(messages: Connection, fault: BaseException) -> None:
    """End the workers of this rank after an exception in the thread that passes requests to them. The rank then no
    longer waits for the batch. If a worker has closed the connection, only return, because DataLoader handles this
    case.
    """
    if _told(messages, fault):
        for worker in active_children():
            worker.terminate()


class _FeederWatch:
    """Hook for exceptions that end a thread of this rank. If the thread passes requests to workers, the hook ends the
    workers. Otherwise, the hook calls another hook, `other`.
    """

    def __init__(self, messages: Connection, other: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._messages, self._other = messages, other

    def __call__(self, ended: threading.ExceptHookArgs) -> None:
        if ended.thread is not None and ended.thread.name == "QueueFeederThread" and ended.exc_value is not None:
            _end_workers(self._messages, ended.exc_value)
        else:
            self._other(ended)


def _told(messages: Connection, fault: BaseException | None) -> bool:
    """Print an exception and write its message to the pipe. Return True. If the exception only says that the other side
    has closed a connection, do nothing and return False.
    """
    if fault is None or isinstance(fault, ConnectionError):
        return False
    traceback.print_exception(fault)
    sys.stderr.flush()
    with suppress(OSError):
        messages.send_bytes(f"{type(fault).__name__}: {fault}".encode(errors="replace")[:_LONGEST_MESSAGE])
    return True


def explained(fault: BaseException) -> InfrastructureError:
    """Return the error for an exception of FAULTS that DataLoader raised. If a worker left a message when it ended, the
    error contains this message.
    """
    _messages().is_told = True
    if isinstance(fault.__cause__, InfrastructureError):
        return fault.__cause__
    is_closed = isinstance(fault, (EOFError, ConnectionError))  # a worker closes its socket before it tells why
    if (message := _messages().first(_LAST_WORDS_S if is_closed else 0.0)) is not None:
        return InfrastructureError(f"the worker processes of PyTorch's DataLoader cannot deliver batches: {message}")
    text = str(fault) or type(fault).__name__
    return InfrastructureError(f"PyTorch's DataLoader failed: {text}; a worker may have been killed")


def _watch_ends() -> None:
    """Make DataLoader's handler of SIGCHLD raise InfrastructureError for a worker that has failed. The handler is
    called at any time, not only while this process waits for a batch.
    """
    handler = signal.getsignal(signal.SIGCHLD)
    if callable(handler) and not isinstance(handler, _Watch):
        signal.signal(signal.SIGCHLD, _Watch(handler))


class _Watch:
    """Handler of SIGCHLD that calls another handler. It raises an exception only once. Other workers may end while the
    rank reports the first fault, and this report must not be interrupted.
    """

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handler(number, frame)
        except RuntimeError as fault:
            if not _messages().is_told:
                raise explained(fault) from fault
