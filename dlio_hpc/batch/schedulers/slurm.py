"""Slurm: sbatch(1), squeue(1), sacct(1), scancel(1). The behaviour that is described in comments was observed with
Slurm 22.05.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlio_hpc import units
from dlio_hpc.batch.schedulers import common, detection
from dlio_hpc.batch.schedulers.scheduler import After, JobRef, JobStatus, Scheduler, State
from dlio_hpc.batch.shell_quoting import quote
from dlio_hpc.command import CommandMissing, unexplained
from dlio_hpc.errors import ConfigError
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

# Slurm states of queued jobs and of jobs that have ended. All other states count as running.
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_OVER: dict[str, State] = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "CANCELLED": "cancelled",
    "PREEMPTED": "cancelled",
    "REVOKED": "cancelled",
    "NODE_FAIL": "node_fail",
    "BOOT_FAIL": "node_fail",
    "OUT_OF_MEMORY": "out_of_memory",
}
# States of jobs whose processes are stopped: scontrol suspend, gang scheduling, scancel --signal=STOP.
_SUSPENDED = {"SUSPENDED", "STOPPED"}
# Reasons because of which a job waits forever (slurm.h, job_state_reason): they do not disappear when other jobs end.
_NEVER = {"DependencyNeverSatisfied", "BadConstraints", "PartitionTimeLimit", "InvalidAccount", "InvalidQOS"}


def _request(plan: Plan) -> dict[str, Any]:
    """Return the values that the template prints. Raise ConfigError if the job's directory contains % or a backslash,
    which Slurm would interpret in the path of the output.
    """
    common.check_directory(plan, "%\\")
    return {
        "walltime": units.format_walltime(plan.walltime),
        "options": common.options(plan, "--partition=", "--account="),
    }


def _arguments(after: After) -> list[str]:
    """Return the submit command. Without --kill-on-invalid-dep=yes, a job whose parent failed would wait forever."""
    depends = [f"--dependency={common.dependencies(after)}", "--kill-on-invalid-dep=yes"] if after.all else []
    return ["sbatch", "--parsable", *depends, rundir.SCRIPT]


_command = partial(common.typed, _arguments)
_submit = partial(common.submit, _arguments, re.compile(r"([0-9]+)(?:;.*)?"))


def _states(jobs: Sequence[JobRef]) -> dict[str, JobStatus]:
    """Return the states of the jobs that Slurm knows, by batch id. The controller remembers a job for a few minutes
    after its end. Accounting, if it is enabled, remembers it for longer. Exit codes are ignored: a job that exceeded
    its time limit but ended by itself has the state TIMEOUT and the exit code 0:0.
    """
    ids = [job.batch_id for job in jobs]
    queued = _queued(ids)
    forgotten = [batch_id for batch_id in ids if batch_id not in queued]
    return queued | _accounted(forgotten) if forgotten else queued


def _queued(ids: Sequence[str]) -> dict[str, JobStatus]:
    answer = common.ask("squeue", "-h", "-t", "all", "-o", "%i|%T|%r", "-j", ",".join(ids))
    if answer.code and "Invalid job id" not in answer.err:
        raise unexplained("squeue", answer)
    return dict(_sight(line) for line in answer.lines if line.count("|") == 2)


def _accounted(ids: Sequence[str]) -> dict[str, JobStatus]:
    """Return the states of the jobs that accounting knows, by batch id. The result is empty if accounting is not
    enabled. It may also be empty right after submission, when accounting does not know the jobs yet.
    """
    try:
        answer = common.ask("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State", "-j", ",".join(ids))
    except CommandMissing:
        return {}
    if answer.code and "disabled" not in answer.err:
        raise unexplained("sacct", answer)
    return dict(_sight(line + "|") for line in answer.lines if line.count("|") == 1)


def _sight(line: str) -> tuple[str, JobStatus]:
    """Parse a line of the form ID|STATE|REASON. Return the batch id and the state of the job. Accounting may append
    text to STATE, as in "CANCELLED by 1000".
    """
    batch_id, word, reason = line.split("|")
    state_text = word if reason in {"", "None"} else f"{word} {reason}"
    name = (word.split() or [""])[0].rstrip("+")
    state = _OVER.get(name) or ("queued" if name in _WAITING else "running")
    return batch_id, JobStatus(state, state_text, state == "queued" and reason in _NEVER, name in _SUSPENDED)


def _cancel(batch_id: str) -> None:
    answer = common.ask("scancel", batch_id)
    if answer.code:
        raise unexplained("scancel", answer)


def _find(name: str) -> str | None:
    answer = common.ask("squeue", "-h", "-t", "all", "-o", "%i", "-n", name)
    if answer.code:
        raise unexplained("squeue", answer)
    return answer.lines[0] if answer.lines else None


def _queues() -> list[tuple[str, ...]]:
    """Return the partition and the QOS of each of the user's jobs. A queue in a site profile may be the name of a
    partition or of a QOS.
    """
    answer = common.ask("squeue", "-h", "-r", "-o", "%P %q", "-u", common.user())
    if answer.code:
        raise unexplained("squeue", answer)
    return [tuple(line.split()) for line in answer.lines]


def _probe(_plan: Plan, script: Path) -> str:
    """Check partition, account, limits and all options with sbatch --test-only. Return the answer, which sbatch prints
    on stderr.
    """
    answer = common.ask("sbatch", "--test-only", str(script))
    if answer.code:
        raise ConfigError(f"sbatch --test-only: {answer.text}")
    return answer.text.removeprefix("sbatch: ")


def _detect() -> detection.DetectedSystem | None:
    """Detect Slurm and its partitions that are up. Return None if Slurm's controller does not answer. Slurm's
    commands alone do not count, because they may be installed on machines where Slurm does not run. The result has no
    partitions if none is up. sinfo(1) marks the default partition with *.
    """
    slurm, partitions = (
        detection.try_ask("sbatch", "--version"),
        detection.try_ask("sinfo", "-h", "-o", "%P|%D|%c|%l|%a|%s"),
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
    return detection.DetectedSystem(slurm.out, default, distinct, cpus, job_options=["--exclusive"], launcher=_launcher)


def _most_nodes(there: str, size: str) -> int | None:
    """Return the maximum number of nodes of a job in a partition. This is the lesser of two numbers: the number of
    nodes of the partition, and its limit per job. Return None if neither is known. there: number of nodes. size: limit
    per job as sinfo prints it, such as 1-8, 4 or 1-infinite.
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
    job_variable="SLURM_JOB_ID",
)  # fmt: skip
