"""Nights of a study: when the jobs of each night may start, and how jobs are named after their night."""

import math
import re
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dlio_hpc.base import units
from dlio_hpc.plan.study import Study

# End of the name of a job, after that of its study.
_SUFFIX = re.compile(r"-(?:night(?P<night>[0-9]+)-)?(?P<number>[0-9]+)")


class NightJob(NamedTuple):
    """An earlier job of a study. night: number of the night of the job. begins: time from which the job could start, in
    seconds since 1970. counts: whether later nights must follow this job. This is the case if the job is queued, is
    running, or has measured something.
    """

    night: int
    begins: float
    counts: bool


def planned(study: Study) -> dict[int, str]:
    """Return the time (UTC) at which each night of a new study begins. It is empty for the first night, which begins
    immediately. The others follow at intervals of study.every.
    """
    start = units.timestamp(study.created)
    return {1: ""} | {night: _utc(start + (night - 1) * study.every) for night in range(2, study.nights + 1)}


def resumed(study: Study, wanted: Iterable[int], jobs: Sequence[NightJob], now: float | None = None) -> dict[int, str]:
    """Return the time (UTC) at which each night in `wanted` begins, if measurements of these nights are missing; empty
    for a night that begins immediately.

    A night that has not begun keeps its time. A night that began less than half of study.every ago continues
    immediately. The time of the other nights has passed: they follow the last night at intervals of study.every. jobs:
    the earlier jobs of the study. now: the current time in seconds since 1970; None to read the clock.
    """
    now = time.time() if now is None else now
    begins: dict[int, float] = {}
    over = []
    for night in sorted(set(wanted)):
        own = max((job.begins for job in jobs if job.night == night), default=-math.inf)
        if now < own + study.every / 2:
            begins[night] = max(own, now)
        else:
            over.append(night)
    last = max((*begins.values(), *(job.begins for job in jobs if job.counts)), default=-math.inf)
    for night in over:
        begins[night] = last = max(now, last + study.every)
    return {night: _utc(moment) if moment > now else "" for night, moment in begins.items()}


def later(begins: str, seconds: float) -> str:
    """Return the time (UTC) that is this number of seconds after `begins`."""
    return _utc(units.timestamp(begins) + seconds)


def _utc(moment: float) -> str:
    return units.utc(math.ceil(moment))


def job_name(study: Study, night: int, number: int) -> str:
    """Return the name of a job of a study, such as STUDY-7, or STUDY-night2-7 if the study has several nights."""
    return f"{study.study}-night{night}-{number}" if study.nights > 1 else f"{study.study}-{number}"


def job_number(study: str, name: str) -> int | None:
    """Return the number of the job `name` in a study. Return None if `name` is not the name of a job that job_name()
    gives in this study.
    """
    match = _matched(study, name)
    return None if match is None else int(match["number"])


def job_night(study: str, name: str) -> int:
    """Return the number of the night in the name of a job; 0 if `name` is not the name of a job of a study with several
    nights.
    """
    match = _matched(study, name)
    return 0 if match is None else int(match["night"] or 0)


def _matched(study: str, name: str) -> re.Match[str] | None:
    return _SUFFIX.fullmatch(name, len(study)) if name.startswith(f"{study}-") else None


def described(night: int, nights: int, begins: str) -> str:
    """Return the night of a job in words, such as "night 3 of 5, begins 2026-11-28 02:00 CET"; empty if the study has a
    single night. begins: time (UTC) before which the job does not start. The time is left out when it has passed.
    """
    if nights == 1:
        return ""
    moment = units.timestamp(begins) if begins else 0.0
    return f"night {night} of {nights}" + (f", begins {units.format_local(moment)}" if moment > time.time() else "")
