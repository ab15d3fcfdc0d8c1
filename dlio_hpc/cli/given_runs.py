"""The folder of jobs that the command line gives with --runs, for the commands in messages."""

from contextvars import ContextVar
from typing import Any

from dlio_hpc.base import own_commands

# Value of --runs; None if the command line gives none. An environment variable or a file need not be repeated.
VALUE: ContextVar[Any] = ContextVar("runs", default=None)


def completed(message: str) -> str:
    """Return a message whose commands have the folder of jobs that the user gave."""
    return own_commands.with_runs(message, VALUE.get())
