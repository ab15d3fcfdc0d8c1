"""The banner over jobs: may their figures be used as measurements of the storage?"""

import statistics
from collections.abc import Iterator, Sequence

from dlio_hpc.report import banner, jobfiles
from dlio_hpc.report.banner import Banner
from dlio_hpc.report.jobfiles import JobOutcome, RunOutcome

# Repeats whose samples/s differ by more, relative to their median, support no conclusion.
SPREAD = 0.10


def of_jobs(outcomes: Sequence[JobOutcome]) -> Banner:
    """The gravest banner of these jobs; where all are good, the one of the first."""
    return banner.gravest(list(map(_of_job, outcomes)))


def _of_job(outcome: JobOutcome) -> Banner:
    if (fault := jobfiles.fault(outcome)) is not None:
        return banner.of_fault(fault)
    measured = [run for run in outcome.runs if run.run.kind == "measure" and run.result is not None]
    planned = [run for run in outcome.runs if run.run.kind == "measure"]
    if len(measured) < len(planned):
        done = f"{len(measured)} of {len(planned)} measured runs have a result"
        return Banner("not measured", f"Incomplete: job {outcome.job.job} is {outcome.job.state}; {done}.")
    if not planned:
        return _of_other(outcome)
    parts = [_of_storage(measured), _of_repeats(measured)]
    gravest = banner.gravest(parts)
    return gravest if gravest.state != "good" else Banner("good", " ".join(part.text for part in parts))


def _of_other(outcome: JobOutcome) -> Banner:
    """The banner of a job that measures nothing: it generates a dataset, or warms up."""
    if any(run.result is None for run in outcome.runs):
        return Banner("not measured", f"Incomplete: job {outcome.job.job} is {outcome.job.state}.")
    if all(run.run.kind == "generate" for run in outcome.runs):
        return Banner("good", "The dataset is as planned. The job only generates; it measures nothing.")
    return Banner("not measured", "The job has no measured run.")


def _of_storage(measured: Sequence[RunOutcome]) -> Banner:
    """The banner by where the bytes of all epochs came from."""
    outcomes = {run.name: run.storage.outcome() for run in measured if run.storage is not None}
    for outcome in ("cached", "unknown"):
        named = next((run for run in measured if outcomes.get(run.name) == outcome), None)
        if named is not None and named.storage is not None:
            return Banner("not measured", f"{named.name}: {named.storage.words()}.")
    if set(outcomes.values()) == {"nothing read"}:
        return Banner("not measured", "No run read anything from storage: the figures are those of the tool itself.")
    shares = [run.storage.cached for run in measured if run.storage is not None and run.storage.cached is not None]
    least = 100 * (1 - max(shares, default=0.0))
    return Banner("good", f"Samples and bytes are as planned, and at least {least:.1f} % came from storage.")


def _of_repeats(measured: Sequence[RunOutcome]) -> Banner:
    """The banner by how far repeats of one measurement differ."""
    spreads = list(_spreads(measured))
    if not spreads:
        return Banner("good", "Measured once: the noise is unknown.")
    name, spread, repeats = max(spreads, key=lambda one: one[1])
    differ = f"Repeats differ by {100 * spread:.1f} % of their median samples/s ({name}, {repeats} repeats)"
    return Banner("inconclusive" if spread > SPREAD else "good", f"{differ}.")


def _spreads(measured: Sequence[RunOutcome]) -> Iterator[tuple[str, float, int]]:
    """First run, relative spread of samples/s, and number of repeats of each measurement that was repeated."""
    repeats: dict[int | None, list[RunOutcome]] = {}
    for run in measured:
        repeats.setdefault(run.run.point, []).append(run)
    for runs in repeats.values():
        rates = [run.result.summary.samples_per_s for run in runs if run.result and run.result.summary]
        if len(rates) > 1 and min(rates) > 0:
            yield runs[0].name, (max(rates) - min(rates)) / statistics.median(rates), len(rates)
