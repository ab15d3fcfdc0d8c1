"""PBS Pro and OpenPBS: qsub(1B), qstat(1B), qselect(1B), qdel(1B). The behaviour that is described in comments was
observed with OpenPBS 23.06.
"""

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from dlio_hpc.base import units
from dlio_hpc.base.command import Answer, Unanswered, unexplained
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch.schedulers import common, detection, refused_options
from dlio_hpc.batch.schedulers.scheduler import After, JobRef, JobStatus, Row, Scheduler, State
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

Attributes = dict[str, Any]

# Letters of jobs that qsig -s suspend, a job of higher priority (S) or the user of a workstation (U) has stopped.
_SUSPENDED = {"S", "U"}
_LIVE: dict[str, State] = {
    "Q": "queued", "H": "queued", "W": "queued", "T": "queued", "M": "queued", "R": "running", "E": "running",
    "S": "running", "U": "running", "B": "running",
}  # fmt: skip
# Values of Exit_status for jobs that PBS itself ended, and what they mean (job.h). All other negative values mean a
# fault of PBS or of a node.
_KILLED: dict[int, tuple[State, str]] = {
    -10: ("failed", "the user is not known on the node"),
    -13: ("failed", "the password is wrong"),
    **dict.fromkeys((-16, -17, -18, -19), ("failed", "a hook of the node rejected or deleted the job")),
    -21: ("failed", "the folders of PBS on the node are not secure"),
    -22: ("failed", "a hook of the node failed"),
    -23: ("failed", "there is no Kerberos ticket"),
    -24: ("failed", "the job used more CPUs than it requested"),
    -25: ("failed", "the job used more CPUs than it requested"),
    -26: ("out_of_memory", "the job used more virtual memory than it requested"),
    -27: ("out_of_memory", "the job used more memory than it requested"),
    -28: ("timeout", "the limit of CPU time was reached"),
    -29: ("timeout", "the time limit was reached"),
}
_DELETED, _FINISHED, _FAILED = 91, 92, 93
# Meaning of a substate of a job that has ended, with or without an Exit_status.
_DELETIONS: dict[tuple[int | None, bool], str] = {
    (_DELETED, False): "deleted while it ran", (_DELETED, True): "deleted before it ran",
    (_FINISHED, True): "deleted by PBS before it ran, because a job that it waited for failed",
}  # fmt: skip
_ID = re.compile(r"(?P<id>[0-9]+\.[\w.-]+)")
_NO_HISTORY = "maintain job history"
_UNKNOWN = re.compile("Unknown Job|has finished")
# PBS holds a job after 21 failed starts, for example because a hook of a node rejects it. Such a job never runs.
_HOPELESS = "job held, too many failed attempts"
# Substate of a job that waits for the end of other jobs (job.h).
_DEPENDS = 22
# Holders by letter of Hold_Types. A hold of the system can be released by the facility alone.
_HOLDERS = {"s": "by the system", "o": "by an operator", "u": "by its owner"}
_ASK_LESS = "cancel the job and submit it with a smaller request or another --queue"
# An attribute as qstat -f prints it: long values go on in lines that begin with a tab.
_ATTRIBUTE = re.compile(r"^    (\w+) = (.*(?:\n\t.*)*)", re.MULTILINE)
# Attributes that are read.
_READ = ("Output_Path", "Job_Name", "job_state", "queue", "Hold_Types", "substate", "comment", "Exit_status")


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
    asked = refused_options.values("pbs", lines, "-l")
    return lines if any("place=" in value for value in asked) else ["-l place=scatter", *lines]


def _select(plan: Plan) -> str:
    """Return the value of the select statement, with one chunk per node. The number of CPUs of a chunk (ncpus) is the
    first of these that is set: ncpus in the key `pbs_select` of the site, the key `cpus` of the site, the number of
    ranks per node. With mpiprocs, PBS_NODEFILE lists each node once per rank. For PALS, neither ncpus nor mpiprocs is
    added, because PALS determines the placement itself.
    """
    site, ranks = plan.site, plan.ranks_per_node
    chunk: dict[str, str | int] = dict(site.pbs_select)
    if site.launcher.kind != "pals":
        chunk = {"ncpus": site.cpus or ranks, **chunk} | {"mpiprocs": ranks}
    return ":".join([str(plan.nodes), *(f"{name}={value}" for name, value in chunk.items())])


