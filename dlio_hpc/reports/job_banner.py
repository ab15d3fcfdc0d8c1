"""Banner of a report on jobs: whether the numbers of the jobs are measurements of the storage."""

from collections.abc import Iterator, Sequence

from dlio_hpc.analysis import disturbance_check, storage_check
from dlio_hpc.analysis.study import spread_reasons
from dlio_hpc.analysis.study.spread_reasons import Repeat
from dlio_hpc.base.units import counted
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.reports import banner, job_rows
from dlio_hpc.reports.banner import Banner


def of_jobs(outcomes: Sequence[JobOutcome]) -> Banner:
    """Return the banner with the worst state among the banners of these jobs. If several have this state, return the
    first.
    """
    return banner.gravest(list(map(_of_job, outcomes)))


def _of_job(outcome: JobOutcome) -> Banner:
    if (fault := job_outcome.fault(outcome)) is not None:
        return banner.of_fault(fault)
    measured = [run for run in outcome.runs if run.run.kind == "measure" and run.result is not None]
    planned = [run for run in outcome.runs if run.run.kind == "measure"]
    if len(measured) < len(planned):
        done = f"{len(measured)} of {len(planned)} measured runs have a result"
        return Banner("not measured", f"Incomplete: job {outcome.job.job} is {outcome.job.described()}; {done}.")
    if not planned:
        return _of_other(outcome)
    parts = [*of_disturbance(measured), _of_storage(measured), _of_repeats(measured)]
    gravest = banner.gravest(parts)
    text = gravest.text if gravest.state != "good" else " ".join(part.text for part in parts)
    return Banner(gravest.state, text + _setup_remark(outcome))


def _of_other(outcome: JobOutcome) -> Banner:
    """Return the banner of a job whose plan has no measured run."""
    if any(run.result is None for run in outcome.runs):
        return Banner("not measured", f"Incomplete: job {outcome.job.job} is {outcome.job.described()}.")
    if all(run.run.kind == "generate" for run in outcome.runs):
        return Banner("good", "The dataset is as planned. The job only generates a dataset; it measures nothing.")
    return Banner("not measured", "The job has no measured run.")


def _of_storage(measured: Sequence[RunOutcome]) -> Banner:
    """Return a banner that says whether the bytes of these runs came from storage."""
    outcomes = {run.name: run.storage.outcome() for run in measured if run.storage is not None}
    for outcome in ("cached", "unknown"):
        concerned = [run for run in measured if outcomes.get(run.name) == outcome]
        if concerned and (storage := concerned[0].storage) is not None:
            lead = concerned[0].name if len(measured) == 1 else f"{len(concerned)} of {len(measured)} measured runs"
            advice = f" To read from storage: {storage.advice[0]}." if storage.advice else ""
            return Banner("not measured", f"{lead}: {storage.text()}.{advice}")
    if not any(run.storage.epochs for run in measured if run.storage is not None):
        return of_writing(measured)
    shares = [run.storage.cached for run in measured if run.storage is not None and run.storage.cached is not None]
    lowest = f"{100 * (1 - max(shares, default=0.0)):.1f} %"
    share = "100 %" if lowest == "100.0 %" else f"at least {lowest}"
    if all(epoch.epoch == 0 for run in measured if run.storage is not None for epoch in run.storage.epochs):
        return Banner(
            "good", f"{of_writing(measured).text} {share[0].upper()}{share[1:]} of the bytes read came from storage."
        )
    if measured[0].run.workload.inference is not None:
        return _of_blocks(measured, share)
    remarks = list(dict.fromkeys(text for run in measured if run.storage is not None for text in run.storage.remarks))
    but = f"; but {'; '.join(remarks)}" if remarks else ""
    gaps = max(scan.gaps if (scan := run.run.workload.dataset.scan) else 0 for run in measured)
    if gaps:
        lacking = f"{counted(gaps, 'file')} of chunks are missing and were not read"
        return Banner(
            "good", f"Samples are as planned, but {lacking}; {share} of the others was read from storage{but}."
        )
    return Banner("good", f"Samples and bytes are as planned, and {share} was read from storage{but}.")


def _setup_remark(outcome: JobOutcome) -> str:
    """Return a sentence on setup lines of the site profile that failed, or an empty text. The numbers are not judged by
    them, because a line may fail without harm.
    """
    if not outcome.setup_failures:
        return ""
    first, *others = outcome.setup_failures
    more = f", and {counted(len(others), 'more line')} failed" if others else ""
    return f" But {first.text()}{more}: ranks may lack what it sets up."


