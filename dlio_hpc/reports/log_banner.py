"""Banner of a report on Darshan logs: whether their numbers can be used, and whether I/O binds the program."""

from collections.abc import Sequence

from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.base.units import format_size
from dlio_hpc.reports import banner, bottleneck
from dlio_hpc.reports.banner import Banner

# Bytes that are missing from the trace are named if they are more than this share of the bytes in it.
_NOTABLE = 0.01


def of_logs(examined: Sequence[Examined]) -> Banner:
    """Return the banner with the worst state among the banners of these logs. If several have this state, return the
    first.
    """
    return banner.gravest(list(map(_of_log, examined)))


def _of_log(examined: Examined) -> Banner:
    if not examined.is_sound:
        return Banner("bad", f"{examined.title} is incomplete: {examined.faults[0]}. Do not use its numbers.")
    if not _lacks_traces_alone(examined):
        gaps = "; ".join(map(str, examined.faults))
        return Banner("inconclusive", f"{examined.title}: counters are complete, but other parts are not: {gaps}.")
    analysis = examined.analysis
    if analysis is None or not analysis.bytes_read + analysis.bytes_written:
        return Banner("not measured", f"{examined.title} records no bytes read or written.")
    is_traced = examined.requests is not None
    trace = "counters and trace are" if is_traced else "counters are"
    without = "" if is_traced else "; there is no trace (DXT), so only sums of times are known"
    if is_traced and analysis.untraced_bytes > _NOTABLE * (analysis.bytes_read + analysis.bytes_written):
        without = f"; {format_size(analysis.untraced_bytes)} through STDIO are in the counters alone"
    if bottleneck.may_bind(analysis):
        return Banner("good", f"{bottleneck.of_log(examined.title, analysis)} Its {trace} complete{without}.")
    return Banner("good", f"{examined.title}: {trace} complete{without}.")


def _lacks_traces_alone(examined: Examined) -> bool:
    """Return whether the log has no other fault than traces that were not recorded. Darshan records traces on request
    only. A trace that is in the table of the log, but empty, is lost.
    """
    modules = examined.log.modules if examined.log is not None else {}
    tracers = [fault.text.rsplit("the trace ", 1)[-1].split()[0] for fault in examined.faults]
    missing = [fault.name == "DXT missing" for fault in examined.faults]
    return all(missing) and not any(tracer in modules for tracer in tracers)
