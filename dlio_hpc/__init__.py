"""dlio-hpc: a benchmark of storage I/O for deep learning on supercomputers.

The package offers the functions of dlio_hpc.api and the class Options. Each name is imported on its first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlio_hpc.api import (
        accept,
        accept_baseline,
        cancel,
        check,
        collect,
        compare,
        estimate,
        history,
        judge_suite,
        plan_jobs,
        report,
        report_study,
        resume,
        start,
        status,
        submit,
        wait,
    )  # fmt: skip
    from dlio_hpc.plan.options import Options

__version__ = "0.1.0"
__all__ = [
    "Options", "__version__", "accept", "accept_baseline", "cancel", "check", "collect", "compare", "estimate",
    "history", "judge_suite", "plan_jobs", "report", "report_study", "resume", "start", "status", "submit", "wait",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name of the API on its first use."""
    if name in __all__:
        from dlio_hpc import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
