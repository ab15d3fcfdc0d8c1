"""Names that somebody may have meant."""

from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one that is written most alike; None where none is."""
    import difflib  # only where a name is wrong: it takes long to import

    lower = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return lower[close[0]] if close else None


def hint(name: str, names: Iterable[str]) -> str:
    """A question, with a blank behind it, to put into a message; empty where no name is near."""
    meant = nearest(name, names)
    return "" if meant is None else f"did you mean {meant!r}? "
