"""The common parts of the stand-ins for batch systems: programs on PATH, a memory in files, the processes of jobs."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    NextState = Callable[["Book", "Content", str], "Job | None"]
    Settled = Callable[["Job"], bool]

Job = dict[str, Any]
Jobs = dict[str, Job]
Content = dict[str, Any]


class Refused(Exception):
    """A command prints this on stderr and ends with `code`."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def known(defaults: dict[str, Any], policy: dict[str, Any]) -> dict[str, Any]:
    if unknown := policy.keys() - defaults.keys():
        raise TypeError(f"no such policy: {', '.join(sorted(unknown))}")
    return defaults | policy


def install_programs(folder: Path, state: Path, module: str, programs: Iterable[str], policy: dict[str, Any]) -> None:
    folder, state = folder.absolute(), state.absolute()
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    folder.mkdir(parents=True, exist_ok=True)
    state.mkdir(parents=True, exist_ok=True)
    (state / "policy.json").write_text(json.dumps(policy | {"folder": str(folder)}, default=str))
    for program in programs:
        path = folder / program
        path.write_text(
            f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {root!r})\n"
            f"from {module} import main\nsys.exit(main({program!r}, {str(state)!r}))\n"
        )
        path.chmod(0o755)


def slowly(state: str) -> None:
    with suppress(FileNotFoundError), open(os.path.join(state, "slow"), encoding="utf-8") as file:
        time.sleep(float(file.read()))


class Book:
    """The memory of the batch system: jobs.json, which is replaced whole under a lock, beside policy.json."""

    def __init__(self, state: str) -> None:
        self.state = state
        self._jobs = os.path.join(state, "jobs.json")
        with open(os.path.join(state, "policy.json"), encoding="utf-8") as file:
            self.policy: dict[str, Any] = json.load(file)

    def read(self) -> Content:
        try:
            with open(self._jobs, encoding="utf-8") as file:
                content: Content = json.load(file)
                return content
        except FileNotFoundError:
            return {"next": self.policy["first"], "jobs": {}, "ended": {}}

    def stamp(self) -> tuple[int, int]:
        """Return a value that changes whenever the memory does. FileNotFoundError: the directory is gone."""
        status = os.stat(self._jobs)
        return status.st_mtime_ns, status.st_ino

    @contextmanager
    def change(self) -> Iterator[Content]:
        with open(os.path.join(self.state, "lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self.read()
            yield content
            with open(f"{self._jobs}.new", "w", encoding="utf-8") as file:
                json.dump(content, file)
            os.replace(f"{self._jobs}.new", self._jobs)


def detach(book: Book, work: Callable[[], None]) -> None:
    """Run `work` in a process that outlives this one, its terminal and its pipes (daemon(7))."""
    sys.stdout.flush()
    sys.stderr.flush()
    if middle := os.fork():
        os.waitpid(middle, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        _alone(os.path.join(book.state, "supervisor.log"))
        work()
    except FileNotFoundError:
        pass  # the state directory was removed: nobody is interested any more
    except Exception:  # noqa: BLE001  # nobody waits for this process: what went wrong is in its log
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _alone(log: str) -> None:
    import ctypes

    null = os.open(os.devnull, os.O_RDWR)
    note = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for target, source in ((0, null), (1, null), (2, note)):
        os.dup2(source, target)
    os.closerange(3, 1024)
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # as jobs of a daemon have it, whatever the submitter blocks
    pr_set_child_subreaper = 36  # prctl(2): orphans of the job become children of this process
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _processes() -> dict[int, tuple[int, int]]:
    """Return parent and session of each living process (proc(5), stat, fields 4 and 6)."""
    processes = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if fields[0] not in b"ZX":
                    processes[int(entry)] = int(fields[1]), int(fields[3])
    return processes


def _signal_session(session: int, number: int) -> None:
    """Signal each process in the job's session, as a batch system does. MPI ranks of hydra have left it."""
    _send((pid for pid, (_, its) in _processes().items() if its == session), number)


def _kill_rest() -> bool:
    """Kill all descendants of this process. Return whether there were any."""
    processes, family = _processes(), {os.getpid()}
    while more := {pid for pid, (parent, _) in processes.items() if parent in family} - family:
        family |= more
    _send(family - {os.getpid()}, signal.SIGKILL)
    return len(family) > 1


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def watch(
    child: subprocess.Popen[bytes],
    verdict: Callable[[], str | None],
    grace: float,
    signals: Callable[[str], tuple[int, ...]] = lambda _reason: (signal.SIGTERM,),
    sessions: Callable[[], set[int]] | None = None,
) -> str | None:
    """Wait for the job. Once `verdict` names a reason, end it: TERM or other signals to its session, KILL to all after
    the grace.

    Return the reason. Processes that a script leaves behind when it ends are killed too: all descendants of this
    process or, where `sessions` tells which sessions belong to the job, the processes still in them.
    """
    reason, since, pause = None, 0.0, 0.005
    kill_rest = _kill_rest if sessions is None else lambda: _kill_sessions(sessions() | {child.pid})
    while child.poll() is None:
        if reason is None:
            reason = verdict()
            if reason is not None:
                since = time.monotonic()
                for number in signals(reason):
                    for session in {child.pid} | (sessions() if sessions else set()):
                        _signal_session(session, number)
        elif time.monotonic() > since + grace:
            kill_rest()
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    while kill_rest():
        time.sleep(0.005)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass  # so that no zombie of the job is seen once it has ended
    return reason


def _kill_sessions(sessions: set[int]) -> bool:
    """Kill all processes that are still in one of the sessions. Return whether there were any."""
    family = {pid for pid, (_, session) in _processes().items() if session in sessions}
    _send(family, signal.SIGKILL)
    return bool(family)


def wait_for_turn(book: Book, name: str, next_state: NextState, settled: Settled) -> Job | None:
    """Change the job as `next_state` says until it is settled; None if it was deleted or waits too long. A job may have
    a time at which it begins.
    """
    idle_stamp: tuple[int, int] | None = None
    patience = time.monotonic() + 1800
    while time.monotonic() < patience:
        stamp = book.stamp()
        if stamp != idle_stamp:
            content = book.read()
            job: Job | None = content["jobs"].get(name)
            if job is None or settled(job):
                return job
            if next_state(book, content, name):
                _step(book, name, next_state)
                continue
            due = max(job["submittime"] + book.policy["wait"], job.get("begins") or 0.0)
            idle_stamp = stamp if time.time() > due else None
        time.sleep(0.03)
    return None


def _step(book: Book, name: str, next_state: NextState) -> None:
    with book.change() as content:
        if name in content["jobs"]:
            content["jobs"][name] |= next_state(book, content, name) or {}


def user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def may_rename() -> bool:
    """Return whether as_host works here; it needs root, or a kernel and a container that grant namespaces."""
    import subprocess

    try:
        test = subprocess.run([*as_host("nid00000"), "true"], capture_output=True, check=False)
    except OSError:
        return False
    return test.returncode == 0


def as_host(name: str) -> list[str]:
    """Return the start of a command line that lets a command see another host name than this computer's."""
    return ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"]
