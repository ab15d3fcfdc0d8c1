"""Scaling of a part of a study: the speed-up from using more nodes or ranks, compared with a linear speed-up."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.study import ratios, replicates
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.ratios import Estimates, Noise
from dlio_hpc.analysis.study.replicates import Fit
from dlio_hpc.plan.study import Part, Point, Study


class ScalingStep(Struct, frozen=True):
    """A point on a scaling curve, compared with the first point of that curve, which has the fewest ranks. speed_up:
    median samples/s of this point, divided by that of the first. low, high: 95 % interval of speed_up, simultaneous
    for all ratios of the part; None for the first point, or if the noise is unknown. ideal: number of ranks of this
    point, divided by that of the first point. efficiency: speed_up / ideal.
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


class Scaling(Struct, frozen=True):
    """Scaling of one setting. kind: "strong" if the total amount that is read is the same for every number of ranks,
    "weak" if the amount per rank is the same. labels: values of the setting, by key. steps: the points, in ascending
    order of ranks. noise: noise of a single measurement. The noise includes differences between rounds, because each
    number of ranks is measured in separate jobs.
    """

    kind: Literal["strong", "weak"]
    labels: dict[str, str]
    steps: tuple[ScalingStep, ...]
    noise: Noise


def scalings(study: Study, part: Part, measured: Sequence[Measured], families: int) -> tuple[Scaling, ...]:
    """Return the scaling of each setting that was measured with at least two numbers of ranks. families: as in
    ratios.of_pairs().
    """
    good = [measurement for measurement in measured if _rate(measurement) > 0]
    settings = [points for points in _settings(study, good) if len(points) > 1]
    if not settings:
        return ()
    numbers = sorted({measurement.point for measurement in good})
    places = {number: place for place, number in enumerate(numbers)}
    steps = [(places[point.number], places[first.number]) for first, *rest in settings for point in rest]
    estimates = ratios.of_steps(_fit(study, good, places), steps, families)
    return tuple(
        Scaling(
            "weak" if part.weak else "strong",
            {axis.key: axis.labels[points[0].places[axis.key]] for axis in part.axes},
            tuple(_step(point, points[0], places, estimates, good) for point in points),
            estimates.noise,
        )
        for points in settings
    )


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


def _fit(study: Study, measured: Sequence[Measured], places: dict[int, int]) -> Fit:
    """Return a fit of the points. Effects of rounds are not estimated, because points in different jobs have no rounds
    in common. Noise in a round shifts all points of the job by the same amount. Several points in one job therefore
    show no more about the noise between jobs than one point, and add no degrees of freedom.
    """
    points = np.array([places[measurement.point] for measurement in measured])
    rates = np.array([_rate(measurement) for measurement in measured])
    fit = replicates.fit(points, np.zeros(len(measured), np.int64), np.log(rates))
    rounds: dict[tuple[int, int], list[Measured]] = {}
    for measurement in measured:
        point = study.points[measurement.point]
        rounds.setdefault((point.nodes, point.ranks_per_node), []).append(measurement)
    df = sum(
        min(
            len({measurement.repeat for measurement in mine}) - 1,
            len(mine) - len({measurement.point for measurement in mine}),
        )
        for mine in rounds.values()
    )
    return fit._replace(df=df, medians=replicates.log_medians(points, rates))


def _step(
    point: Point, first: Point, places: dict[int, int], estimates: Estimates, measured: Sequence[Measured]
) -> ScalingStep:
    mine = [measurement for measurement in measured if measurement.point == point.number]
    gain = estimates.ratio(places[point.number], places[first.number])
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
