"""A suite's verdict at its end, for whoever waited for it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_hpc import document
from dlio_hpc.cli import found
from dlio_hpc.cli.accept import judge as accepted
from dlio_hpc.verdict import acceptance, baselines, comparison, criteria, entry, suite
from dlio_hpc.verdict.comparison import Terms
from dlio_hpc.verdict.suite import SuiteVerdict

if TYPE_CHECKING:
    from dlio_hpc.report.studyreport import StudyReport


def judge(report: "StudyReport") -> SuiteVerdict:
    """By the history and the baselines that lie with the study's archives, and by the suite's criteria."""
    outcome = report.outcome
    study, asked = outcome.study, outcome.study.verdict
    assert asked is not None
    folder = Path(study.archive)
    entries = [entry.of(job) for job in outcome.jobs]
    terms = Terms(metrics=asked.metrics, tolerance=asked.tolerance)
    known = baselines.active(baselines.read(folder)) if folder.is_dir() else ()
    judged = comparison.judge([each for each in entries if each.measurements], found.entries(folder), known, terms)
    by = None if asked.criteria is None else accepted(criteria.load(asked.criteria), [outcome], [])
    return suite.judge(study, judged, by, report.effects, len(outcome.missing))


def show(verdict: SuiteVerdict) -> None:
    """The summary first, so that a mail can have it for its subject."""
    from dlio_hpc.verdict import acceptancetables, verdicttables

    print(verdict.summary)
    print()
    if verdict.is_compared:
        verdicttables.show(verdict.judgement, sys.stdout)
    else:
        jobs = " or ".join(dict.fromkeys(one.job for one in verdict.judgement.verdicts))
        print(f"No baseline yet; if this is a good one: dlio-hpc baseline accept {jobs} --why '...'")
    if verdict.acceptance is not None:
        print()
        acceptancetables.show(verdict.acceptance, sys.stdout)
    print()


def as_document(verdict: SuiteVerdict) -> dict[str, Any]:
    """For --json."""
    return {
        "summary": verdict.summary,
        "exit_code": verdict.exit_code,
        "comparisons": document.plain(verdict.judgement.verdicts),
        "acceptance": None if verdict.acceptance is None else acceptance.as_document(verdict.acceptance),
    }
