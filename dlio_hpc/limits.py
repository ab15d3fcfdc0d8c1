"""What a site and its queues allow, checked before anything is submitted: batch systems take much that never runs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlio_hpc import units
from dlio_hpc.errors import ConfigError
from dlio_hpc.site import Site, depth

if TYPE_CHECKING:
    from dlio_hpc.plan import Plan

# Of the time limit, beyond which a person should know that computing alone takes it.
_TIGHT = 0.8


def check_node(site: Site, ranks_per_node: int) -> None:
    """ConfigError when so many ranks do not fit on a node; launchers tell only in the job."""
    each = depth(site, ranks_per_node)
    if site.cpus is not None and each is not None and each * ranks_per_node > site.cpus:
        raise ConfigError(
            f"--ppn {ranks_per_node}: with {each} hardware threads each they need {each * ranks_per_node}, "
            f"site {site.name} has {site.cpus} a node; use fewer, or -S site.depth=N"
        )
    bind = site.launcher.bind or ""
    if bind.startswith("list:") and bind.count(":") != ranks_per_node:
        raise ConfigError(
            f"--ppn {ranks_per_node}: site {site.name} binds {bind.count(':')} ranks ({bind}); "
            "say where they go: -S site.launcher.bind=depth"
        )


def check_size(site: Site, queue: str | None, nodes: int, walltime: int) -> None:
    """ConfigError when no job there may be so large or so long."""
    _at_most(f"site {site.name}", nodes, site.limits.nodes, walltime, site.limits.walltime)
    if site.scheduler == "local" and nodes > 1:
        raise ConfigError(f"--nodes {nodes}: site {site.name} has no batch system, a job there has one node")
    known = site.queues.get(queue or "")
    if known is None:
        return
    where = f"queue {queue} of site {site.name}"
    if nodes < known.fewest_nodes:
        raise ConfigError(f"--nodes {nodes}: {where} wants {known.fewest_nodes} at least")
    _at_most(where, nodes, known.nodes, walltime, known.longest(nodes))
    if known.shortest is not None and walltime < known.shortest:
        least = units.format_walltime(known.shortest)
        raise ConfigError(f"--time {units.format_walltime(walltime)}: {where} wants {least} at least")


def _at_most(where: str, nodes: int, most: int | None, walltime: int, longest: int | None) -> None:
    if most is not None and nodes > most:
        raise ConfigError(f"--nodes {nodes}: {where} has {most} at most for one job")
    if longest is not None and walltime > longest:
        allowed = units.format_walltime(longest)
        raise ConfigError(
            f"--time {units.format_walltime(walltime)}: {where} allows {allowed} at most for {nodes} node(s)"
        )


def check_account(site: Site, account: str | None) -> None:
    """ConfigError where a job without an account is refused, or charged to nobody knows whom."""
    if site.account_required and not account:
        raise ConfigError(f"site {site.name} wants to know who pays: --account NAME, or DLIO_HPC_ACCOUNT=NAME")


def check_budget(plan: "Plan") -> None:
    """ConfigError when computing alone takes the runs past the time limit, with reading and starting for nothing."""
    least, room = computing(plan), plan.walltime - plan.notice
    if least > room:
        raise ConfigError(
            f"--time {units.format_walltime(plan.walltime)}: the runs of this job compute for "
            f"{units.format_walltime(int(least))} at the least, and it is told to end {plan.notice} s before its "
            "limit; ask for more time, or for fewer runs (--repeat, --warmup) or steps (train.steps)"
        )


def notes(plan: "Plan") -> Iterator[str]:
    """What may come near the limits."""
    least, room = computing(plan), plan.walltime - plan.notice
    if least > _TIGHT * room:
        yield (
            f"computing alone takes {units.format_walltime(int(least))} of the {units.format_walltime(plan.walltime)} "
            "that the job may last; a slow file system will not fit in"
        )
    site, queue = plan.site, plan.queue
    if site.queues and queue is not None and queue not in site.queues:
        yield f"site {site.name} does not list queue {queue}; its limits are not known here"


def computing(plan: "Plan") -> float:
    """Seconds that the emulated computation of all runs takes."""
    return sum(
        run.steps_per_epoch * run.workload.train.epochs * run.workload.compute.time.mean
        for run in plan.runs
        if run.kind != "generate"
    )


def check_jobs(site: Site, queue: str | None, queues: list[str], more: int) -> None:
    """ConfigError when `more` jobs beside those that the user has in `queues` (one entry a job) are too many."""
    known = site.queues.get(queue or "")
    for where, most, have in (
        (f"site {site.name}", site.limits.jobs, len(queues)),
        (f"queue {queue} of site {site.name}", known.jobs if known else None, queues.count(queue or "")),
    ):
        if most is not None and have + more > most:
            raise ConfigError(
                f"{where} takes {most} job(s) of a user at most, you have {have} there; wait, or cancel one"
            )
