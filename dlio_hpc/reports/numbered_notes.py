"""Notes below a table. A cell of the table has the numbers of its notes. A sentence that belongs to several cells is
stated once.
"""

from collections.abc import Sequence

from dlio_hpc.reports.page import Facts


class NumberedNotes:
    """Sentences with their numbers, which follow the order of the first references in the table."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cell(self, sentences: Sequence[str]) -> str:
        """Return the numbers of these sentences, such as "1, 3"; empty if there are none."""
        return ", ".join(str(self._numbers.setdefault(text, len(self._numbers) + 1)) for text in sentences)

    def facts(self) -> Facts:
        """Return all sentences with their numbers."""
        return Facts("", [(str(number), text) for text, number in self._numbers.items()])
