"""Reports of studies. The report of a suite includes its verdict."""

from dlio_hpc.base.counted_progress import Report
from dlio_hpc.reports import regression_page, slowdown_rows, study_page, verdict_banners
from dlio_hpc.reports.page import Page
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.verdict import suite
from dlio_hpc.verdict.suite import SuiteVerdict


def verdict_on(made: StudyReport, report: Report) -> SuiteVerdict | None:
    """Return the verdict of a suite, or None if the study is not a suite or only generates data. report: function that
    is called with each note for the user.
    """
    study = made.outcome.study
    if study.verdict is None or study.generate == "only":
        return None
    return suite.judge_study(made.outcome, made.effects, report)


def page(made: StudyReport, verdict: SuiteVerdict | None) -> Page:
    """Return the report of a study, with the verdict if there is one."""
    if verdict is None:
        return study_page.of_study(made)
    slowdowns = slowdown_rows.verdict(made.slowdowns) if made.outcome.study.is_mixed else ""
    return study_page.of_study(made, verdict_banners.of_suite(verdict, slowdowns), regression_page.of_suite(verdict))
