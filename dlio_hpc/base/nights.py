"""Nights: from noon to noon, in the time zone of this machine. A job belongs to the night in which it ends."""

import time
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone

from dlio_hpc.base.units import timestamp

# Hour of the day at which nights begin and end unless jobs end near it, distance in hours that counts as near, and the
# least number of hours without an end of a job in which nights may begin instead.
_NOON, _CLEAR_OF_NOON, _LEAST_GAP = 12.0, 2.0, 6.0


def night_of(ended: str) -> date:
    """Return the night to which a time (UTC) belongs. A night lasts from noon to noon in the time zone of this machine,
    and has the date of its morning.
    """
    return (_local(timestamp(ended)) + timedelta(hours=_NOON)).date()


def nights_of(ended: Sequence[str]) -> list[date]:
    """Return the nights to which the times (UTC) of jobs belong. Nights last from noon to noon, as for night_of().
    There is one exception: jobs end within two hours of noon, and there is a period of the day of at least six hours in
    which no job ends. Nights then begin in the middle of the longest such period. A job that runs every day at noon
    thus has one night a day. The date of a night is the date of its longer part.
    """
    local = [_local(timestamp(moment)) for moment in ended]
    begin = _begin_of_night([moment.hour + moment.minute / 60 for moment in local])
    shift = timedelta(hours=24 - begin if begin >= _NOON else -begin)
    return [(moment + shift).date() for moment in local]


def _local(moment: float) -> datetime:
    """Return a time in the time zone of this machine. moment: seconds since 1970."""
    return datetime.fromtimestamp(moment, timezone(timedelta(seconds=time.localtime(moment).tm_gmtoff)))


def _begin_of_night(hours: Sequence[float]) -> float:
    """Return the hour of the day at which nights begin. hours: hours at which jobs end."""
    if all(abs(hour - _NOON) >= _CLEAR_OF_NOON for hour in hours):
        return _NOON
    ordered = sorted(hours)
    gaps = [(later - hour, hour) for hour, later in zip(ordered, [*ordered[1:], ordered[0] + 24], strict=True)]
    longest, begin = max(gaps)
    return (begin + longest / 2) % 24 if longest >= _LEAST_GAP else _NOON
