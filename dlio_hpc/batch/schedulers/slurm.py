"""Slurm: sbatch(1), squeue(1), sacct(1), scancel(1). The behaviour that is described in comments was observed with
Slurm 22.05.
"""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlio_hpc import units
from dlio_hpc.batch.schedulers import common
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
# Reasons for waiting that do not disappear when other jobs end (slurm.h, job_state_reason).
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
    """Return the states of the jobs that Slurm knows, by batch id. The controller knows a job until some minutes after
    its end; accounting, if it is enabled, knows it for longer. Exit codes are ignored: a job that exceeded its time
    limit but ended by itself has the state TIMEOUT and the exit code 0:0.
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
    """Return the states that accounting knows, by batch id. The result is empty if there is no accounting, or right
    after submission, when accounting does not know the jobs yet.
    """
    try:
        answer = common.ask("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State", "-j", ",".join(ids))
    except CommandMissing:
        return {}
    if answer.code and "disabled" not in answer.err:
        raise unexplained("sacct", answer)
    return dict(_sight(line + "|") for line in answer.lines if line.count("|") == 1)


def _sight(line: str) -> tuple[str, JobStatus]:
    """Parse a line ID|STATE|REASON. Accounting may append text to a state, as in CANCELLED by 1000."""
    batch_id, word, reason = line.split("|")
    state_text = word if reason in {"", "None"} else f"{word} {reason}"
    name = (word.split() or [""])[0].rstrip("+")
    state = _OVER.get(name) or ("queued" if name in _WAITING else "running")
    return batch_id, JobStatus(state, state_text, state == "queued" and reason in _NEVER)


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
    """Return the partition and QOS of each of the user's jobs. A queue in a site profile may be either of them."""
    answer = common.ask("squeue", "-h", "-r", "-o", "%P %q", "-u", common.user())
    if answer.code:
        raise unexplained("squeue", answer)
    return [tuple(line.split()) for line in answer.lines]


def _probe(_plan: Plan, script: Path) -> str:
    """Check partition, account, limits and all options with sbatch --test-only, which prints its answer on stderr."""
    answer = common.ask("sbatch", "--test-only", str(script))
    if answer.code:
        raise ConfigError(f"sbatch --test-only: {answer.words}")
    return answer.words.removeprefix("sbatch: ")


SLURM = Scheduler(
    "sbatch", quote, _request, _command, _submit, _states, _cancel, _find, _queues, _probe,
    job_variable="SLURM_JOB_ID",
)  # fmt: skip
