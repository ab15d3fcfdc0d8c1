"""Cobalt, Theta's batch system: qsub, qstat, qdel. What is said here is from its source (1.0.33) and ALCF's guides."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlio_hpc.batch.schedulers import common
from dlio_hpc.batch.schedulers.scheduler import After, Known, Scheduler, Sight, State
from dlio_hpc.command import Answer, unexplained
from dlio_hpc.errors import ConfigError
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

_QUEUE_COLUMNS = 11
_STATES: dict[str, State] = {
    "queued": "queued", "user_hold": "queued", "admin_hold": "queued", "dep_hold": "queued", "maxrun_hold": "queued",
    "preempted": "queued", "done": "running",
}  # fmt: skip
# What is left of a job that qstat has forgotten.
_EXITED = re.compile(r"task completed normally with an exit code of (-?\d+)")
_ENDS: tuple[tuple[str, State], ...] = (
    ("maximum execution time exceeded", "timeout"),
    ("user delete requested", "cancelled"),
)


def _request(plan: Plan) -> dict[str, Any]:
    """Whole minutes: Cobalt drops seconds, and takes 30:00 for thirty hours."""
    given = common.options(plan, "-q ", "-A ")
    return {"walltime": str(-(-plan.walltime // 60)), "options": list(_with_one_attrs(given))}


def _with_one_attrs(options: list[str]) -> Iterator[str]:
    """--attrs may be given once only; its values are joined with colons."""
    attrs = []
    for option in options:
        if any(letter in option for letter in "\"'#\\"):
            raise ConfigError(f"{option!r}: Cobalt splits at blanks and knows no quotes, escapes or comments")
        if match := re.fullmatch(r"--attrs[ =]+(\S+)", option):
            attrs.append(match[1])
        else:
            yield option
    if attrs:
        yield f"--attrs {':'.join(attrs)}"


def _words(after: After) -> list[str]:
    """Cobalt knows no dependency on a job that ended badly: the script of a study's job ends well to Cobalt
    in any case, and tells the truth in exit_status.
    """
    return ["qsub", *(["--dependencies", ":".join(after.all)] if after.all else []), rundir.SCRIPT]


_command = partial(common.typed, _words)
_submit = partial(common.submit, _words, re.compile("([0-9]+)"))


def _states(jobs: Sequence[Known]) -> dict[str, Sight]:
    """Qstat forgets a job as it ends, whatever came of it; then the log beside the job is asked. A job whose parent
    failed is held for ever: it is deleted here.
    """
    queued = _table(["JobID", "State"], [job.batch_id for job in jobs])
    seen = {batch_id: Sight(_STATES.get(state, "running"), state) for batch_id, state in queued}
    for job in jobs:
        sight = seen.get(job.batch_id) or _logged(job.directory)
        if sight is not None:
            seen[job.batch_id] = sight
        if sight is not None and sight.words == "dep_fail":
            _cancel(job.batch_id)
            seen[job.batch_id] = Sight("cancelled", "dep_fail")
    return seen


def _logged(directory: Path) -> Sight | None:
    try:
        log = (directory / rundir.COBALT_LOG).read_text(errors="replace")
    except OSError:
        return None
    for words, state in _ENDS:
        if words in log:
            return Sight(state, words)
    if match := _EXITED.search(log):
        return Sight("failed" if int(match[1]) else "completed", match[0])
    return None


def queue_rows() -> list[list[str]]:
    """Name, Users, Groups, MinTime, MaxTime, MaxRunning, MaxQueued, MaxUserNodes, MaxNodeHours, TotalNodes, State of
    every queue; with -Q qstat takes no other header.
    """
    answer = common.ask("qstat", "-Q")
    if answer.code:
        raise unexplained("qstat", answer)
    return [row for row in _below_rule(answer) if len(row) == _QUEUE_COLUMNS]


def _below_rule(answer: Answer) -> list[list[str]]:
    rules = [number for number, line in enumerate(answer.lines) if line.startswith("===")]
    return [line.split() for line in answer.lines[rules[0] + 1 :]] if rules else []


def _table(columns: list[str], arguments: list[str]) -> list[list[str]]:
    """Qstat's rows below its rule; it says nothing at all, with code 1, when it knows none of the jobs."""
    answer = common.ask("qstat", "--header", ":".join(columns), *arguments)
    if answer.code and (answer.out or answer.err):
        raise unexplained("qstat", answer)
    return [row for row in _below_rule(answer) if len(row) == len(columns)]


def _cancel(batch_id: str) -> None:
    answer = common.ask("qdel", batch_id)
    if answer.code:
        raise unexplained("qdel", answer)


def _find(name: str) -> str | None:
    return next((batch_id for batch_id, job in _table(["JobID", "JobName"], []) if job == name), None)


def _queues() -> list[tuple[str, ...]]:
    return [(queue,) for _, queue in _table(["JobID", "Queue"], ["-u", common.user()])]


def _probe(plan: Plan, _script: Path) -> str:
    """The queue as Cobalt has it; accounts are looked at when a job is submitted."""
    states = {row[0]: row[-1] for row in queue_rows()}
    if plan.queue is not None and states.get(plan.queue) != "running":
        raise ConfigError(
            f"queue {plan.queue} is {states.get(plan.queue, 'not there')}; there are: {', '.join(states)}"
        )
    return f"queue {plan.queue or 'default'} is running; accounts are checked at submission only"


COBALT = Scheduler(
    "qsub", common.directive, _request, _command, _submit, _states, _cancel, _find, _queues, _probe,
    job_variable="COBALT_JOBID",
)  # fmt: skip
