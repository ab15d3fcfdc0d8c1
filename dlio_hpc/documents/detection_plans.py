"""JSON document of a campaign that detects a drop."""

from msgspec import Struct

from dlio_hpc.reports import detection_rows
from dlio_hpc.verdict.campaign_cost import CampaignRow, DetectionPlan
from dlio_hpc.verdict.measured_noise import Origin


class CampaignDocument(Struct, frozen=True):
    """Campaign with one number of repeats."""

    repeats: int
    """Number of runs of each point in a job."""
    nights_before: int | None
    """Number of nights to measure before the change, in addition to the nights of the history; null: more than 60
    nights are necessary.
    """
    nights: int | None
    """Number of nights to measure after the change; null: more than 60 nights are necessary."""
    node_hours_a_night: float
    """Expected node-hours of a night, if the datasets already exist."""
    node_hours: float | None
    """Expected node-hours of all nights; null: more than 60 nights are necessary."""
    error: float | None
    """Probability that, in the same number of nights without a change, a regression is reported by chance."""
    most_by_chance_a_year: float | None
    """A regression is reported only if such a false alarm occurs by chance at most this often a year (by_chance_a_year
    of compare).
    """
    is_answer: bool
    """Whether the field `answer` describes this campaign."""
    is_cheapest: bool
    """Whether this campaign needs the fewest node-hours."""
    is_fastest: bool
    """Whether this campaign needs the fewest nights."""


class SmallestDropDocument(Struct, frozen=True):
    """Smallest drop that is detected in a number of nights."""

    nights: int
    """Number of nights after the change."""
    drop: float | None
    """Size of the drop, such as 0.05; null: even a drop of 90 % is not detected."""


class DetectionDocument(Struct, frozen=True):
    """Plan of a campaign that detects a drop."""

    answer: str
    """Result in a sentence."""
    drop: float
    """Size of the drop, such as 0.05."""
    power: float
    """Probability that the drop is detected."""
    error: float | None
    """Requested probability that a regression is reported by chance; null: the probability that compare allows."""
    tolerance: float
    """Tolerance of compare: largest relative drop that is not reported as a regression."""
    measurement: str
    """Measurement whose noise is the largest."""
    night_spread: float
    """Standard deviation between nights, of the logarithm of the metric."""
    night_spread_from: Origin
    """Source of night_spread: nights of the measurement, other measurements of the site, or an assumption."""
    night_spread_count: int
    """Number of nights or measurements from which night_spread was computed; 0 if it is an assumption."""
    run_spread: float
    """Standard deviation between the runs of a job, of the logarithm of the metric."""
    run_spread_from: Origin
    """Source of run_spread: jobs of the measurement, other measurements of the site, or an assumption."""
    history_nights: int
    """Number of nights in the history since the last change of the measurement's level."""
    campaigns: list[CampaignDocument]
    """The campaigns, one for each number of repeats."""
    smallest_repeats: int
    """Number of repeats to which `smallest` and `criterion_nights` apply."""
    smallest: list[SmallestDropDocument]
    """Smallest drop that is detected, for several numbers of nights."""
    criterion_nights: int | None
    """Number of nights after which the confidence interval of a value extends less than the drop to either side; null:
    more than 50 nights are necessary.
    """


def of_plan(plan: DetectionPlan) -> DetectionDocument:
    """Return the document of a plan."""
    known, wanted = plan.known, plan.wanted
    return DetectionDocument(
        answer=detection_rows.answer(plan),
        drop=wanted.drop,
        power=wanted.power,
        error=wanted.error,
        tolerance=wanted.tolerance,
        measurement=known.title,
        night_spread=known.noise.nights,
        night_spread_from=known.nights_from,
        night_spread_count=known.shown_by,
        run_spread=known.noise.runs,
        run_spread_from=known.runs_from,
        history_nights=known.history,
        campaigns=[_campaign(plan, row) for row in plan.rows],
        smallest_repeats=plan.shown_repeats,
        smallest=[SmallestDropDocument(*smallest) for smallest in plan.smallest],
        criterion_nights=plan.interval_nights,
    )


def _campaign(plan: DetectionPlan, row: CampaignRow) -> CampaignDocument:
    made = row.campaign
    return CampaignDocument(
        repeats=row.repeats,
        nights_before=None if made is None else made.before,
        nights=None if made is None else made.nights,
        node_hours_a_night=row.a_night,
        node_hours=row.node_hours,
        error=None if made is None else made.error,
        most_by_chance_a_year=None if made is None else made.chance_a_year,
        is_answer=row is plan.answer,
        is_cheapest=row is plan.cheapest,
        is_fastest=row is plan.fastest,
    )
