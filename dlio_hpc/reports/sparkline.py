"""Small pictures of a metric over the nights, as SVG elements in a table. A night without a run is a gap."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from dlio_hpc.base.nights import night_of
from dlio_hpc.reports import regression_rows
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import run_groups, trend
from dlio_hpc.verdict.history_entry import Entry, Key

# Maximum number of nights of a picture, and of dates in its description.
MOST, _NAMED = 30, 3
_WIDTH, _HEIGHT, _MARGIN = 180.0, 36.0, 4.0
# Minimum range of values that the full height stands for, as a share of the value in the middle.
_LEAST_SPAN = 0.1


class NightMark(NamedTuple):
    """A night with a run. value: median; None if the night has no usable value. is_of_storage: whether the runs read
    from storage.
    """

    value: float | None
    is_of_storage: bool


class Nights(NamedTuple):
    """Nights of a measurement. days: all nights, oldest first, including nights without a run. marks: the nights with a
    run, by day. base: median of the baseline; None if unknown.
    """

    metric: MetricName
    days: Sequence[date]
    marks: Mapping[date, NightMark]
    base: float | None

    @property
    def without_run(self) -> list[date]:
        return [day for day in self.days if day not in self.marks]

    @property
    def without_value(self) -> list[date]:
        return [day for day in self.days if day in self.marks and self.marks[day].value is None]

    @property
    def not_of_storage(self) -> list[date]:
        marks = self.marks
        return [day for day in self.days if day in marks and marks[day].value and not marks[day].is_of_storage]


def nights(jobs: Sequence[Entry], key: Key, metric: MetricName, last: date, base: float | None) -> Nights:
    """Return the nights of a measurement, from the first night in which its key was measured to the night `last`. jobs:
    all jobs of the suite or workload, oldest first. If a night has several jobs with a value, the value of the last of
    these jobs is used.
    """
    marks: dict[date, NightMark] = {}
    for entry in jobs:
        mine = [group for group in run_groups.of(entry) if group.key == key]
        if not mine and not marks:
            continue
        day = night_of(entry.ended)
        night = trend.night(mine[-1], metric) if len(mine) == 1 and mine[0].faulty is None else None
        if night is not None:
            marks[day] = NightMark(night.median, mine[0].is_of_storage)
        else:
            marks.setdefault(day, NightMark(None, False))
    if not marks:
        return Nights(metric, (), {}, base)
    first = max(min(marks), last - timedelta(days=MOST - 1))
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    return Nights(metric, days, marks, base)


def described(shown: Nights) -> str:
    """Return the nights in words, with the gaps."""
    if not shown.days:
        return "no night has a value"
    count = len(shown.days)
    clauses = [
        f"{count} night{'s' * (count != 1)} to {shown.days[-1]}",
        *_named("no run on", shown.without_run),
        *_named("no result on", shown.without_value),
        *_named("not from storage on", shown.not_of_storage),
    ]
    return "; ".join(clauses)


def _named(lead: str, days: Sequence[date]) -> Iterator[str]:
    if days:
        rest = f" and {len(days) - _NAMED} more" if len(days) > _NAMED else ""
        yield f"{lead} {', '.join(f'{day:%m-%d}' for day in days[-_NAMED:])}{rest}"


def svg(shown: Nights) -> str:
    """Return the picture: a line through the values with breaks at gaps; bands for nights without a run; crosses for
    nights without a result; rings for values that do not measure the storage; a dashed line for the baseline.
    """
    values = [(day, mark.value) for day in shown.days if (mark := shown.marks.get(day)) and mark.value is not None]
    if not values:
        return ""
    levels = [value for _, value in values] + ([shown.base] if shown.base is not None else [])
    middle, half = (max(levels) + min(levels)) / 2, (max(levels) - min(levels)) / 2
    half = max(half, _LEAST_SPAN * middle / 2)
    low, high = middle - half, middle + half
    step = (_WIDTH - 2 * _MARGIN) / max(len(shown.days) - 1, 1)
    x = {day: _MARGIN + step * place for place, day in enumerate(shown.days)}
    y = {day: _height(value, low, high) for day, value in values}
    noun = METRICS[shown.metric].noun
    label = f"{noun}, {described(shown)}; from {_number(min(levels), shown)} to {_number(max(levels), shown)}, "
    label += f"latest {_number(values[-1][1], shown)}"
    parts = [*_bands(shown, x, step), *_base(shown, low, high), *_curves(shown, x, y), *_marks(shown, x, y)]
    size = f'width="{_WIDTH:g}" height="{_HEIGHT:g}" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}"'
    return f'<svg class="spark" role="img" aria-label="{label}" {size}>{"".join(parts)}</svg>'


def _number(value: float, shown: Nights) -> str:
    return regression_rows.shown(value, shown.metric)


def _height(value: float, low: float, high: float) -> float:
    return _MARGIN + (_HEIGHT - 2 * _MARGIN) * (high - value) / (high - low)


def _bands(shown: Nights, x: Mapping[date, float], step: float) -> Iterator[str]:
    wide = min(step, _WIDTH / 2)
    for day in shown.without_run:
        yield f'<rect class="gap" x="{x[day] - wide / 2:.1f}" y="0" width="{wide:.1f}" height="{_HEIGHT:g}"/>'


def _base(shown: Nights, low: float, high: float) -> Iterator[str]:
    if shown.base is not None:
        yield f'<path class="base" d="M0 {_height(shown.base, low, high):.1f}H{_WIDTH:g}"/>'


def _curves(shown: Nights, x: Mapping[date, float], y: Mapping[date, float]) -> Iterator[str]:
    points: list[str] = []
    for day in shown.days:
        if day in y:
            points.append(f"{x[day]:.1f} {y[day]:.1f}")
        elif points:
            yield f'<path d="M{"L".join(points)}"/>'
            points = []
    if points:
        yield f'<path d="M{"L".join(points)}"/>'


def _marks(shown: Nights, x: Mapping[date, float], y: Mapping[date, float]) -> Iterator[str]:
    newest = list(y)[-1]
    for day in shown.not_of_storage:
        yield f'<circle class="ring" cx="{x[day]:.1f}" cy="{y[day]:.1f}" r="2"/>'
    for day in shown.without_value:
        yield f'<path class="cross" d="M{x[day] - 2.5:.1f} 29l5 5m0 -5l-5 5"/>'
    alone = [day for day in y if day - timedelta(days=1) not in y and day + timedelta(days=1) not in y]
    for day in dict.fromkeys([*alone, newest]):
        if day not in shown.not_of_storage:
            yield f'<circle cx="{x[day]:.1f}" cy="{y[day]:.1f}" r="{3 if day == newest else 1.5}"/>'
