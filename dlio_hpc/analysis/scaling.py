"""How a part scales: what more nodes or ranks bring, against what they would bring at best."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis import replicates
from dlio_hpc.analysis.measured import Measured
from dlio_hpc.analysis.replicates import SURE, Fit
from dlio_hpc.study import Part, Point, Study


class Step(Struct, frozen=True):
    """A point. speed_up: of samples/s over the fewest ranks; ideal: times as many ranks. efficiency: one over
    the other. low, high: of the speed-up, 95 % each by itself; None where noise is unknown, and of the first.
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


class Scaling(Struct, frozen=True):
    """Of one setting. strong: all ranks together read the same amount; weak: each of them does."""

    kind: Literal["strong", "weak"]
    labels: dict[str, str]
    steps: tuple[Step, ...]


def scalings(study: Study, part: Part, measured: Sequence[Measured]) -> tuple[Scaling, ...]:
    """One for each setting of which at least two sizes were measured."""
    good = [each for each in measured if each.summary.samples_per_s > 0]
    numbers = sorted({each.point for each in good})
    if len(numbers) < 2:
        return ()
    found = replicates.fit(
        np.array([numbers.index(each.point) for each in good]),
        np.array([each.repeat for each in good]),
        np.log([each.summary.samples_per_s for each in good]),
    )
    sure = float(np.quantile(replicates.draw_pair(found), SURE)) if found.is_noise_known else None
    settings: dict[tuple[int, ...], list[Point]] = {}
    for number in numbers:
        point = study.points[number]
        settings.setdefault(tuple(point.places.values()), []).append(point)
    return tuple(
        Scaling(
            "weak" if part.weak else "strong",
            {axis.key: axis.labels[points[0].places[axis.key]] for axis in part.axes},
            _steps(sorted(points, key=lambda point: (point.ranks, point.nodes)), numbers, found, sure, good),
        )
        for points in settings.values()
        if len(points) > 1
    )


def _steps(
    points: Sequence[Point], numbers: Sequence[int], found: Fit, sure: float | None, measured: Sequence[Measured]
) -> tuple[Step, ...]:
    first = numbers.index(points[0].number)
    steps = []
    for point in points:
        place = numbers.index(point.number)
        mine = [each.summary for each in measured if each.point == point.number]
        gain = float(found.values[place] - found.values[first])
        room = None if sure is None or place == first else sure * found.sd * found.difference_sd(place, first)
        ideal = point.ranks / points[0].ranks
        steps.append(
            Step(
                point=point.number,
                nodes=point.nodes,
                ranks_per_node=point.ranks_per_node,
                ranks=point.ranks,
                wall_s=float(np.median([summary.wall_s for summary in mine])),
                samples_per_s=float(np.median([summary.samples_per_s for summary in mine])),
                speed_up=float(np.exp(gain)),
                low=None if room is None else float(np.exp(gain - room)),
                high=None if room is None else float(np.exp(gain + room)),
                efficiency=float(np.exp(gain)) / ideal,
                ideal=ideal,
            )
        )
    return tuple(steps)
