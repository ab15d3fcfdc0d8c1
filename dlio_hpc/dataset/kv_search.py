"""Search for the largest number of users of an inference workload whose requests are served in time. Each try measures
one number; the numbers of earlier tries determine the next one.
"""

from collections.abc import Sequence
from typing import NamedTuple

# The search ends if the smallest number that is too large exceeds the largest one in time by at most this share.
_RESOLUTION = 0.1


class UserCount(NamedTuple):
    """A number of users that was tried. is_in_time: whether their requests were served in time."""

    users: int
    is_in_time: bool


def limits(tries: Sequence[UserCount]) -> tuple[int, int | None]:
    """Return the largest number of users in time, and the smallest number that is too large. The first is 0 if all
    numbers are too large, and the second is None if none is. A number is too large if any of its tries was.
    """
    too_large = min((one.users for one in tries if not one.is_in_time), default=None)
    in_time = (one.users for one in tries if one.is_in_time and (too_large is None or one.users < too_large))
    return max(in_time, default=0), too_large


def following(first: int, most: int, tries: Sequence[UserCount]) -> int:
    """Return the number of users of the next try. The number is doubled until it is too large, or halved until it is in
    time. Then the interval between the two is halved. After the end of the search, the largest number in time is tried
    again. first: number of the first try. most: largest number to try.
    """
    if not tries:
        return min(first, most)
    low, high = limits(tries)
    if high is None:
        return min(2 * low, most)
    if not low:
        return max(1, high // 2)
    return low if high - low <= max(1, int(_RESOLUTION * high)) else (low + high) // 2
