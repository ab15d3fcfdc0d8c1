"""The largest number of users that a study with several numbers of users serves in time."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.base import serialization
from dlio_hpc.base.units import format_seconds, listed
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.results.run_result import InferenceSummary


class _Level(NamedTuple):
    """A number of users that was measured. p99_s: largest 99th percentile of the time to the first token among the
    repeats; None if a repeat served no request. is_met: whether all repeats were in time (InferenceSummary.is_in_time).
    """

    users: int
    p99_s: float | None
    target_s: float
    is_met: bool

    @property
    def text(self) -> str:
        """What is wrong with this number of users."""
        if self.p99_s is None or self.p99_s <= self.target_s:
            return "not all requests are served in time"
        return format_seconds(self.p99_s)


# Other settings of points that differ in their users alone: the encoded workload with one user, nodes, ranks per node.
_Others = tuple[bytes, int, int]


def of_study(jobs: Sequence[JobOutcome]) -> list[str]:
    """Return a sentence for each group of points that differ in inference.users alone. Runs without a valid result and
    loads of mixes are left out, and so are groups with a single number of users.
    """
    groups: dict[_Others, dict[int, list[RunOutcome]]] = {}
    for job in jobs:
        for run in job.runs:
            keys = run.run.workload.inference
            is_apart = run.run.kind != "measure" or run.run.load is not None
            if keys is None or keys.search is not None or is_apart or job_outcome.run_fault(job, run) is not None:
                continue
            if _served(run) is not None:
                same = structs.replace(run.run.workload, inference=structs.replace(keys, users=1))
                others = serialization.encode(same), job.plan.nodes, job.plan.ranks_per_node
                groups.setdefault(others, {}).setdefault(keys.users, []).append(run)
    several = [levels for levels in groups.values() if len(levels) > 1]
    return [_sentence(_levels(levels), others) for levels, others in zip(several, _titles(several), strict=True)]


def _served(run: RunOutcome) -> InferenceSummary | None:
    summary = None if run.result is None else run.result.summary
    return None if summary is None else summary.inference


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
        times = [one.ttft_s.p99 for one in summaries if one.ttft_s is not None]
        p99_s = max(times) if len(times) == len(summaries) else None
        levels.append(_Level(users, p99_s, float(keys.target), all(one.is_in_time for one in summaries)))
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
