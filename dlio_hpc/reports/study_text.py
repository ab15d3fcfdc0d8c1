"""Findings of a study as sentences, for the terminal, the HTML page and the captions of pictures."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dlio_hpc.analysis.study.best_setting import Comparison, Finding
from dlio_hpc.analysis.study.job_spread import ASSUMED
from dlio_hpc.analysis.study.main_effects import Ranking, RecommendedChange
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.ratios import Noise
from dlio_hpc.analysis.study.replicates import SURE
from dlio_hpc.analysis.study.scaling import Scaling, ScalingStep
from dlio_hpc.analysis.study.spread_reasons import LARGE, Repeat, explained, spread
from dlio_hpc.base.units import counted
from dlio_hpc.config.workload import Workload
from dlio_hpc.plan.study import Study
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.reports.study_rows import joined, setting, short
from dlio_hpc.results.metrics import METRICS

# Relative noise of a single measurement above which three rounds may fail to show a difference of one third.
_MUCH_NOISE = 0.15


# The storage counts as measured if more than this share of the bytes came from storage.
_FETCHED = 0.9
# Kinds of scaling in words.
KINDS = {"strong": "all ranks together read the same amount", "weak": "each rank reads the same amount"}
# Maximum number of points for which reports explain why repeats differ. Further points are only counted.
_DISTURBED = 5
# Maximum number of reasons for missing measurements that are listed. Further reasons are only counted.
_REASONS = 8


def heading(outcome: StudyOutcome) -> list[str]:
    """Return lines with the description, the size and the site of a study. If all points have the same numbers of nodes
    and ranks, the lines include these numbers.
    """
    study = outcome.study
    size = f"{counted(len(study.points), 'point')} x {counted(study.repeat, 'measurement')}{study.in_nights}"
    jobs = counted(len(outcome.jobs), "job")
    more = f", {counted(outcome.others, 'duplicate')} left out" if outcome.others else ""
    scales = {point.launched for point in study.points}
    scale = ""
    if len(scales) == 1:
        ((nodes, ranks),) = scales
        scale = f", {counted(nodes, 'node')} x {counted(ranks, 'rank')}"
    return [
        *([study.description] if study.description else []),
        f"{size} in rounds, shuffled with seed {study.seed}; {jobs} on {study.site.name}{scale}{more}",
    ]


def notes(outcome: StudyOutcome) -> list[str]:
    """Return the notes on the study's jobs, and a note for each job that cannot be read."""
    return [*outcome.notes, *(f"left out a job that cannot be read: {fault}" for fault in outcome.broken)]


def verdict(study: Study, finding: Finding, comparison: Comparison) -> list[str]:
    """Return sentences on the best setting, and on whether to change to it."""
    return list(_best(study, finding, comparison))


def conclusions(study: Study, finding: Finding) -> list[list[str]]:
    """Return the sentences on each comparison of settings and on each scaling curve."""
    compared = [verdict(study, finding, comparison) for comparison in finding.comparisons]
    return [*compared, *map(_named, finding.scalings)]


def first(study: Study, finding: Finding) -> list[str]:
    """Return the sentences of the main conclusion of a part. If the part compares settings, return the sentences on its
    last comparison, which is the comparison on the most ranks. Otherwise, return the sentences on scaling.
    """
    if finding.comparisons:
        return verdict(study, finding, finding.comparisons[-1])
    return [sentence for curve in finding.scalings for sentence in _named(curve)]


def scaling(curve: Scaling) -> list[str]:
    """Return sentences on the speed-up at the largest number of ranks. The sentences also name the numbers of ranks at
    which the speed-up differs from linear by more than the noise.
    """
    last = curve.steps[-1]
    speed_up = f"On {_ranks(curve, last)} the speed-up is {last.speed_up:.2f}"
    share = f"{100 * last.efficiency:.1f} % of linear"
    if last.low is None or last.high is None:
        why = why_unknown(curve.noise)
        return [f"{speed_up}, {share}. Whether the difference is more than noise is unknown: {why}."]
    sentences = [f"{speed_up} ({_interval(last.low, last.high)}), {share}.", _linear(curve)]
    if last.low <= 1 <= last.high:
        sentences.append(f"The difference from {_ranks(curve, curve.steps[0])} does not exceed the noise.")
    elif last.high < 1:
        sentences.append(f"This is slower than on {_ranks(curve, curve.steps[0])}, by more than the noise.")
    return sentences


