"""This computer's own background, as a batch system with one node and no queue."""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.batch.schedulers.scheduler import After, Known, Scheduler, Sight
from dlio_hpc.batch.shell_quoting import quote
from dlio_hpc.errors import ConfigError, InfrastructureError
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

# From TERM to KILL, for ranks that do not listen.
_GRACE_S = 30
# The program that waits for other jobs and becomes the next one. Started by its path: python -m would look for modules
# in the folder of whoever submits first.
_SUCCESSOR = str(Path(__file__).parents[1] / "local_successor.py")


def _arguments(plan: Plan, after: After) -> list[str]:
    """The inner timeout(1) tells the script that its end is near, the outer one ends it with all that it started. One
    that follows others waits for their end first, and has its time from then on.
    """
    script = os.path.join(plan.directory, rundir.SCRIPT)
    warning = ["timeout", "--foreground", "--signal=USR1", str(plan.walltime - plan.warning_time)]
    limited = ["timeout", f"--kill-after={_GRACE_S}", str(int(plan.walltime)), *warning, "bash", script]
    return [sys.executable, _SUCCESSOR, *after.over, "--", *limited] if after.over else limited


def _command(plan: Plan, after: After) -> str:
    folder = Path(plan.directory)
    out, err = (shlex.quote(str(folder / name)) for name in (rundir.STDOUT, rundir.STDERR))
    return f"setsid {shlex.join(_arguments(plan, after))} < /dev/null > {out} 2> {err} &"


def _submit(plan: Plan, after: After) -> str:
    """Start the script in a session of its own, so that it outlives this process and its terminal.

    The batch id is PID.START, with the start time in clock ticks since boot (proc(5), stat, field 22): a number used
    again by another process is not taken for the job.
    """
    if after.well:
        raise ConfigError(
            f"--after: site {plan.site.name} has no queue that could hold a job until another has ended; submit that "
            "one with --wait"
        )
    folder, arguments = Path(plan.directory), _arguments(plan, after)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        pid = os.posix_spawnp(
            arguments[0],
            arguments,
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


def _states(jobs: Sequence[Known]) -> dict[str, Sight]:
    """Those that live; the others have left nothing but their files."""
    return {job.batch_id: Sight("queued" if _waits(job.batch_id) else "running") for job in jobs if lives(job.batch_id)}


def _waits(batch_id: str) -> bool:
    """Is it still to start, after others?"""
    try:
        return os.fsencode(_SUCCESSOR) in Path(f"/proc/{_parse(batch_id)[0]}/cmdline").read_bytes()
    except OSError:
        return False


def lives(batch_id: str) -> bool:
    """Running while any process of the job's session lives; afterwards nothing is left but its exit_status."""
    leader, start = _parse(batch_id)
    process = _process(leader)
    alive = process.start == start and process.state not in "ZX"
    return alive or bool(_session(batch_id))


def _cancel(batch_id: str) -> None:
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


def _find(name: str) -> str | None:
    """The batch id of the session whose leader runs the script of the job `name`, as _submit() starts it."""
    script = os.fsencode(f"/{name}/{rundir.SCRIPT}")
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        process = _process(pid)
        if process.session == pid and process.state not in "ZX" and _is_of(pid, script):
            return f"{pid}.{process.start}"
    return None


def _is_of(pid: int, script: bytes) -> bool:
    """Does a process of this user have the script as its last argument?"""
    try:
        folder = Path(f"/proc/{pid}")
        arguments = (folder / "cmdline").read_bytes().split(b"\0")
        is_mine = folder.stat().st_uid == os.geteuid()
        return is_mine and any(argument.endswith(script) for argument in arguments[-2:])
    except OSError:
        return False


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


def _request(_plan: Plan) -> dict[str, Any]:
    return {}


LOCAL = Scheduler(
    program="timeout",
    directive=quote,
    request=_request,
    command=_command,
    submit=_submit,
    states=_states,
    cancel=_cancel,
    find=_find,
    queues=list,
    probe=lambda _plan, _script: "no batch system: jobs start at once",
    is_queue=False,
)
