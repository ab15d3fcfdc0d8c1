"""Detection of the batch system, the launcher and the file systems of this machine on a login node, for a new site
profile.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from dlio_hpc import __version__, command, units
from dlio_hpc.batch.launchers import LAUNCHERS
from dlio_hpc.batch.schedulers import flux
from dlio_hpc.batch.schedulers.cobalt import queue_rows
from dlio_hpc.batch.schedulers.pbs import section
from dlio_hpc.command import Answer, Unanswered
from dlio_hpc.config import shipped
from dlio_hpc.errors import ConfigError
from dlio_hpc.files import filesystem

_SHARED = {"lustre", "gpfs", "beegfs", "ceph", "nfs", "nfs4", "wekafs", "panfs", "fuse.daos"}
_PATIENCE_S = 20


class QueueFound(NamedTuple):
    """A queue that was detected. nodes: maximum number of nodes of a job, or None. walltime: maximum walltime, by
    minimum number of nodes, in the form of a profile's `walltime`; "{}" if it is unknown.
    """

    name: str
    nodes: int | None
    walltime: str


class DetectedScheduler(NamedTuple):
    """The batch system that was detected. version: its name and version. queue: the default queue, or None if there is
    none. cpus: number of CPUs of a node, or None if it is unknown.
    """

    scheduler: str
    version: str
    queue: str | None
    queues: list[QueueFound]
    cpus: int | None


class Launch(NamedTuple):
    """The launcher for a new profile. why: reason for choosing it. mpi: value of srun's --mpi, or None if none is
    needed. mpis: the values that srun supports, as text.
    """

    kind: str
    command: str
    mpi: str | None
    mpis: str
    why: str


def profile(name: str) -> str:
    """Return the text of a commented site profile for this machine. Raise ConfigError if `name` is not a valid site
    name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise ConfigError(f"{name!r} is not a valid site name; use letters, digits, ., - and _")
    system, library = batch(), mpi_library()
    launch = launcher(system.scheduler, library)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped.root() / "templates"), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters["yaml"] = json.dumps
    return environment.get_template("site.yaml.j2").render(
        name=name,
        version=__version__,
        host=os.uname().nodename,
        date=units.utc_now()[:10],
        description=f"{system.version}, {launch.kind}",
        facts=[f"Batch system: {system.version}.", f"Launcher: {launch.why}.", f"MPI of {sys.executable}: {library}."],
        scheduler=system.scheduler,
        launcher=launch.kind,
        launchers=" | ".join(LAUNCHERS),
        command=launch.command,
        mpi=launch.mpi,
        mpis=launch.mpis,
        remote="pbs_tmrsh" if system.scheduler == "pbs" else None,
        cpus=system.cpus,
        queue=system.queue,
        queues=system.queues,
        most_nodes=1 if system.scheduler == "local" else None,
        job_options={"slurm": ["--exclusive"], "pbs": ["-l place=scatter", "-k doe"]}.get(system.scheduler, []),
        places=places(),
        darshan=darshan(),
    )


def _ask(*arguments: str) -> Answer | None:
    """Run a command and return its answer. Return None if the command does not exist or does not answer."""
    try:
        return command.ask(*arguments, patience_s=_PATIENCE_S)
    except Unanswered:
        return None


def batch() -> DetectedScheduler:
    """Detect the batch system of this machine.

    Flux is tried first, because it also runs inside allocations of other batch systems, and its machines may have
    wrappers with the names of Slurm's commands. Slurm's commands may be installed where Slurm does not run, so its
    controller must answer. PBS and Cobalt have commands with the same names, and the output of qsub --version tells
    them apart.
    """
    instance = _ask("flux", "getattr", "version")
    if instance is not None and not instance.code and re.match(r"\d+\.\d+\.\d+", instance.out):
        return _flux(instance.out)
    slurm, partitions = _ask("sbatch", "--version"), _ask("sinfo", "-h", "-o", "%P|%D|%c|%l|%a|%s")
    if slurm is not None and slurm.out.startswith("slurm") and partitions is not None and not partitions.code:
        return _slurm(slurm.out, partitions)
    qsub = _ask("qsub", "--version")
    printed = "" if qsub is None else f"{qsub.out} {qsub.err}".strip()
    if match := re.search(r"pbs_version = (\S+)", printed):
        return _pbs(match[1])
    if "Cobalt" in printed:
        return _cobalt(printed)
    if qsub is not None:
        raise ConfigError(f"qsub belongs to an unknown batch system: {printed[:200]!r}")
    return DetectedScheduler("local", "no batch system", None, [], None)


