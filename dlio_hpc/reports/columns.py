"""Columns of tables: numbers are set flush right, text flush left."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?( ?(%|x|[A-Za-z]{1,3}(/s)?))?")
_NO_NUMBER = {"", "-", "unknown"}


def are_numbers(cells: Sequence[str]) -> bool:
    """Return whether the cells of a column are numbers, with or without units, or absent; at least one is a number."""
    return any(map(_NUMBER.fullmatch, cells)) and all(
        cell in _NO_NUMBER or _NUMBER.fullmatch(cell) is not None for cell in cells
    )
