"""The command that starts a program in the container image of a site (key container of a site profile).

The launcher starts the container engine once for each rank. Environment variables for the ranks are set by env(1) in
the container, for two reasons: the engine itself must not preload the libraries of the ranks, and all engines then set
the variables in the same way.
"""

import os
import shutil
from collections.abc import Iterable, Iterator

from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.batch.shell_quoting import Shell
from dlio_hpc.config.container import Bind, Container, parse_bind, why_unbindable
from dlio_hpc.config.site import Site
from dlio_hpc.plan.plan import Plan, Run

# Exit code of CHECK if the image cannot be used.
UNUSABLE = 2
# Python program that tests an image. Its arguments are the version of dlio-hpc that planned the job, the image and, if
# there is a job, its plan and the file for the error. Images may have any version of dlio-hpc: versions come first.
CHECK = f"""import json, os, sys
version, image, *job = sys.argv[1:]
fault = ""
try:
    import dlio_hpc, mpi4py
    if dlio_hpc.__version__ != version:
        fault = "it has dlio-hpc %s, the job was planned by %s" % (dlio_hpc.__version__, version)
    elif job:
        import dlio_hpc.core.image_check
        fault = dlio_hpc.core.image_check.fault(job[0])
except (ImportError, RuntimeError) as error:
    fault = "%s: %s" % (sys.executable, error)
if fault:
    host = os.uname().nodename
    text = "site.container: %s cannot be used: %s; it needs mpi4py and dlio-hpc %s as it is here"
    text %= (image, fault, version)
    print("dlio-hpc: %s: %s" % (host, text), file=sys.stderr)
    if job:
        error = dict(rank=0, host=host, kind="ConfigError", message=text, exit_code={UNUSABLE})
        try:
            os.makedirs(os.path.dirname(job[1]), exist_ok=True)
            with open(job[1], "x") as file:
                json.dump(error, file)
        except FileExistsError:
            pass
    sys.exit({UNUSABLE})
"""
# Variables of the job script that would make Python in the container import from paths of the node, or preload
# libraries of the node. Apptainer passes its environment on.
_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "LD_PRELOAD")
# Variables that Podman passes on: of batch systems, launchers, MPI and its transports, threads, HDF5 and dlio-hpc.
# * stands for any end of a name.
_PASSED = (
    "SLURM*", "PBS_*", "COBALT_*", "FLUX_*", "PALS_*", "ALPS_*", "PMI*", "PRTE_*", "OMPI_*", "MPI*", "I_MPI_*", "HYD*",
    "FI_*", "UCX_*", "OMP_*", "OPENBLAS_*", "HDF5_*", "ROMIO_*", "DLIO_HPC_*",
)  # fmt: skip
# Podman gives each container its own host name, network, processes and shared memory. Ranks of a node need common ones.
_SHARED = ("--network=host", "--uts=host", "--pid=host", "--ipc=host")


def command(plan: Plan, assignments: Iterable[str]) -> list[str]:
    """Return the command that starts a program in the container, without the program; an empty list if the site has no
    container. The job script holds the larger part of the command in the array `container`. assignments: variables of
    the ranks, as NAME=VALUE.
    """
    return [] if plan.site.container is None else [Shell('"${container[@]}"'), *assignments]


def array(plan: Plan, image: Container) -> list[str]:
    """Return the value of the array `container` of the job script: the first part of the command that starts a program
    in the container. The variables of the ranks and the program follow it.
    """
    binds = [parse_bind(text) for text in image.binds] + automatic(plan)
    bound = [Shell('"${darshan_bind[@]}"')] if library(plan) else []
    path = [_LIBRARY_PATH[image.engine]] if image.mpi == "site" else []
    start = _start(image, plan.directory, binds, bound, plan.site.environment)
    return [*start, "env", "PYTHONNOUSERSITE=1", "PYTHONSAFEPATH=1", *path]


def check(plan: Plan) -> list[str]:
    """Return the command that tests the image of the site on this node. The directories of the job may not exist on
    this node.
    """
    image = plan.site.container
    assert image is not None
    binds = [parse_bind(text) for text in image.binds]
    start = _start(image, "/", [bind for bind in binds if os.path.exists(bind.source)], [], ())
    variables = [f"{name}={value}" for name, value in plan.site.rank_environment.items()]
    return [*start, "env", "PYTHONNOUSERSITE=1", *variables, *test(image, plan.version)]


