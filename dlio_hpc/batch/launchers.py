"""How ranks are started: each launcher turns one spec into an argument list, nothing more."""

from collections.abc import Callable

from dlio_hpc.plan import Plan


def mpiexec(plan: Plan) -> list[str]:
    """Hydra (MPICH, Intel MPI) and Open MPI on one node; mpiexec(1)."""
    return ["-n", str(plan.ranks)]


LAUNCHERS: dict[str, Callable[[Plan], list[str]]] = {"mpiexec": mpiexec}


def command(plan: Plan) -> list[str]:
    """The launcher with its options, ready for the program that the ranks run."""
    launcher = plan.site.launcher
    return [launcher.command, *LAUNCHERS[launcher.kind](plan), *launcher.options]
