"""Real file systems on this computer, from Debian's packages, with the counters of what they delivered: GlusterFS and
CephFS, xfs, btrfs and overlay on loop devices, bindfs and SSHFS.

Everything listens on the loopback interface only, and needs root. Counters are those of servers or disks; none is of a
client.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

# Debian's packages, by the file system that needs them, and the programs that they must have brought.
PACKAGES = {
    "gluster": ("glusterfs-server glusterfs-client xfsprogs iproute2", ("glusterd", "gluster", "mkfs.xfs", "ip")),
    "ceph": (
        "ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse ceph-common", ("ceph-mon", "ceph-osd", "ceph-mds", "ceph-fuse"),
    ),
    "xfs": ("xfsprogs", ("mkfs.xfs",)),
    "overlay": ("xfsprogs", ("mkfs.xfs",)),
    "btrfs": ("btrfs-progs", ("mkfs.btrfs",)),
    "bindfs": ("xfsprogs bindfs", ("mkfs.xfs", "bindfs")),
    "sshfs": ("sshfs openssh-sftp-server", ("sshfs", "/usr/lib/openssh/sftp-server")),
}  # fmt: skip
_SBIN = "/usr/sbin:/sbin"
_SECTOR = 512


class Mounted(NamedTuple):
    """A mounted file system. folder: mount point. delivered: returns the bytes that servers or disks have delivered."""

    folder: Path
    delivered: Callable[[], int]


def missing(name: str) -> str | None:
    """Return the reason why this computer cannot run a file system; None if it can."""
    if os.geteuid() != 0:
        return f"{name} needs root"
    packages, programs = PACKAGES[name]
    absent = [program for program in programs if shutil.which(program, path=f"{os.environ['PATH']}:{_SBIN}") is None]
    if absent:
        return f"{', '.join(absent)}: apt-get install {packages}"
    if name not in ("xfs", "btrfs", "overlay") and not os.access("/dev/fuse", os.W_OK):
        return f"{name} needs /dev/fuse"
    if name == "gluster" and Path("/var/run/glusterd.socket").exists() and _answers("gluster", "volume", "list"):
        return "a glusterd runs on this computer already"
    return None if Path("/dev/loop-control").exists() or name in ("ceph", "sshfs") else f"{name} needs loop devices"


def _tell(*command: str, timeout: float = 60, **environment: str) -> str:
    path = {"PATH": f"{os.environ['PATH']}:{_SBIN}"}
    done = subprocess.run(
        command, env=os.environ | path | environment, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


def _answers(*command: str) -> bool:
    with suppress(AssertionError, subprocess.TimeoutExpired):
        _tell(*command, timeout=20)
        return True
    return False


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def _unmount(folder: Path) -> None:
    if not _answers("umount", str(folder)):
        _answers("umount", "-l", str(folder))


@contextmanager
def _image(kind: str, folder: Path, size: str, *options: str) -> Iterator[Mounted]:
    """Mount a new file system in a file. The loop device has direct I/O: its reads are reads of the disk."""
    folder.mkdir(parents=True)
    image = folder.with_suffix(".img")
    _tell("truncate", "-s", size, str(image))
    _tell(f"mkfs.{kind}", "-q", str(image))
    device = _tell("losetup", "--find", "--show", "--direct-io=on", str(image)).strip()
    try:
        _tell("mount", *options, device, str(folder))
        stat = Path("/sys/block", Path(device).name, "stat")
        yield Mounted(folder, lambda: int(stat.read_text().split()[2]) * _SECTOR)
        _unmount(folder)
    finally:
        _answers("losetup", "-d", device)
        image.unlink()


@contextmanager
def xfs(state: Path) -> Iterator[dict[str, Mounted]]:
    with _image("xfs", state / "xfs", "2G") as mounted:
        yield {"xfs": mounted}


@contextmanager
def btrfs(state: Path) -> Iterator[dict[str, Mounted]]:
    """Mount btrfs without and with compression."""
    with (
        _image("btrfs", state / "btrfs", "2G") as plain,
        _image("btrfs", state / "compressed", "2G", "-o", "compress-force=zstd:1") as compressed,
    ):
        yield {"btrfs": plain, "compressed": compressed}


@contextmanager
def overlay(state: Path) -> Iterator[dict[str, Mounted]]:
    with _image("xfs", state / "disk", "2G") as disk:
        lower, upper, work, folder = (disk.folder / name for name in ("lower", "upper", "work", "overlay"))
        for path in (lower, upper, work, folder):
            path.mkdir()
        _tell(
            "mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", str(folder)
        )
        yield {"overlay": Mounted(folder, disk.delivered)}
        _unmount(folder)


@contextmanager
def bindfs(state: Path) -> Iterator[dict[str, Mounted]]:
    with _image("xfs", state / "disk", "2G") as disk:
        below, folder = disk.folder / "below", state / "bindfs"
        below.mkdir()
        folder.mkdir()
        _tell("bindfs", str(below), str(folder))
        yield {"bindfs": Mounted(folder, disk.delivered)}
        _unmount(folder)


@contextmanager
def sshfs(state: Path) -> Iterator[dict[str, Mounted]]:
    """Mount a folder with SSHFS. Its ssh command is the server itself, whose reads the kernel counts."""
    below, folder, command = state / "below", state / "sshfs", state / "ssh"
    below.mkdir()
    folder.mkdir()
    command.write_text(f"#!/bin/sh\necho $$ > {state}/pid\nexec /usr/lib/openssh/sftp-server\n")
    command.chmod(0o755)
    _tell("sshfs", "-o", f"ssh_command={command}", f"localhost:{below}", str(folder))
    counters = Path("/proc", (state / "pid").read_text().strip(), "io")

    def delivered() -> int:
        """Return what the server has read, less what it received: requests are small, data of reads are not."""
        return int(re.findall(r"rchar: (\d+)", counters.read_text())[0])

    yield {"sshfs": Mounted(folder, delivered)}
    _unmount(folder)


@contextmanager
def gluster(state: Path) -> Iterator[dict[str, Mounted]]:
    """Start GlusterFS with three bricks and mount three volumes: distributed, replicated, dispersed. GlusterFS refuses
    127.0.0.1 as the host of a brick, so all of it runs in a network namespace with a loopback interface only.
    """
    space, address = f"dlio-{os.getpid()}", "10.255.8.9"
    inside = ("nsenter", f"--net=/run/netns/{space}")
    with ExitStack() as stack:
        bricks = [stack.enter_context(_image("xfs", state / f"brick{number}", "2G")).folder for number in range(3)]
        _tell("ip", "netns", "add", space)
        stack.callback(_end_space, space)
        _tell("ip", "-n", space, "link", "set", "lo", "up")
        _tell("ip", "-n", space, "addr", "add", f"{address}/32", "dev", "lo")
        configuration = state / "glusterd.vol"
        (state / "glusterd").mkdir()
        options = {
            "working-directory": state / "glusterd", "transport-type": "socket", "transport.socket.listen-port": 24007,
            "transport.socket.bind-address": address,
        }  # fmt: skip
        lines = [f"    option {name} {value}" for name, value in options.items()]
        configuration.write_text("\n".join(["volume management", "    type mgmt/glusterd", *lines, "end-volume", ""]))
        stack.callback(_end, str(state))
        _tell(
            *inside,
            "glusterd",
            f"--volfile={configuration}",
            f"--pid-file={state}/glusterd.pid",
            f"--log-file={state}/log",
        )
        command = (*inside, "gluster", "--mode=script")
        _wait(lambda: _answers(*command, "volume", "list"), "glusterd does not answer")
        mounted = {}
        for name, shape, used in (
            ("dist", (), bricks[:2]), ("rep3", ("replica", "3"), bricks),
            ("disp", ("disperse", "3", "redundancy", "1"), bricks),
        ):  # fmt: skip
            places = [f"{address}:{brick}/{name}" for brick in used]
            _tell(*command, "volume", "create", name, *shape, *places, "force")
            _tell(*command, "volume", "start", name)
            _tell(*command, "volume", "profile", name, "start")
            folder = state / "mounts" / name
            folder.mkdir(parents=True)
            _tell(
                *inside,
                "mount",
                "-t",
                "glusterfs",
                "-o",
                f"log-file={state}/{name}.log",
                f"{address}:/{name}",
                str(folder),
            )
            stack.callback(_unmount, folder)
            mounted[name] = Mounted(folder, lambda name=name: _bricks_read(command, name))  # type: ignore[misc]
        yield mounted


def _end_space(space: str) -> None:
    """End the processes in a network namespace, among them daemons whose command lines name no file of this test, and
    remove the namespace.
    """
    for number in _tell("ip", "netns", "pids", space).split():
        with suppress(OSError):
            os.kill(int(number), signal.SIGKILL)
    _answers("ip", "netns", "del", space)


def _bricks_read(command: tuple[str, ...], volume: str) -> int:
    """Return the bytes that the bricks of a volume have read. They do not count files that a lookup brings along."""
    return sum(
        map(int, re.findall(r"Data Read: (\d+)", _tell(*command, "volume", "profile", volume, "info", "cumulative")))
    )


@contextmanager
def ceph(state: Path) -> Iterator[dict[str, Mounted]]:
    """Start a monitor, a manager, an OSD and a metadata server, and mount CephFS with ceph-fuse, with and without its
    cache in user space.
    """
    port, fsid = 20000 + 2 * (os.getpid() % 10000), str(uuid.uuid4())
    configuration = state / "ceph.conf"
    settings = {
        "fsid": fsid, "mon host": f"[v2:127.0.0.1:{port},v1:127.0.0.1:{port + 1}]", "public network": "127.0.0.0/8",
        **{f"auth {part} required": "none" for part in ("cluster", "service", "client")},
        "osd pool default size": 1, "osd pool default min size": 1, "mon allow pool size one": "true",
        "osd crush chooseleaf type": 0, "bluestore block size": 3 << 30, "osd memory target": 939524096,
        **{f"{part} data": state / part for part in ("mon", "mgr", "mds", "osd")},
        "log file": f"{state}/$type.log", "mon cluster log file": f"{state}/cluster.log",
        "admin socket": f"{state}/$name.$pid.asok", "pid file": f"{state}/$name.$pid.pid", "run dir": state,
    }  # fmt: skip
    configuration.write_text("\n".join(["[global]", *(f"{key} = {value}" for key, value in settings.items()), ""]))
    for part in ("mon", "mgr", "mds", "osd"):
        (state / part).mkdir()

    def tell(*command: str) -> str:
        return _tell(*command, CEPH_CONF=str(configuration))

    with ExitStack() as stack:
        stack.callback(_end, str(configuration))
        monitors = f"[v2:127.0.0.1:{port},v1:127.0.0.1:{port + 1}]"
        tell("monmaptool", "--create", "--fsid", fsid, "--addv", "a", monitors, str(state / "monmap"))
        daemon = ("-c", str(configuration))
        tell("ceph-mon", *daemon, "-i", "a", "--mkfs", "--monmap", str(state / "monmap"))
        tell("ceph-mon", *daemon, "-i", "a")
        tell("ceph", "-s")
        tell("ceph-mgr", *daemon, "-i", "x")
        number = str(uuid.uuid4())
        tell("ceph", "osd", "new", number)
        tell("ceph-osd", *daemon, "-i", "0", "--mkfs", "--osd-uuid", number)
        tell("ceph", "osd", "crush", "add", "osd.0", "1", "root=default", "host=one")
        tell("ceph-osd", *daemon, "-i", "0")
        for pool in ("meta", "data"):
            tell("ceph", "osd", "pool", "create", pool, "8", "8")
        tell("ceph", "fs", "new", "cephfs", "meta", "data")
        tell("ceph-mds", *daemon, "-i", "a")
        _wait(lambda: "up:active" in tell("ceph", "mds", "stat"), "no metadata server is active")
        (socket,) = state.glob("osd.0.*.asok")

        def delivered() -> int:
            return int(
                json.loads(tell("ceph", "--admin-daemon", str(socket), "perf", "dump", "osd"))["osd"]["op_out_bytes"]
            )

        mounted = {}
        for name, options in (("ceph", ()), ("ceph-uncached", ("--client_oc=false",))):
            folder = state / "mounts" / name
            folder.mkdir(parents=True)
            tell("ceph-fuse", *daemon, "--id", "admin", *options, str(folder))
            stack.callback(_unmount, folder)
            mounted[name] = Mounted(folder, delivered)
        yield mounted


def _end(mark: str) -> None:
    """End the processes whose command lines name a file of this test."""
    for force in (signal.SIGTERM, signal.SIGKILL):
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark.encode() in (folder / "cmdline").read_bytes() and int(folder.name) != os.getpid():
                    os.kill(int(folder.name), force)
        time.sleep(2 if force == signal.SIGTERM else 0)


SERVERS = {
    "gluster": gluster, "ceph": ceph, "xfs": xfs, "btrfs": btrfs, "overlay": overlay, "bindfs": bindfs, "sshfs": sshfs,
}  # fmt: skip
