"""Log of commands for maintainers (--log-file): the command line, the messages, the commands that were run, and the
end.

Each line has the time (UTC), the process id, the kind of the record and text. A record is appended by one write, so
lines of concurrent processes do not mix. Without a log, record() does nothing.
"""

import os
import shlex
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from dlio_hpc.base import redaction, units
from dlio_hpc.base.errors import ABSENT, ConfigError, InfrastructureError

Kind = Literal["start", "stderr", "run", "traceback", "end"]


class CommandLog:
    """A log that is open for appending. secrets: values that are left out of all records."""

    def __init__(self, path: str, descriptor: int, secrets: Collection[str]) -> None:
        self.path = path
        self._descriptor = descriptor
        self._secrets = set(secrets)

    def append(self, kind: Kind, text: str) -> None:
        """Append a record. It has a line for each line of the text. Raise OSError if it cannot be written."""
        lead = f"{units.utc_now(fraction=True)} {os.getpid()} {kind}"
        lines = redaction.of_text(text, tuple(self._secrets)).splitlines() or [""]
        content = "".join(f"{lead} {line}".rstrip() + "\n" for line in lines).encode(errors="backslashreplace")
        if os.write(self._descriptor, content) < len(content):
            raise OSError("only a part of a record was written")

    def shown(self, arguments: Sequence[str]) -> str:
        """Return a command line without secrets. These secrets are also left out of later records."""
        redacted = redaction.of_arguments(arguments)
        self._secrets |= redacted.hidden
        return shlex.join(redacted.arguments)


# The log of this process, if there is one. Functions at all levels write to it.
_open: list[CommandLog] = []


@contextmanager
def opened(path: str, command: Sequence[str], about: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Keep a log during the `with` block. The log begins with the command line. about: text with the versions of the
    software. secrets: values to leave out of the log; secrets in environment variables are always left out. Raise
    ConfigError or InfrastructureError if the file cannot be written.
    """
    try:
        # Only the owner may read a new file, because command lines may contain private data.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as fault:
        raise _unwritable(path, fault) from fault
    try:
        log = CommandLog(path, descriptor, {*redaction.of_environment(), *secrets})
        try:
            log.append("start", f"{log.shown(command)} ({about}, {os.uname().nodename}:{_working_directory()})")
        except OSError as fault:
            raise _unwritable(path, fault) from fault
        _open.append(log)
        yield
    finally:
        _open.clear()
        os.close(descriptor)


def _unwritable(path: str, fault: Exception) -> ConfigError | InfrastructureError:
    """Return the error for a log that cannot be written."""
    cause = getattr(fault, "strerror", None) or str(fault)
    message = f"cannot write the log {path}: {cause}; name another file with --log-file or DLIO_HPC_LOG_FILE"
    is_mistake = not isinstance(fault, OSError) or fault.errno in ABSENT
    return ConfigError(message) if is_mistake else InfrastructureError(message)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "a deleted directory"


def record(kind: Kind, text: str) -> None:
    """Append a record to the log, if there is one. If it cannot be written, warn once and stop logging; the command
    continues.
    """
    for log in tuple(_open):
        try:
            log.append(kind, text)
        except OSError as fault:
            _open.clear()
            print(f"dlio-hpc: the log {log.path} ends here: {fault.strerror or fault}", file=sys.stderr, flush=True)


@contextmanager
def command(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Record a command of the machine that the `with` block runs, with its duration. The block appends a description of
    its end to the yielded list.
    """
    began = time.monotonic()
    outcome: list[str] = []
    try:
        yield outcome
    finally:
        for log in tuple(_open):
            ended = " ".join(outcome) or "interrupted"
            record("run", f"{log.shown(arguments)} ({ended}, {time.monotonic() - began:.3f} s)")
