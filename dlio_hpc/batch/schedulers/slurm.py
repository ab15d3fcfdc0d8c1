"""Slurm: sbatch(1), squeue(1), sacct(1), scancel(1). The behaviour that is described in comments was observed with
Slurm 22.05.
"""

import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.base import units
from dlio_hpc.base.command import Answer, CommandMissing, Unanswered, unexplained
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch.schedulers import common, detection, refused_options
from dlio_hpc.batch.schedulers.scheduler import (
    ENDED,
    AcceptedJob,
    After,
    JobRef,
    JobStatus,
    Row,
    Scheduler,
    State,
    is_unknown,
)
from dlio_hpc.batch.shell_quoting import quote
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

# Slurm states of queued jobs and of jobs that have ended.
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
            "EXPEDITING"}  # fmt: skip
_OVER: dict[str, State] = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "CANCELLED": "cancelled",
    "PREEMPTED": "cancelled",
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "OUT_OF_MEMORY": "out_of_memory",
}
# States of jobs whose processes are stopped: scontrol suspend, gang scheduling, scancel --signal=STOP.
_SUSPENDED = {"SUSPENDED", "STOPPED"}
# All other states (slurm.h; "Job State Codes" in Slurm's documentation, to 26.05). Of a job that is REVOKED, another
# cluster of the federation runs a copy.
_RUNNING = {"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING", "LAUNCH_FAILED", "POWER_UP_NODE",
            "RECONFIG_FAIL", "UPDATE_DB", "REVOKED", *_SUSPENDED}  # fmt: skip
# A state, flags of newer releases after commas, and what accounting appends.
_STATE = re.compile(r"([A-Z_]+)[A-Z_,]*\+?(?: by \S+)?")


class _Reason(NamedTuple):
    """A reason why a job waits. pattern: pattern of its name. never: whether it never ends by itself. advice: what the
    user can do.
    """

    pattern: str
    never: bool
    advice: str


_OTHER = "cancel the job and submit it with"
# Reasons of slurm.h (job_state_reason) and of "Job Reason Codes" in Slurm's documentation. Reasons that the table lacks
# end when other jobs end.
_REASONS = (
    _Reason("DependencyNeverSatisfied", True, "a job that it waits for has failed; cancel it"),
    _Reason(
        "PartitionNodeLimit", True, f"the partition has too few nodes that are up; {_OTHER} another --nodes or --queue"
    ),
    _Reason(
        "PartitionTimeLimit", True, f"the partition allows less time; {_OTHER} a shorter --time or another --queue"
    ),
    _Reason("PartitionConfig", True, f"the request violates a limit of the partition; {_OTHER} another --queue"),
    _Reason(r"(Assoc|QOS)Max\w+Per(Job|Node)(Limit)?", True, f"the request exceeds a limit for one job; {_OTHER} less"),
    _Reason(r"QOSMin\w+", True, f"the request is below a minimum of the QOS; {_OTHER} more, or another QOS"),
    _Reason("MaxMemPerLimit", True, f"the memory exceeds a limit; {_OTHER} less"),
    _Reason(
        "uid .* not permitted.*|uid .* not in group.*",
        True,
        f"the partition refuses the user; {_OTHER} another --queue",
    ),
    _Reason(
        "InvalidAccount|AccountNotAllowed|Job's account not permitted.*",
        True,
        f"the partition refuses the account; {_OTHER} another --account",
    ),
    _Reason(
        "InvalidQOS|QOSNotAllowed|Job's QOS not permitted.*",
        True,
        f"the partition refuses the QOS; {_OTHER} another QOS",
    ),
    _Reason("BadConstraints|DeadLine|BurstBufferOperation", True, f"no node fits the request; {_OTHER} other options"),
    _Reason("JobHeldAdmin", False, "an administrator holds the job; ask the facility"),
    _Reason("JobHeldUser", False, "the job is held; release it: scontrol release {id}"),
    _Reason("JobHoldMaxRequeue|.*requeued (in )?held.*", False, "held after failed starts; ask the facility"),
    _Reason("PartitionDown|PartitionInactive", False, "the partition is switched off; ask the facility"),
    _Reason("ReqNodeNotAvail.*|Reservation|Nodes required for job are .*", False, "its nodes are down or reserved"),
)
_RUNAWAY = "the controller no longer knows it; ask the facility (sacctmgr show runawayjobs)"
_NO_REASON = _Reason("", False, "")


