"""What a site and its queues allow, checked before anything is submitted: batch systems take much that never runs."""

from collections.abc import Iterable, Iterator, Sequence

from dlio_hpc import units
from dlio_hpc.config.site import Site, depth
from dlio_hpc.errors import ConfigError
from dlio_hpc.plan import cost
from dlio_hpc.plan.cost import JobCost
from dlio_hpc.plan.plan import Plan

# Of the time limit, beyond which a person should know that computing alone takes it.
_TIGHT = 0.8


def check(plans: Iterable[Plan]) -> None:
    """ConfigError with the first fault of a plan."""
    for plan in plans:
        for fault in faults(plan):
            raise fault


def faults(plan: Plan) -> Iterator[ConfigError]:
    """Everything that keeps the job from running as it is planned, each a fault of its own."""
    for check in (_node, _binding, _account, _size, _queue, _budget):
        yield from check(plan)


def _node(plan: Plan) -> Iterator[ConfigError]:
    """Launchers tell only in the job that ranks do not fit."""
    site, ranks = plan.site, plan.ranks_per_node
    each = depth(site, ranks)
    if site.cpus is not None and each is not None and each * ranks > site.cpus:
        yield ConfigError(
            f"--ppn {ranks}: with {each} hardware threads each they need {each * ranks}, site {site.name} has "
            f"{site.cpus} a node; use fewer, or -S site.depth=N"
        )


def _binding(plan: Plan) -> Iterator[ConfigError]:
    bind = plan.site.launcher.bind or ""
    if bind.startswith("list:") and bind.count(":") != plan.ranks_per_node:
        yield ConfigError(
            f"--ppn {plan.ranks_per_node}: site {plan.site.name} binds {bind.count(':')} ranks ({bind}); "
            "say where they go: -S site.launcher.bind=depth"
        )


def _account(plan: Plan) -> Iterator[ConfigError]:
    """Where a job without an account is refused, or charged to nobody knows whom."""
    if plan.site.account_required and not plan.account:
        yield ConfigError(f"site {plan.site.name} wants to know who pays: --account NAME, or DLIO_HPC_ACCOUNT=NAME")


def _size(plan: Plan) -> Iterator[ConfigError]:
    site = plan.site
    yield from _at_most(f"site {site.name}", plan, site.limits.nodes, site.limits.walltime)
    if site.scheduler == "local" and plan.nodes > 1 and site.limits.nodes is None:
        yield ConfigError(f"--nodes {plan.nodes}: site {site.name} has no batch system, a job there has one node")


def _queue(plan: Plan) -> Iterator[ConfigError]:
    known = plan.site.queues.get(plan.queue or "")
    if known is None:
        return
    where = f"queue {plan.queue} of site {plan.site.name}"
    if plan.nodes < known.fewest_nodes:
        yield ConfigError(f"--nodes {plan.nodes}: {where} wants {known.fewest_nodes} at least")
    yield from _at_most(where, plan, known.nodes, known.longest(plan.nodes))
    if known.min_walltime is not None and plan.walltime < known.min_walltime:
        least = units.format_walltime(known.min_walltime)
        yield ConfigError(f"--time {units.format_walltime(plan.walltime)}: {where} wants {least} at least")


def _at_most(where: str, plan: Plan, nodes: int | None, walltime: int | None) -> Iterator[ConfigError]:
    if nodes is not None and plan.nodes > nodes:
        yield ConfigError(f"--nodes {plan.nodes}: {where} has {nodes} at most for one job")
    if walltime is not None and plan.walltime > walltime:
        asked, allowed = units.format_walltime(plan.walltime), units.format_walltime(walltime)
        yield ConfigError(f"--time {asked}: {where} allows {allowed} at most for {plan.nodes} node(s)")


