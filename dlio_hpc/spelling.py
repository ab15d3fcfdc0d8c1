"""Suggestions for misspelt names."""

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of the names; None where no name is similar."""
    import difflib  # imported only where a name is wrong: the import takes long

    lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[close[0]] if close else None


def hint(name: str, names: Iterable[str]) -> str:
    """The question "did you mean ...? " for a message, with a trailing blank; empty where no name is near."""
    meant = nearest(name, names)
    return "" if meant is None else f"did you mean {meant!r}? "