def _request(plan: Plan) -> dict[str, Any]:
    """Return the values that the template prints. Raise ConfigError if the job's directory contains % or a backslash,
    which Slurm would interpret in the path of the output.
    """
    common.check_directory(plan, "%\\")
    return {
        "walltime": units.format_walltime(plan.walltime),
        "options": common.options(plan, "--partition=", "--account="),
    }


def _clusters(plan: Plan) -> str:
    """Return the clusters that the options of the plan name. If they name none, return the clusters in SLURM_CLUSTERS,
    which sbatch(1) and squeue(1) read.
    """
    lines = common.options(plan, "--partition=", "--account=")
    named = refused_options.values("slurm", lines, "-M --clusters")
    return named[-1] if named else os.environ.get("SLURM_CLUSTERS", "")


def _on(cluster: str) -> list[str]:
    """Return the option that sends a command to another cluster than the cluster of the login node."""
    return ["-M", cluster] if cluster else []


def _arguments(plan: Plan, after: After) -> list[str]:
    """Return the submit command. Without --kill-on-invalid-dep=yes, a job whose parent failed would wait forever."""
    depends = [f"--dependency={common.dependencies(plan, after)}", "--kill-on-invalid-dep=yes"] if after.all else []
    moment = common.begin_time(plan)
    begins = [f"--begin={common.local_time(moment):%Y-%m-%dT%H:%M:%S}"] if moment is not None else []
    return ["sbatch", "--parsable", *_on(_clusters(plan)), *begins, *depends, rundir.SCRIPT]


_command = partial(common.typed, _arguments)


def _submit(plan: Plan, after: After) -> AcceptedJob:
    """Submit the job. If it may be on several clusters, and sbatch did not print which, find the job by its name."""
    accepted = common.submit(_arguments, re.compile(r"(?P<id>[0-9]+)(?:;(?P<cluster>\w[\w.-]*))?"), plan, after)
    asked = _clusters(plan)
    if accepted.cluster or not ("," in asked or asked == "all"):
        return accepted._replace(cluster=accepted.cluster or asked)
    job = _find(JobRef("", Path(plan.directory), plan.job, asked))
    if job is None:
        raise Unanswered(f"sbatch accepted the job, but did not print on which of the clusters {asked} it is")
    return accepted._replace(batch_id=job.batch_id, cluster=job.cluster)


