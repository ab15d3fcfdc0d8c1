"""Possible reasons why repeats differ. A possible reason is a kind of activity on the nodes, for example by other
programs, that was higher during the slower repeats than during the other repeats.

Reported activity is not necessarily the cause. The absence of a record is also reported.
"""

import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from dlio_hpc.results.run_result import Disturbance, Level

# If the spread of the repeats, (largest - smallest) / median, is above this limit, reports give possible reasons.
LARGE = 0.10
UNRECORDED = "other activity on the nodes was not recorded"
UNEXPLAINED = "no recorded activity explains it"


class Repeat(NamedTuple):
    """One run of a repeated measurement. name: name of the run. value: value of the metric, inverted if lower values
    are better. disturbance: other activity on the nodes during the run; None if it was not recorded.
    """

    name: str
    value: float
    disturbance: Disturbance | None


class _Kind(NamedTuple):
    """A kind of activity on the nodes. name: name of the corresponding field of Disturbance. label: short name. text:
    name in sentences. least, of_cores: smallest increase that is reported. `least` is a number, `of_cores` a share of
    the node's cores; the larger of the two limits applies. is_foreign: whether the kind leaves out the activity of the
    ranks themselves.
    """

    name: str
    label: str
    text: str
    unit: Literal["cores", "tasks", "share"]
    least: float
    of_cores: float = 0.0
    is_foreign: bool = False


_KINDS = (
    _Kind("others", "other processes", "other processes used", "cores", 0.25, of_cores=0.02, is_foreign=True),
    _Kind("steal", "steal", "CPU steal", "share", 0.02, is_foreign=True),
    _Kind("throttled", "CPU quota", "periods in which the CPU quota was used up", "share", 0.05, is_foreign=True),
    _Kind("load", "load", "load average", "tasks", 1.0, of_cores=0.25),
    _Kind("cpu_pressure", "cpu", "cpu pressure", "share", 0.1),
    _Kind("io_pressure", "io", "io pressure", "share", 0.1),
    _Kind("memory_pressure", "memory", "memory pressure", "share", 0.05),
)


def facts(disturbance: Disturbance | None) -> list[tuple[str, str]]:
    """Return the recorded activity as pairs of label and description. Each number in a description is the value of the
    node on which it is highest.
    """
    if disturbance is None:
        return [("meanwhile", UNRECORDED)]
    levels = {
        kind.name: f"{kind.label} {_level_text(kind, disturbance)}"
        for kind in _KINDS
        if kind.name != "throttled" or (disturbance.throttled and disturbance.throttled.max)
    }
    pressures = [levels.pop(kind.name) for kind in _KINDS if kind.name.endswith("_pressure")]
    return [("meanwhile", ", ".join(levels.values())), ("pressure", ", ".join(pressures))]


def _level_text(kind: _Kind, disturbance: Disturbance) -> str:
    level = getattr(disturbance, kind.name)
    return "unknown" if level is None else _number(kind, level.max, disturbance.cores or 0)


def spread(values: Sequence[float]) -> float:
    """Return (largest - smallest) / median of the values, or 0 if there are fewer than two values."""
    middle = statistics.median(values) if values else 0.0
    return (max(values) - min(values)) / middle if len(values) > 1 and middle > 0 else 0.0


def explained(repeats: Sequence[Repeat]) -> list[str]:
    """Return lines that may explain why some repeats are slower. There is one line for each slower repeat during which
    there was more activity than during the faster repeats, or during which activity was not recorded. If some kind of
    activity was high during all repeats, a last line names this kind. If some slower repeats have a reason, repeats
    that are slower by more than LARGE and have none get a line, too. If there is nothing to report, the only line is
    UNEXPLAINED. If no repeat has a record of activity, the only line is UNRECORDED.
    """
    if not any(repeat.disturbance for repeat in repeats):
        return [UNRECORDED]
    middle = statistics.median(repeat.value for repeat in repeats)
    calm = [repeat.disturbance for repeat in repeats if repeat.value >= middle]
    lines, others = [], []
    for repeat in (repeat for repeat in repeats if repeat.value < middle):
        name = f"{repeat.name} ({100 * (repeat.value / middle - 1):+.0f} %)"
        if more := differing([repeat.disturbance], calm):
            lines.append(f"{name}: {', '.join(more)}")
        elif repeat.disturbance is None:
            lines.append(f"{name}: {UNRECORDED}")
        elif repeat.value < (1 - LARGE) * middle:
            others.append(f"{name}: {UNEXPLAINED}")
    lines += others if lines else []
    if always := _always([repeat.disturbance for repeat in repeats if repeat.disturbance is not None]):
        lines.append(f"in all repeats: {', '.join(always)}")
    return lines or [UNEXPLAINED]


def differing(some: Sequence[Disturbance | None], others: Sequence[Disturbance | None]) -> list[str]:
    """Return a phrase for each kind of activity that was higher during the runs `some` than during the runs `others`.
    The medians over the runs are compared.
    """
    phrases = []
    for kind in _KINDS:
        mine, theirs = _levels(kind, some), _levels(kind, others)
        cores = _cores(some)
        if mine and theirs:
            here, there = (statistics.median(level.max for level in levels) for levels in (mine, theirs))
            if here - there >= _least(kind, cores):
                phrases.append(f"{_text(kind, here, cores)} on {_worst(mine)} (other runs: {_number(kind, there)})")
    return phrases


def _always(some: Sequence[Disturbance]) -> list[str]:
    """Return a phrase for each kind of foreign activity that was high during all these runs."""
    phrases = []
    for kind in (kind for kind in _KINDS if kind.is_foreign):
        levels, cores = _levels(kind, some), _cores(some)
        if len(levels) == len(some) and min(level.max for level in levels) >= _least(kind, cores):
            middle = statistics.median(level.max for level in levels)
            phrases.append(f"{_text(kind, middle, cores)} on {_worst(levels)}")
    return phrases


def _levels(kind: _Kind, some: Sequence[Disturbance | None]) -> list[Level]:
    levels = [getattr(disturbance, kind.name) for disturbance in some if disturbance is not None]
    return [level for level in levels if level is not None]


def _cores(some: Sequence[Disturbance | None]) -> int:
    return max((disturbance.cores or 0 for disturbance in some if disturbance is not None), default=0)


def _worst(levels: Sequence[Level]) -> str:
    """Return the name of the host with the highest level."""
    return max(levels, key=lambda level: level.max).host


def _least(kind: _Kind, cores: int) -> float:
    return max(kind.least, kind.of_cores * cores)


def _text(kind: _Kind, value: float, cores: int) -> str:
    return f"{kind.text} {_number(kind, value, cores)}"


def _number(kind: _Kind, value: float, cores: int = 0) -> str:
    if kind.unit == "share":
        return f"{100 * value:.0f} %"
    return f"{value:.1f} of {cores} cores" if kind.unit == "cores" and cores else f"{value:.1f}"
