"""Batch systems: each is a handful of small functions. `local` is this computer's own background."""

import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from dlio_hpc import rundir
from dlio_hpc.errors import InfrastructureError
from dlio_hpc.plan import Plan

State = Literal[
    "planned", "submitted", "queued", "running", "completed", "failed", "timeout", "cancelled", "node_fail",
    "out_of_memory", "lost",
]  # fmt: skip
ENDED: frozenset[State] = frozenset(
    {"completed", "failed", "timeout", "cancelled", "node_fail", "out_of_memory", "lost"}
)

# From TERM to KILL, for ranks that do not listen.
_GRACE_S = 30


class Scheduler(NamedTuple):
    """command: what submit() runs, as a person would type it. submit: the batch id of a job just started.
    state: of a batch id; None when the batch system does not know it (any more). cancel: ask it to end the job.
    takes_options: account, queue and verbatim options mean something to it.
    """

    command: Callable[[Plan], str]
    submit: Callable[[Plan], str]
    state: Callable[[str], State | None]
    cancel: Callable[[str], None]
    takes_options: bool


def _local_arguments(plan: Plan) -> list[str]:
    script = os.path.join(plan.directory, rundir.SCRIPT)
    return ["timeout", f"--kill-after={_GRACE_S}", str(int(plan.walltime)), "bash", script]


def local_command(plan: Plan) -> str:
    folder = Path(plan.directory)
    out, err = (shlex.quote(str(folder / name)) for name in (rundir.STDOUT, rundir.STDERR))
    return f"setsid {shlex.join(_local_arguments(plan))} < /dev/null > {out} 2> {err} &"


def local_submit(plan: Plan) -> str:
    """Start the script in a session of its own, so that it outlives this process and its terminal.

    The batch id is PID.START, with the start time in clock ticks since boot (proc(5), stat, field 22): a number used
    again by another process is not taken for the job.
    """
    folder = Path(plan.directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        pid = os.posix_spawnp(
            "timeout",
            _local_arguments(plan),
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(folder / rundir.STDOUT), flags, 0o644),
                (os.POSIX_SPAWN_OPEN, 2, str(folder / rundir.STDERR), flags, 0o644),
            ],
            setsid=True,
        )
    except OSError as fault:
        raise InfrastructureError(f"cannot start the job script with timeout(1): {fault.strerror}") from fault
    return f"{pid}.{_process(pid)[1]}"


def local_state(batch_id: str) -> State | None:
    """Running, or not known: a process that has ended leaves nothing but the job's exit_status."""
    pid, start = map(int, batch_id.split("."))
    status, since = _process(pid)
    return "running" if since == start and status not in "ZX" else None


def local_cancel(batch_id: str) -> None:
    """TERM to the whole process group; the script's trap writes exit_status."""
    if local_state(batch_id):
        os.killpg(int(batch_id.split(".", maxsplit=1)[0]), signal.SIGTERM)


def _process(pid: int) -> tuple[str, int]:
    """State letter and start time of a process; X and 0 when there is none. The name before may hold blanks."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0
    return fields[0], int(fields[19])


SCHEDULERS = {"local": Scheduler(local_command, local_submit, local_state, local_cancel, takes_options=False)}
