"""Table of the states of jobs: first the jobs that need attention, then the others, each newest first."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.base import own_commands, units
from dlio_hpc.base.errors import DlioError, InvalidRun
from dlio_hpc.batch import job_record, job_state, setup_failures
from dlio_hpc.batch.job_state import JobSnapshot
from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.files import rundir
from dlio_hpc.files.archive import SUFFIX
from dlio_hpc.plan.plan import archive_folder
from dlio_hpc.reports import terminal
from dlio_hpc.reports.numbered_notes import NumberedNotes
from dlio_hpc.reports.page import Style, Table

_HEADER = ("", "job", "state", "since (UTC)", "notes")
_FAILED: frozenset[State] = frozenset({"failed", "timeout", "node_fail", "out_of_memory", "lost"})


class StatusRow(NamedTuple):
    """Row of a job. state: its state, or `invalid` if its numbers must not be used. problem: why the job needs
    attention, in a word or two; empty if it needs none. notes: sentences on the job.
    """

    job: job_record.Job
    state: str
    problem: str
    notes: tuple[str, ...]

    @property
    def colour(self) -> Style:
        if not self.problem:
            return ""
        return "red" if self.job.state in _FAILED else "yellow"


def show(looks: Sequence[JobSnapshot], runs: Path, file: Any, output: Any) -> None:
    """Print the table. runs: folder of the jobs. file, output: as for terminal.show()."""
    rows = sorted((row_of(look, runs) for look in looks), key=lambda row: row.job.states[0].time, reverse=True)
    rows.sort(key=lambda row: not row.problem)
    out = terminal.console(file, output)
    terminal.show_text(_summary(rows), out, "bold")
    out.print()
    notes = NumberedNotes()
    cells = [
        ("!" if row.problem else "", row.job.job, row.state, _moment(row.job), notes.cell(row.notes)) for row in rows
    ]
    terminal.show_table(Table("", _HEADER, cells, [row.colour for row in rows], names=(1,)), out)
    if notes.facts().rows:
        out.print()
        terminal.show_facts(notes.facts(), out)


def _summary(rows: Sequence[StatusRow]) -> str:
    """Return the first line: the number of jobs that need attention and the reasons, and the states of the other
    jobs.
    """
    problems = Counter(row.problem for row in rows if row.problem)
    others = Counter(row.state for row in rows if not row.problem)
    count, bad = len(rows), sum(problems.values())
    jobs = f"{count:,} job{'s' * (count != 1)}"
    rest = _counts(others)
    if not bad:
        return f"{jobs}: {rest}."
    needs = "needs" if bad == 1 else "need"
    of_all = jobs if bad == count else f"{bad:,} of {jobs}"
    return f"{of_all} {needs} attention (!): {_counts(problems)}." + (f" The others: {rest}." if rest else "")


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counted.most_common())


def _moment(job: job_record.Job) -> str:
    return job.states[-1].time[:16].replace("T", " ")


def row_of(look: JobSnapshot, runs: Path) -> StatusRow:
    """Return the row of a job. runs: folder of the jobs, for commands in notes."""
    job = look.job
    is_invalid = job.state == "failed" and job_state.exit_status(look.directory) == InvalidRun.exit_code
    state = "invalid" if is_invalid else f"{job.state}, suspended" if job.states[-1].suspended else job.state
    is_uncollected = job.ended and _is_uncollected(look)
    return StatusRow(
        job, state, _problem(look, state, is_uncollected), tuple(_notes(look, is_invalid, is_uncollected, runs))
    )


def _problem(look: JobSnapshot, state: str, is_uncollected: bool) -> str:
    if look.job.state in _FAILED:
        return state
    if look.fault is not None:
        return "of unknown state"
    if look.never is not None:
        return "never to start"
    if look.advice or look.stuck or look.job.states[-1].suspended:
        return "stalled"
    return "not collected" if is_uncollected else ""


def _notes(look: JobSnapshot, is_invalid: bool, is_uncollected: bool, runs: Path) -> Iterator[str]:
    """Yield the sentences on a job: the reason that the batch system gives for the state, with the time in this state;
    the night of the study; setup lines that failed; and what the user can do.
    """
    job, newest = look.job, look.job.states[-1]
    if look.fault is not None:
        yield "The batch system did not answer: the state may be out of date."
    if newest.text:
        lasts = "" if job.ended else f" for {units.format_walltime(_seconds_in(newest))}"
        yield f"{newest.state} ({newest.text}){lasts}"
    if night := job.night_text():
        yield night
    if look.advice:
        yield look.advice
    yield from (f"{failure.text()}." for failure in setup_failures.of_job(look.directory))
    if is_invalid:
        yield own_commands.with_runs("The numbers must not be used. dlio-hpc report JOB says why.", runs)
    elif job.state == "failed" and not newest.text:
        yield own_commands.with_runs("dlio-hpc report JOB says why it failed.", runs)
    if is_uncollected:
        yield own_commands.with_runs("The results are not archived. dlio-hpc collect archives them.", runs)


def _seconds_in(newest: job_record.Sighting) -> int:
    return max(0, int(units.seconds_between(newest.since, units.utc_now())))


def _is_uncollected(look: JobSnapshot) -> bool:
    """Return whether an ended job was not collected: it left files, and it has neither an archive nor an entry in the
    history.
    """
    try:
        if not job_state.has_output(look.directory):
            return False
        folder = archive_folder(job_record.load_plan(look.directory), look.directory)
    except (DlioError, OSError):
        return False  # whether a damaged job has an archive is unknown; collect reports the damage
    name = look.job.job
    return not ((folder / f"{name}{SUFFIX}").exists() or (folder / rundir.ENTRIES / f"{name}.json").exists())
