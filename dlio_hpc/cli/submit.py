"""dlio-submit: submit the jobs of a workload or a study to the batch system of a site."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec import structs

from dlio_hpc import __version__
from dlio_hpc.base.errors import DlioError
from dlio_hpc.base.units import counted
from dlio_hpc.cli.plan_options import given_options, plan_options
from dlio_hpc.cli.verbs import JSON, LOG_FILE, PATH, SETTINGS, option
from dlio_hpc.plan.options import Options
from dlio_hpc.plan.planned import RESUMABLE, Planned


class Manner(NamedTuple):
    """Flags of dlio-submit. junit: JUnit file to write at the end; None to write none."""

    dry_run: bool = False
    wait: bool = False
    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    junit: Path | None = None


@click.command(context_settings=SETTINGS)
@plan_options
@option(
    "--after",
    "parents",
    multiple=True,
    type=PATH,
    metavar="JOB",
    help="Start after this job or study has succeeded; repeatable.",
)
@option("--resume", metavar="STUDY", help="Submit only the missing measurements of a study.")
@option("--dry-run", is_flag=True, help="Print the job script and the submit command; write nothing, run nothing.")
@option("--wait", is_flag=True, help="Wait until the job has ended, then collect it and report its measurements.")
@JSON
@option(
    "--junit",
    type=PATH,
    metavar="FILE",
    help="With --wait, write the outcome of each run as JUnit XML, for CI systems.",
)
@option("--quiet", is_flag=True, help="Print no progress and no notes on stderr.")
@option("-v", "--verbose", is_flag=True, help="Print the submit command on stderr.")
@LOG_FILE
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def submit(
    context: click.Context, /, options: Options, parents: tuple[Path, ...], resume: str | None, junit: Path | None,
    **flags: bool,
) -> int:  # fmt: skip
    """Submit WORKLOAD as a batch job. WORKLOAD is the name of a shipped workload (see dlio-hpc workloads) or a YAML
    file. With -P, with --study, or with more than one value of -N or --ppn, a study of many points is submitted.

    The command returns when the batch system has accepted the job; with --wait, it returns when the job has ended and
    is archived. Every option can also be set by an environment variable, for example --dataset-size by
    DLIO_HPC_DATASET_SIZE.
    """
    from dlio_hpc import api

    manner = Manner(**flags, junit=junit)
    _begin_junit(manner)
    if resume is not None:
        _check_resume(context, resume, options)
        defaults = {key: None for key in RESUMABLE if _is_default(context, key)}
        return _resume(resume, structs.replace(options, **defaults), manner)
    report, verbose = _reporters(manner)
    with _refused_in_junit(manner):
        planned = api.plan_jobs(options, report)
        if manner.dry_run:
            if parents:
                api.check_parents(planned, parents)
            elif (fault := api.refusal(planned)) is not None:
                report(f"note: without --dry-run, this command ends with exit code {fault.exit_code}: {fault}")
            _show(planned, manner)
            return 0
        submission = api.start(planned, parents, report, verbose)
    return _afterwards(submission.study, list(submission.directories), manner)


def _is_default(context: click.Context, name: str) -> bool:
    """Return whether the user did not set the option, so that it has its default. A value from defaults.yaml is a
    default, too, because such values are meant for new studies.
    """
    return context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT


def _check_resume(context: click.Context, name: str, options: Options) -> None:
    from dlio_hpc.dataset import folder_kinds
    from dlio_hpc.files.archive import SUFFIX
    from dlio_hpc.records import names

    path = names.place(name, options.runs)
    if folder_kinds.member(path) == "a job" or path.name.endswith(SUFFIX):
        if (study := names.study_of(path)) is not None:
            raise click.UsageError(f"{name} is a job of the study {study.name}; give the study: --resume {study.name}")
        raise click.UsageError(
            f"--resume continues a study, but {name} is a job; to measure again, submit the workload without --resume"
        )
    allowed = {"resume", "runs", "dry_run", "wait", "as_json", "junit", "quiet", "verbose", *RESUMABLE}
    given = ["WORKLOAD"] * (options.workload is not None) + given_options(context, allowed)
    if given:
        raise click.UsageError(
            f"{given[0]}: --resume continues a study with the options of that study; leave {given[0]} out or, to "
            f"submit a new study, leave --resume out"
        )


def _reporters(manner: Manner) -> "tuple[Any, Any]":
    """Return two functions that print a line on stderr. The first is for notes and jobs. It prints nothing if --quiet
    is given. The second is for submit commands. It prints nothing unless --verbose is given.
    """
    from dlio_hpc.cli import console

    return console.reporter(manner.quiet), console.reporter(not manner.verbose)


def _resume(name: str, options: Options, manner: Manner) -> int:
    """Submit jobs for the measurements that a study lacks. With --dry-run, only print the job scripts and submit
    commands. Return the exit code.
    """
    from dlio_hpc.cli import console
    from dlio_hpc.records import names, resumption

    known = resumption.load(names.study_folder(name, options.runs), options)
    if manner.dry_run:
        lacking = resumption.lacking(known)
        _say_if_complete(lacking)
        _show(lacking.planned, manner)
        return 0
    waiting = f"{known.folder}: waiting for another process that submits this study"
    lacking, submission = resumption.start(known, *_reporters(manner), partial(console.say, waiting))
    _say_if_complete(lacking)
    if submission is not None:
        return _afterwards(known.folder, [*lacking.directories, *submission.directories], manner)
    return _afterwards(known.folder, lacking.directories, manner) if manner.wait or manner.as_json else 0


def _say_if_complete(lacking: Any) -> None:
    from dlio_hpc.cli import console

    if not lacking.planned.jobs:
        waiting = f"; {lacking.missing} more are queued or running" if lacking.missing else ""
        verb = "exists" if lacking.measured == 1 else "exist"
        console.say(f"nothing to resume: {counted(lacking.measured, 'measurement')} {verb}{waiting}")


def _show(planned: Planned, manner: Manner) -> None:
    """Print the job scripts and the submit commands."""
    from dlio_hpc.batch import jobscript, submission
    from dlio_hpc.batch.shell_quoting import comment

    scripts = [(job, jobscript.render(job), command) for job, command in submission.commands(planned)]
    if manner.as_json:
        from dlio_hpc.cli.console import print_json
        from dlio_hpc.documents.planned import DryRunDocument, PlannedJobDocument

        jobs = [
            PlannedJobDocument(job.job, job.directory, list(job.notes), script, command)
            for job, script, command in scripts
        ]
        print_json(DryRunDocument(planned.study.study, jobs))
        return
    for _, script, command in scripts:
        sys.stdout.write(f"{script}\n# Submit command:\n# {comment(command)}\n")
    if not manner.quiet:
        # These lines go to stderr, so that stdout holds only the job scripts.
        from dlio_hpc.cli.console import say

        for line in submission.summary(planned) if not planned.study.is_plain else ():
            say(line)
        for note in planned.notes:
            say(f"note: {note}")


def _afterwards(study: Path | None, directories: list[Path], manner: Manner) -> int:
    """Perform the actions after a submission, and return the exit code. With --wait, wait for the jobs, collect them
    and report their measurements. Otherwise, with --json, print the jobs. With neither option, print the commands to
    run later.
    """
    from dlio_hpc.cli import console
    from dlio_hpc.cli.report import collect_all, finish, show_study
    from dlio_hpc.cli.report import show as show_jobs

    if manner.wait:
        ended, code = console.wait(directories, manner.quiet) if directories else ([], 0)
        if study is not None:
            collected = collect_all(ended, manner.quiet)
            code = show_study(study, manner.as_json) or collected or code
        else:
            code = (finish(ended, manner.as_json, manner.quiet) if ended or manner.as_json else 0) or code
        if manner.junit is not None:
            _write_junit(manner.junit, study, directories, code, manner.quiet)
        return code
    if manner.as_json:
        if study is not None:
            show_study(study, as_json=True, is_judged=False)
        else:
            show_jobs(directories, as_json=True)
        return 0
    if not manner.quiet:
        jobs = " ".join(shlex.quote(str(path)) for path in ([study] if study is not None else directories))
        console.say(f"when it has ended: dlio-hpc collect {jobs}")
        if study is not None:
            console.say(f"then: dlio-hpc report {jobs}")
    return 0


_PROGRAM = "dlio-submit"


def _begin_junit(manner: Manner) -> None:
    """Write a JUnit file that says that the command has not finished, so that a CI system does not show an earlier file
    if the command is killed. If the file cannot be written, the command fails before jobs run.
    """
    if manner.junit is None:
        return
    if not manner.wait:
        raise click.UsageError("--junit needs --wait: the outcome of a job is known when it has ended")
    if not manner.dry_run:
        from dlio_hpc.cli.outputs import write_junit
        from dlio_hpc.reports import junit_cases

        write_junit(manner.junit, _PROGRAM, [junit_cases.unfinished(_PROGRAM)], quiet=True)


@contextmanager
def _refused_in_junit(manner: Manner) -> Iterator[None]:
    """If the `with` block fails, write the reason to the JUnit file."""
    try:
        yield
    except DlioError as fault:
        if manner.junit is not None and not manner.dry_run:
            from dlio_hpc.cli.outputs import write_junit
            from dlio_hpc.reports import junit_cases

            write_junit(manner.junit, _PROGRAM, [junit_cases.refused(_PROGRAM, fault)], quiet=True)
        raise


def _write_junit(path: Path, study: Path | None, directories: list[Path], code: int, quiet: bool) -> None:
    """Write the outcomes of the jobs as JUnit XML. study: folder of their study. code: exit code of the command."""
    from dlio_hpc.cli import report_study
    from dlio_hpc.cli.outputs import write_junit
    from dlio_hpc.records import job_outcome, names
    from dlio_hpc.reports import junit_cases

    outcomes = job_outcome.load_all(directories) if study is None else names.study_in(study).jobs
    cases = junit_cases.of_jobs(outcomes)
    if study is not None and (verdict := report_study.suite_verdict(study)) is not None:
        cases += junit_cases.of_suite(verdict)
    if code and all(case.kind in ("pass", "skipped") for case in cases):
        cases.append(junit_cases.of_exit(code, _PROGRAM))
    write_junit(path, _PROGRAM, cases, quiet)
