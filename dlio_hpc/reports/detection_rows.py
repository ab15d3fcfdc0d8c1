"""Report on a campaign that detects a drop: the answer in a sentence, a table, and the assumptions."""

import math
from collections.abc import Iterator

from dlio_hpc.base import units
from dlio_hpc.reports.page import Facts, Lines, Section, Style, Table
from dlio_hpc.verdict import night_intervals, regression
from dlio_hpc.verdict.campaign_cost import CampaignRow, DetectionPlan
from dlio_hpc.verdict.change_detection import EASED
from dlio_hpc.verdict.detection_plan import MOST, Campaign
from dlio_hpc.verdict.measured_noise import KnownNoise

_HEADER = ("repeats", "nights before", "nights after", "node h a night", "node h", "")


def section(plan: DetectionPlan) -> Section:
    """Return the report. Its heading is the answer."""
    styles: list[Style] = ["bold" if row is plan.answer else "" for row in plan.rows]
    has_before = any(row.campaign is not None and row.campaign.before for row in plan.rows)
    kept = [place for place, name in enumerate(_HEADER) if has_before or name != "nights before"]
    rows = [[cells[place] for place in kept] for cells in (_cells(plan, row) for row in plan.rows)]
    table = Table("", [_HEADER[place] for place in kept], rows, styles)
    return Section(answer(plan), [Lines([_interval(plan)]), table, Facts("", [*_facts(plan)])])


def answer(plan: DetectionPlan) -> str:
    """Return the answer in a sentence."""
    drop, power, row = _percent(plan.wanted.drop), _percent(plan.wanted.power), plan.answer
    if row is None or row.campaign is None:
        last = plan.smallest[-1].drop
        least = "none below 90 % is found" if last is None else f"the smallest drop that is found is {_percent(last)}"
        repeats = _repeats(plan.shown_repeats)
        return f"A drop of {drop} is not found within {MOST} nights ({power} power): {least}, with {repeats} a job."
    made = row.campaign
    before = f", if {regression.nights_words(made.before)} before the drop were measured," if made.before else ""
    return (
        f"A drop of {drop} is found {regression.nights_words(made.nights)} after it happens{before} with "
        f"{_repeats(row.repeats)} a job ({power} power; error {_percent(_error(plan, made))}): "
        f"{_hours(row.node_hours)} node-hours."
    )


def _error(plan: DetectionPlan, made: Campaign) -> float:
    return made.error if plan.wanted.error is None else plan.wanted.error


def _cells(plan: DetectionPlan, row: CampaignRow) -> list[str]:
    made = row.campaign
    nights = ["-", f"> {MOST}"] if made is None else [str(made.before), str(made.nights)]
    marks = [name for name, marked in (("cheapest", plan.cheapest), ("fastest", plan.fastest)) if row is marked]
    if row.too_long_s is not None:
        marks.append(f"needs --time {units.format_walltime(math.ceil(row.too_long_s))}")
    return [str(row.repeats), *nights, _hours(row.a_night), _hours(row.node_hours), ", ".join(marks)]


def _facts(plan: DetectionPlan) -> Iterator[tuple[str, str]]:
    """Yield the assumptions of the answer, the smallest drops that the noise permits to detect, and how to judge the
    campaign.
    """
    noisiest = f"; the noisiest of {plan.measurements} measurements" if plan.measurements > 1 else ""
    yield "measures", f"{plan.known.title}{noisiest}"
    yield "noise", noise(plan.known)
    yield "reference", _reference(plan)
    yield "smallest", f"drop that is found: {_smallest(plan)}"
    if plan.wanted.tolerance != plan.usual_tolerance:
        yield "tolerance", _tolerance(plan)
    made = None if plan.answer is None else plan.answer.campaign
    if made is not None and made.excess > -EASED:
        chance = regression.chance_words(made.chance_a_year)
        yield (
            "by chance",
            f"for this error, a regression is reported only if compare says that it happens by chance {chance} or less",
        )


def noise(known: KnownNoise) -> str:
    """Return the variation between nights and between runs, and its source."""
    nights, runs = _percent(known.noise.nights), _percent(known.noise.runs)
    of_nights = {
        "measurement": f"nights differ by {nights} ({regression.nights_words(known.shown_by)} of this measurement)",
        "site": f"nights differ by {nights} ({units.counted(known.shown_by, 'other measurement')} of the site)",
        "assumed": f"nights are assumed to differ by {nights} (no history shows it)",
    }
    of_runs = {
        "measurement": f"runs of a job by {runs}",
        "site": f"runs of a job by {runs} (other measurements of the site)",
        "assumed": f"runs of a job are assumed to differ by {runs}",
    }
    return f"{of_nights[known.nights_from]}; {of_runs[known.runs_from]}"


def _reference(plan: DetectionPlan) -> str:
    further = plan.reference - plan.known.history
    history = f"{regression.nights_words(plan.known.history)} of the history at the present level"
    if not further:
        return history
    before = f"{regression.nights_words(further)} before the change"
    return f"{history}, and {before}" if plan.known.history else before


def _smallest(plan: DetectionPlan) -> str:
    parts = [
        f"{'none' if smallest.drop is None else _percent(smallest.drop)} in {regression.nights_words(smallest.nights)}"
        for smallest in plan.smallest
    ]
    return f"{', '.join(parts)}; with {_repeats(plan.shown_repeats)} a job"


def _interval(plan: DetectionPlan) -> str:
    nights, drop = plan.interval_nights, _percent(plan.wanted.drop)
    many = f"more than {night_intervals.MOST} nights" if nights is None else regression.nights_words(nights)
    verb = "makes" if nights == 1 else "make"
    interval = f"{_percent(night_intervals.CONFIDENCE)} interval of a value"
    text = f"For an acceptance or a handover, without a change: {many} {verb} the {interval} narrower than +/- {drop}"
    return f"{text}, with {_repeats(plan.shown_repeats)} a job."


def _tolerance(plan: DetectionPlan) -> str:
    tolerance, usual = plan.wanted.tolerance, plan.usual_tolerance
    why = f"; with the usual {_percent(usual)}, such drops may pass" if tolerance < usual else ""
    return f"judge the jobs with dlio-hpc compare --tolerance {100 * tolerance:g}%{why}"


def _repeats(count: int) -> str:
    return units.counted(count, "repeat")


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.3g} %"


def _hours(hours: float | None) -> str:
    return "-" if hours is None else f"{hours:.0f}" if hours >= 100 else f"{hours:.3g}"
