"""A suite's verdict at its end, for whoever waited for it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_hpc import document
from dlio_hpc.cli import selection
from dlio_hpc.cli.accept import absent
from dlio_hpc.verdict import acceptance, baseline_comparison, baselines, criteria_file, history_entry, suite
from dlio_hpc.verdict.baseline_comparison import Terms
from dlio_hpc.verdict.criteria_file import Criteria
from dlio_hpc.verdict.suite import SuiteVerdict

if TYPE_CHECKING:
    from dlio_hpc.report.study_report import StudyReport


def judge(report: "StudyReport") -> SuiteVerdict:
    """By the history and the baselines that lie with the study's archives, and by the suite's criteria."""
    outcome = report.outcome
    study, asked = outcome.study, outcome.study.verdict
    assert asked is not None
    folder = Path(study.archive)
    entries = [history_entry.of(job) for job in outcome.jobs]
    terms = Terms(metrics=asked.metrics, tolerance=asked.tolerance)
    known = baselines.active(baselines.read(folder)) if folder.is_dir() else ()
    judged = baseline_comparison.judge(
        [each for each in entries if each.measurements], selection.entries(folder), known, terms
    )
    by = acceptance.judge(
        criteria_file.load(asked.criteria) if asked.criteria else _NOTHING_MORE, entries, absent(outcome)
    )
    return suite.judge(study, judged, by, report.effects, [one.group.key for one in known])


# That runs are good, and of the storage, is asked in any case.
_NOTHING_MORE = Criteria(name="none")


def as_document(verdict: SuiteVerdict) -> dict[str, Any]:
    """For --json."""
    return {
        "summary": verdict.summary,
        "exit_code": verdict.exit_code,
        "comparisons": document.plain(verdict.judgement.verdicts),
        "acceptance": acceptance.as_document(verdict.acceptance),
    }