def _named(curve: Scaling) -> list[str]:
    """Return the sentences of scaling(). If there are several settings, the first sentence starts with the setting."""
    head, *more = scaling(curve)
    return [f"{joined(curve.labels)}: {head}" if curve.labels else head, *more]


def _linear(curve: Scaling) -> str:
    below, above = ([step for step in curve.steps[1:] if getattr(step, name)] for name in ("is_below", "is_above"))
    sentences = []
    if len(below) > 1 and tuple(below) == curve.steps[-len(below) :]:
        sentences.append(f"From {_ranks(curve, below[0])} on, it is below linear by more than the noise.")
    elif below:
        sentences.append(f"On {_listed(curve, below)}, it is below linear by more than the noise.")
    if above:
        sentences.append(f"On {_listed(curve, above)}, it is above linear by more than the noise.")
    return " ".join(sentences) or "It does not differ from linear by more than the noise."


def _listed(curve: Scaling, steps: Sequence[ScalingStep]) -> str:
    return " and ".join(_ranks(curve, step) for step in steps)


def _ranks(curve: Scaling, step: ScalingStep) -> str:
    """Return the number of ranks at a point of a scaling curve as text, such as "8 ranks". If another point of the
    curve has the same number of ranks, the text also states the number of nodes, such as "2 x 4 ranks".
    """
    if sum(candidate.ranks == step.ranks for candidate in curve.steps) > 1:
        return f"{step.nodes} x {step.ranks_per_node} ranks"
    return f"{step.ranks} rank{'s' if step.ranks > 1 else ''}"


def noise(finding: Finding) -> list[str]:
    """Return sentences on the noise of the comparisons and scaling curves. If the noise is unknown, return an empty
    list, because the verdicts already say this.
    """
    noises = [comparison.noise for comparison in finding.comparisons if comparison.noise.sd is not None]
    of_scales = [curve.noise for curve in finding.scalings if curve.noise.sd is not None][:1]
    sentences = [f"{_noise('Noise of a single measurement', estimate)}" for estimate in (noises or of_scales)[:1]]
    if noises and any(estimate.is_blocked for estimate in noises):
        drift = max(estimate.drift for estimate in noises)
        share = f"{100 * drift:.{1 if drift < 0.1 else 0}f} %"
        sentences[0] += f" Rounds differ by {share}; this affects all points alike and is removed from the results."
    if noises and any(estimate.includes_jobs for estimate in noises):
        sentences.append(
            "No two settings ran in the same job; the noise includes an assumed difference between "
            f"jobs of {100 * ASSUMED.sd:.2g} %."
        )
    return [*sentences, *(sentence for curve in finding.scalings[:1] for sentence in between_jobs(curve))]


def between_jobs(curve: Scaling) -> list[str]:
    """Return a sentence on the variation between jobs, which the intervals of speed-ups include. Return an empty list
    if it is unknown.
    """
    jobs = curve.between_jobs
    if jobs.sd is None:
        return []
    if jobs.is_assumed:
        return [
            f"All repeats of a number of ranks ran in one job; jobs are assumed to differ by {100 * jobs.sd:.2g} %; "
            f"submit on "
            "several nights (--nights N) to measure it."
        ]
    few = "; too few for a good estimate: submit on more nights (--nights N)" if jobs.df < 4 else ""
    return [
        f"Jobs with the same number of ranks differ by {100 * jobs.sd:.2g} % ({jobs.df:g} degrees of freedom{few})."
    ]


def _noise(label: str, estimate: Noise) -> str:
    sd = estimate.sd or 0.0
    few = "; too few for a good estimate: increase --repeat" if estimate.df < 4 else ""
    sentence = f"{label}: {100 * sd:.2g} % ({estimate.df} degrees of freedom{few})."
    if sd > _MUCH_NOISE:
        sentence += " Noise of this size hides differences: use longer runs or a higher --repeat."
    return sentence


