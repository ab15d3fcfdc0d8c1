"""Suggestions for misspelt names."""

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of the names; None if no name is similar."""
    import difflib  # slow import, needed only for wrong names

    lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[close[0]] if close else None


def hint(name: str, names: Iterable[str]) -> str:
    """Return "did you mean ...? " for a message, with a trailing blank; empty if no name is similar."""
    meant = nearest(name, names)
    return "" if meant is None else f"did you mean {meant!r}? "