def test(image: Container, version: str, *job: str) -> list[str]:
    """Return the command that tests the image from inside the container. version: version of dlio-hpc that the image
    must have. job: paths of the plan that it must be able to read, and of the file to which an error is written.
    """
    return [image.python, "-c", CHECK, version, image.image, *job]


# The LD_LIBRARY_PATH of the job script, if it is set. Apptainer finds the host's GPU libraries by its own directory.
_LIBRARY_PATH = {
    "apptainer": Shell('${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/.singularity.d/libs"}'),
    "singularity": Shell('${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/.singularity.d/libs"}'),
    "podman-hpc": Shell('${LD_LIBRARY_PATH:+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"}'),
}


def bind_option(image: Container, bind: Bind) -> str:
    """Return the engine's option that binds a path."""
    return f"{'--volume' if image.engine == 'podman-hpc' else '--bind'}={bind.text}"


def library(plan: Plan) -> Bind | None:
    """Return the bind of the site's libdarshan. Return None if no run uses libdarshan, or if the profile binds its
    path. On nodes without the library, the job script leaves the bind out, and runs have no Darshan log.
    """
    image, path = plan.site.container, plan.site.darshan
    if image is None or path is None or not any(run.darshan for run in plan.runs):
        return None
    is_bound = any(parse_bind(text).holds(path, is_written=False) for text in image.binds)
    return None if is_bound else Bind(path, path, is_read_only=True)


def _start(
    image: Container, directory: str, binds: Iterable[Bind], more: Iterable[str], exported: Iterable[str]
) -> list[str]:
    """Return the engine's command up to the image. directory: working directory in the container. more: arguments for
    further binds. exported: names of variables that the profile sets in the job script.
    """
    bound = [bind_option(image, bind) for bind in binds]
    if image.engine == "podman-hpc":
        own = [name for name in exported if name not in {*_HIDDEN, "PATH", "LD_LIBRARY_PATH"}]
        passed = [f"--env={name}" for name in (*_PASSED, *own)]
        # An entry point of the image would start in place of the program.
        start = ["podman-hpc", "run", "--rm", "--entrypoint=", *_SHARED, f"--workdir={directory}", *passed]
    else:
        hidden = [word for name in _HIDDEN for word in ("-u", name)]
        start = ["env", *hidden, image.engine, "exec", f"--pwd={directory}"]
    return [*start, *bound, *more, *image.options, image.image]


def require_engine(site: Site) -> None:
    """Raise InfrastructureError if the engine is not on PATH here, unless lines of the profile may put it there."""
    if site.container is not None and not site.setup and shutil.which(site.container.engine) is None:
        raise InfrastructureError(
            f"{site.container.engine} is not on PATH on {os.uname().nodename}; install it, load it in the lines of "
            "`setup` of the site profile, or set container to null"
        )


def automatic(plan: Plan) -> list[Bind]:
    """Return the binds that dlio-hpc adds to the binds of the profile: the directory of the job, the directories of its
    datasets, checkpoints and indexes, and the libraries that ranks preload. A path that the profile binds to the same
    path in the container is left out. Raise ConfigError if a path cannot be bound.
    """
    image = plan.site.container
    assert image is not None
    bound = [parse_bind(text) for text in image.binds]
    added: list[Bind] = []
    for path, is_written in sorted(_paths(plan).items()):
        if not any(bind.holds(path, is_written) for bind in bound + added):
            if why := why_unbindable(path):
                raise ConfigError(f"site.container: {path}: {why}; choose another path")
            added.append(Bind(path, path, not is_written))
    return added


def created(plan: Plan) -> list[str]:
    """Return the directories that must be created before containers start, because engines bind only existing
    directories.
    """
    return sorted(path for path, is_written in _paths(plan).items() if is_written and path != plan.directory)


def _paths(plan: Plan) -> dict[str, bool]:
    """Return the paths of the node that the ranks need, and whether they write there."""
    paths = dict.fromkeys(plan.site.preload, False)
    for run in plan.runs:
        for part in filter(None, (run, run.evaluation)):
            paths |= {path: paths.get(path, False) or is_written for path, is_written in _of_run(part)}
    return paths | {plan.directory: True}


def _of_run(run: Run) -> Iterator[tuple[str, bool]]:
    stored = run.workload.dataset
    if stored.is_stored:
        yield run.data, stored.existing is None
    if stored.scan is not None:
        yield stored.scan.index, False
    if run.workload.checkpoint is not None or any(side.access == "write" for side in stored.auxiliary_files):
        yield os.path.dirname(run.outputs), True
