"""The largest number of users that a study with several numbers of users serves in time."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.base import serialization
from dlio_hpc.base.units import counted, format_seconds, listed
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.reports import inference_rows
from dlio_hpc.results.run_result import InferenceSummary


class _Level(NamedTuple):
    """A number of users that was measured. p99_s: largest 99th percentile of the time to the first token among the
    repeats; None if a repeat did not serve 99 % of its requests. is_met: whether all repeats were in time
    (InferenceSummary.is_in_time). repeats: their summaries. fewest_requests: number of requests of the repeat with the
    fewest. has_enough: whether they can show 99 %.
    """

    users: int
    p99_s: float | None
    target_s: float
    is_met: bool
    repeats: Sequence[InferenceSummary]
    fewest_requests: int
    has_enough: bool

    @property
    def text(self) -> str:
        """What is wrong with this number of users."""
        if self.p99_s is None or self.p99_s <= self.target_s:
            return "not all requests are served in time"
        return format_seconds(self.p99_s)


# Other settings of points that differ in their users alone: the encoded workload with one user, nodes, ranks per node.
_Others = tuple[bytes, int, int]


def of_study(jobs: Sequence[JobOutcome]) -> list[str]:
    """Return a sentence for each group of points that differ in inference.users alone. Loads of mixes are left out, and
    so are groups with a single number of users. If a run has no valid result, or its bytes may not have come from
    storage, the sentence says only that the number is not known.
    """
    groups: dict[_Others, dict[int, list[RunOutcome]]] = {}
    unusable: dict[_Others, str] = {}
    for job in jobs:
        for run in job.runs:
            keys = run.run.workload.inference
            is_apart = run.run.kind != "measure" or run.run.load is not None
            if keys is None or keys.search is not None or is_apart:
                continue
            if keys.trace is not None and keys.trace.has_arrivals:
                continue  # users do not change the load
            same = structs.replace(run.run.workload, inference=structs.replace(keys, users=1))
            others = serialization.encode(same), job.plan.nodes, job.plan.ranks_per_node
            groups.setdefault(others, {}).setdefault(keys.users, []).append(run)
            if reason := _unusable(job, run):
                unusable.setdefault(others, reason)
    several = {others: levels for others, levels in groups.items() if len(levels) > 1}
    titles = _titles(list(several.values()))
    return [
        f"Users in time{title}: not known, because {unusable[others]}."
        if others in unusable
        else _sentence(_levels(levels), title)
        for (others, levels), title in zip(several.items(), titles, strict=True)
    ]


def _unusable(job: JobOutcome, run: RunOutcome) -> str | None:
    """Return the reason why a run says nothing about the users that storage serves; None if there is none."""
    if job_outcome.run_fault(job, run) is not None or _served(run) is None:
        return f"{run.name} has no valid result"
    if run.storage is not None and run.storage.outcome() in ("cached", "unknown"):
        return f"the bytes of {run.name} may not have come from storage"
    return None


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
        times = [p99 for one in summaries if (p99 := one.first_token("p99")) is not None]
        p99_s = max(times) if len(times) == len(summaries) else None
        is_met = all(one.is_in_time for one in summaries)
        fewest, has_enough = min(one.requests for one in summaries), all(one.has_enough for one in summaries)
        levels.append(_Level(users, p99_s, float(keys.target), is_met, summaries, fewest, has_enough))
    return levels


def _sentence(levels: Sequence[_Level], where: str) -> str:
    """Return which of the numbers of users are served in time. A number counts only if all smaller ones are, too."""
    met = 0
    while met < len(levels) and levels[met].is_met:
        met += 1
    lead = f"Users in time{where} (99 % of the first tokens within {format_seconds(levels[0].target_s)})"
    if met == len(levels):
        few = _few(levels[-1])
        return f"{lead}: {levels[-1].users} and perhaps more{few}; no larger number was measured."
    failed = levels[met]
    limit = inference_rows.limited_by(failed.repeats)
    others = [str(level.users) for level in levels[met + 1 :] if level.is_met]
    odd = f" But {listed(others)} met it, so the noise is large." if others else ""
    if not met:
        return f"{lead}: fewer than {failed.users}: {failed.text}.{odd}{limit}"
    return f"{lead}: {levels[met - 1].users}{_few(levels[met - 1])}; with {failed.users}: {failed.text}.{odd}{limit}"


def _few(level: _Level) -> str:
    """Return a remark if a repeat had so few requests that they cannot show 99 %."""
    if level.has_enough:
        return ""
    return f" (of {counted(level.fewest_requests, 'request')} in a repeat; 99 % needs 100)"
