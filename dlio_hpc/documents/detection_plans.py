"""JSON document of a campaign that detects a drop."""

from msgspec import Struct

from dlio_hpc.reports import detection_rows
from dlio_hpc.verdict.campaign_cost import CampaignRow, DetectionPlan
from dlio_hpc.verdict.measured_noise import Origin


class CampaignDocument(Struct, frozen=True):
    """Campaign with one number of repeats."""

    repeats: int
    """Runs of each point in a job."""
    nights_before: int | None
    """Nights before the change, in addition to those of the history; null: more than 60 nights are necessary."""
    nights: int | None
    """Nights after the change; null: more than 60 nights are necessary."""
    node_hours_a_night: float
    """Expected node-hours of a night whose datasets exist."""
    node_hours: float | None
    """Expected node-hours of all nights; null: more than 60 nights are necessary."""
    error: float | None
    """Probability that a regression is reported by chance in the same number of nights without a change."""
    most_by_chance_a_year: float | None
    """A regression counts if it occurs by chance at most this often in a year (by_chance_a_year of compare)."""
    is_answer: bool
    """Whether the field `answer` describes this campaign."""
    is_cheapest: bool
    """Whether it has the fewest node-hours."""
    is_fastest: bool
    """Whether it has the fewest nights."""


class SmallestDropDocument(Struct, frozen=True):
    """Smallest drop that is detected in a number of nights."""

    nights: int
    """Number of nights after the change."""
    drop: float | None
    """Size, such as 0.05; null: no drop below 90 % is detected."""


class DetectionDocument(Struct, frozen=True):
    """Plan of a campaign that detects a drop."""

    answer: str
    """Result in a sentence."""
    drop: float
    """Size of the drop, such as 0.05."""
    power: float
    """Probability that the drop is detected."""
    error: float | None
    """Wanted probability that a regression is reported by chance; null: the probability that compare allows."""
    tolerance: float
    """Tolerance of compare."""
    measurement: str
    """Measurement whose noise is the largest."""
    night_spread: float
    """Standard deviation of logarithms between nights."""
    night_spread_from: Origin
    """Source of night_spread: nights of the measurement, other measurements of the site, or an assumption."""
    night_spread_count: int
    """Number of these nights, or of these measurements; 0 for an assumption."""
    run_spread: float
    """Standard deviation of logarithms between the runs of a job."""
    run_spread_from: Origin
    """Source of run_spread: jobs of the measurement, other measurements of the site, or an assumption."""
    history_nights: int
    """Nights of the measurement at its current level."""
    campaigns: list[CampaignDocument]
    """A campaign for each number of repeats."""
    smallest_repeats: int
    """Number of repeats to which `smallest` and `criterion_nights` apply."""
    smallest: list[SmallestDropDocument]
    """Smallest drops that are detected."""
    criterion_nights: int | None
    """Nights after which the interval of a figure is narrower than the drop on either side; null: more
    than 50 nights are necessary.
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
