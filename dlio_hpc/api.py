"""The Python API: what the commands do, as functions with typed arguments. `import dlio_hpc` offers them.

Functions raise the errors of dlio_hpc.errors, whose exit_code is that of the command. They print nothing; `report`
arguments get the lines that the commands print on stderr.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

RUNS = Path("dlio-runs")
Report = Callable[[str], None]


def _silent(_: str) -> None:
    """Drop a line."""
