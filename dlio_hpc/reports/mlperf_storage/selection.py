"""Selection of the runs that a report in the layout of MLPerf Storage contains, and checks of the jobs that it cannot
contain.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError, Incomplete
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.reports.mlperf_storage import dlio_keys
from dlio_hpc.reports.mlperf_storage.dlio_keys import DlioSettings
from dlio_hpc.reports.mlperf_storage.editions import Edition, SuiteModel
from dlio_hpc.results.run_result import Result
from dlio_hpc.verdict import criteria_file


class ReportedRun(NamedTuple):
    """A run in the report. au: AU that the edition requires; None for checkpoints."""

    outcome: JobOutcome
    run: RunOutcome
    result: Result
    model: SuiteModel
    settings: DlioSettings
    au: float | None

    @property
    def is_generation(self) -> bool:
        return self.result.kind == "generate"

    @property
    def name(self) -> str:
        return f"{self.outcome.job.job}, run {self.run.name}"

    @property
    def timestamp(self) -> str:
        """Start of the run in the form in which the layout names folders, such as 20261124_034731 (UTC)."""
        digits = re.sub(r"\D", "", self.result.started)
        return f"{digits[:8]}_{digits[8:14]}"

    @property
    def folder(self) -> str:
        """Path of the run's folder, relative to the folder of the system."""
        family, model = self.model.family, self.model.folder
        phase = "" if family == "checkpointing" else "datagen/" if self.is_generation else "run/"
        return f"{family}/{model}/{phase}{self.timestamp}"


def reported(outcomes: Sequence[JobOutcome], edition: Edition, accelerator: str | None = None) -> list[ReportedRun]:
    """Return the runs of the jobs, in the order in which they started. Generate runs that found a complete dataset are
    left out. accelerator: training on other accelerators is left out; None to leave out nothing. Raise an error if a
    job cannot be reported.
    """
    unique = {outcome.job.job: outcome for outcome in outcomes}
    every = [run for outcome in unique.values() for run in _runs(outcome, edition)]
    runs = [run for run in every if accelerator is None or run.model.accelerator in (None, accelerator)]
    if not runs:
        known = ", ".join(sorted({run.model.accelerator for run in every if run.model.accelerator is not None}))
        raise ConfigError(f"no run is on the accelerator {accelerator}; the jobs have: {known}")
    _check_folders(runs)
    return sorted(runs, key=lambda run: (run.model.folder, run.result.started))


def _runs(outcome: JobOutcome, edition: Edition) -> Iterator[ReportedRun]:
    _check(outcome, edition)
    for run in outcome.runs:
        result, model = run.result, edition.models[run.run.workload.name]
        generated = None if result is None else result.generated
        if result is None or (generated is not None and (generated.reused or model.family == "checkpointing")):
            continue
        au = _required_au(run.run.workload.name, edition) if model.family == "training" else None
        settings = dlio_keys.settings(run.run, model, result, au)
        yield ReportedRun(outcome, run, result, model, settings, au)


def _check(outcome: JobOutcome, edition: Edition) -> None:
    """Raise an error if the job has not ended, if the job has a fault, or if the edition does not have a workload of
    the job.
    """
    name = outcome.job.job
    if not outcome.job.ended:
        raise Incomplete(
            f"job {name} is {outcome.job.state}; only jobs that have ended can be reported. Wait for its end: dlio-hpc "
            f"wait {outcome.directory or name}"
        )
    for run in outcome.runs:
        if (workload := run.run.workload.name) not in edition.models:
            raise ConfigError(
                f"job {name}: MLPerf Storage {edition.version} has no workload {workload!r}; leave the job out. "
                f"It has: {', '.join(edition.models)}"
            )
    measured = [run for run in outcome.runs if run.run.kind != "generate"]
    if not measured:
        raise ConfigError(
            f"job {name} only generates a dataset; give it together with a job that measures, or not at all"
        )
    faults = (job_outcome.fault(outcome), *(job_outcome.run_fault(outcome, run) for run in measured))
    if (fault := next(filter(None, faults), None)) is not None:
        raise type(fault)(f"job {name} has no valid result; submit it again. {fault}")


def _check_folders(runs: Sequence[ReportedRun]) -> None:
    """Raise ConfigError if the layout does not have a folder for every run."""
    accelerators: dict[str, str | None] = {}
    folders: dict[str, ReportedRun] = {}
    for run in runs:
        model = run.model
        if accelerators.setdefault(model.folder, model.accelerator) != model.accelerator:
            raise ConfigError(
                f"the layout has one accelerator for {model.folder}, and these jobs have {accelerators[model.folder]} "
                f"and {model.accelerator}; report one with --accelerator, and the other with another --system"
            )
        if (other := folders.setdefault(run.folder, run)) is not run:
            raise ConfigError(
                f"{other.name} and {run.name} started in the same second, which is the name of their folders; "
                "report them one after the other, each with its own --system"
            )


def _required_au(workload: str, edition: Edition) -> float | None:
    """Return the AU that the shipped criteria of the edition require of a workload."""
    for criterion in criteria_file.load(edition.criteria).criteria.values():
        limit = criterion.asked.get("min_au_mlperf")
        if limit is not None and criteria_file.is_named(workload, criterion.workload or "*"):
            return float(limit)
    return None
