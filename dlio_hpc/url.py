"""URLs where a path is asked for: Python would take s3://bucket/x for a folder named s3: here."""

import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def refuse(text: str) -> None:
    """ValueError for a URL, with what to give instead: files are reached through mounted file systems alone."""
    found = _SCHEME.match(text)
    if found is None:
        return
    if found[1].lower() == "file":
        raise ValueError(f"{text} is a URL; give the path alone: /{text[found.end() :].partition('/')[2]}")
    raise ValueError(
        f"{text} is a URL, and {found[0]} is not supported: give a folder or file of a mounted file system; mount that "
        "storage, and give the path where it is mounted"
    )
