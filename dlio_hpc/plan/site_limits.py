"""Limits of a site and its queues. They are checked before submission, because batch systems accept many jobs that can
never run.
"""

from collections.abc import Iterable, Iterator, Sequence

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, name_hint
from dlio_hpc.config import launcher_rules
from dlio_hpc.config.scheduler_facts import SCHEDULERS
from dlio_hpc.config.site import Queue, Site, depth
from dlio_hpc.plan import cost
from dlio_hpc.plan.cost import JobCost
from dlio_hpc.plan.plan import Plan

# If computation alone takes more than this share of the walltime, there is a note.
_TIGHT = 0.8


def check(plans: Iterable[Plan]) -> None:
    """Raise ConfigError if a plan does not respect the limits of its site."""
    for plan in plans:
        for fault in faults(plan):
            raise fault


def faults(plan: Plan) -> Iterator[ConfigError]:
    """Yield an error for each limit that prevents the job from running as planned."""
    for check in (_node, _binding, _account, _size, _queue, _budget, _begins):
        yield from check(plan)


def _node(plan: Plan) -> Iterator[ConfigError]:
    """Yield an error if the ranks do not fit on a node. Launchers would report this only inside the job."""
    site, ranks = plan.site, plan.ranks_per_node
    threads = depth(site, ranks)
    if site.cpus is not None and threads is not None and threads * ranks > site.cpus:
        yield ConfigError(
            f"--ppn {ranks}: with {units.counted(threads, 'CPU')} per rank, the ranks of a node need "
            f"{threads * ranks}, but site "
            f"{site.name} has {site.cpus} per node; use fewer ranks, or fewer CPUs per rank (-S site.depth=N)"
        )


def _binding(plan: Plan) -> Iterator[ConfigError]:
    bind = plan.site.launcher.bind or ""
    if bind.startswith("list:") and bind.count(":") != plan.ranks_per_node:
        yield ConfigError(
            f"--ppn {plan.ranks_per_node}: the CPU binding of site {plan.site.name} is for {bind.count(':')} ranks per "
            f"node ({bind}); set another binding: -S site.launcher.bind=depth"
        )


def _account(plan: Plan) -> Iterator[ConfigError]:
    """Yield an error if the site requires an account and none is given. Without an account, the batch system would
    reject the job or charge a default account.
    """
    if plan.site.account_required and not plan.account:
        yield ConfigError(f"site {plan.site.name} requires an account: --account NAME, or DLIO_HPC_ACCOUNT=NAME")


def _size(plan: Plan) -> Iterator[ConfigError]:
    site = plan.site
    yield from _at_most(f"site {site.name}", plan, site.limits.nodes, site.limits.walltime)
    if site.scheduler == "local" and plan.nodes > 1 and site.limits.nodes is None:
        yield ConfigError(f"--nodes {plan.nodes}: site {site.name} has no batch system, so a job can use one node only")


def _queue(plan: Plan) -> Iterator[ConfigError]:
    known = plan.site.queues.get(plan.queue or "")
    if known is None:
        return
    where = f"queue {plan.queue} of site {plan.site.name}"
    if plan.nodes < known.fewest_nodes:
        yield ConfigError(f"--nodes {plan.nodes}: {where} requires at least {known.fewest_nodes}")
    others = [name for name, queue in plan.site.queues.items() if queue != known and _fits(plan, queue)]
    advice = f"; use --queue {' or '.join(others)}" if others else ""
    yield from _at_most(where, plan, known.nodes, known.longest(plan.nodes), advice)
    if known.min_walltime is not None and plan.walltime < known.min_walltime:
        least = units.format_walltime(known.min_walltime)
        yield ConfigError(f"--time {units.format_walltime(plan.walltime)}: {where} requires at least {least}")


def _fits(plan: Plan, queue: Queue) -> bool:
    longest, shortest = queue.longest(plan.nodes), queue.min_walltime or 0
    has_nodes = queue.fewest_nodes <= plan.nodes and (queue.nodes is None or plan.nodes <= queue.nodes)
    return has_nodes and shortest <= plan.walltime and (longest is None or plan.walltime <= longest)


def _at_most(
    where: str, plan: Plan, nodes: int | None, walltime: int | None, advice: str = ""
) -> Iterator[ConfigError]:
    if nodes is not None and plan.nodes > nodes:
        advice = advice or ("; use --ppn for more ranks, or -s for a site with more nodes" if nodes == 1 else "")
        yield ConfigError(f"--nodes {plan.nodes}: {where} allows at most {nodes} per job{advice}")
    if walltime is not None and plan.walltime > walltime:
        asked, allowed = units.format_walltime(plan.walltime), units.format_walltime(walltime)
        yield ConfigError(
            f"--time {asked}: {where} allows at most {allowed} for {units.counted(plan.nodes, 'node')}{advice}"
        )


def _budget(plan: Plan) -> Iterator[ConfigError]:
    """Yield an error if computation alone, without reading and launching, does not fit into the walltime."""
    least, room = computing(plan), plan.walltime - plan.warning_time
    if least > room:
        yield ConfigError(
            f"--time {units.format_walltime(plan.walltime)} is too short: the runs of this job compute for at least "
            f"{units.format_walltime(int(least))}, and must end {plan.warning_time} s before the time limit. Request "
            "more time, fewer runs (--repeat, --warmup), fewer steps (train.steps) or less computation (compute.time)"
        )


