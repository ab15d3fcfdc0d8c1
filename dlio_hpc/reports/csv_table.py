"""CSV tables. If a spreadsheet would take a text for a formula because of its first character, the text is quoted."""

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any

from dlio_hpc.base.safe_text import printable

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+](inf|nan)")


def write(rows: Iterable[Sequence[Any]], file: Any) -> None:
    """Write rows as CSV. Control characters are removed from text, and text is quoted so that no spreadsheet executes
    it.
    """
    csv.writer(file, lineterminator="\n").writerows(map(_cell, row) for row in rows)


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
