"""Cobalt, the batch system of Theta: qsub, qstat, qdel. The behaviour that is described in comments follows Cobalt's
source (1.0.33) and ALCF's guides.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlio_hpc.base.command import Answer, Unanswered, unexplained
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch.schedulers import common, detection
from dlio_hpc.batch.schedulers.scheduler import After, JobRef, JobStatus, Row, Scheduler, State, is_unknown
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

_QUEUE_COLUMNS = 11
_STATES: dict[str, State] = {
    "queued": "queued", "user_hold": "queued", "admin_hold": "queued", "dep_hold": "queued", "maxrun_hold": "queued",
    "preempted": "queued", "done": "running",
}  # fmt: skip
# What the user can do about a job that is held.
_HOLDS = {"user_hold": "release it: qrls", "admin_hold": "an administrator holds it; ask the facility"}
# Texts in the log of a job that has ended. qstat no longer lists such a job.
_EXITED = re.compile(r"task completed normally with an exit code of (-?\d+)")
_ENDS: tuple[tuple[str, State], ...] = (
    ("maximum execution time exceeded", "timeout"),
    ("user delete requested", "cancelled"),
)


def _request(plan: Plan) -> dict[str, Any]:
    """Return the values that the template prints. The walltime is in whole minutes, because Cobalt ignores seconds and
    reads 30:00 as thirty hours.
    """
    given = common.options(plan, "-q ", "-A ")
    return {"walltime": str(-(-plan.walltime // 60)), "options": list(_with_one_attrs(given))}


def _with_one_attrs(options: list[str]) -> Iterator[str]:
    """Yield the options of a job. All --attrs options are joined into one, with colons between their values, because
    Cobalt accepts only one. Raise ConfigError for characters that Cobalt does not support.
    """
    attrs = []
    for option in options:
        if any(letter in option for letter in "\"'#\\"):
            raise ConfigError(f"{option!r}: Cobalt splits at blanks and supports no quotes, escapes or comments")
        if match := re.fullmatch(r"--attrs[ =]+(\S+)", option):
            attrs.append(match[1])
        else:
            yield option
    if attrs:
        yield f"--attrs {':'.join(attrs)}"


def _arguments(_plan: Plan, after: After) -> list[str]:
    """Return the submit command. In Cobalt, a job with a dependency starts only if the job before it succeeded. The
    script of a job of a study therefore always exits with 0, and writes its real status to exit_status.
    """
    return ["qsub", *(["--dependencies", ":".join(after.all)] if after.all else []), rundir.SCRIPT]


_command = partial(common.typed, _arguments)
_submit = partial(common.submit, _arguments, re.compile("(?P<id>[0-9]+)"))


def _states(jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
    """Return the states of the jobs. qstat forgets a job as soon as it ends. The state of such a job is read from the
    job's log. A job whose parent failed is deleted from the queue, because Cobalt would hold it forever.
    """
    queued = _table(["JobID", "JobName", "State"], [job.batch_id for job in jobs])
    rows = [Row(batch_id, name, _status(state)) for batch_id, name, state in queued]
    states = common.own("qstat", jobs, rows)
    for job in jobs:
        if is_unknown(states.get(job)) and (ended := _logged(job.directory)) is not None:
            states[job] = ended
        if job in states and states[job].text == "dep_fail":
            _cancel(job)
            states[job] = JobStatus("cancelled", "dep_fail")
    return states


def _status(state: str) -> JobStatus:
    return JobStatus(_STATES.get(state, "running"), state, advice=_HOLDS.get(state, ""))


def _logged(directory: Path) -> JobStatus | None:
    try:
        log = (directory / rundir.COBALT_LOG).read_text(errors="replace")
    except OSError:
        return None
    for mark, state in _ENDS:
        if mark in log:
            return JobStatus(state, mark)
    if match := _EXITED.search(log):
        return JobStatus("failed" if int(match[1]) else "completed", match[0])
    return None


def queue_rows() -> list[list[str]]:
    """Return the columns Name, Users, Groups, MinTime, MaxTime, MaxRunning, MaxQueued, MaxUserNodes, MaxNodeHours,
    TotalNodes and State for every queue. qstat -Q supports no other columns.
    """
    answer = common.ask("qstat", "-Q")
    if answer.code:
        raise unexplained("qstat", answer)
    return [row for row in _below_rule(answer) if len(row) == _QUEUE_COLUMNS]


def _below_rule(answer: Answer) -> list[list[str]]:
    """Return the cells of the rows below the rule. Raise Unanswered if the output has no rule."""
    rules = [number for number, line in enumerate(answer.lines) if line.startswith("===")]
    if answer.out and not rules:
        raise Unanswered(f"qstat printed no table: {answer.out[:80]!r}")
    return [line.split() for line in answer.lines[rules[0] + 1 :]] if rules else []


def _table(columns: list[str], arguments: list[str]) -> list[list[str]]:
    """Return the rows of a table that qstat prints. Return an empty list if qstat knows none of the jobs; it then
    prints nothing and exits with 1.
    """
    answer = common.ask("qstat", "--header", ":".join(columns), *arguments)
    if answer.code and (answer.out or answer.err):
        raise unexplained("qstat", answer)
    return [row for row in _below_rule(answer) if len(row) == len(columns)]


def _cancel(job: JobRef) -> None:
    answer = common.ask("qdel", job.batch_id)
    if answer.code:
        raise unexplained("qdel", answer)


def _find(job: JobRef) -> JobRef | None:
    ids = [batch_id for batch_id, name in _table(["JobID", "JobName"], []) if name == job.name]
    return job._replace(batch_id=ids[0]) if ids else None


def _queues(_cluster: str) -> list[tuple[str, ...]]:
    user = common.user_name()
    if user is None:  # qstat(1) of Cobalt takes no numbers; Cobalt itself limits the jobs of a user
        return []
    return [(queue,) for _, queue in _table(["JobID", "Queue"], ["-u", user])]


def _probe(plan: Plan, _script: Path) -> str:
    """Check that the queue exists and is running. Cobalt checks accounts only at submission."""
    states = {row[0]: row[-1] for row in queue_rows()}
    if plan.queue is not None and states.get(plan.queue) != "running":
        raise ConfigError(
            f"queue {plan.queue} is {states.get(plan.queue, 'not defined')}; defined queues: {', '.join(states)}"
        )
    return f"queue {plan.queue or 'default'} is running; accounts are checked at submission only"


def _detect() -> detection.DetectedSystem | None:
    """Detect Cobalt, and its queues that are running. Return None if there is no qsub, or if qsub is not Cobalt's. PBS
    also has a command qsub. The output of qsub --version tells them apart.
    """
    version = detection.qsub_version() or ""
    if "Cobalt" not in version:
        return None
    try:
        rows = queue_rows()
    except Unanswered:
        rows = []
    queues = [
        detection.DetectedQueue(row[0], None, f"{{1: {row[4]}}}" if re.fullmatch(r"\d+:\d\d:\d\d", row[4]) else "{}")
        for row in rows
        if row[-1] == "running"
    ]
    return detection.DetectedSystem(version.splitlines()[0], queues=queues, launcher=_launcher, queues_from="qstat -Q")


def _launcher(_library: str) -> detection.DetectedLauncher:
    return detection.DetectedLauncher("aprun", "aprun", "aprun, the launcher of machines with Cobalt")


COBALT = Scheduler(
    "qsub", common.directive, _request, _command, _submit, _states, _cancel, _find, _queues, _probe, _detect,
    unprobed="account and limits of the queue", job_variable="COBALT_JOBID",
)  # fmt: skip
