"""Slurm: sbatch(1), squeue(1), sacct(1), scancel(1). What is said here was seen on 22.05."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dlio_hpc import units
from dlio_hpc.batch.schedulers import common
from dlio_hpc.batch.schedulers.scheduler import After, Known, Scheduler, Sight, State
from dlio_hpc.batch.shell_quoting import quote
from dlio_hpc.command import Missing, unexplained
from dlio_hpc.errors import ConfigError
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

# Slurm's words for what is neither waiting nor over are many; these are the others.
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
# Reasons for which a job waits that no end of another job removes (slurm.h, job_state_reason).
_NEVER = {"DependencyNeverSatisfied", "BadConstraints", "PartitionTimeLimit", "InvalidAccount", "InvalidQOS"}


def _request(plan: Plan) -> dict[str, Any]:
    """Slurm takes % and backslashes in the path of the output, which begins with the job's directory, for patterns."""
    common.check_directory(plan, "%\\")
    return {
        "walltime": units.format_walltime(plan.walltime),
        "options": common.options(plan, "--partition=", "--account="),
    }


def _words(after: After) -> list[str]:
    """A job whose parent failed would wait for ever unless told not to."""
    depends = [f"--dependency={common.dependencies(after)}", "--kill-on-invalid-dep=yes"] if after.all else []
    return ["sbatch", "--parsable", *depends, rundir.SCRIPT]


_command = partial(common.typed, _words)
_submit = partial(common.submit, _words, re.compile(r"([0-9]+)(?:;.*)?"))


def _states(jobs: Sequence[Known]) -> dict[str, Sight]:
    """The controller knows a job for some minutes after its end, accounting for good, where there is any. The exit code
    tells nothing: a job over its limit that ended by itself has 0:0 beside TIMEOUT.
    """
    ids = [job.batch_id for job in jobs]
    seen = _queued(ids)
    forgotten = [batch_id for batch_id in ids if batch_id not in seen]
    return seen | _accounted(forgotten) if forgotten else seen


def _queued(ids: Sequence[str]) -> dict[str, Sight]:
    answer = common.ask("squeue", "-h", "-t", "all", "-o", "%i|%T|%r", "-j", ",".join(ids))
    if answer.code and "Invalid job id" not in answer.err:
        raise unexplained("squeue", answer)
    return dict(_sight(line) for line in answer.lines if line.count("|") == 2)


def _accounted(ids: Sequence[str]) -> dict[str, Sight]:
    """Nothing where there is no accounting; right after submission its rows may not be there yet either."""
    try:
        answer = common.ask("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State", "-j", ",".join(ids))
    except Missing:
        return {}
    if answer.code and "disabled" not in answer.err:
        raise unexplained("sacct", answer)
    return dict(_sight(line + "|") for line in answer.lines if line.count("|") == 1)


def _sight(line: str) -> tuple[str, Sight]:
    """From ID|STATE|REASON; accounting writes CANCELLED by 1000."""
    batch_id, word, reason = line.split("|")
    words = word if reason in {"", "None"} else f"{word} {reason}"
    name = (word.split() or [""])[0].rstrip("+")
    state = _OVER.get(name) or ("queued" if name in _WAITING else "running")
    return batch_id, Sight(state, words, state == "queued" and reason in _NEVER)


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
    """Partition and QOS: a profile's queue may be either."""
    answer = common.ask("squeue", "-h", "-r", "-o", "%P %q", "-u", common.user())
    if answer.code:
        raise unexplained("squeue", answer)
    return [tuple(line.split()) for line in answer.lines]


def _probe(_plan: Plan, script: Path) -> str:
    """Partition, account, limits and every option, as the controller sees them; its answer comes on stderr."""
    answer = common.ask("sbatch", "--test-only", str(script))
    if answer.code:
        raise ConfigError(f"sbatch --test-only: {answer.words}")
    return answer.words.removeprefix("sbatch: ")


SLURM = Scheduler(
    "sbatch", quote, _request, _command, _submit, _states, _cancel, _find, _queues, _probe,
    job_variable="SLURM_JOB_ID",
)  # fmt: skip
