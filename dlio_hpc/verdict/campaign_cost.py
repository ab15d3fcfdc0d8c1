"""Cost of a campaign that detects a drop: its nights and node-hours for several numbers of repeats."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.plan import cost, packing
from dlio_hpc.plan.cost import JobCost
from dlio_hpc.plan.planned import Planned
from dlio_hpc.plan.study import Study
from dlio_hpc.verdict import detection_plan, measured_noise
from dlio_hpc.verdict.baseline_comparison import USUAL
from dlio_hpc.verdict.detection_plan import MOST, Campaign, WantedDetection
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.measured_noise import KnownNoise
from dlio_hpc.verdict.regression import TOLERANCE

# Numbers of repeats that are compared, and numbers of nights for which the smallest drop is computed.
_REPEATS = (1, 3, 5, 10)
_NIGHTS: tuple[int, ...] = (1, 3, 10)


class CampaignRow(NamedTuple):
    """Campaign with one number of repeats. campaign: None if it needs more than 60 nights. a_night: node-hours of a
    night if the datasets exist already. node_hours: node-hours of the whole campaign; None if it needs more than 60
    nights. too_long_s: expected seconds of a job that does not fit into its time limit; None if all jobs fit.
    """

    repeats: int
    campaign: Campaign | None
    a_night: float
    node_hours: float | None
    too_long_s: float | None

    @property
    def nights(self) -> int:
        """Number of nights of the campaign. If the campaign needs more than MOST (60) nights, a number above MOST."""
        return MOST + 1 if self.campaign is None else self.campaign.before + self.campaign.nights


class SmallestDrop(NamedTuple):
    """Smallest drop that is detected within a number of nights; None if no drop below 90 % is detected."""

    nights: int
    drop: float | None


class DetectionPlan(NamedTuple):
    """Plan of a campaign. known: noise of the noisiest measurement. measurements: number of measurements. rows: one
    campaign per number of repeats. answer: the row with the chosen number of repeats, or the cheapest row if no number
    was chosen; None if no row detects the drop. smallest: smallest detectable drops with the repeats of the answer, or
    with the most repeats if there is no answer. reference: number of nights before the drop, which show the level.
    usual_tolerance: default tolerance of `compare`. interval_nights: number of nights from which half the width of the
    interval of a value is below the drop; None if more than 50 nights are necessary.
    """

    wanted: WantedDetection
    known: KnownNoise
    measurements: int
    rows: tuple[CampaignRow, ...]
    answer: CampaignRow | None
    reference: int
    smallest: tuple[SmallestDrop, ...]
    usual_tolerance: float
    interval_nights: int | None

    @property
    def shown_repeats(self) -> int:
        """Number of repeats for which `smallest` and `interval_nights` are computed."""
        return self.rows[-1].repeats if self.answer is None else self.answer.repeats

    @property
    def cheapest(self) -> CampaignRow | None:
        """Row with the fewest node-hours."""
        found_rows = [row for row in self.rows if row.node_hours is not None]
        return min(found_rows, key=lambda row: (row.node_hours or 0.0, row.nights), default=None)

    @property
    def fastest(self) -> CampaignRow | None:
        """Row with the fewest nights."""
        found_rows = [row for row in self.rows if row.node_hours is not None]
        return min(found_rows, key=lambda row: (row.nights, row.node_hours or 0.0), default=None)


def usual_tolerance(study: Study) -> float:
    """Return the default tolerance of `compare` for the jobs of a study."""
    return TOLERANCE if study.verdict is None else study.verdict.tolerance


def of(made: Planned, history: Sequence[Entry], wanted: WantedDetection, is_chosen: bool) -> DetectionPlan:
    """Return the plan of a campaign. made: the study of one night and its jobs. history: entries of all jobs.
    is_chosen: whether the number of repeats of the study was chosen, by the user or in a study file.
    """
    study = made.study
    noises = _noises(made, history)
    repeats = sorted({*_REPEATS, study.repeat})
    known = max(noises, key=lambda noise: noise.noise.of_level(study.repeat))
    plan = DetectionPlan(
        wanted=wanted,
        known=known,
        measurements=len(noises),
        rows=tuple(_row(study, known, count, wanted) for count in repeats),
        answer=None,
        reference=known.history,
        smallest=(),
        usual_tolerance=usual_tolerance(study),
        interval_nights=None,
    )
    planned = next(row for row in plan.rows if row.repeats == study.repeat)
    answer = planned if is_chosen and planned.campaign is not None else plan.cheapest
    return _with_smallest(plan._replace(answer=answer))


def _noises(made: Planned, history: Sequence[Entry]) -> list[KnownNoise]:
    """Return the noise of each planned measurement and metric."""
    site = measured_noise.site_history(history, made.study.site.name)
    metrics = USUAL.metrics if made.study.verdict is None else made.study.verdict.metrics
    points = {run.point: (job, run) for job in made.jobs for run in job.runs if run.kind == "measure"}
    return [noise for job, run in points.values() for noise in measured_noise.of_run(site, job, run, metrics)]


def _row(study: Study, known: KnownNoise, repeats: int, wanted: WantedDetection) -> CampaignRow:
    campaign = detection_plan.campaign(known.noise, repeats, known.history, wanted)
    first, further = _costs(study, repeats)
    longest = max(first, key=lambda job: job.expected_s)
    row = CampaignRow(
        repeats,
        campaign,
        _node_hours(further),
        None,
        longest.expected_s if longest.expected_s > study.walltime else None,
    )
    hours = _node_hours(first) + (row.nights - 1) * row.a_night
    return row if campaign is None else row._replace(node_hours=hours)


def _costs(study: Study, repeats: int) -> tuple[list[JobCost], list[JobCost]]:
    """Return the cost of the jobs of the first night, which generates datasets, and the cost of a further night."""
    jobs = packing.plans(structs.replace(study, repeat=repeats))
    begun: set[str] = set()
    return [cost.of_job(job, begun) for job in jobs], [cost.of_job(job, begun) for job in jobs]


def _node_hours(costs: Sequence[JobCost]) -> float:
    """Return the node-hours of jobs, even if they do not fit into their time limits."""
    return sum(job.nodes * job.expected_s for job in costs) / 3600


def _with_smallest(plan: DetectionPlan) -> DetectionPlan:
    """Return a copy of the plan with the fields `reference`, `smallest` and `interval_nights` filled in."""
    noise, repeats, wanted = plan.known.noise, plan.shown_repeats, plan.wanted
    reference, counts = plan.known.history, _NIGHTS
    if plan.answer is not None and plan.answer.campaign is not None:
        reference += plan.answer.campaign.before
    elif reference < detection_plan.FEWEST:
        reference, counts = MOST // 2, (*_NIGHTS, MOST // 2)
    else:
        counts = (*_NIGHTS, MOST)
    drops = [detection_plan.smallest(noise, repeats, reference, count, wanted) for count in counts]
    return plan._replace(
        reference=reference,
        smallest=tuple(map(SmallestDrop, counts, drops)),
        interval_nights=detection_plan.nights_of_interval(noise, repeats, wanted.drop),
    )
