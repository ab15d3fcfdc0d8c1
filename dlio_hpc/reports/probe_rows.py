"""The probe of storage before a run, compared with the run, as pairs of label and text."""

from dlio_hpc.base import units
from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.config.workload import Workload
from dlio_hpc.records.job_outcome import RunOutcome
from dlio_hpc.results.probe_result import Pattern, ProbeRate, StorageProbe
from dlio_hpc.results.run_result import Result, Summary

# Share of the time that a run computes above which the computation limits its rate.
_COMPUTING = 0.5


def facts(run: RunOutcome, summary: Summary) -> list[tuple[str, str]]:
    """Return the run's rate as a share of the probe's, and the rates of the probe; an empty list without a probe."""
    probe = run.probe
    if probe is None:
        return []
    if probe.why_not is not None:
        return [("probe", f"not measured: {probe.why_not}")]
    compared = [] if run.result is None else [_compared(run, run.result, summary, probe)]
    lines = [*compared, *(_rate(rate, probe) for rate in probe.rates)]
    return [("probe" if not place else "", line) for place, line in enumerate(lines)]


def _compared(run: RunOutcome, result: Result, summary: Summary, probe: StorageProbe) -> str:
    """Return a sentence that compares the rate of the run with that of the ranks' own plain loop."""
    if run.storage is None or run.storage.outcome() != "storage" or summary.read_MBps is None:
        return "not compared with the run, which did not provably read from storage"
    rate = _reference(probe.rates, _pattern(run.run.workload))
    if not rate.MBps:
        return "not compared with the run: the plain loop read nothing"
    before = format_seconds(units.seconds_between(probe.ended, result.started))
    text = (
        f"{summary.read_MBps:.0f} MB/s are {100 * summary.read_MBps / rate.MBps:.0f} % of what a plain loop got from "
        f"the same files {before} before ({rate.pattern})"
    )
    if summary.au is not None and summary.au > _COMPUTING:
        text += f"; computation (AU {100 * summary.au:.0f} %) limits the rate of the run"
    return text


def _pattern(workload: Workload) -> Pattern:
    """Return the pattern that is nearest to the workload's own."""
    return "random" if workload.reader.shuffle.samples and workload.dataset.samples_per_file > 1 else "sequential"


def _reference(rates: list[ProbeRate], pattern: Pattern) -> ProbeRate:
    return next(rate for rate in rates if rate.pattern == pattern and rate.tool == "loop")


def _rate(rate: ProbeRate, probe: StorageProbe) -> str:
    tool = "plain loop" if rate.tool == "loop" else rate.tool
    size = format_size(rate.request_bytes)
    return f"{tool}, {rate.pattern}: {rate.MBps:.0f} MB/s, requests of {size}, {probe.threads} threads, O_DIRECT"
