"""Text for the shell: text that is safe in a script, and functions that make it safe."""

import shlex
from collections.abc import Iterable


class Shell(str):
    """Text that is safe to print into a script."""


def quote(text: str) -> Shell:
    """Return `text` quoted as one word of the shell."""
    return Shell(shlex.quote(text))


def comment(text: str) -> Shell:
    """Return `text` on one line, so that it cannot leave its comment."""
    return Shell("".join(character if character.isprintable() else "?" for character in text))


def join(arguments: Iterable[str]) -> Shell:
    """Return a command line. Arguments of type Shell are not quoted again."""
    return Shell(" ".join(argument if isinstance(argument, Shell) else quote(argument) for argument in arguments))
