"""What a job is to be: the options that every command which plans one has, and the plans that come of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dlio_hpc import limits, plan, site, units, workload
from dlio_hpc.cli.verbs import option

PATH = click.Path(path_type=Path)
Plans = tuple[plan.Plan, ...]
# What an override of the site's profile begins with.
_SITE = "site."


class _Lines(click.types.StringParamType):
    """Text that may hold blanks; in the environment variable, one value a line."""

    envvar_list_splitter = "\n"


def _unit(parse: Callable[[str], int]) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """A callback for values in human units; what the parser does not like is a usage error."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
        try:
            return None if value is None else parse(value)
        except ValueError as fault:
            raise click.BadParameter(str(fault), ctx, param) from fault

    return callback


_REQUEST = (
    option(
        "-s", "--site", metavar="NAME|FILE", help="Site profile. Default: the one for this host's name, else local."
    ),
    option("-N", "--nodes", type=click.IntRange(1), default=1, show_default=True, help="Nodes."),
    option("--ppn", type=click.IntRange(1), metavar="N", help="Ranks a node. Default: the site's."),
    option("-A", "--account", help="Account or project to charge."),
    option("-q", "--queue", help="Queue or partition."),
    option(
        "-t",
        "--time",
        "walltime",
        metavar="TIME",
        callback=_unit(units.walltime),
        help="Limit: 30 (minutes), 30m, 1:30:00.",
    ),
    option(
        "-J",
        "--job-option",
        "job_options",
        multiple=True,
        type=_Lines(),
        metavar="OPT",
        help="Verbatim to the batch system; repeatable.",
    ),
    option("-d", "--data", type=PATH, metavar="DIR", help="Where datasets go: the file system under test."),
    option("-o", "--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Jobs' directories."),
    option("--archive", type=PATH, metavar="DIR", help="Where archives go. Default: RUNS/archive."),
    option(
        "-S",
        "--set",
        "overrides",
        multiple=True,
        type=_Lines(),
        metavar="KEY=VALUE",
        help="Override a key: dataset.files=8; of the site: site.depth=2.",
    ),
    option("--repeat", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Measured runs."),
    option("--warmup", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Runs before those."),
    option(
        "--dataset-size",
        metavar="SIZE",
        callback=_unit(units.size),
        help="Shrink the dataset to about this size: fewer files.",
    ),
    option(
        "--generate",
        type=click.Choice(["auto", "first", "only", "never"]),
        default="auto",
        show_default=True,
        help="auto: make the dataset if it is not there; first: likewise, in a job of its own; only: likewise, and "
        "stop; never: it has to be there.",
    ),
    option(
        "--darshan/--no-darshan",
        default=None,
        help="Runs under Darshan. Default: where the site names a libdarshan.",
    ),
    option(
        "--tf-profile",
        is_flag=True,
        help="With loader tensorflow: keep what its profiler sees of ranks 0 to 7 in each run's first 30 s.",
    ),
)


def asks(function: Any) -> Any:
    """The options that say what a job is to be, as every command that plans one has them."""
    for add in reversed(_REQUEST):
        function = add(function)
    return function


def planned(workload_name: str, overrides: tuple[str, ...], site_name: str | None, request: plan.Request) -> Plans:
    """The plans of a submission; overrides that begin with site. are the site's."""
    plans = drafted(workload_name, overrides, site_name, request)
    limits.check(plans)
    return plans


def drafted(workload_name: str, overrides: tuple[str, ...], site_name: str | None, request: plan.Request) -> Plans:
    """As planned(), whatever the site allows."""
    return plan.study(*_asked(workload_name, overrides, site_name), request)


def _asked(
    workload_name: str, overrides: tuple[str, ...], site_name: str | None
) -> tuple[workload.Workload, site.Site]:
    of_site = tuple(text.removeprefix(_SITE) for text in overrides if text.startswith(_SITE))
    of_workload = tuple(text for text in overrides if not text.startswith(_SITE))
    return workload.load(workload_name, of_workload), site.load(site_name or site.here(), of_site)