def disturbances(study: Study, finding: Finding, measured: Sequence[Measured]) -> list[str]:
    """Return sentences with possible reasons for points whose repeats differ by more than a tenth (LARGE). The point
    with the largest difference comes first.
    """
    numbers = {point.point for point in finding.points}
    repeats: dict[int, list[Repeat]] = {}
    for measurement in measured:
        if measurement.point in numbers and (level := METRICS[finding.metric].value(measurement.summary)):
            good = level ** METRICS[finding.metric].sign
            repeats.setdefault(measurement.point, []).append(
                Repeat(f"{measurement.job}/{measurement.run}", good, measurement.disturbance)
            )
    spreads = {number: spread([repeat.value for repeat in runs]) for number, runs in repeats.items()}
    large = sorted((number for number in spreads if spreads[number] > LARGE), key=lambda number: -spreads[number])
    sentences = []
    for number in large[:_DISTURBED]:
        title = setting(study, number)
        sentences.append(
            f"Repeats of {title} differ by {100 * spreads[number]:.0f} %: {'; '.join(explained(repeats[number]))}."
        )
    return [
        *sentences,
        *(
            [f"The repeats of {len(large) - _DISTURBED} more points differ by more than a tenth."]
            if len(large) > _DISTURBED
            else []
        ),
    ]


def cached(finding: Finding) -> list[str]:
    """Return a sentence on the share of bytes that came from storage. Return an empty list if this share is unknown for
    all points, or if nothing was read.
    """
    shares = [point.from_storage for point in finding.points if point.from_storage is not None]
    if not shares:
        return []
    least, most = (f"{100 * share:.0f}" for share in (min(shares), max(shares)))
    sentence = f"Read from storage: {least if least == most else f'{least} to {most}'} % of the bytes"
    if min(shares) > _FETCHED:
        return [f"{sentence}."]
    return [
        f"{sentence}; the rest came from the page cache. This compares memory, not storage. Use "
        "reader.drop_cache, reader.direct or a dataset larger than memory."
    ]


def _where(study: Study, finding: Finding, comparison: Comparison) -> str:
    """Return the number of ranks and the file system of a comparison as text. The number of ranks is left out if the
    part does not vary it. The file system is left out if the part does not compare file systems.
    """
    ranks = f"{counted(comparison.nodes, 'node')} x {comparison.ranks_per_node} ranks"
    on = f"On {ranks}" if study.part(finding.part).is_scaling else ""
    below = f"{'below' if on else 'Below'} {comparison.data}" if comparison.data is not None else ""
    return ", ".join(filter(None, (on, below))) + (": " if on or below else "")


def _setting(study: Study, number: int | None) -> str:
    """Return the setting of a point as text, without ranks and file system. number: number of the point. If it is None,
    return an empty string.
    """
    return "" if number is None else setting(study, number, is_place_known=True)


def _best(study: Study, finding: Finding, comparison: Comparison) -> Iterator[str]:
    """Yield sentences on the best setting of a comparison."""
    where, best = _where(study, finding, comparison), _setting(study, comparison.best)
    gain = comparison.gain
    if comparison.noise.sd is None:
        ratio = "" if gain is None or comparison.best == comparison.reference else f", {gain.ratio:.2f} x the reference"
        why = why_unknown(comparison.noise)
        yield f"{where}Ahead: {best}{ratio}. Whether the difference is more than noise is unknown: {why}."
        return
    if comparison.change is not None and (gain is None or not gain.is_beyond_noise):
        yield (
            f"{where}No single setting is better than the reference by more than the noise, but values of "
            "parameters are."
        )
    elif gain is None:
        yield f"{where}Best: {best}. The reference was not measured."
    elif comparison.best == comparison.reference:
        is_apart, next_best = _is_any_apart(comparison), _next_best(study, comparison)
        lead = (
            f"Best: the reference, {best}"
            if is_apart
            else f"No difference beyond noise: the best is the reference, {best}"
        )
        yield f"{where}{lead}{next_best}."
    elif not gain.is_beyond_noise and _is_any_apart(comparison):
        yield (
            f"{where}Nothing is better than the reference ({_setting(study, comparison.reference)}) by more "
            f"than the noise: the best is {best}, {gain.ratio:.2f} x; {_interval(gain.low, gain.high)}."
        )
    elif not gain.is_beyond_noise:
        yield (
            f"{where}No difference beyond noise: the reference ({_setting(study, comparison.reference)}) is not "
            f"significantly different from the best ({best}, {gain.ratio:.2f} x; {_interval(gain.low, gain.high)})."
        )
    else:
        yield (
            f"{where}Best: {best}, {gain.ratio:.2f} x the reference ({_setting(study, comparison.reference)}); "
            f"{_interval(gain.low, gain.high)}, confidence {confidence(gain.confidence)}."
        )
    if comparison.change is not None:
        yield _change(comparison.change)
    else:
        yield from _choice(study, comparison)
        yield from _unchanged(comparison)


