"""Scaling of a part of a study: the speed-up from using more nodes or ranks, compared with a linear speed-up.

Each number of ranks is measured in jobs of its own, so a speed-up compares jobs. The unit of the analysis is the job:
the level of a point is the mean, over the jobs that measured it, of the logarithm of the job's level. If each number of
ranks was measured in one job, the variation between jobs is not known and is assumed (job_spread.ASSUMED).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.study import job_spread, ratios
from dlio_hpc.analysis.study.job_spread import ASSUMED, JobSpread
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.ratios import Noise, Ratio
from dlio_hpc.analysis.study.replicates import NO_NOISE, Floats
from dlio_hpc.plan.study import Part, Point, Study


class ScalingStep(Struct, frozen=True):
    """A point on a scaling curve, compared with the first point of that curve, which has the fewest ranks. speed_up:
    samples/s of this point, divided by samples/s of the first point. The value of a job is the median of its runs; the
    value of several jobs is their geometric mean. low, high: 95 % interval of speed_up, simultaneous for all ratios of
    the same part of the study; None for the first point, or if the noise is unknown. ideal: number of ranks of this
    point, divided by the number of ranks of the first point. efficiency: speed_up / ideal.
    """

    point: int
    nodes: int
    ranks_per_node: int
    ranks: int
    wall_s: float
    samples_per_s: float
    speed_up: float
    low: float | None
    high: float | None
    efficiency: float
    ideal: float

    @property
    def is_below(self) -> bool:
        """Whether the speed-up is below linear by more than the noise."""
        return self.high is not None and self.high < self.ideal

    @property
    def is_above(self) -> bool:
        """Whether the speed-up is above linear by more than the noise."""
        return self.low is not None and self.low > self.ideal


class BetweenJobs(Struct, frozen=True):
    """Variation between jobs, on which the intervals of speed-ups depend. sd: relative standard deviation of the levels
    of jobs with the same settings; None if no interval is known. df: degrees of freedom of sd. is_assumed: whether sd
    is an assumption, because each number of ranks was measured in one job. A measured sd includes the noise of the runs
    of a job.
    """

    sd: float | None
    df: float
    is_assumed: bool


class Scaling(Struct, frozen=True):
    """Scaling of one setting. kind: "strong" if the total amount that is read is the same for every number of ranks,
    "weak" if the amount per rank is the same. labels: values of the setting, by key. steps: the points, in ascending
    order of ranks. noise: noise of a single measurement within a job. between_jobs: variation between jobs.
    """

    kind: Literal["strong", "weak"]
    labels: dict[str, str]
    steps: tuple[ScalingStep, ...]
    noise: Noise
    between_jobs: BetweenJobs


def scalings(
    study: Study, part: Part, measured: Sequence[Measured], families: int, assumed: JobSpread = ASSUMED
) -> tuple[Scaling, ...]:
    """Return the scaling of each setting that was measured with at least two numbers of ranks. families: as in
    ratios.of_pairs(). assumed: variation between jobs to assume if each number of ranks was measured in only one job.
    """
    good = [measurement for measurement in measured if _rate(measurement) > 0]
    settings = [points for points in _settings(study, good) if len(points) > 1]
    if not settings:
        return ()
    cells = _cells(study, good)
    numbers = sorted({cell.point for cell in cells})
    places = {number: place for place, number in enumerate(numbers)}
    noise = _within(cells)
    variances, df, between_jobs = _variances(cells, numbers, noise, assumed)
    pairs = [(point.number, first.number) for first, *rest in settings for point in rest]
    values, levels = (
        np.array([np.mean([getattr(cell, name) for cell in cells if cell.point == number]) for number in numbers])
        for name in ("mean", "level")
    )
    speed_ups = ratios.of_steps(values, levels, variances, df, [(places[a], places[b]) for a, b in pairs], families)
    by_point = {number: ratio for (number, _), ratio in zip(pairs, speed_ups, strict=True)}
    return tuple(
        Scaling(
            "weak" if part.weak else "strong",
            points[0].labels(part.axes),
            tuple(_step(point, points[0], by_point.get(point.number, _SAME), good) for point in points),
            noise,
            between_jobs,
        )
        for points in settings
    )


_SAME = Ratio(1.0, None, None)


def _rate(measurement: Measured) -> float:
    """Return the samples/s of a measurement, or 0 if it reads no samples."""
    return measurement.summary.samples_per_s or 0.0


def _settings(study: Study, measured: Sequence[Measured]) -> list[list[Point]]:
    """Return the measured points of each setting, sorted by number of ranks."""
    settings: dict[tuple[int, ...], list[Point]] = {}
    for number in sorted({measurement.point for measurement in measured}):
        point = study.points[number]
        settings.setdefault(tuple(point.places.values()), []).append(point)
    return [sorted(points, key=lambda point: (point.ranks, point.nodes)) for points in settings.values()]


class _Cell(NamedTuple):
    """Measurements of a point in one job. scale: numbers of nodes and of ranks per node of the point. logs: logarithm
    of each rate. level: logarithm of the median of the rates.
    """

    point: int
    scale: tuple[int, int]
    job: str
    logs: Floats
    level: float

    @property
    def mean(self) -> float:
        """Mean of the logarithms of the rates."""
        return float(self.logs.mean())


def _cells(study: Study, measured: Sequence[Measured]) -> list[_Cell]:
    rates: dict[tuple[int, str], list[float]] = {}
    for measurement in measured:
        rates.setdefault((measurement.point, measurement.job), []).append(_rate(measurement))
    return [
        _Cell(number, (point.nodes, point.ranks_per_node), job, np.log(values), float(np.log(np.median(values))))
        for (number, job), values in rates.items()
        for point in (study.points[number],)
    ]


def _within(cells: Sequence[_Cell]) -> Noise:
    """Return the noise between the measurements of a point in one job. Some noise shifts all points of a round alike.
    Several points in one job therefore show no more about this noise than one point, and add no degrees of freedom.
    """
    squares = sum(float(((cell.logs - cell.mean) ** 2).sum()) for cell in cells)
    free = sum(len(cell.logs) - 1 for cell in cells)
    repeats: dict[tuple[tuple[int, int], str], int] = {}
    for cell in cells:
        job = cell.scale, cell.job
        repeats[job] = max(repeats.get(job, 0), len(cell.logs) - 1)
    sd = float(np.sqrt(squares / free)) if free else 0.0
    return Noise(float(np.expm1(sd)) if sd > NO_NOISE else None, sum(repeats.values()), False, 0.0)


def _variances(
    cells: Sequence[_Cell], numbers: Sequence[int], noise: Noise, assumed: JobSpread
) -> tuple[Floats, float, BetweenJobs]:
    """Return the variance of the level of each point, the degrees of freedom of the variances, and the variation
    between jobs from which they follow. The degrees of freedom are 0 if the noise is unknown.
    """
    by_point = {number: [cell for cell in cells if cell.point == number] for number in numbers}
    jobs = np.array([len(by_point[number]) for number in numbers])
    free = int((jobs - 1).sum())
    if free:
        squares = sum(float(np.var([cell.mean for cell in mine])) * len(mine) for mine in by_point.values())
        sd = float(np.sqrt(squares / free))
        df = _jobs_df(by_point)
        known = df if sd > NO_NOISE else 0
        return sd**2 / jobs, known, BetweenJobs(float(np.expm1(sd)) if known else None, df, False)
    if noise.sd is None:
        return np.zeros(len(numbers)), 0, BetweenJobs(None, 0, False)
    repeats = np.array([len(mine[0].logs) for mine in by_point.values()])
    within = np.log1p(noise.sd) ** 2 / repeats
    _, df_of_both = job_spread.combined([assumed.sd**2, float(within.mean())], [assumed.df, noise.df])
    return assumed.sd**2 + within, df_of_both, BetweenJobs(assumed.sd, assumed.df, True)


def _jobs_df(by_point: dict[int, list[_Cell]]) -> int:
    """Return the degrees of freedom of the variation between jobs. The points of a scale are measured in the same jobs,
    so several points add no degrees of freedom.
    """
    of_scale: dict[tuple[int, int], int] = {}
    for cells in by_point.values():
        scale = cells[0].scale
        of_scale[scale] = max(of_scale.get(scale, 0), len(cells) - 1)
    return sum(of_scale.values())


def _step(point: Point, first: Point, gain: Ratio, measured: Sequence[Measured]) -> ScalingStep:
    mine = [measurement for measurement in measured if measurement.point == point.number]
    ideal = point.ranks / first.ranks
    return ScalingStep(
        point=point.number,
        nodes=point.nodes,
        ranks_per_node=point.ranks_per_node,
        ranks=point.ranks,
        wall_s=float(np.median([measurement.summary.wall_s for measurement in mine])),
        samples_per_s=float(np.median([_rate(measurement) for measurement in mine])),
        speed_up=gain.value,
        low=gain.low,
        high=gain.high,
        efficiency=gain.value / ideal,
        ideal=ideal,
    )
