"""Batch systems: each is a handful of small functions. `local` is this computer's own background."""

import os
import shlex
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from dlio_hpc import rundir
from dlio_hpc.errors import ConfigError, InfrastructureError
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
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGPIPE, signal.SIGQUIT, signal.SIGTERM, signal.SIGXFSZ],
        )
    except OSError as fault:
        raise InfrastructureError(f"cannot start the job script with timeout(1): {fault.strerror}") from fault
    return f"{pid}.{_process(pid).start}"


def local_state(batch_id: str) -> State | None:
    """Running while any process of the job's session lives; afterwards nothing is left but its exit_status."""
    leader, start = _parse(batch_id)
    process = _process(leader)
    alive = process.start == start and process.state not in "ZX"
    return "running" if alive or _session(batch_id) else None


def local_cancel(batch_id: str) -> None:
    """TERM to every process of the session: the script's trap writes exit_status, ranks without a script end too."""
    for pid in _session(batch_id):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _session(batch_id: str) -> list[int]:
    """The living processes of the job, which all have the leader's PID as their session (proc(5), stat, field 6)."""
    leader, start = _parse(batch_id)
    since = _process(leader).start
    if since not in {0, start}:
        return []  # the number belongs to another process now, and Linux gives no PID that a session still has
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid in pids if (process := _process(pid)).session == leader and process.state not in "ZX"]


def _parse(batch_id: str) -> tuple[int, int]:
    pid, _, start = batch_id.partition(".")
    if not (pid.isdigit() and start.isdigit()):
        raise ConfigError(f"batch id {batch_id!r} is none of site local's; was {rundir.JOB} edited?")
    return int(pid), int(start)


class _Process(NamedTuple):
    state: str
    session: int
    start: int


def _process(pid: int) -> _Process:
    """State letter, session and start time; X and zeros when there is none. The name before may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return _Process("X", 0, 0)
    return _Process(fields[0].decode(), int(fields[3]), int(fields[19]))


SCHEDULERS = {"local": Scheduler(local_command, local_submit, local_state, local_cancel, takes_options=False)}
