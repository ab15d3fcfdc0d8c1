"""The banner over a study: is it complete, did it measure storage, and does it come to a conclusion?"""

from collections.abc import Iterator

from dlio_hpc.analysis.comparison import Comparison, Finding, PointFigures
from dlio_hpc.report import banner, jobbanner, sidesrows, studyreport, studywords
from dlio_hpc.report.banner import Banner
from dlio_hpc.report.studyreport import StudyReport
from dlio_hpc.study import Study

# A study that finds no difference is conclusive where a difference of this share would have been seen.
HIDDEN = 0.20


def of_study(report: StudyReport) -> Banner:
    """The first of: what is missing, what was not measured on storage, the conclusion of each part."""
    study = report.outcome.study
    if (fault := studyreport.fault(report)) is not None:
        missing = studywords.missing(report.outcome)
        opening = banner.of_fault(fault)
        return opening._replace(text=f"{missing[0]} {opening.text}") if missing else opening
    if study.generate == "only":
        return Banner("good", "The datasets are as planned. The study only generates; it measures nothing.")
    return _of_storage(report) or banner.gravest([*_of_sides(report), *_of_parts(study, report)])


def _of_storage(report: StudyReport) -> Banner | None:
    """The banner where bytes came from memory, or may have; None where all measurements are of the storage."""
    measured = report.outcome.measured
    for origin, text in (
        ("cached", "CACHED: this compares memory, not storage"),
        ("unknown", "It is unknown whether the bytes came from storage or from memory"),
    ):
        count = sum(each.origin == origin for each in measured)
        if count:
            shares = [each.cached for each in measured if each.origin == origin and each.cached is not None]
            worst = f" (up to {100 * max(shares):.1f} % from memory)" if shares else ""
            return Banner("not measured", f"{text}: {count} of {len(measured)} measurements{worst}.")
    if measured and all(each.origin == "nothing read" for each in measured):
        return Banner("not measured", "No measurement read anything from storage: this compares the tool itself.")
    return None


def _of_sides(report: StudyReport) -> Iterator[Banner]:
    """The banner of two file systems that are compared."""
    study = report.outcome.study
    if not study.is_ab:
        return
    text = sidesrows.verdict(study, report.effects)
    if not report.effects:
        yield Banner("not measured", text)
        return
    whole = report.effects[-1]
    yield _conclusion(text, whole.better is not None, whole.low, whole.high)


def _of_parts(study: Study, report: StudyReport) -> Iterator[Banner]:
    for finding in report.findings:
        name = f"{finding.part}: " if len(study.parts) > 1 else ""
        for part in _of_part(study, finding):
            yield part._replace(text=f"{name}{part.text}")


def _of_part(study: Study, finding: Finding) -> Iterator[Banner]:
    if not finding.points:
        yield Banner("not measured", "Nothing was measured.")
    elif finding.unusable is not None:
        yield Banner("inconclusive", finding.unusable)
    elif not finding.comparisons:
        yield from map(_of_point, finding.points)
    for comparison in finding.comparisons[-1:]:
        text = " ".join(studywords.verdict(study, finding, comparison))
        if text:
            yield _of_comparison(text, comparison)


def _of_comparison(text: str, comparison: Comparison) -> Banner:
    gain = comparison.gain
    if comparison.noise.sd is None or gain is None:
        return Banner("inconclusive", text)
    return _conclusion(text, gain.is_beyond_noise, gain.low, gain.high)


def _conclusion(text: str, is_beyond_noise: bool, low: float | None, high: float | None) -> Banner:
    """low, high: the 95 % interval of a ratio; None: the noise is unknown."""
    if low is None or high is None:
        return Banner("inconclusive", text)
    if is_beyond_noise or (low > 1 - HIDDEN and high < 1 / (1 - HIDDEN)):
        return Banner("good", text)
    return Banner("inconclusive", f"{text} A difference of {100 * HIDDEN:.0f} % may hide in the noise.")


def _of_point(point: PointFigures) -> Banner:
    """The banner of a point that is compared with no other."""
    rates = point.samples_per_s
    if rates is None:
        return Banner("not measured", "No measurement has samples/s.")
    text = f"{rates.median:.1f} samples/s"
    if point.n < 2:
        return Banner("inconclusive", f"{text}, measured once: the noise is unknown.")
    spread = (rates.max - rates.min) / rates.median
    text = f"{text}, median of {point.n} repeats that differ by {100 * spread:.1f} %."
    return Banner("inconclusive" if spread > jobbanner.SPREAD else "good", text)