def of_disturbance(measured: Sequence[RunOutcome]) -> Iterator[Banner]:
    """Yield a banner if computation or an epoch of any of these runs took far longer than expected."""
    texts = [f"{run.name}: {text}" for run in measured if run.result for text in disturbance_check.remarks(run.result)]
    if texts:
        more = f" And {len(texts) - 1} more such cases." if len(texts) > 1 else ""
        yield Banner("inconclusive", f"{texts[0]}.{more}")


def of_writing(measured: Sequence[RunOutcome]) -> Banner:
    """Return the banner of runs that read no samples. It states whether their checkpoints reached storage."""
    results = [run.result for run in measured if run.result is not None]
    saved = [result.summary.checkpoint for result in results if result.summary and result.summary.checkpoint]
    if any(result.summary and result.summary.metadata for result in results):
        return _of_operations(measured)
    if not saved and measured[0].run.workload.inference is not None:
        return Banner("not measured", f"No block of a KV cache was read from storage{_why_unread(measured)}.")
    if not saved:
        return Banner("not measured", "No run read anything from storage: the numbers show only the benchmark itself.")
    count = sum(checkpoint.count for checkpoint in saved)
    return Banner("good", f"{count} checkpoints reached storage (fsync); no samples were read.")


def _why_unread(measured: Sequence[RunOutcome]) -> str:
    """Return why an inference workload read no block, and what to do, to be appended to this fact."""
    summaries = [run.result.summary.inference for run in measured if run.result is not None and run.result.summary]
    served = [one for one in summaries if one is not None]
    if not any(one.served for one in served):
        return ", because no request was served: set a longer inference.time, a shorter interval, or more users"
    if any(one.memory_tokens for one in served):
        return ", because inference.memory holds what requests need: set a smaller one"
    if any(one.removed_blocks for one in served):
        return ", because blocks were removed before they were needed: set a larger inference.capacity"
    return ": set inference.turns or system_prompt"


def _of_operations(measured: Sequence[RunOutcome]) -> Banner:
    """Return the banner of runs of a metadata workload that the servers answered."""
    pairs = [(run, run.result.summary) for run in measured if run.result is not None and run.result.summary]
    operations = sum(phase.operations for _, summary in pairs for phase in summary.metadata)
    cut = dict.fromkeys(phase for run, summary in pairs for phase in job_rows.cut_phases(run, summary))
    ended = f", of which metadata.time_limit ended {', '.join(cut)}" if cut else " as planned"
    return Banner("good", f"{operations:,} operations on files and directories{ended}; {storage_check.SERVED}.")


def _of_blocks(measured: Sequence[RunOutcome], share: str) -> Banner:
    """Return the banner of runs of an inference workload whose bytes came from storage. share: share of these bytes. If
    the queue of requests grew, the run is no measurement of its users.
    """
    summaries = [run.result.summary.inference for run in measured if run.result is not None and run.result.summary]
    served = [one for one in summaries if one is not None]
    remarks = list(dict.fromkeys(text for run in measured if run.storage is not None for text in run.storage.remarks))
    but = f"; but {'; '.join(remarks)}" if remarks else ""
    text = f"{share[0].upper()}{share[1:]} of the bytes of {sum(one.blocks_read for one in served):,} blocks was read"
    grown = sum(not one.is_sustained for one in served)
    if grown:
        runs = "" if len(served) == 1 else f" in {grown} of {len(served)} runs"
        return Banner("inconclusive", f"Not sustained: the queue of requests grows{runs}, so there are too many users.")
    if few := [one for one in served if one.users_in_time and not one.has_enough]:
        least = min(one.requests for one in few)
        return Banner(
            "inconclusive",
            f"The users in time are those of a search with {counted(least, 'request')} of this number of users, and "
            "99 % in time needs 100; set a longer inference.time.",
        )
    return Banner("good", f"{text} from storage{but}.")


def _of_repeats(measured: Sequence[RunOutcome]) -> Banner:
    """Return the banner on the repeats with the largest spread. If the spread is large, the banner mentions recorded
    activity on the nodes that may explain it.
    """
    repeated = [repeats for repeats in job_rows.by_point(measured).values() if len(repeats) > 1]
    if not repeated:
        return Banner("good", "Measured once: the noise is unknown.")
    worst = max(repeated, key=_spread)
    spread = _spread(worst)
    repeats = f"{len(worst)} repeats (from {worst[0].name} on)"
    text = f"{job_rows.noun(measured)} of {repeats} spread by {100 * spread:.1f} % of the median"
    if spread <= spread_reasons.LARGE:
        return Banner("good", f"{text}.")
    return Banner("inconclusive", f"{text}: {'; '.join(spread_reasons.explained(worst))}.")


def _spread(repeats: Sequence[Repeat]) -> float:
    return spread_reasons.spread([repeat.value for repeat in repeats])
