"""Reports of studies on a terminal, as JSON, as CSV, as a page and as pictures. The report of a suite includes its
verdict.
"""

import sys
from pathlib import Path

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import console
from dlio_hpc.cli.outputs import Outputs
from dlio_hpc.records import names as jobs_by_name
from dlio_hpc.records.study_outcome import StudyOutcome
from dlio_hpc.reports import judged_study, study_report
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.results.metrics import MetricName
from dlio_hpc.verdict.suite import SuiteVerdict


def show_study(folder: Path, as_json: bool, is_judged: bool = True) -> int:
    """Print the report of the study in a folder. For a suite, return the exit code of its verdict. For another study,
    return the exit code for the reason why measurements are missing, or 0 if no measurement is missing. is_judged:
    False for studies that have just been submitted. No verdict is then printed, and 0 is returned in any case.
    """
    outcome, outputs = jobs_by_name.study_in(folder), Outputs(as_json=as_json)
    if is_judged and (verdict := judged_study.verdict_on(made := study_report.make(outcome), console.say)) is not None:
        _present_study(made, verdict, outputs)
        console.exit_code([study_report.fault(made)])
        return verdict.exit_code
    return present(outcome, outputs, None, is_judged)


def present(
    outcome: "StudyOutcome",
    outputs: Outputs,
    metric: MetricName | None,
    is_judged: bool = True,
    has_pager: bool = False,
) -> int:
    """Write the report of a study to the outputs that the user requests. metric: metric by which points are compared;
    None for the metric of each part. is_judged: False for studies that have just been submitted. Return the exit code
    for the reason why measurements are missing, or 0 if no measurement is missing or `is_judged` is False. has_pager:
    as in Outputs.present().
    """
    if outputs.perfetto is not None or outputs.step_s is not None:
        option = "--perfetto" if outputs.perfetto is not None else "--step"
        raise ConfigError(f"{option} needs a single job, not a study: give the directory or archive of a job")
    made = study_report.make(outcome, metric)
    is_shown = outputs.html is not None or not (outputs.as_json or outputs.as_csv)
    _present_study(made, judged_study.verdict_on(made, console.say) if is_shown else None, outputs, has_pager)
    return console.exit_code([study_report.fault(made)]) if is_judged else 0


def _present_study(made: StudyReport, verdict: SuiteVerdict | None, outputs: Outputs, has_pager: bool = False) -> None:
    if outputs.as_json:
        from dlio_hpc.documents import studies

        console.print_json(studies.of_study(made, verdict))
    elif outputs.as_csv:
        study_report.write_csv(made, sys.stdout)
    outputs.present(lambda: judged_study.page(made, verdict), has_pager)


def suite_verdict(folder: Path) -> SuiteVerdict | None:
    """Return the verdict of the suite in a folder, without printing anything. Return None if it is not a suite."""
    return judged_study.verdict_on(study_report.make(jobs_by_name.study_in(folder)), lambda message: None)