def _flux(version: str) -> DetectedScheduler:
    """Return the facts about Flux and its enabled queues. If a queue does not limit the nodes of a job, the number of
    its nodes is taken as the limit.
    """
    try:
        rows, nodes = flux.queue_rows(), flux.node_rows()
    except Unanswered:
        rows, nodes = [], []
    sizes = {name: sum(count for queue, count, _ in nodes if queue == name) for name, *_ in rows}
    queues = [
        QueueFound(name, _count(most) or sizes[name] or None, _flux_limit(seconds))
        for name, _, enabled, _, seconds, most in rows
        if name and enabled in flux.YES
    ]
    default = next((name for name, marked, *_ in rows if marked.endswith("*")), None)
    cpus = min((cores // count for _, count, cores in nodes if count), default=None)
    return DetectedScheduler("flux", f"Flux {version}", default, queues, cpus)


def _flux_limit(seconds: str) -> str:
    return f"{{1: {units.format_walltime(int(float(seconds)))}}}" if re.fullmatch(r"\d+\.\d+", seconds) else "{}"


def _slurm(version: str, partitions: Answer) -> DetectedScheduler:
    """Return the facts about Slurm and the partitions that are up. sinfo(1) marks the default partition with *."""
    rows = [line.split("|") for line in partitions.lines]
    usable = [row for row in rows if len(row) == 6 and row[4] == "up"]
    queues = [QueueFound(row[0].rstrip("*"), _most_nodes(row[1], row[5]), _slurm_limit(row[3])) for row in usable]
    default = next((row[0][:-1] for row in usable if row[0].endswith("*")), None)
    cpus = next((_count(row[2]) for row in usable if row[0].rstrip("*") == default), None)
    return DetectedScheduler("slurm", version, default, list({queue.name: queue for queue in queues}.values()), cpus)


def _most_nodes(there: str, size: str) -> int | None:
    """Return the maximum number of nodes of a job in a partition: its number of nodes or its limit, whichever is
    smaller. Return None if neither is known. sinfo writes limits as 1-8, 4 or 1-infinite.
    """
    known = [count for count in (_count(there), _count(size.rpartition("-")[2])) if count is not None]
    return min(known, default=None)


def _count(text: str) -> int | None:
    """Return the integer in `text`, or None if it is not a number. sinfo writes 64+ if the nodes differ."""
    match = re.fullmatch(r"([0-9]{1,9})\+?", text)
    return int(match[1]) if match else None


def _slurm_limit(text: str) -> str:
    """Convert a time limit of Slurm (D-HH:MM:SS, HH:MM:SS, MM:SS or infinite) to the form of a site profile: "{1:
    H:MM:SS}", a limit for jobs of 1 node and more, or "{}" if there is no limit.
    """
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return "{}"
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return f"{{1: {units.format_walltime(((days * 24 + hours) * 60 + minutes) * 60 + seconds)}}}"


def _pbs(version: str) -> DetectedScheduler:
    answer = _ask("qstat", "-Q", "-f", "-F", "json")
    try:
        known = section(answer, "Queue") if answer is not None else {}
    except Unanswered:
        known = {}
    queues = [_pbs_queue(name, facts) for name, facts in known.items() if str(facts.get("enabled")) == "True"]
    return DetectedScheduler("pbs", f"PBS {version}", None, queues, _pbs_cpus())


def _pbs_cpus() -> int | None:
    """Return the number of CPUs of the smallest node according to pbsnodes(8B), or None if it is unknown."""
    answer = _ask("pbsnodes", "-a")
    counts = re.findall(r"resources_available\.ncpus = (\d+)", answer.out) if answer is not None else []
    return min(map(int, counts), default=None)


def _pbs_queue(name: str, facts: dict[str, Any]) -> QueueFound:
    most = facts.get("resources_max")
    most = most if isinstance(most, dict) else {}
    nodes = str(most.get("nodect", ""))
    limit = re.fullmatch(r"(\d+):(\d\d):(\d\d)", str(most.get("walltime", "")))
    walltime = f"{{1: {int(limit[1])}:{limit[2]}:{limit[3]}}}" if limit else "{}"
    return QueueFound(name, int(nodes) if nodes.isdigit() else None, walltime)


def _cobalt(version: str) -> DetectedScheduler:
    try:
        rows = queue_rows()
    except Unanswered:
        rows = []
    queues = [
        QueueFound(row[0], None, f"{{1: {row[4]}}}" if re.fullmatch(r"\d+:\d\d:\d\d", row[4]) else "{}")
        for row in rows
        if row[-1] == "running"
    ]
    return DetectedScheduler("cobalt", version.splitlines()[0], None, queues, None)


def mpi_library() -> str:
    """Return the first line of the version text of the MPI library that this Python interpreter loads, or "mpi4py does
    not load".
    """
    program = "from mpi4py import MPI; print(MPI.Get_library_version())"
    answer = _ask(sys.executable, "-c", program)
    if answer is None or answer.code or not answer.out:
        return "mpi4py does not load"
    return " ".join(answer.lines[0].strip("\0").split())


def launcher(scheduler: str, library: str) -> Launch:
    """Choose the launcher: srun for Slurm, aprun for Cobalt, flux run for Flux. For other batch systems, choose the
    mpiexec that is next to the interpreter or on PATH; its --version tells to which implementation it belongs.
    """
    if scheduler == "flux":
        return Launch("flux", "flux", None, "", "flux run; it starts MPI libraries that support PMI-1")
    if scheduler == "slurm":
        return _srun(library)
    if scheduler == "cobalt":
        return Launch("aprun", "aprun", None, "", "aprun, the launcher of machines with Cobalt")
    for name in (Path(sys.executable).with_name("mpiexec"), Path("mpiexec")):
        answer = _ask(str(name), "--version")
        if answer is not None and (kind := _mpiexec(answer.out + answer.err)):
            single = scheduler == "local"
            command_ = name.name if single else str(name)  # a batch job may have a different PATH
            return Launch("mpiexec" if single else kind, command_, None, "", f"{name} is {kind}'s")
    return Launch("mpiexec" if scheduler == "local" else "hydra", "mpiexec", None, "", "no mpiexec was found")


def _mpiexec(version: str) -> str | None:
    for mark, kind in (("HYDRA", "hydra"), ("Intel(R) MPI", "hydra"), ("Open MPI", "openmpi"), ("OpenRTE", "openmpi"),
                        ("PALS", "pals"), ("pals", "pals")):  # fmt: skip
        if mark in version:
            return kind
    return None


def _srun(library: str) -> Launch:
    """Return srun, with the value of --mpi that the MPI library needs, if srun supports it. Cray's MPI needs
    no value.
    """
    answer = _ask("srun", "--mpi=list")
    available = re.findall(r"^\s+(\w+)\s*$", f"{answer.out}\n{answer.err}", re.MULTILINE) if answer is not None else []
    wanted = "pmix" if "Open MPI" in library else "pmi2" if "MPICH" in library and "CRAY" not in library else None
    mpi = wanted if wanted in available else None
    return Launch("srun", "srun", mpi, ", ".join(available) or "unknown, see srun --mpi=list", "srun")


def places() -> list[str]:
    """Return a line for each shared file system that is mounted on this node: its mount point, type and source."""
    return [f"{mount}: {kind} from {source}" for mount, kind, source in filesystem.mounts() if kind in _SHARED]


def darshan() -> str | None:
    """Return the path of libdarshan.so, or None if it is not found. The search covers folders that are named in
    variables of Darshan's modules, and folders next to darshan-config.
    """
    folders = [Path(os.environ[name]) for name in os.environ if re.fullmatch(r"\w*DARSHAN\w*(DIR|ROOT|PREFIX)", name)]
    if tool := shutil.which("darshan-config"):
        folders.append(Path(tool).resolve().parents[1])
    for folder in folders:
        if (library := folder / "lib" / "libdarshan.so").is_file():
            return str(library)
    return None
