"""dlio-submit: from a workload, or a study, and a site to running jobs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlio_hpc import __version__
from dlio_hpc.cli.study_options import RESUMABLE, Planned, asks, check, given_options, planned, resumed, study_folder
from dlio_hpc.cli.submission import Manner, afterwards, hand_over, show
from dlio_hpc.cli.verbs import PATH, SETTINGS, option
from dlio_hpc.errors import ConfigError
from dlio_hpc.files import rundir
from dlio_hpc.plan import packing
from dlio_hpc.plan.study import Study

if TYPE_CHECKING:
    from dlio_hpc.records.job_outcome import JobOutcome


@click.command(context_settings=SETTINGS)
@click.argument("workload_name", metavar="[WORKLOAD]", required=False)
@asks
@option(
    "--after", "parents", multiple=True, type=PATH, metavar="JOB", help="Run when that job, or study, has ended well."
)
@option("--resume", metavar="STUDY", help="Measure what is missing of a study, and nothing else.")
@option("--dry-run", is_flag=True, help="Print the job script and the submit command; write nothing, run nothing.")
@option("--wait", is_flag=True, help="Watch the job to its end, collect it and show what it measured.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("--quiet", is_flag=True, help="No progress and no notes on stderr.")
@option("-v", "--verbose", is_flag=True, help="Say what is submitted and how.")
@click.version_option(__version__)
@click.pass_context
def submit(
    context: click.Context, /, workload_name: str | None, parents: tuple[Path, ...], resume: str | None, dry_run: bool,
    wait: bool, as_json: bool, quiet: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    """Submit WORKLOAD, a shipped name (dlio-hpc workloads) or a YAML file, as a batch job; with -P, several -N or
    --ppn, or --study, as a study of many points.

    Returns once the batch system has taken the job; with --wait when it has ended and is archived. Every option is
    also an environment variable: --dataset-size is DLIO_HPC_DATASET_SIZE.
    """
    manner = Manner(dry_run, wait, as_json, quiet, verbose)
    if resume is not None:
        _check_resume(context, workload_name)
        options |= {key: None for key in RESUMABLE if _is_default(context, key)}
        return _resume(study_folder(resume, options["runs"]), options, manner)
    found = planned(workload_name, options)
    if dry_run:
        show(found, manner)
        return 0
    return afterwards(found, submitted(found, parents, options["runs"], manner), manner)


def submitted(found: Planned, parents: tuple[Path, ...], runs: Path, manner: Manner) -> list[Path]:
    """Directories of the jobs, which wait for these parents."""
    from dlio_hpc.batch import submit as batch
    from dlio_hpc.cli.jobs import named

    before = [directory for parent in parents for directory in named(str(parent), runs)]
    batch.check(found.jobs)
    after = batch.parents(before, found.jobs[0])
    if found.study.is_plain:
        return hand_over(found, after, [], manner)
    with rundir.locked_file(batch.keep(found.study) / rundir.STUDY):  # not to be resumed before it is submitted
        return hand_over(found, after, [], manner)


def _is_default(context: click.Context, name: str) -> bool:
    """Was the option left out? What a defaults.yaml says is for new studies."""
    return context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT


def _check_resume(context: click.Context, workload_name: str | None) -> None:
    allowed = {"resume", "runs", "dry_run", "wait", "as_json", "quiet", "verbose", *RESUMABLE}
    given = given_options(context, allowed)
    if workload_name is not None or given:
        what = "WORKLOAD" if workload_name is not None else given[0]
        raise click.UsageError(
            f"{what}: --resume goes on with the study as it was; for another one, leave --resume out"
        )


def _resume(folder: Path, options: dict[str, Any], manner: Manner) -> int:
    """What is missing of the study in a folder, planned and submitted; two at a time would both measure it."""
    from dlio_hpc.batch import submit as batch
    from dlio_hpc.batch.cancel import cancel
    from dlio_hpc.cli import console
    from dlio_hpc.records import study_outcome

    known = study_outcome.load(folder)
    if known.generate == "only":
        raise ConfigError(f"{known.study} was to generate data, not to measure; submit it anew")
    found = resumed(known, options)
    folder = known.folder  # also where one of its jobs was named
    if manner.dry_run:
        show(_missing(found)[0], manner)
        return 0
    batch.keep(known, is_new=False)
    with rundir.locked_file(folder / rundir.STUDY, lambda: console.say(f"{folder}: another one submits it; waiting")):
        again, live, stray = _missing(found)
        if again.jobs:
            batch.check(again.jobs)
            for directory in stray:
                cancel(directory)  # it was never handed over
            ids = [batch_id for job in live if (batch_id := job.job.batch_id) is not None]
            directories = hand_over(again, [], ids, manner)
    going = [job.directory for job in live if job.directory is not None]
    if again.jobs:
        return afterwards(again, [*going, *directories], manner)
    return afterwards(again, going, manner) if manner.wait or manner.as_json else 0


def _missing(found: Study) -> "tuple[Planned, list[JobOutcome], list[Path]]":
    """Jobs that measure what the study has not; jobs of it that go on; folders of those that were never handed over."""
    from dlio_hpc.cli import console
    from dlio_hpc.records import study_outcome

    seen = study_outcome.outcome(found, study_outcome.jobs(found))
    live = [job for job in seen.jobs if study_outcome.is_live(job)]
    stray = [
        job.directory for job in seen.jobs if job.directory and not job.job.ended and not study_outcome.is_live(job)
    ]
    wanted = [missing.unit for missing in seen.missing if not missing.is_live]
    if not wanted:
        waiting = f"; {len(seen.missing)} are still to come" if seen.missing else ""
        console.say(f"nothing to resume: {len(seen.measured)} measurements are there{waiting}")
        return Planned(found, ()), live, stray
    taken = {packing.Unit(one.point, one.repeat): one.seconds for one in seen.measured}
    again = Planned(found, packing.plans(found, wanted, study_outcome.next_number(found), taken))
    check(again)
    return again, live, stray
