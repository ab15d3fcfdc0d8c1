"""How ranks are started: each launcher turns one spec into an argument list, nothing more."""

import shutil
from collections.abc import Callable
from pathlib import Path

from dlio_hpc.plan import Plan


def mpiexec(plan: Plan) -> list[str]:
    """Hydra (MPICH, Intel MPI) and Open MPI on one node; mpiexec(1)."""
    return ["-n", str(plan.ranks)]


LAUNCHERS: dict[str, Callable[[Plan], list[str]]] = {"mpiexec": mpiexec}


def command(plan: Plan) -> list[str]:
    """The launcher with its options, ready for the program that the ranks run."""
    launcher = plan.site.launcher
    return [locate(launcher.command, plan.python), *LAUNCHERS[launcher.kind](plan), *launcher.options]


def locate(name: str, python: str) -> str:
    """A bare command name as a path: beside the interpreter (a virtual environment's own mpiexec), beside this
    package (pip install --target), else on PATH; the bare name where it is in none of them.
    """
    if "/" in name:
        return name
    beside = [Path(python).parent, Path(__file__).resolve().parents[2] / "bin"]
    for folder in beside:
        if (folder / name).is_file():
            return str(folder / name)
    return shutil.which(name) or name
