"""What a study found, in sentences: the terminal, the page and the pictures say the same."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from dlio_hpc.analysis.study.best_setting import Comparison, Finding
from dlio_hpc.analysis.study.disturbances import LARGE, Repeat, explained, spread
from dlio_hpc.analysis.study.main_effects import Ranking
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.ratios import Noise
from dlio_hpc.analysis.study.replicates import SURE
from dlio_hpc.analysis.study.scaling import Scaling, Step
from dlio_hpc.metrics import METRICS
from dlio_hpc.plan.study import Study
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.report.study_rows import joined, setting

# Of a single measurement; a difference of a third would still be missed in three rounds.
_MUCH_NOISE = 0.15


# From so much on storage was measured, if not alone.
_FETCHED = 0.9
# Of scaling.
KINDS = {"strong": "all ranks together read the same amount", "weak": "each rank reads the same amount"}
# Points whose repeats are explained; further points are counted only.
_DISTURBED = 5
# Why measurements are missing; more of them are counted.
_REASONS = 8


def heading(outcome: StudyOutcome) -> list[str]:
    """Which study it is, in lines."""
    study = outcome.study
    many = f"{len(study.points)} point(s) x {study.repeat} measurement(s)"
    jobs = f"{len(outcome.jobs)} job(s)"
    more = f", {outcome.others} measured once more and left out" if outcome.others else ""
    return [
        *([study.description] if study.description else []),
        f"{many} in rounds, their order drawn with seed {study.seed}; {jobs} on {study.site.name}{more}",
    ]


def notes(outcome: StudyOutcome) -> list[str]:
    """What a reader must know before believing anything."""
    return [*outcome.notes, *(f"left out, it cannot be read: {fault}" for fault in outcome.broken)]


def verdict(study: Study, finding: Finding, found: Comparison) -> list[str]:
    """Sentences on the best setting, and on whether to change anything."""
    return list(_best(study, finding, found))


def conclusions(study: Study, finding: Finding) -> list[list[str]]:
    """Sentences for each comparison and each scaling. A part that varies ranks alone has those of scaling only."""
    compared = [verdict(study, finding, comparison) for comparison in finding.comparisons]
    return [*compared, *map(_named, finding.scalings)]


def first(study: Study, finding: Finding) -> list[str]:
    """Sentences that open a part: on settings on the most ranks, else on scaling."""
    if finding.comparisons:
        return verdict(study, finding, finding.comparisons[-1])
    return [sentence for curve in finding.scalings for sentence in _named(curve)]


def scaling(curve: Scaling) -> list[str]:
    """Sentences on the speed-up on the most ranks, and on where it differs from linear beyond noise."""
    last = curve.steps[-1]
    speed_up = f"On {_ranks(curve, last)} the speed-up is {last.speed_up:.2f}"
    share = f"{100 * last.efficiency:.1f} % of linear"
    if last.low is None or last.high is None:
        why = why_unknown(curve.noise)
        return [f"{speed_up}, {share}. Whether that is more than noise cannot be told: {why}."]
    sentences = [f"{speed_up} ({_interval(last.low, last.high)}), {share}.", _linear(curve)]
    if last.low <= 1 <= last.high:
        sentences.append(f"The difference from {_ranks(curve, curve.steps[0])} is not beyond noise.")
    elif last.high < 1:
        sentences.append(f"It is slower than {_ranks(curve, curve.steps[0])} beyond noise.")
    return sentences


def _named(curve: Scaling) -> list[str]:
    """The sentences of scaling(), with the setting where there are several."""
    head, *more = scaling(curve)
    return [f"{joined(curve.labels)}: {head}" if curve.labels else head, *more]


def _linear(curve: Scaling) -> str:
    below, above = ([step for step in curve.steps[1:] if getattr(step, name)] for name in ("is_below", "is_above"))
    sentences = []
    if len(below) > 1 and tuple(below) == curve.steps[-len(below) :]:
        sentences.append(f"It is less than linear beyond noise from {_ranks(curve, below[0])} on.")
    elif below:
        sentences.append(f"It is less than linear beyond noise on {_listed(curve, below)}.")
    if above:
        sentences.append(f"It is more than linear beyond noise on {_listed(curve, above)}.")
    return " ".join(sentences) or "It does not differ from linear beyond noise."


def _listed(curve: Scaling, steps: Sequence[Step]) -> str:
    return " and ".join(_ranks(curve, step) for step in steps)


def _ranks(curve: Scaling, step: Step) -> str:
    """The number of ranks of a step; with nodes where another step has as many ranks."""
    if sum(other.ranks == step.ranks for other in curve.steps) > 1:
        return f"{step.nodes} x {step.ranks_per_node} ranks"
    return f"{step.ranks} rank{'s' if step.ranks > 1 else ''}"


def noise(finding: Finding) -> list[str]:
    """How much of the differences is noise, of all comparisons; nothing where that is unknown, which verdicts say."""
    noises = [each.noise for each in finding.comparisons if each.noise.sd is not None]
    apart = [curve.noise for curve in finding.scalings if curve.noise.sd is not None][:1]
    sentences = [f"{_noise('Noise of a single measurement', estimate)}" for estimate in (noises or apart)[:1]]
    if noises and any(estimate.is_blocked for estimate in noises):
        drift = max(estimate.drift for estimate in noises)
        sentences[0] += f" Rounds differ by {100 * drift:.2g} %; all points share that difference, and it is left out."
    if noises and apart:
        sentences.append(_noise("Noise between jobs, which scaling has", apart[0]))
    return sentences


def _noise(what: str, estimate: Noise) -> str:
    sd = estimate.sd or 0.0
    few = "; too few for a good estimate: repeat more often" if estimate.df < 4 else ""
    sentence = f"{what}: {100 * sd:.2g} % ({estimate.df} degrees of freedom{few})."
    if sd > _MUCH_NOISE:
        sentence += " So much hides differences: longer runs or a higher --repeat would show more."
    return sentence


def disturbances(study: Study, finding: Finding, measured: Sequence[Measured]) -> list[str]:
    """Reasons why repeats of a point differ by more than LARGE; the points that differ most come first."""
    numbers = {point.point for point in finding.points}
    repeats: dict[int, list[Repeat]] = {}
    for measurement in measured:
        if measurement.point in numbers and (level := METRICS[finding.metric].value(measurement.summary)):
            good = level ** METRICS[finding.metric].sign
            repeats.setdefault(measurement.point, []).append(
                Repeat(f"{measurement.job}/{measurement.run}", good, measurement.disturbance)
            )
    spreads = {number: spread([repeat.value for repeat in some]) for number, some in repeats.items()}
    large = sorted((number for number in spreads if spreads[number] > LARGE), key=lambda number: -spreads[number])
    sentences = []
    for number in large[:_DISTURBED]:
        title = setting(study, number)
        sentences.append(
            f"Repeats of {title} differ by {100 * spreads[number]:.0f} %: {'; '.join(explained(repeats[number]))}."
        )
    return [
        *sentences,
        *([f"{len(large) - _DISTURBED} more points differ as much."] if len(large) > _DISTURBED else []),
    ]


def cached(finding: Finding) -> list[str]:
    """What of the bytes did not come from storage; nothing where nobody knows, or nothing was read."""
    shares = [point.from_storage for point in finding.points if point.from_storage is not None]
    if not shares:
        return []
    least, most = (f"{100 * each:.0f}" for each in (min(shares), max(shares)))
    told = f"Fetched from storage: {least if least == most else f'{least} to {most}'} % of what was read"
    if min(shares) > _FETCHED:
        return [f"{told}."]
    return [
        f"{told}, the rest came from the page cache: this compares memory, not storage. reader.drop_cache, "
        "reader.direct or more data than memory would tell."
    ]


def _where(study: Study, finding: Finding, found: Comparison) -> str:
    """The ranks and file system of a comparison, where the part has several of them."""
    on = f"On {found.nodes} node(s) x {found.ranks_per_node} ranks" if study.part(finding.part).is_scaling else ""
    below = f"{'below' if on else 'Below'} {found.data}" if found.data is not None else ""
    return ", ".join(filter(None, (on, below))) + (": " if on or below else "")


def _told(study: Study, number: int | None) -> str:
    return "" if number is None else setting(study, number, is_place_known=True)


def _best(study: Study, finding: Finding, found: Comparison) -> Iterator[str]:
    where, best = _where(study, finding, found), _told(study, found.best)
    gain = found.gain
    if found.noise.sd is None:
        ratio = "" if gain is None or found.best == found.reference else f", {gain.ratio:.2f} x the reference"
        why = why_unknown(found.noise)
        yield f"{where}Ahead: {best}{ratio}. Whether that is more than noise cannot be told: {why}."
        return
    if gain is None:
        yield f"{where}Best: {best}. The reference was not measured."
    elif found.best == found.reference:
        yield f"{where}Best: the reference, {best}."
    elif not gain.is_beyond_noise and any(point.verdict == "slower" for point in found.points):
        yield (
            f"{where}Nothing is better than the reference ({_told(study, found.reference)}) beyond noise: the best is "
            f"{best}, {gain.ratio:.2f} x; {_interval(gain.low, gain.high)}."
        )
    elif not gain.is_beyond_noise:
        yield (
            f"{where}No difference beyond noise: the reference ({_told(study, found.reference)}) cannot be told "
            f"from the best ({best}, {gain.ratio:.2f} x; {_interval(gain.low, gain.high)})."
        )
    else:
        yield (
            f"{where}Best: {best}, {gain.ratio:.2f} x the reference ({_told(study, found.reference)}); "
            f"{_interval(gain.low, gain.high)}, confidence {confidence(gain.confidence)}."
        )
    yield from _choice(study, found)


def _choice(study: Study, found: Comparison) -> Iterator[str]:
    same = [point.point for point in found.points if point.verdict == "same as best"]
    if found.recommended is None:
        return
    if found.recommended == found.reference:
        others = "" if not same else f" {_others(len(same), len(found.points))}"
        is_usual = study.part(study.points[found.recommended].part).is_default
        yield f"{'Keep what you have.' if is_usual else 'No reason to change that.'}{others}"
    elif found.recommended != found.best:
        simplest, others = _told(study, found.recommended), _others(len(same), len(found.points))
        yield f"Simplest setting that is not significantly different from the best: {simplest}. {others}"
    elif same:
        yield _others(len(same), len(found.points))


def _others(same: int, points: int) -> str:
    if same == points - 1:
        return "No two points can be told apart."
    return (
        f"{same} of {points - 1} others are not significantly different from the best."
        if same
        else "All others are worse."
    )


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{100 * SURE:.0f} % interval {low:.2f} to {high:.2f}"


def confidence(found: float | None) -> str:
    if found is None:
        return "unknown"
    return "> 99.9 %" if found > 0.999 else f"{100 * found:.1f} %"


def why_unknown(estimate: Noise) -> str:
    """The reason why noise is unknown."""
    if estimate.df == 0:
        return "too little was measured twice; --repeat 3 would tell"
    return "repeats agree to the last digit, as no measurement does"


def part_title(study: Study, finding: Finding) -> str:
    part = study.part(finding.part)
    return ": ".join(filter(None, (part.name, part.title)))


def legend(study: Study, finding: Finding) -> str:
    """How the table of points is to be read."""
    if not finding.comparisons:
        return "Medians of n measurements."
    unusual = " The workload's own setting is not among them: the reference is the first."
    return (
        f"Medians of n measurements, compared by {METRICS[finding.metric].noun}. x ref: times as good as the reference "
        "(ref), drift taken out. same: not significantly different from the best; worse: beyond noise; ?: unknown."
        + unusual
        * (not study.part(finding.part).is_default)
    )


def ranking_title(finding: Finding, found: Comparison) -> str:
    where = f" on {found.nodes} node(s) x {found.ranks_per_node} ranks" if len(finding.comparisons) > 1 else ""
    where += f" below {found.data}" if found.data is not None else ""
    return f"What matters{where}: means over all settings of the other parameters"


def ranking_notes(found: Ranking) -> list[str]:
    if found.interaction is None:
        return ["Too few combinations were measured to separate the parameters."]
    notes = []
    if any(len(effect.keys) > 1 for effect in found.effects):
        notes.append("Keys that vary together cannot be separated; they count as one.")
    if len(found.effects) > 1:
        notes.append(
            f"{100 * found.interaction:.0f} % of the variance between points is interaction between parameters."
        )
    return notes


def scaling_title(found: Scaling) -> str:
    told = joined(found.labels)
    of = f" of {told}" if told else ""
    return f"{found.kind.capitalize()} scaling{of} ({KINDS[found.kind]}), against the fewest ranks"


def missing(outcome: StudyOutcome) -> list[str]:
    """What is not there, why, and how to have it; nothing where nothing is missing."""
    if not outcome.missing:
        return []
    whys = Counter(each.why for each in outcome.missing).most_common()
    lines = [f"Missing: {len(outcome.missing)} of {outcome.wanted} measurements."]
    lines += [f"  {count} x {why}" for why, count in whys[:_REASONS]]
    if len(whys) > _REASONS:
        lines.append(f"  and {len(whys) - _REASONS} more reasons; --json has all.")
    return [*lines, "Their jobs go on."] if all(each.is_live for each in outcome.missing) else lines


def resume(outcome: StudyOutcome) -> str | None:
    """How to have what is missing, from anywhere; None where there is nothing to be done."""
    if all(each.is_live for each in outcome.missing):
        return None
    later = " when those that go on have ended" if any(each.is_live for each in outcome.missing) else ""
    folder = shlex.quote(str(outcome.study.folder))
    return f"To measure what is missing{later}: dlio-submit --resume {folder}"