def _arguments(plan: Plan, after: After) -> list[str]:
    depends = ["-W", f"depend={common.dependencies(plan, after)}"] if after.all else []
    moment = common.begin_time(plan)
    begins = ["-a", f"{common.local_time(moment):%Y%m%d%H%M.%S}"] if moment is not None else []
    return ["qsub", *begins, *depends, rundir.SCRIPT]


_command = partial(common.typed, _arguments)
_submit = partial(common.submit, _arguments, _ID)


def _states(jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
    """Return the states of the jobs that PBS knows."""
    asked = {job.batch_id.partition(".")[0]: job.batch_id for job in jobs}
    printed = _all("-x", [job.batch_id for job in jobs])
    # The name of the server may be printed with or without its domain.
    attributes = {asked.get(key.partition(".")[0], key): job for key, job in printed.items()}
    rows = [Row(key, str(job.get("Job_Name", "")), sight(job), _folder(job)) for key, job in attributes.items()]
    return common.own("qstat", jobs, rows)


def _folder(job: Attributes) -> str:
    """Return the folder of job.out, which PBS prints after a host name; empty if it is not known."""
    return os.path.dirname(str(job.get("Output_Path", "")).partition(":")[2])


def _all(history: str, ids: Sequence[str]) -> dict[str, Attributes]:
    jobs = _jobs(history, ids)
    if jobs and len(ids) > 1:
        for batch_id in set(ids) - set(jobs):
            jobs |= _jobs(history, [batch_id])
    return jobs


def _is_hopeless(job: Attributes) -> bool:
    return job.get("job_state") == "H" and str(job.get("comment", "")).startswith(_HOPELESS)


def _jobs(history: str, ids: Sequence[str]) -> dict[str, Attributes]:
    """Return the attributes that qstat -f prints for each job, by batch id. Unknown jobs are left out; for these, qstat
    prints a message and exits with 153. If the server keeps no job history, as is the default of OpenPBS, qstat answers
    the option -x with a message, no jobs and exit code 0. The JSON may be invalid, because it contains the variables of
    jobs with any value. In that case, the text output is read.
    """
    question = ["qstat", *filter(None, [history]), "-f"]
    answer = common.ask(*question, "-F", "json", *ids)
    if history and _NO_HISTORY in answer.err:
        return _jobs("", ids)
    if answer.code and not _UNKNOWN.search(answer.err):
        raise unexplained("qstat", answer)
    if not answer.out and not answer.code:
        raise Unanswered("qstat printed nothing")
    try:
        jobs = section(answer, "Jobs") if answer.out else {}
        if not (jobs or answer.code):
            raise unexplained("qstat", answer)  # it ends with 153 if it does not know a job
        return jobs
    except Unanswered as fault:
        if jobs := _from_text(common.ask(*question, *ids).out):
            return jobs
        raise fault from None


def _from_text(text: str) -> dict[str, Attributes]:
    """Return the attributes of each job from the output of qstat -f. A variable with line breaks may contain lines that
    look like attributes. PBS prints the variables after the state and before the comment and the Exit_status. If an
    attribute occurs several times, the first value is used for attributes before the variables, and the last value for
    the others.
    """
    jobs: dict[str, Attributes] = {}
    for part in re.split(r"^Job Id: ", text, flags=re.MULTILINE)[1:]:
        batch_id, _, rest = part.partition("\n")
        before, _, after = rest.partition("\n    Variable_List = ")
        pairs = [*_ATTRIBUTE.findall(after), *reversed(_ATTRIBUTE.findall(before))]
        jobs[batch_id.strip()] = {name: value.replace("\n\t", "") for name, value in pairs if name in _READ}
    return jobs


def section(answer: Answer, key: str) -> dict[str, Attributes]:
    """Return the attributes of each job (`key` "Jobs") or queue (`key` "Queue") in the JSON that qstat prints. Raise
    Unanswered if the JSON cannot be parsed. In the JSON of OpenPBS up to 23.06, variables such as .5, 005 or inf have
    no quotes, and a backslash before a comma is not escaped.
    """
    out = answer.out[max(0, answer.out.find("{")) :]  # wrappers may print other lines first
    for text in (out, _mended(out)):
        with suppress(ValueError, TypeError, AttributeError, RecursionError):
            document = json.loads(text, strict=False)
            return {name: dict(attributes) for name, attributes in document.get(key, {}).items()}
    raise unexplained("qstat", answer._replace(err=f"unexpected JSON: {answer.out[:80]}"))


def _mended(text: str) -> str:
    """Return the JSON with quotes around bare values. Backslashes are escaped, unless they begin an escape sequence of
    JSON.
    """
    quoted = re.sub(
        r'((?<!\\)":\s*)(?![\s"{\[])([^,}\n]*)', lambda match: match[1] + json.dumps(match[2].strip()), text
    )
    return re.sub(r'(\\\\|\\["/bfnrt]|\\u[0-9a-fA-F]{4})|\\', lambda match: match[1] or "\\\\", quoted)


def _number(value: object) -> int | None:
    return int(str(value)) if re.fullmatch(r"-?[0-9]{1,9}", str(value)) else None


def sight(job: Attributes) -> JobStatus:
    """Return the state of a job from its attributes. Exit_status is used only for a finished job, because a job that is
    queued again or runs again may also have an Exit_status.
    """
    letter = str(job.get("job_state", ""))
    if _is_hopeless(job):
        advice = "PBS keeps it until it is waited for, collected, or deleted with qdel"
        return JobStatus("failed", str(job.get("comment", "held by PBS")), advice=advice, stuck=True)
    if letter not in {"F", "X"}:
        return _live(letter, job)
    status, substate = _number(job.get("Exit_status")), _number(job.get("substate"))
    if status is None and substate is None:
        return JobStatus("lost", "PBS says that it has finished, but not how")
    text = f"Exit_status {'absent' if status is None else status}, substate {substate}"
    meaning = _KILLED[status][1] if status in _KILLED else _DELETIONS.get((substate, status is None), "")
    return JobStatus(_over(status, substate), f"{text}; {meaning}" if meaning else text)


def _live(letter: str, job: Attributes) -> JobStatus:
    """Return the state of a job that has not ended. The comment of a suspended or held job is ignored if it may date
    from an earlier state.
    """
    comment, state = str(job.get("comment", "")), _LIVE.get(letter, "running")
    if letter in _SUSPENDED:
        return JobStatus(state, "suspended", suspended=True, advice="PBS resumes it (qsig -s resume)")
    kinds = str(job.get("Hold_Types", ""))
    if letter == "H" and _number(job.get("substate")) == _DEPENDS and not {"u", "o"} & set(kinds):
        return JobStatus(state, "waits for the end of other jobs")
    if letter == "H":
        holder = next((text for kind, text in _HOLDERS.items() if kind in kinds), "")
        return JobStatus(state, f"held {holder}".strip(), advice="release it: qrls, or ask the facility")
    if letter == "W":
        return JobStatus(state, "waits for its begin time")
    never = comment.startswith("Can Never Run")
    return JobStatus(state, comment, never, advice=_ASK_LESS if never else "")


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
        return _KILLED[status][0] if status in _KILLED else "node_fail"
    return "failed" if status else "completed"


def _cancel(job: JobRef) -> None:
    answer = common.ask("qdel", job.batch_id)
    if answer.code and not _UNKNOWN.search(answer.err):
        raise unexplained("qdel", answer)


def _find(job: JobRef) -> JobRef | None:
    answer = common.ask("qselect", "-x", "-N", job.name)
    if _NO_HISTORY in answer.err:
        answer = common.ask("qselect", "-N", job.name)
    if answer.code:
        raise unexplained("qselect", answer)
    ids = common.only_ids("qselect", answer.lines, _ID)
    return job._replace(batch_id=ids[0]) if ids else None


def _queues(_cluster: str) -> list[tuple[str, ...]]:
    user = common.user_name()
    if user is None:  # qselect(1B) takes no numbers; PBS itself limits the jobs of a user
        return []
    answer = common.ask("qselect", "-u", user)
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
        f"PBS {version[1]}", None, queues, _cpus(), job_options=["-l place=scatter", "-k doe"], remote="pbs_tmrsh",
        queues_from="qstat -Q -f", cpus_from="pbsnodes -a, smallest node",
    )  # fmt: skip


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
    unprobed="account and limits of the queue", job_variable="PBS_JOBID",
)  # fmt: skip
