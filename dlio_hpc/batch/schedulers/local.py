"""The local site: background jobs on this computer, handled like the jobs of a batch system with one node and
no queue.
"""

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.batch import surrounding_job
from dlio_hpc.batch.schedulers import common, detection
from dlio_hpc.batch.schedulers.scheduler import AcceptedJob, After, JobRef, JobStatus, Scheduler
from dlio_hpc.batch.shell_quoting import Shell, quote
from dlio_hpc.config.site import SURROUNDING
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan

# Seconds between SIGTERM and the SIGKILL for ranks that ignore SIGTERM.
_GRACE_S = 30
# The program that waits for other jobs and then executes the next job. It is started by its path: python -m would
# search the submitter's current folder for modules first.
_SUCCESSOR = str(Path(__file__).parents[1] / "local_successor.py")

# Launchers that start the ranks of a local job by themselves. Those of a batch system need the variables of its job.
_OWN_LAUNCHERS = {"mpiexec", "hydra", "openmpi"}


def _arguments(plan: Plan, after: After) -> list[str]:
    """Return the command that runs the job. The command contains timeout(1) twice. The inner one sends a signal to the
    script shortly before the time limit; the outer one ends the script and all its processes at the time limit. A job
    with a begin time or dependencies first waits for them; its time limit starts after the wait.
    """
    script = os.path.join(plan.directory, rundir.SCRIPT)
    warning = ["timeout", "--foreground", "--signal=USR1", str(plan.walltime - plan.warning_time)]
    limited = ["timeout", f"--kill-after={_GRACE_S}", str(int(plan.walltime)), *warning, "bash", script]
    moment = common.begin_time(plan)
    begins = [f"--begin={moment:.0f}"] if moment is not None else []
    waits = [*begins, *after.over]
    return [sys.executable, _SUCCESSOR, *waits, "--", *limited] if waits else limited


def _command(plan: Plan, after: After) -> str:
    folder = Path(plan.directory)
    out, err = (shlex.quote(str(folder / name)) for name in (rundir.STDOUT, rundir.STDERR))
    return f"setsid {shlex.join(_arguments(plan, after))} < /dev/null > {out} 2> {err} &"


def _submit(plan: Plan, after: After) -> AcceptedJob:
    """Start the script in a session of its own, so that it survives this process and its terminal. Return the batch id.

    The batch id is PID.START, where START is the start time of the process in clock ticks since boot (proc(5), stat,
    field 22). Another process that later gets the same PID is therefore not mistaken for the job.
    """
    if after.well:
        raise ConfigError(
            f"--after: site {plan.site.name} has no queue to hold a job until another one ends; submit the other "
            "job with --wait"
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
    return AcceptedJob(f"{pid}.{_process(pid).start}")


def _states(jobs: Sequence[JobRef]) -> dict[JobRef, JobStatus]:
    """Return the states of the jobs that still run or wait. Jobs that have ended are left out, because their states are
    only known from their files.
    """
    return {job: JobStatus("queued" if _waits(job.batch_id) else "running") for job in jobs if lives(job.batch_id)}


def _waits(batch_id: str) -> bool:
    """Return whether the job still waits for its begin time, or for other jobs to end."""
    try:
        return os.fsencode(_SUCCESSOR) in Path(f"/proc/{_parse(batch_id)[0]}/cmdline").read_bytes()
    except OSError:
        return False


def lives(batch_id: str) -> bool:
    """Return whether any process of the job's session is alive."""
    leader, start = _parse(batch_id)
    process = _process(leader)
    alive = process.start == start and process.state not in "ZX"
    return alive or bool(_session(batch_id))


def _cancel(job: JobRef) -> None:
    """Send SIGTERM to every process in the job's session. A trap in the job script then writes exit_status. Ranks also
    end by themselves when the script of their job no longer runs.
    """
    for pid in _session(job.batch_id):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _session(batch_id: str) -> list[int]:
    """Return the PIDs of the job's live processes. They are found by their session (proc(5), stat, field 6): its id is
    the PID of the job's first process.
    """
    leader, start = _parse(batch_id)
    since = _process(leader).start
    if since not in {0, start}:
        return []  # the PID was reused, so the session is gone: Linux does not reuse the PID of a live session
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid in pids if (process := _process(pid)).session == leader and process.state not in "ZX"]


def _parse(batch_id: str) -> tuple[int, int]:
    pid, _, start = batch_id.partition(".")
    if not (pid.isdigit() and start.isdigit()):
        raise ConfigError(f"batch id {batch_id!r} is not valid for site local; {rundir.JOB} may have been edited")
    return int(pid), int(start)


def _find(job: JobRef) -> JobRef | None:
    """Return the job with its batch id, found by its name. Return None if no such job is live. The job is found as the
    session whose leader runs the script of the job, as started by _submit().
    """
    script = os.fsencode(f"/{job.name}/{rundir.SCRIPT}")
    for pid in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        process = _process(pid)
        if process.session == pid and process.state not in "ZX" and _is_of(pid, script):
            return job._replace(batch_id=f"{pid}.{process.start}")
    return None


def _is_of(pid: int, script: bytes) -> bool:
    """Return whether the process `pid` belongs to this user and has `script` as one of its last two arguments."""
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
    """Return the state letter, session and start time of a process, or ("X", 0, 0) if it does not exist. The fields are
    those after the last ")" in /proc/PID/stat, because the command name, which precedes it, may contain any character.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return _Process("X", 0, 0)
    return _Process(fields[0].decode(), int(fields[3]), int(fields[19]))


def _request(plan: Plan) -> dict[str, Any]:
    is_own = plan.site.launcher.kind in _OWN_LAUNCHERS
    foreign = surrounding_job.removed() if is_own else []
    return {"foreign": foreign, "kept": surrounding_job.kept(), "hidden": Shell(SURROUNDING)}


def _probe(plan: Plan, _script: Path) -> str:
    note = surrounding_note(plan)
    return "no batch system: jobs start immediately" + (f"; {note}" if note is not None else "")


def surrounding_note(plan: Plan) -> str | None:
    """Return a note for the user if the local job ignores variables of a job around this shell; otherwise None."""
    return surrounding_job.note() if plan.site.launcher.kind in _OWN_LAUNCHERS else None


def _detect() -> detection.DetectedSystem:
    """Return the local site as if it were a detected batch system. It is used on a computer where no batch system was
    detected. Raise ConfigError if the computer has a command qsub, because that belongs to a batch system that dlio-hpc
    does not know.
    """
    version = detection.qsub_version()
    if version is not None:
        raise ConfigError(f"qsub belongs to an unknown batch system: {version[:200]!r}")
    return detection.DetectedSystem("no batch system")


LOCAL = Scheduler(
    program="timeout",
    directive=quote,
    request=_request,
    command=_command,
    submit=_submit,
    states=_states,
    cancel=_cancel,
    find=_find,
    queues=lambda _cluster: [],
    probe=_probe,
    detect=_detect,
    is_queue=False,
)
