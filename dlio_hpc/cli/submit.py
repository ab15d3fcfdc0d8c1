"""dlio-submit: from a workload, or a study, and a site to running jobs."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dlio_hpc import __version__, plan
from dlio_hpc.cli.request import PATH, RESUMABLE, Planned, asks, planned, resumed, study_folder
from dlio_hpc.cli.verbs import SETTINGS, option
from dlio_hpc.errors import DlioError


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
    --study, as a study of many points.

    Returns once the batch system has taken the job; with --wait when it has ended and is archived. Every option is
    also an environment variable: --dataset-size is DLIO_HPC_DATASET_SIZE.
    """
    if resume is not None:
        _check_resume(context, workload_name)
        return _resume(study_folder(resume, options["runs"]), options, dry_run, wait, as_json, quiet, verbose)
    found = planned(workload_name, options)
    if dry_run:
        _show(found, as_json, quiet)
        return 0
    from dlio_hpc.cli.jobs import named

    before = [directory for parent in parents for directory in named(str(parent), options["runs"])]
    directories = _submit(found, before, [], quiet, verbose, is_new=True)
    return _afterwards(found, directories, wait, as_json, quiet)


def _check_resume(context: click.Context, workload_name: str | None) -> None:
    allowed = {"resume", "runs", "dry_run", "wait", "as_json", "quiet", "verbose", *RESUMABLE}
    given = [
        param.opts[-1]
        for param in context.command.params
        if param.name not in allowed
        and context.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if workload_name is not None or given:
        what = "WORKLOAD" if workload_name is not None else given[0]
        raise click.UsageError(
            f"{what}: --resume goes on with the study as it was; for another one, leave --resume out"
        )


def _resume(
    folder: Path, options: dict[str, Any], dry_run: bool, wait: bool, as_json: bool, quiet: bool, verbose: bool
) -> int:
    from dlio_hpc import cost, limits, packing, rundir
    from dlio_hpc.cli import console
    from dlio_hpc.report import studyfiles

    found = resumed(studyfiles.load(folder), options)
    with rundir.locked_file(folder / rundir.STUDY):  # two at a time would both measure the same
        paths = studyfiles.jobs(found, folder)
        seen = studyfiles.outcome(found, paths)
        wanted = [missing.unit for missing in seen.missing if not missing.is_live]
        live = [path for path, outcome in zip(paths, seen.jobs, strict=True) if path.is_dir() and not outcome.job.ended]
        if not wanted:
            waiting = f"; {len(seen.missing)} are still to come" if seen.missing else ""
            console.say(f"nothing to resume: {len(seen.measured)} measurements are there{waiting}")
            return _afterwards(Planned(found, ()), live, wait, as_json, quiet) if wait or as_json else 0
        taken = {packing.Unit(one.point, one.repeat): one.seconds for one in seen.measured}
        again = Planned(found, packing.plans(found, wanted, studyfiles.next_number(found, paths), taken))
        limits.check(again.jobs)
        limits.check_cost(found.site, cost.of_jobs(again.jobs))
        if dry_run:
            _show(again, as_json, quiet)
            return 0
        directories = _submit(again, [], live, quiet, verbose, is_new=False)
    return _afterwards(again, [*live, *directories], wait, as_json, quiet)


def _show(found: Planned, as_json: bool, quiet: bool) -> None:
    """What would be done, on stdout."""
    from dlio_hpc.batch import jobscript
    from dlio_hpc.batch.schedulers import SCHEDULERS
    from dlio_hpc.batch.shell import comment

    jobs: list[dict[str, Any]] = []
    for number, made in enumerate(found.jobs):
        after = _after(found.jobs[: number + 1], [f"ID-OF-{earlier.job}" for earlier in found.jobs[:number]], (), ())
        script, command = jobscript.render(made), SCHEDULERS[made.site.scheduler].command(made, after)
        job = {"job": made.job, "batch_id": None, "state": "planned", "directory": made.directory, "archive": None}
        jobs.append({**job, "runs": [], "script": script, "submit_command": command})
        if not as_json:
            sys.stdout.write(f"{script}\n# Submit command:\n# {comment(command)}\n")
    if as_json:
        from dlio_hpc.cli.console import print_json

        print_json({"study": found.study.study, "jobs": jobs})
    elif not found.study.is_plain and not quiet:
        print(_told(found), file=sys.stderr)


def _told(found: Planned) -> str:
    """A study in a line."""
    points, measured = len(found.study.points), sum(run.point is not None for job in found.jobs for run in job.runs)
    return (
        f"study {found.study.study}: {points} points, {measured} measurements in {len(found.jobs)} job(s), "
        f"seed {found.study.seed}"
    )


def _after(jobs: Sequence[plan.Plan], ids: Sequence[str], parents: Sequence[str], live: Sequence[str]) -> Any:
    """What the last of `jobs` waits for, whose forerunners have `ids`: that the data are there, and that nobody else
    measures.
    """
    from dlio_hpc.batch.schedulers import After

    if not ids:
        return After(tuple(parents), tuple(live))
    generates = all(run.kind == "generate" for run in jobs[0].runs)
    well, over = (ids[:1], ids[1:][-1:]) if generates else ([], ids[-1:])
    return After((*parents, *well), tuple(over))


def _submit(
    found: Planned, parents: list[Path], live: list[Path], quiet: bool, verbose: bool, is_new: bool
) -> list[Path]:
    """Each plan handed over, every one to run after those before it; the jobs' directories."""
    from dlio_hpc.batch import job
    from dlio_hpc.batch import submit as batch
    from dlio_hpc.cli import console

    plans, study = found.jobs, None if found.study.is_plain else found.study
    batch.check(plans)
    before = batch.parents(parents, plans[0])
    going = [batch_id for path in live if (batch_id := job.load(path).batch_id) is not None]
    if study is not None:
        if is_new:
            batch.keep(study)
        if not quiet:
            console.say(_told(found))
    directories: list[Path] = []
    ids: list[str] = []
    for number, made in enumerate(plans):
        try:
            submitted = batch.submit(made, _after(plans[: number + 1], ids, before, going), study)
        except DlioError:
            _give_up(found, directories)
            raise
        directories.append(Path(made.directory))
        ids.append(str(submitted.job.batch_id))
        if verbose:
            console.say(f"submit command: {submitted.job.command}")
        if not quiet:
            for note in (*made.notes, *submitted.notes):
                console.say(f"note: {note}")
            name, place = made.site.name, made.directory
            console.say(f"submitted {submitted.job.job} to {name} as {submitted.job.batch_id}: {place}")
    return directories


def _give_up(found: Planned, directories: list[Path]) -> None:
    """A job of the study was not taken. Those before it can measure their points; without a study, what waits for
    nothing is of no use.
    """
    from dlio_hpc.batch.cancel import cancel
    from dlio_hpc.cli import console

    if not found.study.is_plain:
        if directories:
            console.say(f"{len(directories)} of {len(found.jobs)} jobs were taken; later: {_resume_command(found)}")
        return
    for directory in directories:
        console.say(f"cancelling {cancel(directory).job}, of the same study")


def _resume_command(found: Planned) -> str:
    return f"dlio-submit --resume {shlex.quote(str(Path(found.study.runs, found.study.study)))}"


def _afterwards(found: Planned, directories: list[Path], wait: bool, as_json: bool, quiet: bool) -> int:
    from dlio_hpc.cli import console
    from dlio_hpc.cli.report import collect_all, finish, show, show_study

    folder = None if found.study.is_plain else Path(found.study.runs, found.study.study)
    if wait:
        watched, code = console.wait(directories, quiet) if directories else ([], 0)
        if folder is not None:
            collected = collect_all(watched, quiet)
            return show_study(folder, as_json) or collected or code
        return (finish(watched, as_json, quiet) if watched else 0) or code
    if as_json:
        if folder is not None:
            show_study(folder, as_json)
        else:
            show(directories, as_json)
        return 0
    if not quiet:
        jobs = " ".join(shlex.quote(str(path)) for path in ([folder] if folder is not None else directories))
        console.say(f"when it has ended: dlio-hpc collect {jobs}")
        if folder is not None:
            console.say(f"what came of it: dlio-hpc report {jobs}")
    return 0
