"""A real Flux of four brokers on this computer, each with a host name of its own: `flux start --test-size=4`.

DLIO_HPC_FLUX names the prefix of an installed flux-core. Host names of their own need root, see unshare(1). Nodes n1
and n2 are queue debug, n3 and n4 queue batch.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = os.environ.get("DLIO_HPC_FLUX")

_CONF = """\
[resource]
noverify = true
[[resource.config]]
hosts = "n[1-4]"
cores = "0-7"
[[resource.config]]
hosts = "n[1-2]"
properties = ["debug"]
[[resource.config]]
hosts = "n[3-4]"
properties = ["batch"]
[queues.debug]
requires = ["debug"]
policy.limits.duration = "1h"
policy.limits.job-size.max.nnodes = 2
[queues.batch]
requires = ["batch"]
[policy.jobspec.defaults.system]
queue = "debug"
duration = "30m"
"""
_AS_HOST = """\
#!/bin/bash
exec unshare --uts sh -c 'hostname n$((PMI_RANK + 1)); exec "$@"' sh "$@"
"""


class Brokers:
    """A Flux instance between start() and stop(). `environment`: the variables that commands need to reach it."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._rundir = Path(tempfile.mkdtemp(prefix="flux-", dir="/tmp"))  # a socket's path has 107 letters at most
        path = f"{PREFIX}/bin:{os.environ['PATH']}"
        self.environment = {"PATH": path, "FLUX_URI": f"local://{self._rundir}/local-0"}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        conf, wrap = self._state / "flux.toml", self._state / "as-host"
        conf.write_text(_CONF)
        wrap.write_text(_AS_HOST)
        wrap.chmod(0o755)
        command = ["flux", "start", "--test-size=4", f"--wrap={wrap}", "--test-exit-timeout=5h",
                   f"--test-rundir={self._rundir}", f"--config-path={conf}", "sleep", "inf"]  # fmt: skip
        self._process = subprocess.Popen(
            command, env=os.environ | {"PATH": self.environment["PATH"]}, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while "n[1-4]" not in self.tell("resource", "list", "-s", "free", "-no", "{nodelist}"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        self.tell("queue", "start", "--all")

    def stop(self) -> None:
        self.tell("cancel", "--all", "--quiet")
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(20)
        shutil.rmtree(self._rundir, ignore_errors=True)  # lost brokers leave their sockets

    def lose(self, node: int) -> None:
        """Kill the broker of a node and all its descendants at once."""
        family, parents = {int(self.tell("exec", "-r", str(node - 1), "flux", "getattr", "broker.pid"))}, _parents()
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in family:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    def tell(self, *arguments: str) -> str:
        """Return the output of a Flux command, with its error messages."""
        done = subprocess.run(
            ["flux", *arguments], env=os.environ | self.environment, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        return (done.stdout + done.stderr).strip()


def _parents() -> dict[int, int]:
    """Return the parent of each process (proc(5), stat, field 4)."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_bytes().rpartition(b")")[2].split()[1])
    return parents
