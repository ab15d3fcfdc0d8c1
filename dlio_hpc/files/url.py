"""Check that a path is not a URL. Python would take s3://bucket/x for a local folder named "s3:"."""

import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def refuse(text: str, is_written: bool = False) -> None:
    """Raise ValueError if the text is a URL. The message asks for a path on a mounted file system. is_written: whether
    the text names an output.
    """
    scheme = _SCHEME.match(text)
    if scheme is None:
        return
    if scheme[1].lower() == "file":
        raise ValueError(f"{text} is a URL; give only the path: /{text[scheme.end() :].partition('/')[2]}")
    if is_written:
        raise ValueError(
            f"{text} is a URL; this option writes a file: give a path, or - and pipe the output to a client"
        )
    raise ValueError(
        f"{text} is a URL, and {scheme[0]} is not supported; mount that storage, and give the path where it is mounted"
    )