def _budget(plan: Plan) -> Iterator[ConfigError]:
    """When computing alone takes the runs past the time limit, with reading and starting for nothing."""
    least, room = computing(plan), plan.walltime - plan.warning_time
    if least > room:
        yield ConfigError(
            f"--time {units.format_walltime(plan.walltime)}: the runs of this job compute for "
            f"{units.format_walltime(int(least))} at the least, and it is told to end {plan.warning_time} s before its "
            "limit; ask for more time, or for fewer runs (--repeat, --warmup) or steps (train.steps)"
        )


def notes(plan: Plan) -> Iterator[str]:
    """What may come near the limits."""
    least, room = computing(plan), plan.walltime - plan.warning_time
    if least > _TIGHT * room:
        yield (
            f"computing alone takes {units.format_walltime(int(least))} of the {units.format_walltime(plan.walltime)} "
            "that the job may last; a slow file system will not fit in"
        )
    site = plan.site
    measured = [run for run in plan.runs if run.kind != "generate"]
    expected = sum(cost.of_run(run, plan.nodes, plan.ranks, site.expected_rates).seconds for run in measured)
    if expected > plan.walltime:
        yield (
            f"measuring is expected to take {units.format_walltime(round(expected))} and the job lasts "
            f"{units.format_walltime(plan.walltime)}; ask for more --time or --nodes, or less --dataset-size (times "
            "are guesses from the site's rates, see dlio-hpc estimate)"
        )
    queue = plan.queue
    if site.queues and queue is not None and queue not in site.queues:
        yield f"site {site.name} does not list queue {queue}; its limits are not known here"


def computing(plan: Plan) -> float:
    """Seconds that the emulated computation of all runs takes."""
    return sum(map(cost.computing, plan.runs))


def has_budget(site: Site) -> bool:
    """Is there a limit to what one submission may cost?"""
    limits = site.limits
    return any(most is not None for most in (limits.node_hours, limits.bytes_read, limits.bytes_written, limits.space))


def check_cost(site: Site, costs: Sequence[JobCost]) -> None:
    """ConfigError with the first fault of what jobs cost together."""
    for fault in of_cost(site, costs):
        raise fault


def of_cost(site: Site, costs: Sequence[JobCost]) -> Iterator[ConfigError]:
    """What is more than the site lets one submission have."""
    limits = site.limits
    hours = sum(one.limit_node_hours for one in costs)
    if limits.node_hours is not None and hours > limits.node_hours:
        yield ConfigError(
            f"{len(costs)} job(s) cost {hours:.4g} node-hours if they last to their limits, site {site.name} allows "
            f"{limits.node_hours:.4g}; lower --time, or measure fewer points (see dlio-hpc estimate)"
        )
    for what, most, bytes_ in (
        ("read", limits.bytes_read, sum(one.bytes_read for one in costs)),
        ("write", limits.bytes_written, sum(one.bytes_written for one in costs)),
        ("take up", limits.space, sum(one.space for one in costs)),
    ):
        if most is not None and bytes_ > most:
            yield ConfigError(
                f"{len(costs)} job(s) {what} {units.format_size(bytes_)}, site {site.name} allows "
                f"{units.format_size(most)}; use --dataset-size, fewer points or fewer epochs (see dlio-hpc estimate)"
            )


def check_jobs(site: Site, queue: str | None, queues: list[tuple[str, ...]], more: int) -> None:
    """ConfigError when `more` jobs beside those that the user has are too many; `queues`: what each of those is in."""
    known = site.queues.get(queue or "")
    for where, most, have in (
        (f"site {site.name}", site.limits.jobs, len(queues)),
        (f"queue {queue} of site {site.name}", known.jobs if known else None, sum(queue in names for names in queues)),
    ):
        if most is not None and more > most:
            raise ConfigError(
                f"{where} takes {most} job(s) of a user at most, these are {more}; give each more --time, or vary less"
            )
        if most is not None and have + more > most:
            raise ConfigError(
                f"{where} takes {most} job(s) of a user at most, you have {have} there; wait, or cancel one"
            )
