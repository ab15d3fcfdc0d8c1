"""Worker processes of PyTorch's DataLoader: where their sockets lie, and how their faults reach the rank.

A worker passes a batch to its rank in shared memory, whose descriptor goes through a socket that a thread of the worker
serves. Another thread feeds the pipe of results. Python prints an exception in one of these threads and goes on without
the batch, for which the rank would wait until the time limit.
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
# A message is written to a pipe at once, as pipe(7) guarantees for 4096 bytes.
_LONGEST_MESSAGE = 2000
# Seconds in which a worker that has closed its socket writes its message.
_LAST_WORDS_S = 2.0
# What DataLoader raises in a rank if a worker has ended, or has closed the connection.
FAULTS = (RuntimeError, EOFError, ConnectionError, ProcessError, pickle.UnpicklingError)


@contextmanager
def started() -> Iterator[None]:
    """Start workers in the `with` block: with a short path of the folder of temporary files, and with a handler of
    SIGCHLD that raises the fault of a worker.
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
    """Return a path of `folder` by way of a descriptor of this process, which stays open. The workers of this user can
    use it as long as this process lives. Return None if there is no such path.
    """
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        short = f"/proc/{os.getpid()}/fd/{descriptor}"
        return short if os.path.samefile(short, folder) else None
    except OSError:
        return None


class _Messages:
    """Messages of the workers of this process on why they end. Attributes: pipe: its ends, for reading and for
    writing. received: the messages that have been read; an exception that a handler of signals raises may be lost, but
    not its message. is_told: whether the rank knows of a fault.
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
    """Return the function that each worker calls first, with its number. It also calls `also`. From then on, an
    exception in a thread of the worker ends the worker.
    """
    return partial(_begin, _messages().pipe[1], also)


def _begin(messages: Connection, also: Callable[[int], None] | None, worker: int) -> None:
    if also is not None:
        also(worker)
    _on_feeder_fault(partial(_end, messages))
    threading.excepthook = lambda thread: _end(messages, thread.exc_value)
    sys.excepthook = lambda _kind, fault, _trace: _end(messages, fault)  # the thread of the socket calls it


def _on_feeder_fault(handle: Callable[[BaseException], None]) -> None:
    """Have `handle` called for exceptions in the threads of this process that feed pipes. Python has this hook for
    concurrent.futures, which overrides it for the same reason.
    """
    Queue._on_queue_feeder_error = staticmethod(lambda fault, _: handle(fault))  # type: ignore[attr-defined]


def _end(messages: Connection, fault: BaseException | None) -> None:
    """Tell the rank of an exception, and end this worker. Return if the rank has closed the connection, because it then
    waits for no batch.
    """
    if _told(messages, fault):
        os._exit(InfrastructureError.exit_code)


def _end_workers(messages: Connection, fault: BaseException) -> None:
    """End the workers of this rank after an exception in the thread that passes requests to them. The rank then no
    longer waits for the batch. Return if a worker has closed the connection: DataLoader looks after its workers.
    """
    if _told(messages, fault):
        for worker in active_children():
            worker.terminate()


class _FeederWatch:
    """Hook for exceptions that end a thread of this rank. For a thread that passes requests to workers, it ends them;
    for others, it calls another hook.
    """

    def __init__(self, messages: Connection, other: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._messages, self._other = messages, other

    def __call__(self, ended: threading.ExceptHookArgs) -> None:
        if ended.thread is not None and ended.thread.name == "QueueFeederThread" and ended.exc_value is not None:
            _end_workers(self._messages, ended.exc_value)
        else:
            self._other(ended)


def _told(messages: Connection, fault: BaseException | None) -> bool:
    """Print an exception and write its message to the pipe. Return False, and do neither, if the exception only says
    that the other side has closed a connection.
    """
    if fault is None or isinstance(fault, ConnectionError):
        return False
    traceback.print_exception(fault)
    sys.stderr.flush()
    with suppress(OSError):
        messages.send_bytes(f"{type(fault).__name__}: {fault}".encode(errors="replace")[:_LONGEST_MESSAGE])
    return True


def explained(fault: BaseException) -> InfrastructureError:
    """Return the error for an exception of FAULTS that DataLoader raised: the message of the worker that ended, if it
    has left one.
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
    """Have the handler of SIGCHLD, which DataLoader sets, raise InfrastructureError for a worker that has failed. It is
    called wherever this process is, not only while it waits for a batch.
    """
    handler = signal.getsignal(signal.SIGCHLD)
    if callable(handler) and not isinstance(handler, _Watch):
        signal.signal(signal.SIGCHLD, _Watch(handler))


class _Watch:
    """Handler of SIGCHLD around another one. It raises once: the rank reports the first fault while other workers end,
    and nothing must interrupt the report.
    """

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        try:
            self._handler(number, frame)
        except RuntimeError as fault:
            if not _messages().is_told:
                raise explained(fault) from fault
