"""Alignment of table columns: numbers to the right, text to the left."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?( ?(%|x|[A-Za-z]{1,3}(/s)?))?")
_NO_NUMBER = {"", "-", "unknown"}


def are_numbers(cells: Sequence[str]) -> bool:
    """Return whether the cells of a column are numbers, with or without a unit. Some cells may lack a value, but at
    least one cell must be a number.
    """
    return any(map(_NUMBER.fullmatch, cells)) and all(
        cell in _NO_NUMBER or _NUMBER.fullmatch(cell) is not None for cell in cells
    )
