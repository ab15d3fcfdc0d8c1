"""Text for the shell: what may stand in a script as it is, and what has to be quoted first."""

import shlex
from collections.abc import Iterable


class Shell(str):
    """Text that may stand in a script as it is."""


def quote(text: str) -> Shell:
    """`text` as one word of the shell, whatever is in it."""
    return Shell(shlex.quote(text))


def comment(text: str) -> Shell:
    """`text` on one line, so that it cannot leave the comment it stands in."""
    return Shell("".join(character if character.isprintable() else "?" for character in text))


def join(words: Iterable[str]) -> Shell:
    """A command line; words that are Shell already stay as they are."""
    return Shell(" ".join(word if isinstance(word, Shell) else quote(word) for word in words))
