"""Launchers that cannot start the ranks of a site's jobs: launchers of another batch system, and commands that do not
understand the options of `launcher.kind`. Loading a profile checks this, not the structs: plans of earlier jobs must
stay readable.
"""

from pathlib import PurePath
from typing import Literal, NamedTuple

from dlio_hpc.config.scheduler_facts import SCHEDULERS, SchedulerName

LauncherKind = Literal["mpiexec", "hydra", "openmpi", "srun", "pals", "aprun", "flux"]


class BoundLauncher(NamedTuple):
    """A launcher that starts ranks only in jobs of some batch systems. title: these batch systems in a sentence.
    works: their names. fails: batch systems that can never be installed next to them. Others might be: a Flux instance
    can run inside a job of Slurm, and the site's own command may translate options.
    """

    title: str
    works: tuple[SchedulerName, ...]
    fails: tuple[SchedulerName, ...] = ()


# aprun: a command of ALPS, which Slurm 17.11 was the last to support (slurm.schedmd.com/cray_alps.html), and of PALS.
BOUND: dict[str, BoundLauncher] = {
    "srun": BoundLauncher("Slurm", ("slurm",), ("pbs", "cobalt")),
    "pals": BoundLauncher("PBS", ("pbs",)),
    "aprun": BoundLauncher("PBS or Cobalt", ("pbs", "cobalt"), ("slurm", "flux")),
    "flux": BoundLauncher("Flux", ("flux",)),
}
_OF_MPI: tuple[LauncherKind, ...] = ("mpiexec", "hydra", "openmpi")
# Commands whose options are known, with the kinds that write such options. srun and aprun accept the few of mpiexec.
_COMMANDS: dict[str, tuple[LauncherKind, ...]] = {
    "srun": ("srun", "mpiexec"),
    "aprun": ("aprun", "mpiexec"),
    "flux": ("flux",),
    "mpiexec": (*_OF_MPI, "pals"),
    "mpirun": (*_OF_MPI, "pals"),
    "mpiexec.hydra": ("hydra", "mpiexec"),
    "orterun": ("openmpi", "mpiexec"),
    "prterun": ("openmpi", "mpiexec"),
}


# Words of CPU bindings that other launchers have, by the launcher, and what to write instead.
_BINDINGS: dict[str, dict[str, str]] = {
    "srun": {"core": "cores", "socket": "sockets", "thread": "threads", "hwthread": "threads", "numa": "ldoms",
             "depth": "cores"},
    "hydra": {"cores": "core", "sockets": "socket", "threads": "hwthread", "depth": "core"},
    "openmpi": {"cores": "core", "sockets": "socket", "threads": "hwthread", "depth": "core"},
    "pals": {"cores": "core", "sockets": "socket"},
}  # fmt: skip


def binding_note(kind: LauncherKind, bind: str | None) -> str | None:
    """Return a note if the CPU binding is a word of another launcher, or None."""
    right = _BINDINGS.get(kind, {}).get(bind or "")
    return right and f"launcher.bind={bind} is a word of another launcher; launcher.kind={kind} has {right}"


def fault(scheduler: SchedulerName, kind: LauncherKind, command: str) -> str | None:
    """Return why the launcher can never start ranks in a job of the site, or None. A command with an unknown name may
    be the site's own, which translates options.
    """
    if " -" in command:
        first, *options = command.split(" -")
        listed = ", ".join(f"-{option}" for option in options)
        return f"launcher.command has options; write command: {first}, and options: [{listed}]"
    name = PurePath(command).name
    kinds = _COMMANDS.get(name)
    if kinds is not None and kind not in kinds:
        own = f"set command to {kind}, or " if kind in _COMMANDS and kind in BOUND else ""
        return (
            f"launcher.kind={kind} writes options that {name}, the launcher.command, does not have; {own}use a kind "
            f"for {name}: {', '.join(kinds)}"
        )
    if kind in BOUND and scheduler in BOUND[kind].fails and name == kind:
        return f"{_bound(scheduler, kind)}, so the pair never starts ranks; {_fitting(scheduler)}"
    return None


def note(scheduler: SchedulerName, kind: LauncherKind) -> str | None:
    """Return a note if the launcher starts ranks only in jobs of another batch system, or None."""
    if kind not in BOUND or scheduler in BOUND[kind].works:
        return None
    if scheduler == "local":
        return (
            f"launcher.kind={kind} with scheduler=local: {kind} starts ranks only if this shell is inside a job of "
            f"{BOUND[kind].title}; {_fitting(scheduler)}"
        )
    return f"{_bound(scheduler, kind)}; {_fitting(scheduler)}"


def _bound(scheduler: SchedulerName, kind: LauncherKind) -> str:
    return f"launcher.kind={kind} with scheduler={scheduler}: {kind} starts ranks in jobs of {BOUND[kind].title}, " + (
        f"not of {SCHEDULERS[scheduler].title}"
    )


def _fitting(scheduler: SchedulerName) -> str:
    own = [kind for kind, bound in BOUND.items() if scheduler in bound.works]
    return f"kinds that work with scheduler={scheduler}: {', '.join([*own, *_OF_MPI])}"
