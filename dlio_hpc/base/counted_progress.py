"""Lines that report the progress of work on many items."""

import time
from collections.abc import Callable

# Function that is called with lines for the user.
Report = Callable[[str], None]
# Seconds before the first line, and between two lines.
_FIRST_S, _INTERVAL_S = 1.0, 2.0


class CountedProgress:
    """Function that reports how many items are done, their rate, and the estimated time for the rest: "NAME: 64 of 256
    files, 16/s, about 12 s left". Work that takes less than a second is not reported.

    report: function that is called with each line. name: beginning of the line. unit: unit of the items. total: number
    of items; 0: unknown. before: number of items that were done before this work began.
    """

    def __init__(self, report: Report, name: str, unit: str, total: int = 0, before: int = 0) -> None:
        self._report, self._name, self._unit, self._before = report, name, unit, before
        self._began = time.monotonic()
        self._due = self._began + _FIRST_S
        self.total = total

    def __call__(self, done: int, rest: str = "") -> None:
        """Report that `done` items are done, if a line is due. rest: further text."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _INTERVAL_S
        of_total = f" of {self.total:,}" if self.total else ""
        rate = (done - self._before) / (now - self._began)
        left = (self.total - done) / rate if self.total > done and rate else 0.0
        per_second = f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"
        parts = [
            f"{self._name}: {done:,}{of_total} {self._unit}",
            rest,
            per_second if rate else "",
            f"about {duration(left)} left" if left else "",
        ]
        self._report(", ".join(filter(None, parts)))


def duration(seconds: float) -> str:
    """Return a time with the precision of an estimate, such as "40 s", "12 min" or "2:30 h"."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60}:{minutes % 60:02} h"
