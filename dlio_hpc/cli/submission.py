"""Plans handed to their batch system, or shown as they would be; and what is said afterwards."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.cli.study_options import Planned
from dlio_hpc.errors import DlioError
from dlio_hpc.plan.plan import Plan


class Manner(NamedTuple):
    """How a command goes about it: its flags."""

    dry_run: bool
    wait: bool
    as_json: bool
    quiet: bool
    verbose: bool


def show(found: Planned, manner: Manner) -> None:
    """What would be done, on stdout."""
    from dlio_hpc.batch import jobscript
    from dlio_hpc.batch.schedulers import SCHEDULERS
    from dlio_hpc.batch.shell_quoting import comment

    jobs: list[dict[str, Any]] = []
    for number, made in enumerate(found.jobs):
        after = _after(found.jobs[: number + 1], [f"ID-OF-{earlier.job}" for earlier in found.jobs[:number]], (), ())
        script, command = jobscript.render(made), SCHEDULERS[made.site.scheduler].command(made, after)
        job = {"job": made.job, "batch_id": None, "state": "planned", "directory": made.directory, "archive": None}
        jobs.append({**job, "notes": made.notes, "runs": [], "script": script, "submit_command": command})
        if not manner.as_json:
            sys.stdout.write(f"{script}\n# Submit command:\n# {comment(command)}\n")
    if manner.as_json:
        from dlio_hpc.cli.console import print_json

        print_json({"study": found.study.study, "jobs": jobs})
    elif not manner.quiet:
        _say(found)


def _say(planned: Planned) -> None:
    """Print the summary and the notes to stderr, so that stdout holds the script alone."""
    if not planned.study.is_plain:
        print(_told(planned), file=sys.stderr)
    for note in planned.notes:
        print(f"note: {note}", file=sys.stderr)


def _told(found: Planned) -> str:
    """A study in a line."""
    points, measured = len(found.study.points), sum(run.point is not None for job in found.jobs for run in job.runs)
    return (
        f"study {found.study.study}: {points} points, {measured} measurements in {len(found.jobs)} job(s), "
        f"seed {found.study.seed}"
    )


def _after(jobs: Sequence[Plan], ids: Sequence[str], parents: Sequence[str], live: Sequence[str]) -> Any:
    """What the last of `jobs` waits for, whose forerunners have `ids`: that the data are there, and that nobody else
    measures. It waits for all of them: one in the middle may be cancelled while it waits itself.
    """
    from dlio_hpc.batch.schedulers import After

    if not ids:
        return After(tuple(parents), tuple(live))
    first = 1 if all(run.kind == "generate" for run in jobs[0].runs) else 0
    return After((*parents, *ids[:first]), (*live, *ids[first:]))


def hand_over(found: Planned, parents: Sequence[str], live: Sequence[str], manner: Manner) -> list[Path]:
    """Each plan, to run after those before it; the jobs' directories. parents, live: batch ids of what the first one
    waits for: that it ends well, that it ends.
    """
    from dlio_hpc.batch import submit as batch
    from dlio_hpc.cli import console

    plans, study = found.jobs, None if found.study.is_plain else found.study
    if study is not None and not manner.quiet:
        console.say(_told(found))
    directories: list[Path] = []
    ids: list[str] = []
    told: set[str] = set()
    for number, made in enumerate(plans):
        try:
            submitted = batch.submit(made, _after(plans[: number + 1], ids, parents, live), study)
        except DlioError:
            _give_up(found, directories)
            raise
        directories.append(Path(made.directory))
        ids.append(str(submitted.job.batch_id))
        if manner.verbose:
            console.say(f"submit command: {submitted.job.command}")
        if not manner.quiet:
            for note in (note for note in (*made.notes, *submitted.notes) if note not in told):
                console.say(f"note: {note}")
            told |= {*made.notes, *submitted.notes}
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
        console.say(f"{len(directories)} of {len(found.jobs)} jobs were taken; later: {_resume_command(found)}")
        return
    for directory in directories:
        console.say(f"cancelling {cancel(directory).job}, of the same study")


def _resume_command(found: Planned) -> str:
    return f"dlio-submit --resume {shlex.quote(str(found.study.folder))}"


def afterwards(found: Planned, directories: list[Path], manner: Manner) -> int:
    """With --wait, when the jobs have ended, what they measured; the exit code."""
    from dlio_hpc.cli import console
    from dlio_hpc.cli.report import collect_all, finish, show_study
    from dlio_hpc.cli.report import show as show_jobs

    folder = None if found.study.is_plain else found.study.folder
    if manner.wait:
        watched, code = console.wait(directories, manner.quiet) if directories else ([], 0)
        if folder is not None:
            collected = collect_all(watched, manner.quiet)
            return show_study(folder, manner.as_json) or collected or code
        return (finish(watched, manner.as_json, manner.quiet) if watched else 0) or code
    if manner.as_json:
        if folder is not None:
            show_study(folder, as_json=True, is_judged=False)
        else:
            show_jobs(directories, as_json=True)
        return 0
    if not manner.quiet:
        jobs = " ".join(shlex.quote(str(path)) for path in ([folder] if folder is not None else directories))
        console.say(f"when it has ended: dlio-hpc collect {jobs}")
        if folder is not None:
            console.say(f"what came of it: dlio-hpc report {jobs}")
    return 0
