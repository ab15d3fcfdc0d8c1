"""Banner of a report on Darshan logs: whether their numbers can be used."""

from collections.abc import Sequence

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.reports import banner
from dlio_hpc.reports.banner import Banner


def of_logs(examined: Sequence[Examined]) -> Banner:
    """Return the banner with the worst state among the banners of these logs. If several have this state, return the
    first.
    """
    return banner.gravest(list(map(_of_log, examined)))


def _of_log(examined: Examined) -> Banner:
    if not examined.is_sound:
        return Banner("bad", f"{examined.title} is incomplete: {examined.faults[0]}. Do not use its numbers.")
    if examined.faults:
        gaps = "; ".join(map(str, examined.faults))
        return Banner("inconclusive", f"{examined.title}: counters are complete, but other parts are not: {gaps}.")
    analysis = examined.analysis
    if analysis is None or not analysis.bytes_read + analysis.bytes_written:
        return Banner("not measured", f"{examined.title} records no bytes read or written.")
    trace = "counters and trace are" if examined.requests is not None else "counters are"
    without = "" if examined.requests is not None else "; there is no trace (DXT), so only sums of times are known"
    return Banner("good", f"{examined.title}: {trace} complete{without}.")
