"""Flux: flux-batch(1), flux-jobs(1), flux-cancel(1), flux-queue(1). The behaviour that is described in comments was
observed with flux-core 0.88.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlio_hpc.base import units
from dlio_hpc.base.command import Unanswered, unexplained
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch.schedulers import common, detection
from dlio_hpc.batch.schedulers.scheduler import (
    ENDED,
    AcceptedJob,
    After,
    JobRef,
    JobStatus,
    Row,
    Scheduler,
    State,
)
from dlio_hpc.batch.shell_quoting import quote
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

_STATES: dict[str, State] = {
    "NEW": "queued", "DEPEND": "queued", "PRIORITY": "queued", "SCHED": "queued", "RUN": "running",
    "CLEANUP": "running", "COMPLETED": "completed", "FAILED": "failed", "CANCELED": "cancelled", "TIMEOUT": "timeout",
}  # fmt: skip
# Fields to request from the command flux jobs. The note of the exception comes last, because it may contain any
# character.
_FIELDS = (
    "{id.f58plain}", "{status}", "{exception.type}", "{returncode}", "{contextual_info}", "{name}", "{exception.note}"
)  # fmt: skip
# Text in the note of the exception if the first node is lost. The type of the exception is then exec, and does not show
# that a node failed.
_NODE_LOST = "node failure"
_ID = re.compile("[ƒf](?P<id>[1-9A-HJ-NP-Za-km-z]{5,12})")
# Characters that flux queue list prints for "yes", with and without UTF-8.
YES = {"✔", "y"}


def _request(plan: Plan) -> dict[str, Any]:
    return {
        "walltime": f"{int(plan.walltime)}s",
        "options": common.options(plan, "--queue=", "--setattr=bank="),
    }


def _arguments(plan: Plan, after: After) -> list[str]:
    """Return the submit command. It needs no option for failed dependencies, because Flux itself cancels a job whose
    dependency can no longer be satisfied. The dependency begin-time takes seconds since 1970; --begin-time, which sets
    it from a date, needs a further Python module for dates.
    """
    kinds = {"afterok": after.well, "afterany": after.over}
    depends = [f"--dependency={kind}:{batch_id}" for kind, ids in kinds.items() for batch_id in ids]
    moment = common.begin_time(plan)
    begins = [f"--dependency=begin-time:{moment:.0f}"] if moment is not None else []
    return ["flux", "batch", *begins, *depends, rundir.SCRIPT]


_command = partial(common.typed, _arguments)


def _submit(plan: Plan, after: After) -> AcceptedJob:
    """Submit the job. The batch id starts with f, as Flux prints it in locales that lack the letter ƒ. Flux accepts
    both letters.
    """
    accepted = common.submit(_arguments, _ID, plan, after)
    return accepted._replace(batch_id=f"f{accepted.batch_id}")


def _states(jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
    """Return the states of the jobs that Flux knows. Flux prints an error line for each unknown job, and exits with 1
    if it knows none of the jobs. Flux knows a job until the job is purged; at most sites, this happens after a few
    days.
    """
    answer = common.ask("flux", "jobs", "-n", "-o", "|".join(_FIELDS), *(job.batch_id for job in jobs))
    if answer.code and not re.search(r"JobID \S+ unknown", answer.err):
        raise unexplained("flux jobs", answer)
    return common.own("flux jobs", jobs, [_row(line) for line in answer.lines if line.strip()])


def _row(line: str) -> Row | str:
    """Parse a line that has the fields _FIELDS. Return the line itself if it cannot be parsed."""
    cells = line.split("|", len(_FIELDS) - 1)
    if len(cells) < len(_FIELDS):
        return line
    batch_id, status, kind, code, where, name, note = cells
    state = _state(status, kind, note)
    why = note or (f"exit {code}" if status == "FAILED" else "" if state in ENDED else where)
    held = "release it: flux job urgency {id} default" if state == "queued" and where == "held" else ""
    return Row(batch_id, name, JobStatus(state, f"{status} {why}".strip(), advice=held.format(id=batch_id)))


def _state(status: str, kind: str, note: str) -> State:
    """Return the state of a job. status: the job's status. kind, note: type and text of the job's exception. A job may
    succeed although it lost a node. A job whose parent failed never runs and is reported as cancelled.
    """
    if status == "FAILED" and _NODE_LOST in note:
        return "node_fail"
    if status == "FAILED" and kind == "dependency":
        return "cancelled"
    return _STATES.get(status, "running")


def _cancel(job: JobRef) -> None:
    answer = common.ask("flux", "cancel", job.batch_id)
    if answer.code and not re.search("job is inactive|unknown job", answer.err):
        raise unexplained("flux cancel", answer)


def _find(job: JobRef) -> JobRef | None:
    lines = _listed("jobs", "-a", "-n", "-c", "0", f"--name={job.name}", "-o", "{id.f58plain}")
    ids = common.only_ids("flux jobs", lines, _ID)
    return job._replace(batch_id=ids[0]) if ids else None


def _queues(_cluster: str) -> list[tuple[str, ...]]:
    """Return, for each of the user's jobs, a tuple with the name of its queue. The tuples are empty if Flux has no
    queues.
    """
    return [tuple(line.split()[1:]) for line in _listed("jobs", "-n", "-c", "0", "-o", "{id.f58plain} {queue}")]


def _listed(*arguments: str) -> list[str]:
    answer = common.ask("flux", *arguments)
    if answer.code:
        raise unexplained(f"flux {arguments[0]}", answer)
    return answer.out.split("\n") if answer.out else []


def queue_rows() -> list[list[str]]:
    """Return a row for each queue. Its cells are: the name; the name again, with * appended if it is the default queue;
    whether the queue is enabled; whether the queue is started; the maximum duration of a job in seconds; the maximum
    number of nodes of a job. If Flux has no queues, return a single row with an empty name.
    """
    fields = ("{queue}", "{queuem}", "{enabled}", "{started}", "{limits.timelimit}", "{limits.max.nnodes}")
    rows = [line.split("|") for line in _listed("queue", "list", "-n", "-o", "|".join(fields))]
    return [[cell.strip() for cell in row] for row in rows if len(row) == len(fields)]


def node_rows() -> list[tuple[str, int, int]]:
    """Return a row for each group of nodes in the same state: its queue (empty if Flux has no queues), its number of
    nodes and its number of cores.
    """
    fields = ("{queue}", "{nnodes}", "{ncores}")
    rows = [line.split("|") for line in _listed("resource", "list", "-n", "-o", "|".join(("{state}", *fields)))]
    counted = [row for row in rows if len(row) == len(fields) + 1 and row[2].isdecimal() and row[3].isdecimal()]
    return [(queue.strip(), int(nodes), int(cores)) for _, queue, nodes, cores in counted]


def _probe(plan: Plan, script: Path) -> str:
    """Check the state of the queue, and check the options with flux batch --dry-run. Flux checks limits and banks only
    at submission.
    """
    answer = common.ask("flux", "batch", "--dry-run", str(script))
    if answer.code:
        raise ConfigError(f"flux batch --dry-run: {answer.text}")
    queues = {row[0]: row for row in queue_rows()}
    named = [name for name in queues if name]
    if not named:
        return "flux batch accepts the options; there are no queues"
    if plan.queue is None:
        return f"flux batch accepts the options; queues: {', '.join(named)}; limits are checked at submission only"
    if plan.queue not in queues:
        raise ConfigError(f"queue {plan.queue} is not defined; defined queues: {', '.join(named)}")
    for state, flag in (("enabled", queues[plan.queue][2]), ("started", queues[plan.queue][3])):
        if flag not in YES:
            raise ConfigError(f"queue {plan.queue} is not {state}: jobs would wait or be rejected")
    return f"queue {plan.queue} is enabled and started; limits are checked at submission only"


def _home() -> str:
    """Return the nesting depth of this Flux instance, and its batch id in the parent instance."""
    answers = [detection.try_ask("flux", "getattr", name) for name in ("instance-level", "jobid")]
    return "/".join(answer.out for answer in answers if answer is not None and not answer.code)


def _detect() -> detection.DetectedSystem | None:
    """Detect Flux and its enabled queues. Return None if no Flux instance answers. The node limit of a queue is the
    limit that the queue sets for a job or, if it sets none, the number of its nodes.
    """
    instance = detection.try_ask("flux", "getattr", "version")
    if instance is None or instance.code or not re.match(r"\d+\.\d+\.\d+", instance.out):
        return None
    try:
        rows, nodes = queue_rows(), node_rows()
    except Unanswered:
        rows, nodes = [], []
    sizes = {name: sum(count for queue, count, _ in nodes if queue == name) for name, *_ in rows}
    queues = [
        detection.DetectedQueue(name, detection.count(most) or sizes[name] or None, _limit(seconds))
        for name, _, enabled, _, seconds, most in rows
        if name and enabled in YES
    ]
    default = next((name for name, marked, *_ in rows if marked.endswith("*")), None)
    cpus = min((cores // count for _, count, cores in nodes if count), default=None)
    return detection.DetectedSystem(
        f"Flux {instance.out}", default, queues, cpus, launcher=_launcher, queues_from="flux queue list",
        cpus_from="flux resource list, fewest cores of a node",
    )  # fmt: skip


def _limit(seconds: str) -> str:
    return f"{{1: {units.format_walltime(int(float(seconds)))}}}" if re.fullmatch(r"\d+\.\d+", seconds) else "{}"


def _launcher(_library: str) -> detection.DetectedLauncher:
    return detection.DetectedLauncher("flux", "flux", "flux run; it starts ranks whose MPI library supports PMI-1")


FLUX = Scheduler(
    "flux", quote, _request, _command, _submit, _states, _cancel, _find, _queues, _probe, _detect,
    home=_home, unprobed="bank and limits of the queue", job_variable="FLUX_ENCLOSING_ID",
)  # fmt: skip
