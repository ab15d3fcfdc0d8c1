"""Quoting for the shell: a type for text that is safe in a script, and functions that make text safe."""

import shlex
from collections.abc import Iterable


class Shell(str):
    """Text that may be printed into a shell script without further quoting."""


def quote(text: str) -> Shell:
    """Return `text` quoted, so that the shell reads it as one word."""
    return Shell(shlex.quote(text))


def comment(text: str) -> Shell:
    """Return `text` with "?" in place of every unprintable character, such as a line break, so that it cannot leave its
    comment line.
    """
    return Shell("".join(character if character.isprintable() else "?" for character in text))


def join(arguments: Iterable[str]) -> Shell:
    """Return the arguments as a command line. Arguments of type Shell are not quoted again."""
    return Shell(" ".join(argument if isinstance(argument, Shell) else quote(argument) for argument in arguments))
