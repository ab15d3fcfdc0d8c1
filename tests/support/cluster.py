"""A real Slurm of four virtual nodes on this computer, from Debian's packages, with a configuration of its own.

Debian builds Slurm so that one host can run several slurmd. Each virtual node has a name, a port and folders of its
own, and all listen on 127.0.0.1. Nothing under /etc is changed; SLURM_CONF leads the commands to this cluster. slurmd
needs root.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# File with the process id of the test run of a cluster, in its folder.
_OWNER = "owner"
PACKAGES = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
NODES, CPUS = ("n1", "n2", "n3", "n4"), 256
# Each test process may have a cluster of its own.
_BASE = 27817 + 10 * int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
_CONTROLLER_PORT, _NODE_PORT = _BASE, _BASE + 4

# Partitions, features and licenses are those that the shipped profiles ask for, so that sbatch can judge their scripts.
_CONF = """\
ClusterName=dlio
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile={state}/slurmd-%n.pid
StateSaveLocation={state}/saved
SlurmdSpoolDir={state}/spool-%n
TmpFS={state}/tmp-%n
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile={state}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=200000,batch_sched_delay=0
SwitchType=switch/none
ReturnToService=2
KillWait=5
InactiveLimit=0
MinJobAge=600
SlurmdTimeout=300
SlurmctldTimeout=30
MessageTimeout=10
JobRequeue=0
EnforcePartLimits=ALL
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
FirstJobId={first}
Licenses=scratch:100
"""


def _first_job() -> int:
    """Draw the number of the first job. MPICH names its shared memory after job and step, and what killed jobs left in
    /dev/shm makes others with the same number hang.
    """
    return random.randrange(10**6, 6 * 10**7)


def missing() -> str | None:
    """Return the reason why this computer cannot run a cluster; None if it can."""
    if os.geteuid() != 0:
        return "slurmd needs root"
    absent = [name for name in ("slurmctld", "slurmd", "sbatch") if shutil.which(name) is None]
    return f"{', '.join(absent)}: apt-get install {PACKAGES}" if absent else None


def _end_orphans() -> None:
    """End the daemons of clusters whose test run was killed: they hold the ports, and disturb the next cluster."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if (process / "comm").read_text().strip() not in ("slurmctld", "slurmd"):
                continue
            variables = (process / "environ").read_bytes().split(b"\0")
            conf = (
                next((text for text in variables if text.startswith(b"SLURM_CONF=")), b"").partition(b"=")[2].decode()
            )
            if not Path("/proc", (Path(conf).parent / _OWNER).read_text()).exists():
                os.kill(int(process.name), signal.SIGKILL)


class Cluster:
    """A cluster between start() and stop(). `environment`: the variables that commands need to reach it."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.environment = {"SLURM_CONF": str(state / "slurm.conf")}

    def start(self) -> None:
        _end_orphans()
        (self._state / _OWNER).write_text(str(os.getpid()))
        host = os.uname().nodename.partition(".")[0]
        lines = [_CONF.format(host=host, port=_CONTROLLER_PORT, state=self._state, first=_first_job())]
        for number, node in enumerate(NODES):
            lines.append(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={_NODE_PORT + number} CPUs={CPUS} "
                f"Boards=1 SocketsPerBoard=1 CoresPerSocket={CPUS // 2} ThreadsPerCore=2 RealMemory=4000 Feature=cpu\n"
            )
        lines += ["PartitionName=debug Nodes=ALL Default=YES MaxTime=01:00:00 State=UP\n"]
        lines += [
            f"PartitionName={name} Nodes=ALL MaxTime=INFINITE State=UP\n"
            for name in ("batch", "standard", "extended", "small")
        ]
        lines += ["PartitionName=tiny Nodes=n1 MaxTime=00:05:00 MaxNodes=1 State=UP\n"]
        (self._state / "slurm.conf").write_text("".join(lines))
        for folder in ("saved", *(f"{kind}-{node}" for kind in ("spool", "tmp") for node in NODES)):
            (self._state / folder).mkdir()
        self.start_controller()
        for node in NODES:
            self._run("slurmd", "-N", node)
        self.wait_until(lambda: self.tell("sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D") == str(len(NODES)))

    def start_controller(self, forget: bool = False, last: int | None = None) -> None:
        """Start slurmctld. With `forget` it knows no job any more. With `last` it has lost its state, and
        counts jobs from `last` on.
        """
        if last is not None:
            conf = self._state / "slurm.conf"
            shutil.rmtree(self._state / "saved")
            (self._state / "saved").mkdir()
            conf.write_text(re.sub("FirstJobId=.*", f"FirstJobId={last}", conf.read_text()))
        self._run("slurmctld", *(["-c"] if forget else []))
        self.wait_until(lambda: "UP" in self.tell("scontrol", "ping"))

    def stop_controller(self) -> None:
        self._kill(self._state / "slurmctld.pid")

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[None]:
        """Stop slurmctld for a `with` block, in which commands try to reach it for 4 s instead of 18."""
        conf = self._state / "slurm.conf"
        usual = conf.read_text()
        self.stop_controller()
        conf.write_text(usual.replace("MessageTimeout=10", "MessageTimeout=2"))
        try:
            yield
        finally:
            conf.write_text(usual)
            self.start_controller()

    def stop(self) -> None:
        self.tell("scancel", "-u", "root")
        for pid in sorted(self._state.glob("slurm*.pid")):
            self._kill(pid)

    def tell(self, *command: str) -> str:
        """Return the output of a Slurm command, with its error messages."""
        done = subprocess.run(
            command, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        return (done.stdout + done.stderr).strip()

    def wait_until(self, holds: Callable[[], bool], patience_s: float = 180) -> None:
        deadline = time.monotonic() + patience_s
        while not holds():
            assert time.monotonic() < deadline, (self._state / "slurmctld.log").read_text()[-3000:]
            time.sleep(0.1)

    def _run(self, *command: str) -> None:
        subprocess.run(command, env=os.environ | self.environment, check=True, timeout=60)

    def _kill(self, pid_file: Path) -> None:
        """End the daemon. Return when it has ended and its port is free."""
        try:
            pid = int(pid_file.read_text())
            os.kill(pid, signal.SIGTERM)
        except (OSError, ValueError):
            return
        for _ in range(100):
            if not Path(f"/proc/{pid}").exists():
                return
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
