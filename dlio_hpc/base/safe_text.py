"""Text from the files of other people, made safe for a terminal, a YAML comment or a picture."""

import re

# Control characters, except for tab and line break: a terminal would obey them. Marks of direction (UAX 9) make the
# rest of a line look like another text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return the text with each control character and mark of direction replaced by U+FFFD, the replacement character.
    Names in the files of other people may contain escape sequences, which a terminal would execute.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def single_line(text: str, replacement: str = "?") -> str:
    """Return the text with `replacement` in place of characters that would end a line, or that cannot be written."""
    shown = text.encode("utf-8", "replace").decode()
    return "".join(letter if letter.isprintable() else replacement for letter in shown)


# Characters of reports, and what an ASCII terminal shows instead.
_IN_ASCII = str.maketrans(
    {
        "▁": "_", "▂": ".", "▃": "-", "▄": "~", "▅": "=", "▆": "+", "▇": "*", "█": "#", "░": "-",
        "─": "-", "│": "|", "·": "-",
        "…": "...", "\N{EN DASH}": "-", "\N{MULTIPLICATION SIGN}": "x",
        "±": "+-", "≤": "<=", "≥": ">=", "→": "->", "µ": "u", "μ": "u",
        "\N{NO-BREAK SPACE}": " ",
    }
)  # fmt: skip


def in_ascii(text: str) -> str:
    """Return the text with ASCII characters in place of those that an ASCII terminal cannot show. Characters without an
    ASCII equivalent become escapes with their number.
    """
    return text if text.isascii() else text.translate(_IN_ASCII).encode("ascii", "backslashreplace").decode()
