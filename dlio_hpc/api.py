"""The Python API: what the commands do, as functions with typed arguments. `import dlio_hpc` offers them.

Functions raise the errors of dlio_hpc.errors, whose exit_code is that of the command. They print nothing; `report`
arguments get the lines that the commands print on stderr.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_hpc.plan.options import Options

if TYPE_CHECKING:
    from dlio_hpc.batch.collect import Collected
    from dlio_hpc.batch.job_record import Job
    from dlio_hpc.batch.preflight import Finding
    from dlio_hpc.batch.submission import Submission
    from dlio_hpc.metrics import MetricName
    from dlio_hpc.plan.cost import JobCost
    from dlio_hpc.plan.planned import Planned
    from dlio_hpc.records.job_outcome import JobOutcome
    from dlio_hpc.report.study_report import StudyReport
    from dlio_hpc.verdict.acceptance import Acceptance
    from dlio_hpc.verdict.baseline_comparison import Judgement
    from dlio_hpc.verdict.baselines import Accepted
    from dlio_hpc.verdict.history_entry import Entry
    from dlio_hpc.verdict.suite import SuiteVerdict

RUNS = Path("dlio-runs")
Report = Callable[[str], None]


def _silent(_: str) -> None:
    """Drop a line."""
