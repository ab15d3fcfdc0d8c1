"""Why repeats differ: what else went on on the nodes during those that were slower than their likes, and not during
the others. What is named need not be the cause; what was not recorded is said to be unknown.
"""

import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from dlio_hpc.results import Disturbance, Level

# Of repeats, (most - least) / median, from which on they differ so much that a reader should know why.
LARGE = 0.10
UNRECORDED = "what else went on on the nodes was not recorded"
UNEXPLAINED = "nothing was recorded that explains it"


class Repeat(NamedTuple):
    """One of several runs that should be alike. value: more is better. disturbance: None where none was recorded."""

    name: str
    value: float
    disturbance: Disturbance | None


class _Kind(NamedTuple):
    """A figure of Disturbance. label: as short as can be; text: of what was found. least: by how much more of it there
    must be for it to count, and which share of a node's cores if that is more. is_foreign: none of it is the ranks' own
    doing.
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
    _Kind("steal", "steal", "the hypervisor kept CPU time,", "share", 0.02, is_foreign=True),
    _Kind("load", "load", "load average", "tasks", 1.0, of_cores=0.25),
    _Kind("cpu_pressure", "cpu", "cpu pressure", "share", 0.1),
    _Kind("io_pressure", "io", "io pressure", "share", 0.1),
    _Kind("memory_pressure", "memory", "memory pressure", "share", 0.05),
)


def facts(found: Disturbance | None) -> list[tuple[str, str]]:
    """Label and text of all of it, each on the node that has most of it."""
    if found is None:
        return [("meanwhile", UNRECORDED)]
    told = {kind.name: f"{kind.label} {_told(kind, found)}" for kind in _KINDS}
    pressures = [told.pop(kind.name) for kind in _KINDS if kind.name.endswith("_pressure")]
    return [("meanwhile", ", ".join(told.values())), ("pressure", ", ".join(pressures))]


def _told(kind: _Kind, found: Disturbance) -> str:
    level = getattr(found, kind.name)
    return "unknown" if level is None else _number(kind, level.max, found.cores or 0)


def spread(values: Sequence[float]) -> float:
    """(most - least) / median; 0 of fewer than two."""
    middle = statistics.median(values) if values else 0.0
    return (max(values) - min(values)) / middle if len(values) > 1 and middle > 0 else 0.0


def explained(repeats: Sequence[Repeat]) -> list[str]:
    """A line for each of the slower repeats during which more went on than during the others, one for what went on all
    the time, else one that nothing tells.
    """
    if not any(each.disturbance for each in repeats):
        return [UNRECORDED]
    middle = statistics.median(each.value for each in repeats)
    calm = [each.disturbance for each in repeats if each.value >= middle]
    told = []
    for each in (each for each in repeats if each.value < middle):
        if more := differing([each.disturbance], calm):
            told.append(f"{each.name} ({100 * (each.value / middle - 1):+.0f} %): {', '.join(more)}")
        elif each.disturbance is None:
            told.append(f"{each.name} ({100 * (each.value / middle - 1):+.0f} %): {UNRECORDED}")
    if always := _always([each.disturbance for each in repeats if each.disturbance is not None]):
        told.append(f"in all of them: {', '.join(always)}")
    return told or [UNEXPLAINED]


def differing(some: Sequence[Disturbance | None], others: Sequence[Disturbance | None]) -> list[str]:
    """What there was more of during `some` than during `others`, by their medians."""
    told = []
    for kind in _KINDS:
        mine, theirs = _levels(kind, some), _levels(kind, others)
        cores = _cores(some)
        if mine and theirs:
            here, there = (statistics.median(level.max for level in levels) for levels in (mine, theirs))
            if here - there >= _least(kind, cores):
                told.append(f"{_found(kind, here, cores)} on {_worst(mine)} (else {_number(kind, there)})")
    return told


def _always(some: Sequence[Disturbance]) -> list[str]:
    """What is not the ranks' own, and was never absent."""
    told = []
    for kind in (kind for kind in _KINDS if kind.is_foreign):
        levels, cores = _levels(kind, some), _cores(some)
        if len(levels) == len(some) and min(level.max for level in levels) >= _least(kind, cores):
            middle = statistics.median(level.max for level in levels)
            told.append(f"{_found(kind, middle, cores)} on {_worst(levels)}")
    return told


def _levels(kind: _Kind, some: Sequence[Disturbance | None]) -> list[Level]:
    found = [getattr(each, kind.name) for each in some if each is not None]
    return [level for level in found if level is not None]


def _cores(some: Sequence[Disturbance | None]) -> int:
    return max((each.cores or 0 for each in some if each is not None), default=0)


def _worst(levels: Sequence[Level]) -> str:
    """The host that has most."""
    return max(levels, key=lambda level: level.max).host


def _least(kind: _Kind, cores: int) -> float:
    return max(kind.least, kind.of_cores * cores)


def _found(kind: _Kind, value: float, cores: int) -> str:
    return f"{kind.text} {_number(kind, value, cores)}"


def _number(kind: _Kind, value: float, cores: int = 0) -> str:
    if kind.unit == "share":
        return f"{100 * value:.0f} %"
    return f"{value:.1f} of {cores} cores" if kind.unit == "cores" and cores else f"{value:.1f}"
