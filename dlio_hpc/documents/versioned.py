"""Fields that all JSON documents have in common, and the document of a command that fails."""

from typing import Literal

from msgspec import Struct


class Versioned(Struct, frozen=True, kw_only=True):
    """A JSON document with the version of its schema."""

    schema: Literal[1] = 1
    """Version of the document. The version increases if a field is removed, or if the type or the meaning of a field
    changes.
    """


FailureKind = Literal["UsageError", "ConfigError", "InvalidRun", "InfrastructureError", "Incomplete", "Unexpected"]


class CommandFailure(Struct, frozen=True):
    """Reason why a command failed before it had a result."""

    kind: FailureKind
    """Class of the error. UsageError: the command line is wrong; Unexpected: a bug in dlio-hpc."""
    message: str
    """Message, as on stderr."""
    exit_code: int
    """Exit code of the command."""


class FailureDocument(Versioned, frozen=True):
    """Document of a command that fails before it prints a result."""

    error: CommandFailure
    """Reason why the command failed."""
