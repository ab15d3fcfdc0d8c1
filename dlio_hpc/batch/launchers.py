"""Launch commands. Each launcher has a function that returns the arguments of its command for a Spec.

Environment variables that are meant for the ranks are not set in the environment of the launcher itself. A preloaded
library must not be loaded into srun, aprun or the shell.
"""

from collections.abc import Callable
from typing import NamedTuple

from dlio_hpc.batch import container
from dlio_hpc.batch.shell_quoting import Shell, quote
from dlio_hpc.config.site import Launcher, Remote, Site, depth
from dlio_hpc.darshan import setup
from dlio_hpc.plan.plan import Plan

Variables = dict[str, Shell]


class Spec(NamedTuple):
    """Input of a launcher function. depth: hardware threads per rank; None if the site sets none. hyperthreads:
    hardware threads used per core; None if the site sets none. variables: environment variables for the ranks only,
    with values quoted for the shell. darshan: whether to append the contents of the array `darshan` in the job script,
    which sets more variables.
    """

    nodes: int
    ranks_per_node: int
    depth: int | None
    hyperthreads: int | None
    launcher: Launcher
    scheduler: str
    variables: Variables
    darshan: bool = False

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def cores(self) -> int | None:
        """Number of cores per rank; None if it is unknown."""
        return None if self.depth is None else max(self.depth // (self.hyperthreads or 1), 1)


def mpiexec(spec: Spec) -> list[str]:
    """Return arguments that MPICH, Intel MPI and Open MPI all accept. They start ranks either on one node or on the
    nodes that the batch system provides.
    """
    return ["-n", str(spec.ranks), *spec.launcher.options, *_env(spec)]


def hydra(spec: Spec) -> list[str]:
    """Return the arguments of mpiexec.hydra(1), the launcher of MPICH and Intel MPI, for several nodes.

    Under PBS, the nodes are read from PBS_NODEFILE, and pbs_tmrsh is called through the program `remote`, which the job
    script writes. If ranks are bound to `core` or `hwthread`, each rank gets as many cores or hardware threads as
    `depth` requires.
    """
    nodes: list[str] = ["-f", Shell('"$PBS_NODEFILE"')] if spec.scheduler == "pbs" else []
    if spec.launcher.remote == "pbs_tmrsh":
        nodes += ["-launcher", "rsh", "-launcher-exec", Shell('"$job/remote"')]
    elif spec.launcher.remote is not None:
        nodes += ["-launcher", spec.launcher.remote]
    count = {"core": spec.cores, "hwthread": spec.depth}.get(spec.launcher.bind or "")
    bind = ["-bind-to", f"{spec.launcher.bind}:{count}" if count else spec.launcher.bind] if spec.launcher.bind else []
    return [*nodes, "-n", str(spec.ranks), "-ppn", str(spec.ranks_per_node), *bind, *spec.launcher.options,
            *_env(spec)]  # fmt: skip


def openmpi(spec: Spec) -> list[str]:
    """Return the arguments of Open MPI's mpiexec(1), with the number of ranks per node and the number of cores
    ("processing elements") per rank.
    """
    mapping = f"ppr:{spec.ranks_per_node}:node" + (f":pe={spec.cores}" if spec.cores else "")
    bind = ["--bind-to", spec.launcher.bind] if spec.launcher.bind else []
    return ["-n", str(spec.ranks), "--map-by", mapping, *bind, *spec.launcher.options, *_env(spec)]


def srun(spec: Spec) -> list[str]:
    """Return the arguments of srun(1).

    --cpus-per-task is given, because since Slurm 22.05, srun does not inherit it from the job. With a wrong value of
    --mpi, each rank may start as an MPI world of its own. Variables are set through env(1), because --export would cut
    values at commas and preload libraries into Slurm's own prolog.
    """
    arguments = [f"--nodes={spec.nodes}", f"--ntasks={spec.ranks}", f"--ntasks-per-node={spec.ranks_per_node}"]
    arguments += [f"--cpus-per-task={spec.depth}"] if spec.depth else []
    arguments += [f"--threads-per-core={spec.hyperthreads}"] if spec.hyperthreads else []
    arguments += [f"--cpu-bind={spec.launcher.bind}"] if spec.launcher.bind else []
    arguments += [f"--mpi={spec.launcher.mpi}"] if spec.launcher.mpi else []
    return [*arguments, "--kill-on-bad-exit=1", *spec.launcher.options, *_env(spec)]


def pals(spec: Spec) -> list[str]:
    """Return the arguments of mpiexec of HPE's PALS under PBS. PBS provides the nodes. --depth counts
    hardware threads.
    """
    arguments = ["-n", str(spec.ranks), "--ppn", str(spec.ranks_per_node)]
    listed = (spec.launcher.bind or "").startswith("list:")  # the binding lists the hardware threads of every rank
    arguments += ["--depth", str(spec.depth)] if spec.depth and not listed else []
    arguments += ["--cpu-bind", spec.launcher.bind] if spec.launcher.bind else []
    return [*arguments, *spec.launcher.options, *_each("--env", spec)]


def aprun(spec: Spec) -> list[str]:
    """Return the arguments of aprun(1), the launcher of ALPS. -d: hardware threads per rank; -j: hardware threads used
    per core; -e: a variable for the ranks. aprun also passes its own environment on to the ranks.
    """
    arguments = ["-n", str(spec.ranks), "-N", str(spec.ranks_per_node)]
    arguments += ["-d", str(spec.depth)] if spec.depth else []
    arguments += ["-j", str(spec.hyperthreads)] if spec.hyperthreads else []
    arguments += ["-cc", spec.launcher.bind] if spec.launcher.bind else []
    return [*arguments, *spec.launcher.options, *_each("-e", spec)]


def flux(spec: Spec) -> list[str]:
    """Return the arguments of flux-run(1), which runs inside the Flux instance of the job. Flux counts cores, not
    hardware threads. If a rank fails, the other ranks are ended. If a rank succeeds, the other ranks must continue.
    exit-timeout is therefore disabled, because it would end them 30 s later.
    """
    options = [f"--nodes={spec.nodes}", f"--ntasks={spec.ranks}"]
    options += [f"--cores-per-task={spec.cores}"] if spec.cores else []
    options += [f"--setopt=cpu-affinity={spec.launcher.bind}"] if spec.launcher.bind else []
    options += ["--setopt=exit-on-error", "--setopt=exit-timeout=none"]
    return ["run", *options, *spec.launcher.options, *_env(spec)]


LAUNCHERS: dict[str, Callable[[Spec], list[str]]] = {
    "mpiexec": mpiexec, "hydra": hydra, "openmpi": openmpi, "srun": srun, "pals": pals, "aprun": aprun, "flux": flux,
}  # fmt: skip


def remotes(site: Site) -> tuple[Remote, ...]:
    """Return the remote start methods of the site's launcher, except the method in the site profile."""
    if site.launcher.kind != "hydra":
        return ()
    ways: tuple[Remote, ...] = ("pbs_tmrsh", "ssh") if site.scheduler == "pbs" else ("ssh",)
    return tuple(way for way in ways if way != site.launcher.remote)


def rank_command(plan: Plan, darshan: bool = False, few: bool = False, one_a_node: bool = False) -> list[str]:
    """Return the launcher command for a program that runs where the ranks run: in the container of the site, if it has
    one. The program is not included. For the arguments, see command().
    """
    assignments = [*_assignments(_of_ranks(plan.site, darshan)), *_array(darshan)]
    return [*command(plan, darshan, few, one_a_node), *container.command(plan, assignments)]


def command(plan: Plan, darshan: bool = False, few: bool = False, one_a_node: bool = False) -> list[str]:
    """Return the launcher command without the program that the ranks run. In a site with a container, the command does
    not set the variables of the ranks. darshan: whether to set the variables for Darshan. few: whether to start only
    two ranks, or one if the job has one. They are on the same node if each node has at least two ranks. one_a_node:
    whether to start one rank on each node. If the launcher has no option for ranks per node, all ranks are started
    instead.
    """
    site = plan.site
    nodes, ranks_per_node = plan.nodes, plan.ranks_per_node
    if few:
        nodes, ranks_per_node = (1, 2) if ranks_per_node > 1 else (min(nodes, 2), 1)
    if one_a_node and (nodes == 1 or site.launcher.kind != "mpiexec"):
        ranks_per_node = 1
    spec = Spec(
        nodes,
        ranks_per_node,
        depth(site, plan.ranks_per_node),
        site.hyperthreads,
        site.launcher,
        site.scheduler,
        {} if site.container else _of_ranks(site, darshan),
        darshan and site.container is None,
    )
    return [site.launcher.command, *LAUNCHERS[site.launcher.kind](spec)]


def darshan_words(plan: Plan) -> tuple[list[Shell], list[Shell], list[Shell]]:
    """Return launcher arguments that set variables, as three lists. The first list is for runs with Darshan, the second
    for runs without Darshan. The third list is needed in addition for libdarshan before 3.4. In LD_PRELOAD, libdarshan
    comes before the libraries whose functions it wraps.
    """
    site = plan.site
    option = {"pals": ["--env"], "aprun": ["-e"]}.get(site.launcher.kind, []) if site.container is None else []
    inherits = site.container is None
    settings, early = (
        {name: Shell(f'"{value}"') for name, value in named.items()}
        for named in (setup.variables(), setup.early_variables())
    )
    watching = variables({}, (*filter(None, [site.darshan]), *site.preload), inherits) | settings
    return tuple(  # type: ignore[return-value]
        [Shell(word) for assignment in _assignments(environment) for word in (*option, assignment)]
        for environment in (watching, variables({}, site.preload, inherits), early)
    )


def variables(environment: dict[str, str], preload: tuple[str, ...], inherits: bool = True) -> Variables:
    """Return the variables for the ranks, with values quoted for the shell. LD_PRELOAD consists of the libraries in
    `preload`. If `inherits` is True, the libraries that are in LD_PRELOAD when the job runs follow.
    """
    assigned = {name: quote(value) for name, value in environment.items()}
    if preload:
        inherited = Shell('"${LD_PRELOAD:+:$LD_PRELOAD}"' if inherits else "")
        assigned["LD_PRELOAD"] = Shell(quote(":".join(preload)) + inherited)
    return assigned


def _of_ranks(site: Site, darshan: bool) -> Variables:
    """Return the variables for the ranks of a site. With `darshan`, the job script sets LD_PRELOAD."""
    preload = () if darshan else site.preload
    return variables(site.rank_environment, preload, site.container is None) | _staged(site)


def _staged(site: Site) -> Variables:
    """Return the variable with which ranks import from the staged environment first. The job script sets `staged_path`.
    The result is empty if the site does not stage the environment.
    """
    if site.stage_environment is None:
        return {}
    own = site.rank_environment.get("PYTHONPATH")
    return {"PYTHONPATH": Shell('"$staged_path"' + (f":{quote(own)}" if own else ""))}


def _env(spec: Spec) -> list[str]:
    """Return the arguments that set variables through env(1). Every launcher can start env(1)."""
    arguments = [*_assignments(spec.variables), *_array(spec.darshan)]
    return ["env", *arguments] if arguments else []


def _each(option: str, spec: Spec) -> list[str]:
    named = [word for assignment in _assignments(spec.variables) for word in (option, assignment)]
    return [*named, *_array(spec.darshan)]


def _array(darshan: bool) -> list[Shell]:
    return [Shell('"${darshan[@]}"')] if darshan else []


def _assignments(variables: Variables) -> list[Shell]:
    return [Shell(f"{name}={value}") for name, value in variables.items()]
