"""The largest number of users that a study with several numbers of users serves in time."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.base import serialization
from dlio_hpc.base.units import format_seconds, listed
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.results.run_result import InferenceSummary


class _Level(NamedTuple):
    """A number of users that was measured. p99_s: largest 99th percentile of the time to the first token among the
    repeats. is_whole: whether all requests were served in all repeats, and no queue grew.
    """

    users: int
    p99_s: float
    target_s: float
    is_whole: bool

    @property
    def is_met(self) -> bool:
        return self.is_whole and self.p99_s <= self.target_s

    @property
    def text(self) -> str:
        """What is wrong with this number of users."""
        return format_seconds(self.p99_s) if self.is_whole else "not all requests are served in time"


# Other settings of points that differ in their users alone: the encoded workload with one user, nodes, ranks per node.
_Others = tuple[bytes, int, int]


def of_study(jobs: Sequence[JobOutcome]) -> list[str]:
    """Return a sentence for each group of points that differ in inference.users alone. Points without a result are left
    out, and so are groups with a single number of users.
    """
    groups: dict[_Others, dict[int, list[RunOutcome]]] = {}
    for job in jobs:
        for run in job.runs:
            keys = run.run.workload.inference
            if keys is not None and keys.search is None and run.run.kind == "measure" and _served(run) is not None:
                same = structs.replace(run.run.workload, inference=structs.replace(keys, users=1))
                others = serialization.encode(same), job.plan.nodes, job.plan.ranks_per_node
                groups.setdefault(others, {}).setdefault(keys.users, []).append(run)
    several = [levels for levels in groups.values() if len(levels) > 1]
    return [_sentence(_levels(levels), others) for levels, others in zip(several, _titles(several), strict=True)]


def _served(run: RunOutcome) -> InferenceSummary | None:
    summary = None if run.result is None else run.result.summary
    return None if summary is None or summary.inference is None or not summary.inference.ttft_s else summary.inference


def _titles(groups: Sequence[dict[int, list[RunOutcome]]]) -> list[str]:
    """Return the name of the first run of each group if there are several groups, otherwise an empty text."""
    if len(groups) < 2:
        return [""] * len(groups)
    runs = [next(iter(levels.values()))[0] for levels in groups]
    return [f" (from {run.name} on)" for run in runs]


def _levels(runs: dict[int, list[RunOutcome]]) -> list[_Level]:
    """Return the numbers of users in ascending order."""
    levels = []
    for users, repeats in sorted(runs.items()):
        summaries = [served for run in repeats if (served := _served(run)) is not None]
        keys = repeats[0].run.workload.inference
        assert isinstance(keys, InferenceKeys)
        p99_s = max(one.ttft_s.p99 for one in summaries if one.ttft_s is not None)
        is_whole = all(one.is_sustained and one.served == one.requests for one in summaries)
        levels.append(_Level(users, p99_s, float(keys.target), is_whole))
    return levels


def _sentence(levels: Sequence[_Level], where: str) -> str:
    """Return which of the numbers of users are served in time. A number counts only if all smaller ones are, too."""
    met = 0
    while met < len(levels) and levels[met].is_met:
        met += 1
    lead = f"Users in time{where} (99 % of the first tokens within {format_seconds(levels[0].target_s)})"
    if met == len(levels):
        return f"{lead}: {levels[-1].users} and perhaps more; no larger number was measured."
    failed = levels[met]
    if not met:
        return f"{lead}: fewer than {failed.users}: {failed.text}."
    others = [str(level.users) for level in levels[met + 1 :] if level.is_met]
    odd = f" But {listed(others)} met it, so the noise is large." if others else ""
    return f"{lead}: {levels[met - 1].users}; with {failed.users}: {failed.text}.{odd}"