def _states(jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
    """Return the states of the jobs that Slurm knows. The controller remembers a job for a few minutes after its end.
    Accounting, if it is enabled, remembers it for longer. Exit codes are ignored: a job that exceeded its time limit
    but ended by itself has the state TIMEOUT and the exit code 0:0.
    """
    cluster = jobs[0].cluster
    states = _queued(cluster, jobs)
    forgotten = [job for job in jobs if is_unknown(states.get(job))]
    return states | _accounted(cluster, forgotten) if forgotten else states


def _queued(cluster: str, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
    ids = ",".join(job.batch_id for job in jobs)
    answer = common.ask("squeue", *_on(cluster), "-h", "-t", "all", "-o", "%i|%T|%r|%j|%Z", "-j", ids)
    if answer.code and "Invalid job id" not in answer.err:
        raise unexplained("squeue", answer)
    if not (answer.code or answer.out) and len(jobs) == 1:
        raise Unanswered("squeue printed nothing")  # it ends with 1 if it does not know a single job
    names = {job.batch_id: job.name for job in jobs}
    return common.own("squeue", jobs, [_queue_row(line, names) for line in _rows(answer)])


def _rows(answer: Answer) -> list[str]:
    """Return the lines of an answer that describe jobs. A line with the name of a cluster may precede its jobs."""
    return [line for line in answer.lines if line.strip() and not line.startswith("CLUSTER: ")]


def _accounted(cluster: str, jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
    """Return the states of the jobs that accounting knows. The result is empty if accounting is not enabled. It may
    also be empty right after submission, when accounting does not know the jobs yet. With --duplicates, sacct also
    prints the other jobs that had the same id, and the earlier attempts of a requeued job before its last one.
    """
    ids, columns = ",".join(job.batch_id for job in jobs), "JobIDRaw,State,JobName,WorkDir"
    try:
        answer = common.ask("sacct", *_on(cluster), "-X", "-n", "-P", "--duplicates", "-o", columns, "-j", ids)
    except CommandMissing:
        return {}
    if answer.code and "disabled" not in answer.err:
        raise unexplained("sacct", answer)
    lines = [] if answer.code else _rows(answer)
    states = common.own("sacct", jobs, map(_account_row, lines))
    return {
        job: status if status.state in ENDED else status._replace(advice=_RUNAWAY) for job, status in states.items()
    }


def _queue_row(line: str, names: dict[str, str]) -> Row | str:
    """Parse a line of the form ID|STATE|REASON|NAME|FOLDER or ID|STATE|REASON. Reason and folder may contain |, so the
    line is divided at the name of the job. Return the line itself if it has another form, for example because it is
    truncated. names: name of each job, by batch id.
    """
    batch_id, state_text, rest = [*line.split("|", 2), "", ""][:3]
    name = names.get(batch_id.strip())
    reason, is_ours, folder = rest.partition(f"|{name}|")
    if is_ours and name and reason:
        return _row(line, batch_id, state_text, reason, name, folder)
    cells = rest.split("|", 2)
    if not cells[0] or len(cells) == 2:
        return line  # cut short
    return _row(line, batch_id, state_text, *cells) if len(cells) == 3 else _row(line, batch_id, state_text, rest)


def _account_row(line: str) -> Row | str:
    """Parse a line of the form ID|STATE|NAME|FOLDER. Return the line itself if it has another form."""
    batch_id, state_text, name, folder = [*line.split("|", 3), "", "", ""][:4]
    return _row(line, batch_id, state_text, "", name, folder)


def _row(line: str, batch_id: str, state_text: str, reason: str, name: str = "", folder: str = "") -> Row | str:
    """Return the row of a job. Return the line itself if id or state have an invalid form. Accounting may append text
    to the state, as in "CANCELLED by 1000".
    """
    if not batch_id.strip().isdecimal() or _name(state_text) not in _WAITING | _OVER.keys() | _RUNNING:
        return line
    return Row(batch_id.strip(), name, _status(batch_id.strip(), state_text, reason), folder)


def _name(state_text: str) -> str:
    """Return the name of the state in a text such as "CANCELLED by 1000"; empty if there is none."""
    match = _STATE.fullmatch(state_text)
    return match[1] if match else ""


def _status(batch_id: str, state_text: str, reason: str) -> JobStatus:
    name = _name(state_text)
    text = state_text if reason in {"", "None"} else f"{state_text} {reason}"
    state = _OVER.get(name) or ("queued" if name in _WAITING else "running")
    known = next((row for row in _REASONS if state == "queued" and re.fullmatch(row.pattern, reason)), _NO_REASON)
    return JobStatus(state, text, known.never, name in _SUSPENDED, known.advice.format(id=batch_id))


def _cancel(job: JobRef) -> None:
    answer = common.ask("scancel", *_on(job.cluster), job.batch_id)
    is_gone = "Invalid job id" in answer.err
    is_denied = "denied" in answer.err  # the exit code may be 0
    if (answer.code and not is_gone) or is_denied:
        raise unexplained("scancel", answer)


def _find(job: JobRef) -> JobRef | None:
    """Search the clusters that the job may have been submitted to."""
    asked = _cluster_names() if job.cluster == "all" else job.cluster.split(",")
    if not asked:
        raise Unanswered("sacctmgr does not list the clusters that the job may be on")
    for cluster in asked:
        answer = common.ask("squeue", *_on(cluster), "-h", "-t", "all", "-o", "%i", "-n", job.name)
        if answer.code:
            raise unexplained("squeue", answer)
        if ids := common.only_ids("squeue", _rows(answer), re.compile("[0-9]+")):
            return job._replace(batch_id=ids[0], cluster=cluster)
    return None


def _cluster_names() -> list[str]:
    """Return the names of the clusters that accounting knows. Return an empty list if there is no accounting."""
    answer = detection.try_ask("sacctmgr", "-n", "-P", "show", "clusters", "format=cluster")
    return answer.out.split() if answer is not None and not answer.code else []


def _queues(cluster: str) -> list[tuple[str, ...]]:
    """Return the partition and the QOS of each of the user's jobs. A queue in a site profile may be the name of a
    partition or of a QOS.
    """
    answer = common.ask("squeue", *_on(cluster), "-h", "-r", "-o", "%P %q", "-u", str(os.geteuid()))
    if answer.code:
        raise unexplained("squeue", answer)
    return [tuple(line.split()) for line in _rows(answer)]


def _probe(plan: Plan, script: Path) -> str:
    """Check partition, account, limits and all options with sbatch --test-only. Return the answer, which sbatch prints
    on stderr.
    """
    answer = common.ask("sbatch", "--test-only", *_on(_clusters(plan)), str(script))
    if answer.code or (" error: " in f" {answer.err}" and " to start at " not in answer.err):
        raise ConfigError(f"sbatch --test-only: {answer.text}")
    return answer.text.removeprefix("sbatch: ")


def _home() -> str:
    """Return the name of the cluster of this node; empty if it is not known."""
    answer = detection.try_ask("scontrol", "show", "config")
    match = re.search(r"^ClusterName\s*=\s*(\S+)", answer.out, re.MULTILINE) if answer is not None else None
    return match[1] if match else ""


def _detect() -> detection.DetectedSystem | None:
    """Detect Slurm and its partitions that are up. Return None if Slurm's controller does not answer. Slurm's commands
    alone are not sufficient, because they may be installed on machines where Slurm does not run. The result has no
    partitions if none is up. sinfo(1) marks the default partition with *. With SLURM_CLUSTERS, the first cluster that
    it names is detected.
    """
    cluster = os.environ.get("SLURM_CLUSTERS", "").partition(",")[0]
    slurm, partitions = (
        detection.try_ask("sbatch", "--version"),
        detection.try_ask("sinfo", *_on(cluster), "-h", "-o", "%P|%D|%c|%l|%a|%s"),
    )
    if slurm is None or not slurm.out.startswith("slurm") or partitions is None or partitions.code:
        return None
    rows = [line.split("|") for line in partitions.lines]
    usable = [row for row in rows if len(row) == 6 and row[4] == "up"]
    queues = [
        detection.DetectedQueue(row[0].rstrip("*"), _most_nodes(row[1], row[5]), _limit(row[3])) for row in usable
    ]
    default = next((row[0][:-1] for row in usable if row[0].endswith("*")), None)
    cpus = next((detection.count(row[2]) for row in usable if row[0].rstrip("*") == default), None)
    distinct = list({queue.name: queue for queue in queues}.values())
    options = ["--exclusive", *([f"--clusters={cluster}"] if cluster else [])]
    return detection.DetectedSystem(
        slurm.out, default, distinct, cpus, job_options=options, launcher=_launcher, clusters=_cluster_names(),
        queues_from="sinfo", cpus_from="sinfo, nodes of the default partition",
    )  # fmt: skip


def _most_nodes(there: str, size: str) -> int | None:
    """Return the maximum number of nodes of a job in a partition. It is the smaller of two numbers: the number of nodes
    of the partition, and the limit of the partition for a job. Return None if neither is known. there, size: the two
    numbers as sinfo prints them. The limit may be 1-8, 4 or 1-infinite.
    """
    known = [count for count in (detection.count(there), detection.count(size.rpartition("-")[2])) if count is not None]
    return min(known, default=None)


def _limit(text: str) -> str:
    """Convert a time limit of Slurm (D-HH:MM:SS, HH:MM:SS, MM:SS or infinite) to the form of a site profile. Return {1:
    H:MM:SS}, which means a limit for jobs of one or more nodes, or {} if there is no limit.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return "{}"
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return f"{{1: {units.format_walltime(((days * 24 + hours) * 60 + minutes) * 60 + seconds)}}}"


def _launcher(library: str) -> detection.DetectedLauncher:
    """Return srun as the launcher, with the value of its option --mpi that the MPI library needs. This value is None if
    the library needs none (such as Cray's MPI), or if srun does not support the value. library: first line of the
    version text of the MPI library.
    """
    answer = detection.try_ask("srun", "--mpi=list")
    available = re.findall(r"^\s+(\w+)\s*$", f"{answer.out}\n{answer.err}", re.MULTILINE) if answer is not None else []
    wanted = "pmix" if "Open MPI" in library else "pmi2" if "MPICH" in library and "CRAY" not in library else None
    mpi = wanted if wanted in available else None
    mpis = ", ".join(available) or "unknown, see srun --mpi=list"
    return detection.DetectedLauncher("srun", "srun", "srun", mpi, mpis)


SLURM = Scheduler(
    "sbatch", quote, _request, _command, _submit, _states, _cancel, _find, _queues, _probe, _detect,
    cluster=_clusters, home=_home, job_variable="SLURM_JOB_ID",
)  # fmt: skip
