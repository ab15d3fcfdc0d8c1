"""Values that requests cannot prove, even if the requests are regular. Their confidence is medium at most."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dlio_hpc.programs.characterize.evidence import DerivedValue


class _Doubt(NamedTuple):
    """A reason to doubt a value. is_open: function that returns whether the doubt applies, given the value and the
    number of worker processes of a rank.
    """

    reason: str
    is_open: Callable[[DerivedValue, int], bool]


_DOUBTS = {
    "compute.time": _Doubt(
        "a program may do more between two reads than a step, or less", lambda value, workers: value.value > 0
    ),
    "reader.read_threads": _Doubt(
        "a library may have threads of its own", lambda value, workers: workers == 1 and value.value > 1
    ),
    "reader.shuffle.samples": _Doubt(
        "a buffer in which samples are shuffled makes no requests", lambda value, workers: value.value is False
    ),
}


def limited(keys: Mapping[str, DerivedValue], workers: int) -> dict[str, DerivedValue]:
    """Reduce the confidence of values that requests cannot prove from high to medium, and return these values. workers:
    number of worker processes of a rank.
    """
    return {
        key: keys[key].at_most("medium", doubt.reason)
        for key, doubt in _DOUBTS.items()
        if key in keys and keys[key].confidence == "high" and doubt.is_open(keys[key], workers)
    }
