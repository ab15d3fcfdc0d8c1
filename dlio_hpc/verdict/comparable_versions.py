"""Versions of dlio-hpc that changed measurements. Measurements before and after such a version are not compared."""

import functools
import re

# Oldest first. A version is added here if it makes other requests for the same workload, or computes a metric in
# another way. Keys that are added to a workload, with defaults that keep its requests, are no reason.
FIRST_OF_A_KIND = ("0.1.0",)


@functools.lru_cache(1024)
def since(version: str) -> str:
    """Return the first version that measures in the same way as `version`, so that their measurements are comparable.
    An unknown version is only comparable with itself.
    """
    number = _number(version)
    earlier = [first for first in FIRST_OF_A_KIND if number and (_number(first) or ()) <= number]
    return earlier[-1] if earlier else version


def _number(version: str) -> tuple[int, ...] | None:
    """Return the numbers of a version such as 0.2.0.dev1: (0, 2, 0); None if it does not begin with a number."""
    match = re.match(r"\d+(?:[.]\d+)*", version)
    return tuple(map(int, match[0].split("."))) if match else None
