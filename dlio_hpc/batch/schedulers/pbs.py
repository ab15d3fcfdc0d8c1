"""PBS Pro and OpenPBS: qsub(1B), qstat(1B), qselect(1B), qdel(1B). The behaviour that is described in comments was
observed with OpenPBS 23.06.
"""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlio_hpc import units
from dlio_hpc.batch.schedulers import common, detection
from dlio_hpc.batch.schedulers.scheduler import After, JobRef, JobStatus, Scheduler, State
from dlio_hpc.command import Answer, Unanswered, unexplained
from dlio_hpc.errors import ConfigError
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

# Letters of jobs that qsig -s suspend, a job of higher priority (S) or the user of a workstation (U) has stopped.
_SUSPENDED = {"S", "U"}
_LIVE: dict[str, State] = {
    "Q": "queued", "H": "queued", "W": "queued", "T": "queued", "M": "queued", "R": "running", "E": "running",
    "S": "running", "U": "running", "B": "running",
}  # fmt: skip
# Values of Exit_status for jobs that PBS itself ended (job.h), because of a limit, a bad user, password or Kerberos
# ticket (-10, -13, -23), a hook (-16 to -19, -22), or security (-21). All other negative values mean a fault of PBS or
# of a node.
_KILLED: dict[int, State] = {
    -26: "out_of_memory", -27: "out_of_memory", -28: "timeout", -29: "timeout",
    **dict.fromkeys((-10, -13, -16, -17, -18, -19, -21, -22, -23, -24, -25), "failed"),
}  # fmt: skip
_DELETED, _FAILED = 91, 93
_NO_HISTORY = "maintain job history"
# Exit_status of a job that PBS holds after several failed starts. Such a job never runs.
_HOPELESS = -3


def _request(plan: Plan) -> dict[str, Any]:
    return {
        "walltime": units.format_walltime(plan.walltime),
        "select": _select(plan),
        "options": _options(plan),
    }


def _options(plan: Plan) -> list[str]:
    """Return the values of the option lines. Each chunk gets a node of its own, unless the site or the user sets
    another placement.
    """
    lines = common.options(plan, "-q ", "-A ")
    return lines if any("place=" in line for line in lines) else ["-l place=scatter", *lines]


def _select(plan: Plan) -> str:
    """Return the value of the select statement, with one chunk per node. The number of CPUs of a chunk (ncpus) is the
    first of these that is set: ncpus in the key `pbs_select` of the site, the key `cpus` of the site, the number of
    ranks per node. mpiprocs makes PBS_NODEFILE list each node once per rank. For PALS, neither ncpus nor mpiprocs is
    added, because PALS determines the placement itself.
    """
    site, ranks = plan.site, plan.ranks_per_node
    chunk: dict[str, str | int] = dict(site.pbs_select)
    if site.launcher.kind != "pals":
        chunk = {"ncpus": site.cpus or ranks, **chunk} | {"mpiprocs": ranks}
    return ":".join([str(plan.nodes), *(f"{name}={value}" for name, value in chunk.items())])


def _arguments(after: After) -> list[str]:
    depends = ["-W", f"depend={common.dependencies(after)}"] if after.all else []
    return ["qsub", *depends, rundir.SCRIPT]


_command = partial(common.typed, _arguments)
_submit = partial(common.submit, _arguments, re.compile(r"([0-9]+\.[\w.-]+)"))


def _states(jobs: Sequence[JobRef]) -> dict[str, JobStatus]:
    """Return the states of the jobs that PBS knows, by batch id. Jobs that PBS holds forever after failed starts are
    deleted.
    """
    attributes = _all("-x", [job.batch_id for job in jobs])
    for batch_id, job in attributes.items():
        if _is_hopeless(job):
            _cancel(batch_id)  # PBS would hold it forever
    return {batch_id: sight(job) for batch_id, job in attributes.items()}


def _all(history: str, ids: Sequence[str]) -> dict[str, Any]:
    jobs = _jobs(history, ids)
    if jobs and len(ids) > 1:
        for batch_id in set(ids) - set(jobs):
            jobs |= _jobs(history, [batch_id])
    return jobs


def _is_hopeless(job: dict[str, Any]) -> bool:
    return job.get("job_state") == "H" and _number(job.get("Exit_status")) == _HOPELESS


def _jobs(history: str, ids: Sequence[str]) -> dict[str, Any]:
    """Return the attributes that qstat -f prints for each job, by batch id. Unknown jobs are left out; for these, qstat
    prints a message and exits with 153. If the server keeps no job history, as is the default of OpenPBS, qstat answers
    the option -x with a message, no jobs and exit code 0.
    """
    answer = common.ask("qstat", *filter(None, [history]), "-f", "-F", "json", *ids)
    if history and _NO_HISTORY in answer.err:
        return _jobs("", ids)
    if answer.code and not re.search("Unknown Job|has finished", answer.err):
        raise unexplained("qstat", answer)
    return section(answer, "Jobs") if answer.out else {}


