"""How ranks are started. Each launcher turns one spec (nodes, ranks a node, depth, hyper-threads, bind, environment,
preload) into words of a command line, nothing more. What the ranks alone get goes past the launcher itself: a preloaded
library must not reach srun, aprun or the shell.
"""

from collections.abc import Callable
from typing import NamedTuple

from dlio_hpc.batch.shell_quoting import Shell, quote
from dlio_hpc.config.site import Launcher, Remote, Site, depth
from dlio_hpc.darshan import setup
from dlio_hpc.plan.plan import Plan

Variables = dict[str, Shell]


class Spec(NamedTuple):
    """What every launcher is told. variables: of the ranks alone, as shell words. darshan: more of them come from the
    script's array of that name.
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
        """Of a rank."""
        return None if self.depth is None else max(self.depth // (self.hyperthreads or 1), 1)


def mpiexec(spec: Spec) -> list[str]:
    """What MPICH, Intel MPI and Open MPI have in common, on one node or where the batch system tells them the nodes."""
    return ["-n", str(spec.ranks), *spec.launcher.options, *_env(spec)]


def hydra(spec: Spec) -> list[str]:
    """MPICH and Intel MPI over several nodes; mpiexec.hydra(1). PBS's nodes come from its file; its pbs_tmrsh is
    reached through the script's program `remote`. Bound to core or hwthread, a rank gets as many as its depth comes to.
    """
    nodes: list[str] = ["-f", Shell('"$PBS_NODEFILE"')] if spec.scheduler == "pbs" else []
    if spec.launcher.remote == "pbs_tmrsh":
        nodes += ["-launcher", "rsh", "-launcher-exec", Shell('"$job/remote"')]
    elif spec.launcher.remote is not None:
        nodes += ["-launcher", spec.launcher.remote]
    each = {"core": spec.cores, "hwthread": spec.depth}.get(spec.launcher.bind or "")
    bind = ["-bind-to", f"{spec.launcher.bind}:{each}" if each else spec.launcher.bind] if spec.launcher.bind else []
    return [*nodes, "-n", str(spec.ranks), "-ppn", str(spec.ranks_per_node), *bind, *spec.launcher.options,
            *_env(spec)]  # fmt: skip


def openmpi(spec: Spec) -> list[str]:
    """Open MPI's mpiexec(1): so many ranks a node, each with so many processing elements, which are cores."""
    each = f"ppr:{spec.ranks_per_node}:node" + (f":pe={spec.cores}" if spec.cores else "")
    bind = ["--bind-to", spec.launcher.bind] if spec.launcher.bind else []
    return ["-n", str(spec.ranks), "--map-by", each, *bind, *spec.launcher.options, *_env(spec)]


def srun(spec: Spec) -> list[str]:
    """srun(1). Since 22.05 it does not take over the job's --cpus-per-task; without the right --mpi= every rank may
    find itself alone. Variables go through env: --export would cut values at commas and preload Slurm's own prolog.
    """
    words = [f"--nodes={spec.nodes}", f"--ntasks={spec.ranks}", f"--ntasks-per-node={spec.ranks_per_node}"]
    words += [f"--cpus-per-task={spec.depth}"] if spec.depth else []
    words += [f"--threads-per-core={spec.hyperthreads}"] if spec.hyperthreads else []
    words += [f"--cpu-bind={spec.launcher.bind}"] if spec.launcher.bind else []
    words += [f"--mpi={spec.launcher.mpi}"] if spec.launcher.mpi else []
    return [*words, "--kill-on-bad-exit=1", *spec.launcher.options, *_env(spec)]


def pals(spec: Spec) -> list[str]:
    """HPE's mpiexec on PBS; the nodes are PBS's, depth counts hardware threads."""
    words = ["-n", str(spec.ranks), "--ppn", str(spec.ranks_per_node)]
    listed = (spec.launcher.bind or "").startswith("list:")  # each rank's hardware threads, one by one
    words += ["--depth", str(spec.depth)] if spec.depth and not listed else []
    words += ["--cpu-bind", spec.launcher.bind] if spec.launcher.bind else []
    return [*words, *spec.launcher.options, *_each("--env", spec)]


def aprun(spec: Spec) -> list[str]:
    """ALPS's aprun(1): -d hardware threads a rank, -j of them a core, -e a variable of the ranks. It hands its own
    environment on, so what only the ranks should have must not be exported.
    """
    words = ["-n", str(spec.ranks), "-N", str(spec.ranks_per_node)]
    words += ["-d", str(spec.depth)] if spec.depth else []
    words += ["-j", str(spec.hyperthreads)] if spec.hyperthreads else []
    words += ["-cc", spec.launcher.bind] if spec.launcher.bind else []
    return [*words, *spec.launcher.options, *_each("-e", spec)]


def flux(spec: Spec) -> list[str]:
    """flux-run(1), in the instance that each job of Flux is; it knows cores and no hardware threads. A rank that fails
    ends the others; one that has ended well does not, though Flux would wait for no more than 30 s.
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
    """Other ways than the site's in which its launcher may reach a job's other nodes."""
    if site.launcher.kind != "hydra":
        return ()
    ways: tuple[Remote, ...] = ("pbs_tmrsh", "ssh") if site.scheduler == "pbs" else ("ssh",)
    return tuple(way for way in ways if way != site.launcher.remote)


def command(plan: Plan, darshan: bool = False, few: bool = False, one_a_node: bool = False) -> list[str]:
    """The launcher with its options, ready for the program that the ranks run. `few`: two ranks, or as many as there
    are, on one node where that has two. `one_a_node`: one rank on each node; all ranks where the launcher has no option
    for the number of ranks on a node.
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
        variables(site.rank_environment, () if darshan else site.preload),
        darshan,
    )
    return [site.launcher.command, *LAUNCHERS[site.launcher.kind](spec)]


def darshan_words(plan: Plan) -> tuple[list[Shell], list[Shell], list[Shell]]:
    """Launcher arguments with Darshan and without it, and further ones for a libdarshan before 3.4. libdarshan comes
    before the libraries whose functions it wraps.
    """
    site = plan.site
    option = {"pals": ["--env"], "aprun": ["-e"]}.get(site.launcher.kind, [])
    settings, early = (
        {name: Shell(f'"{value}"') for name, value in named.items()}
        for named in (setup.variables(), setup.early_variables())
    )
    watching = variables({}, (*filter(None, [site.darshan]), *site.preload)) | settings
    return tuple(  # type: ignore[return-value]
        [Shell(word) for assignment in _assignments(environment) for word in (*option, assignment)]
        for environment in (watching, variables({}, site.preload), early)
    )


def variables(environment: dict[str, str], preload: tuple[str, ...]) -> Variables:
    """The ranks' own variables. What a site preloads already comes after ours, and stays."""
    words = {name: quote(value) for name, value in environment.items()}
    if preload:
        words["LD_PRELOAD"] = Shell(quote(":".join(preload)) + '"${LD_PRELOAD:+:$LD_PRELOAD}"')
    return words


def _env(spec: Spec) -> list[str]:
    """Through env(1), which every launcher starts alike."""
    words = [*_assignments(spec.variables), *_array(spec)]
    return ["env", *words] if words else []


def _each(option: str, spec: Spec) -> list[str]:
    named = [word for assignment in _assignments(spec.variables) for word in (option, assignment)]
    return [*named, *_array(spec)]


def _array(spec: Spec) -> list[Shell]:
    return [Shell('"${darshan[@]}"')] if spec.darshan else []


def _assignments(variables: Variables) -> list[Shell]:
    return [Shell(f"{name}={value}") for name, value in variables.items()]
