"""dlio-hpc accept."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from dlio_hpc.cli import console, job_names
from dlio_hpc.cli.outputs import Outputs, page_options, write_junit
from dlio_hpc.cli.verbs import PATH, SETTINGS, option
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.records.job_outcome import JobOutcome
from dlio_hpc.records.study_outcome import StudyOutcome

if TYPE_CHECKING:
    from dlio_hpc.report.document import Document
    from dlio_hpc.verdict.acceptance import Acceptance
    from dlio_hpc.verdict.validity_criteria import Absent


@click.command(context_settings=SETTINGS)
@click.argument("names", nargs=-1, required=True, metavar="STUDY|JOB|ARCHIVE...")
@option("--criteria", metavar="NAME|FILE", help="Shipped criteria, or a YAML file of yours. Default: the suite's.")
@option("-o", "--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Where STUDY is.")
@option("--junit", type=PATH, metavar="FILE", help="The verdicts as JUnit's XML, for CI systems.")
@page_options
def accept(names: tuple[str, ...], criteria: str | None, runs: Path, junit: Path | None, outputs: Outputs) -> int:
    """Judge what was measured by a file of criteria: each with its evidence and a verdict.

    Exit codes, the first that applies: 3 a run is invalid, 6 the infrastructure failed, 7 measurements are missing, 4
    cached (not the storage was measured), 1 a criterion fails, 5 inconclusive, 0 all pass.
    """
    from dlio_hpc.verdict import acceptance, history_entry
    from dlio_hpc.verdict import criteria_file as files

    loaded = _load([job_names.place(name, runs) for name in names])
    for words in (words for study in loaded.studies for words in study.broken):
        console.say(f"dlio-hpc: left out, cannot be read: {words}")
    jobs = [*(job for study in loaded.studies for job in study.jobs), *loaded.jobs]
    lacking = [each for study in loaded.studies for each in absent(study)]
    found = acceptance.judge(files.load(criteria or _own(loaded)), [history_entry.of(job) for job in jobs], lacking)
    if outputs.as_json:
        console.print_json(acceptance.as_document(found))
    outputs.present(lambda: _document(found))
    if junit is not None:
        write_junit(junit, f"acceptance by {found.criteria.name}", acceptance.cases(found))
    return found.exit_code


def _document(accepted: "Acceptance") -> "Document":
    from dlio_hpc.report import acceptance_document

    return acceptance_document.of_acceptance(accepted)


class _Loaded(NamedTuple):
    """What is to be judged: studies, and jobs that are of none, or of which not all of the study's are here."""

    studies: list[StudyOutcome]
    jobs: list[JobOutcome]


def _load(paths: list[Path]) -> _Loaded:
    """Several jobs that are all of one study are that study; a job that is named by itself is judged by itself."""
    folders = [path for path in paths if study_outcome.is_study(path)]
    studies = [job_names.study_in(folder) for folder in dict.fromkeys(folders)]
    jobs = job_outcome.load_all([path for path in dict.fromkeys(paths) if path not in folders])
    if not studies and len(jobs) > 1 and (study := study_outcome.held(jobs)) is not None:
        return _Loaded([study_outcome.of_jobs(study, jobs, absent="none of these jobs was to make it")], [])
    return _Loaded(studies, jobs)


def _own(loaded: _Loaded) -> str:
    """The criteria of the suite that is judged."""
    own = {study.study.verdict.criteria for study in loaded.studies if study.study.verdict is not None}
    if len(own) != 1 or None in own:
        raise click.UsageError("say with --criteria what to judge by; only a suite has criteria of its own")
    return str(own.pop())


def absent(outcome: StudyOutcome) -> "list[Absent]":
    """What a study lacks, as it is judged."""
    from dlio_hpc.verdict.validity_criteria import Absent

    study = outcome.study
    return [
        Absent(study.title(study.points[each.unit.point]), each.unit.repeat, each.job, each.why)
        for each in outcome.missing
    ]