def _next_best(study: Study, comparison: Comparison) -> str:
    """Return a clause on the setting that is nearest to the best, with its ratio to the best. Return an empty string if
    there is no other setting.
    """
    others = [point for point in comparison.points if point.point != comparison.best]
    if not others:
        return ""
    nearest = max(others, key=lambda point: point.to_best)
    ratio = f"{nearest.to_best:.2f} x; {_interval(nearest.low, nearest.high)}".removesuffix("; ")
    return f"; the next is {_setting(study, nearest.point)}, {ratio}"


def _is_any_apart(comparison: Comparison) -> bool:
    """Return whether any difference between points, between values of a parameter, or by interaction, exceeds the
    noise.
    """
    ranking = comparison.ranking
    are_points = any(point.verdict == "slower" for point in comparison.points)
    return are_points or (ranking is not None and ranking.is_beyond_noise)


def _change(change: RecommendedChange) -> str:
    """Return a sentence on the change of the reference that the effects of parameters recommend."""
    interval = _interval(change.low, change.high)
    return (
        f"Recommended: the reference with {joined(change.settings)}, {change.ratio:.2f} x the reference in the means "
        f"over all settings of the other parameters; {interval}."
    )


def _unchanged(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence if the effects of parameters seem to contradict the comparison of points. It says why the
    reference is kept although values of parameters differ by more than the noise, or that points differ although values
    of parameters do not.
    """
    ranking = comparison.ranking
    if ranking is None or len(ranking.effects) < 2:
        return
    beyond = [" with ".join(short(effect.keys).values()) for effect in ranking.effects if effect.is_beyond_noise]
    if ranking.has_interaction:
        yield "The best value of a parameter depends on the other parameters (interaction)."
    elif beyond and comparison.recommended == comparison.reference:
        yield f"The reference's value of {', '.join(beyond)} does not differ from the best by more than the noise."
    elif not beyond and any(point.verdict == "slower" for point in comparison.points):
        yield "No single parameter has an effect larger than the noise, averaged over all settings of the others."


def _choice(study: Study, comparison: Comparison) -> Iterator[str]:
    """Yield sentences on the recommended setting, and on the number of settings that are as good as the best."""
    same = [point.point for point in comparison.points if point.verdict == "same as best"]
    if comparison.recommended is None:
        return
    if comparison.recommended == comparison.reference:
        others = "" if not same else f" {_others(len(same), len(comparison.points))}"
        is_default = study.part(study.points[comparison.recommended].part).is_default
        yield f"{'Keep the present settings.' if is_default else 'There is no reason to change it.'}{others}"
    elif comparison.recommended != comparison.best:
        simplest, others = _setting(study, comparison.recommended), _others(len(same), len(comparison.points))
        yield f"Simplest setting that is not significantly different from the best: {simplest}. {others}"
    elif same:
        yield _others(len(same), len(comparison.points))


def _others(same: int, points: int) -> str:
    if same == points - 1:
        return "No setting is significantly different from the best."
    return (
        f"{same} of {points - 1} others are not significantly different from the best."
        if same
        else "All others are worse."
    )


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * SURE:.0f} % interval {low:.2f} to {high:.2f}"


def confidence(share: float | None) -> str:
    """Return a confidence as a percentage; "unknown" for None."""
    if share is None:
        return "unknown"
    return "> 99.9 %" if share > 0.999 else f"{100 * share:.1f} %"


def why_unknown(estimate: Noise) -> str:
    """Return the reason why the noise is unknown."""
    if estimate.df == 0:
        return "too few measurements were repeated; use --repeat 3"
    return "repeats are equal to the last digit, which is implausible"


def part_title(study: Study, finding: Finding) -> str:
    """Return the name and title of a part."""
    part = study.part(finding.part)
    return ": ".join(filter(None, (part.name, part.title)))


def legend(study: Study, finding: Finding) -> str:
    """Return the legend of the table of points."""
    unsynced = without_fsync(study.points[point.point].workload for point in finding.points)
    return " ".join(filter(None, (_of_columns(study, finding), unsynced)))


def without_fsync(workloads: Iterable[Workload]) -> str:
    """Return why some of these workloads have no rate of checkpoints. Return "" if this applies to none of them."""
    for made in workloads:
        if made.only_writes_checkpoints and made.checkpoint is not None and not made.checkpoint.fsync:
            return (
                "checkpoint MB/s is measured only with checkpoint.fsync=true: without fsync, checkpoints may still be "
                "in memory."
            )
    return ""


def _of_columns(study: Study, finding: Finding) -> str:
    if not finding.comparisons:
        return "Medians of n measurements."
    unusual = " The workload's own setting is not in the table; the reference is the first setting instead."
    return (
        f"Medians of n measurements, compared by {METRICS[finding.metric].noun}. x ref: ratio of the median to the "
        f"median of the reference (ref); if rounds are missing, ratio of means without drift; above 1 is better. "
        f"same: not "
        "significantly different from the best; worse: by more than the noise; ?: unknown."
        + unusual
        * (not study.part(finding.part).is_default)
    )


def ranking_title(finding: Finding, comparison: Comparison) -> str:
    where = (
        f" on {counted(comparison.nodes, 'node')} x {comparison.ranks_per_node} ranks"
        if len(finding.comparisons) > 1
        else ""
    )
    where += f" below {comparison.data}" if comparison.data is not None else ""
    return f"Parameters by effect{where}: means over all settings of the other parameters"


def ranking_notes(ranking: Ranking) -> list[str]:
    """Return notes on the table of parameters. Interaction is mentioned only if it exceeds the noise."""
    if not ranking.effects:
        return ["Too few combinations were measured to separate the parameters."]
    notes = []
    if any(len(effect.keys) > 1 for effect in ranking.effects):
        notes.append("Keys that vary together cannot be separated; they are treated as one parameter.")
    if ranking.interaction is not None:
        sure = confidence(ranking.interaction_confidence)
        notes.append(
            f"{100 * ranking.interaction:.0f} % of the variance between points is due to interaction between "
            f"parameters; this exceeds the noise, confidence {sure}."
        )
    return notes


def scaling_title(curve: Scaling) -> str:
    labels = joined(curve.labels)
    of_labels = f" of {labels}" if labels else ""
    return f"{curve.kind.capitalize()} scaling{of_labels} ({KINDS[curve.kind]}), against the fewest ranks"


def missing(outcome: StudyOutcome) -> list[str]:
    """Return lines with the number of missing measurements and the reasons. Return an empty list if none is missing."""
    if not outcome.missing:
        return []
    reasons = Counter(measurement.why for measurement in outcome.missing).most_common()
    lines = [f"Missing: {len(outcome.missing)} of {outcome.wanted} measurements."]
    lines += [f"  {count} x {why}" for why, count in reasons[:_REASONS]]
    if len(reasons) > _REASONS:
        lines.append(f"  and {len(reasons) - _REASONS} more reasons; --json lists all.")
    is_live = all(measurement.is_live for measurement in outcome.missing)
    return [*lines, "The jobs that make these measurements have not ended yet."] if is_live else lines


def resume(outcome: StudyOutcome) -> str | None:
    """Return a line with the command that makes the missing measurements. The command works in any directory. Return
    None if no measurement is missing, or if unfinished jobs will still make all of them.
    """
    live = [measurement.is_live for measurement in outcome.missing]
    if all(live):
        return None
    later = " after the unfinished jobs have ended" if any(live) else ""
    folder = shlex.quote(str(outcome.study.folder))
    return f"To measure what is missing{later}: dlio-submit --resume {folder}"