def _begins(plan: Plan) -> Iterator[ConfigError]:
    """Yield an error if the batch system cannot start a job at a given time."""
    facts = SCHEDULERS[plan.site.scheduler]
    if plan.begins and not facts.has_begin_time:
        yield ConfigError(
            f"--nights: {facts.title}, the batch system of site {plan.site.name}, has no option for the begin time of "
            "a job; submit the study once a night from cron, and look at the nights with dlio-hpc history"
        )


def notes(plan: Plan) -> Iterator[str]:
    """Yield a note if the job comes close to its walltime, if it is expected to exceed its walltime, if its launcher
    belongs to another batch system, or if its queue is not in the site profile.
    """
    least, room = computing(plan), plan.walltime - plan.warning_time
    if least > _TIGHT * room:
        yield (
            f"computation alone takes {units.format_walltime(int(least))} of the walltime of "
            f"{units.format_walltime(plan.walltime)}; on a slow file system, the job will exceed its walltime"
        )
    site = plan.site
    measured = [run for run in plan.runs if run.kind != "generate"]
    expected = sum(cost.of_run(run, plan.nodes, plan.ranks, site.expected_rates).seconds for run in measured)
    if expected > plan.walltime:
        yield (
            f"the measurements are expected to take {units.format_walltime(round(expected))}, but the walltime is "
            f"{units.format_walltime(plan.walltime)}; increase --time or --nodes, or reduce --dataset-size (times "
            "are estimated from the rates in the site profile, see dlio-hpc estimate)"
        )
    if foreign := launcher_rules.note(site.scheduler, site.launcher.kind):
        yield foreign
    if wrong := launcher_rules.binding_note(site.launcher.kind, site.launcher.bind):
        yield wrong
    queue = plan.queue
    if site.queues and queue is not None and queue not in site.queues:
        hint = name_hint(queue, site.queues)
        yield (
            f"the profile of site {site.name} does not list queue {queue}; {hint}the limits of this queue are not "
            f"checked; known queues: {', '.join(site.queues)}"
        )


def computing(plan: Plan) -> float:
    """Return the seconds of emulated computation of all runs of the job."""
    return sum(map(cost.computing, plan.runs))


def has_budget(site: Site) -> bool:
    """Return whether the site limits the cost of a submission: its node-hours, bytes read, bytes written or storage
    space.
    """
    limits = site.limits
    return any(most is not None for most in (limits.node_hours, limits.bytes_read, limits.bytes_written, limits.space))


def check_cost(site: Site, costs: Sequence[JobCost]) -> None:
    """Raise ConfigError if the total cost of these jobs exceeds a limit of the site."""
    for fault in of_cost(site, costs):
        raise fault


def of_cost(site: Site, costs: Sequence[JobCost]) -> Iterator[ConfigError]:
    """Compare the total cost of these jobs with the limits of the site on the cost of a submission. Yield an error for
    each limit that is exceeded.
    """
    limits = site.limits
    hours = sum(job.limit_node_hours for job in costs)
    if limits.node_hours is not None and hours > limits.node_hours:
        yield ConfigError(
            f"{units.counted(len(costs), 'job')} cost {hours:.4g} node-hours if they use their whole walltime, "
            f"but site {site.name} "
            f"allows {limits.node_hours:.4g} per submission; lower --time, or measure fewer points (see dlio-hpc "
            "estimate)"
        )
    for verb, most, bytes_ in (
        ("read", limits.bytes_read, sum(job.bytes_read for job in costs)),
        ("write", limits.bytes_written, sum(job.bytes_written for job in costs)),
        ("take up", limits.space, sum(job.space for job in costs)),
    ):
        if most is not None and bytes_ > most:
            yield ConfigError(
                f"{units.counted(len(costs), 'job')} {verb} {units.format_size(bytes_)}, but site {site.name} allows "
                f"{units.format_size(most)} per submission; use a smaller --dataset-size, fewer points or fewer epochs "
                "(see dlio-hpc estimate)"
            )


def check_jobs(site: Site, queue: str | None, queues: list[tuple[str, ...]], more: int) -> None:
    """Raise ConfigError if submitting `more` jobs would exceed the number of jobs that the site or the queue allows per
    user. queues: for each present job of the user, the names of the queues that the job is in.
    """
    known = site.queues.get(queue or "")
    for where, most, have in (
        (f"site {site.name}", site.limits.jobs, len(queues)),
        (f"queue {queue} of site {site.name}", known.jobs if known else None, sum(queue in names for names in queues)),
    ):
        if most is not None and more > most:
            raise ConfigError(
                f"{where} allows {units.counted(most, 'job')} per user, but the submission has {more}; increase "
                "--time, or measure "
                "fewer points"
            )
        if most is not None and have + more > most:
            raise ConfigError(
                f"{where} allows {units.counted(most, 'job')} per user; you have {have} there, and the submission "
                f"has {more}. Wait, "
                "or cancel a job"
            )