def section(answer: Answer, key: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of each job (`key` "Jobs") or queue (`key` "Queue") in the JSON that qstat prints. Raise
    Unanswered if the JSON cannot be parsed.
    """
    try:
        document = json.loads(answer.out, strict=False)
        return {name: dict(attributes) for name, attributes in document.get(key, {}).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise unexplained("qstat", answer._replace(err=f"unexpected JSON: {answer.out[:80]}")) from None


def _number(value: object) -> int | None:
    return int(str(value)) if re.fullmatch(r"-?[0-9]{1,9}", str(value)) else None


def sight(job: dict[str, Any]) -> JobStatus:
    """Return the state of a job from its attributes. Exit_status is used only for a finished job, because a job that is
    queued again or runs again may also have an Exit_status.
    """
    letter = str(job.get("job_state", ""))
    status, substate = _number(job.get("Exit_status")), _number(job.get("substate"))
    if _is_hopeless(job):
        return JobStatus("failed", str(job.get("comment", "held by PBS")))
    if letter not in {"F", "X"}:
        comment = str(job.get("comment", ""))
        is_suspended = letter in _SUSPENDED
        text = comment or ("suspended" if is_suspended else "")
        return JobStatus(_LIVE.get(letter, "running"), text, comment.startswith("Can Never Run"), is_suspended)
    status_text = f"Exit_status {'absent' if status is None else status}, substate {substate}"
    return JobStatus(_over(status, substate), status_text)


def _over(status: int | None, substate: int | None) -> State:
    """Return the state of a finished job, from its substate and its Exit_status. If a job was deleted while it ran, its
    substate is 91, whatever its Exit_status is. If a job was deleted before it ran, it has no Exit_status. If PBS
    discarded a job because a node died, its substate is 93 (failed), and its Exit_status is 0 or missing.
    """
    if not status and substate == _FAILED:
        return "node_fail"
    if status is None or substate == _DELETED:
        return "cancelled"
    if status < 0:
        return _KILLED.get(status, "node_fail")
    return "failed" if status else "completed"


def _cancel(batch_id: str) -> None:
    answer = common.ask("qdel", batch_id)
    if answer.code and not re.search("Unknown Job|has finished", answer.err):
        raise unexplained("qdel", answer)


def _find(name: str) -> str | None:
    answer = common.ask("qselect", "-x", "-N", name)
    if _NO_HISTORY in answer.err:
        answer = common.ask("qselect", "-N", name)
    if answer.code:
        raise unexplained("qselect", answer)
    return answer.lines[0] if answer.lines else None


def _queues() -> list[tuple[str, ...]]:
    answer = common.ask("qselect", "-u", common.user())
    if answer.code:
        raise unexplained("qselect", answer)
    return [(str(job.get("queue", "")),) for job in _all("", answer.lines).values()] if answer.lines else []


def _probe(plan: Plan, _script: Path) -> str:
    """Check that the queue exists, and that it is enabled and started. PBS checks accounts only at submission."""
    answer = common.ask("qstat", "-Q", "-f", "-F", "json", *filter(None, [plan.queue]))
    if answer.code and "Unknown" in answer.err:
        raise ConfigError(f"queue {plan.queue} is not defined: {answer.text}")
    if answer.code:
        raise unexplained("qstat", answer)
    queues = section(answer, "Queue")
    if plan.queue is None:
        return f"queues: {', '.join(queues)}; accounts are checked at submission only"
    for key in ("enabled", "started"):
        if str(queues.get(plan.queue, {}).get(key)) != "True":
            raise ConfigError(f"queue {plan.queue} is not {key}: jobs would wait or be rejected")
    return f"queue {plan.queue} is enabled and started; accounts are checked at submission only"


def _detect() -> detection.DetectedSystem | None:
    """Detect PBS and its enabled queues. Return None if there is no qsub, or if qsub is not PBS's. Cobalt also has a
    command qsub. The output of qsub --version tells them apart.
    """
    version = re.search(r"pbs_version = (\S+)", detection.qsub_version() or "")
    if version is None:
        return None
    answer = detection.try_ask("qstat", "-Q", "-f", "-F", "json")
    try:
        known = section(answer, "Queue") if answer is not None else {}
    except Unanswered:
        known = {}
    queues = [_queue(name, facts) for name, facts in known.items() if str(facts.get("enabled")) == "True"]
    return detection.DetectedSystem(
        f"PBS {version[1]}", None, queues, _cpus(), job_options=["-l place=scatter", "-k doe"], remote="pbs_tmrsh"
    )


def _cpus() -> int | None:
    """Return the number of CPUs of the smallest node, from pbsnodes(8B); None if it is not known."""
    answer = detection.try_ask("pbsnodes", "-a")
    counts = re.findall(r"resources_available\.ncpus = (\d+)", answer.out) if answer is not None else []
    return min(map(int, counts), default=None)


def _queue(name: str, facts: dict[str, Any]) -> detection.DetectedQueue:
    most = facts.get("resources_max")
    most = most if isinstance(most, dict) else {}
    nodes = str(most.get("nodect", ""))
    limit = re.fullmatch(r"(\d+):(\d\d):(\d\d)", str(most.get("walltime", "")))
    walltime = f"{{1: {int(limit[1])}:{limit[2]}:{limit[3]}}}" if limit else "{}"
    return detection.DetectedQueue(name, int(nodes) if nodes.isdigit() else None, walltime)


PBS = Scheduler(
    "qsub", common.directive, _request, _command, _submit, _states, _cancel, _find, _queues, _probe, _detect,
    job_variable="PBS_JOBID",
)  # fmt: skip
