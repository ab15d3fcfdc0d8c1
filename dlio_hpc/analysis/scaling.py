"""How a part scales: what more nodes or ranks bring, against what they would bring at best."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis import ratios, replicates
from dlio_hpc.analysis.measured import Measured
from dlio_hpc.analysis.ratios import Estimates, Noise
from dlio_hpc.analysis.replicates import Fit
from dlio_hpc.study import Part, Point, Study


class Step(Struct, frozen=True):
    """A point. speed_up: of samples/s over the fewest ranks; ideal: times as many ranks. efficiency: one over
    the other. low, high: of the speed-up, 95 % for all ratios of the part together; None where noise is unknown, and of
    the first.
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
        """Is it less than linear, beyond noise?"""
        return self.high is not None and self.high < self.ideal

    @property
    def is_above(self) -> bool:
        """Is it more than linear, beyond noise?"""
        return self.low is not None and self.low > self.ideal


class Scaling(Struct, frozen=True):
    """Of one setting. strong: all ranks together read the same amount; weak: each of them does. noise: of a single
    measurement, with what the measurements of a round have in common, since numbers of ranks have jobs of their own.
    """

    kind: Literal["strong", "weak"]
    labels: dict[str, str]
    steps: tuple[Step, ...]
    noise: Noise


def scalings(study: Study, part: Part, measured: Sequence[Measured], families: int) -> tuple[Scaling, ...]:
    """One for each setting of which at least two sizes were measured. families: as ratios.of_pairs()."""
    good = [each for each in measured if each.summary.samples_per_s > 0]
    settings = [points for points in _settings(study, good) if len(points) > 1]
    if not settings:
        return ()
    numbers = sorted({each.point for each in good})
    places = {number: place for place, number in enumerate(numbers)}
    steps = [(places[each.number], places[first.number]) for first, *rest in settings for each in rest]
    found = ratios.of_steps(_fit(study, good, places), steps, families)
    return tuple(
        Scaling(
            "weak" if part.weak else "strong",
            {axis.key: axis.labels[points[0].places[axis.key]] for axis in part.axes},
            tuple(_step(point, points[0], places, found, good) for point in points),
            found.noise,
        )
        for points in settings
    )


def _settings(study: Study, measured: Sequence[Measured]) -> list[list[Point]]:
    """Points of each setting, those on the fewest ranks first."""
    settings: dict[tuple[int, ...], list[Point]] = {}
    for number in sorted({each.point for each in measured}):
        point = study.points[number]
        settings.setdefault(tuple(point.places.values()), []).append(point)
    return [sorted(points, key=lambda point: (point.ranks, point.nodes)) for points in settings.values()]


def _fit(study: Study, measured: Sequence[Measured], places: dict[int, int]) -> Fit:
    """Without rounds, which only points of one job share. A job's rounds shift all its points alike, so that these tell
    no more of the noise than one of them would.
    """
    found = replicates.fit(
        np.array([places[each.point] for each in measured]),
        np.zeros(len(measured), np.int64),
        np.log([each.summary.samples_per_s for each in measured]),
    )
    rounds: dict[tuple[int, int], list[Measured]] = {}
    for each in measured:
        point = study.points[each.point]
        rounds.setdefault((point.nodes, point.ranks_per_node), []).append(each)
    df = sum(
        min(len({each.repeat for each in mine}) - 1, len(mine) - len({each.point for each in mine}))
        for mine in rounds.values()
    )
    return found._replace(df=df)


def _step(point: Point, first: Point, places: dict[int, int], found: Estimates, measured: Sequence[Measured]) -> Step:
    mine = [each.summary for each in measured if each.point == point.number]
    gain = found.ratio(places[point.number], places[first.number])
    ideal = point.ranks / first.ranks
    return Step(
        point=point.number,
        nodes=point.nodes,
        ranks_per_node=point.ranks_per_node,
        ranks=point.ranks,
        wall_s=float(np.median([summary.wall_s for summary in mine])),
        samples_per_s=float(np.median([summary.samples_per_s for summary in mine])),
        speed_up=gain.value,
        low=gain.low,
        high=gain.high,
        efficiency=gain.value / ideal,
        ideal=ideal,
    )
