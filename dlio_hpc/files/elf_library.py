"""Shared libraries that the ranks preload."""

import os


def fault(library: str) -> str | None:
    """Return the reason why a library cannot be preloaded on this node, or None if it can. A name without a slash is
    not checked: the loader of the system searches for it.
    """
    if "/" not in library:
        return None
    try:
        with open(library, "rb") as file:
            return None if file.read(4) == b"\x7fELF" else f"{library} is not an ELF library"
    except OSError as error:
        return f"{library}: {error.strerror} on {os.uname().nodename}"
