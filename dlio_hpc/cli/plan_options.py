"""Options of commands that plan jobs."""

import os
from functools import wraps
from typing import Any

import click

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import usage_faults
from dlio_hpc.cli.verbs import FOLDER, RUNS, argument, distinct, option, parsed
from dlio_hpc.plan import sweep
from dlio_hpc.plan.options import AUTO, Options


class _Lines(click.types.StringParamType):
    """Type of repeatable options whose values may contain blanks. The environment variable of such an option holds one
    value per line.
    """

    envvar_list_splitter = "\n"


def _counts(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Parse positive integers that are separated by commas, such as 128,256, or given as a range, such as 1..8*2.
    Return None if the option is absent.
    """
    if value is None:
        return None
    try:
        return sweep.counts(serialization.parse_yaml(f"[{value}]", "--"), "")
    except ConfigError as fault:
        raise click.BadParameter(str(fault).lstrip("-: "), ctx, param) from fault


def _users(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the number of users, or auto."""
    if value is None or value == AUTO or (value.isdecimal() and int(value) > 0):
        return value
    raise click.BadParameter(
        f"{value!r} is neither a number of users nor auto; several numbers: -P inference.users=8,16", ctx, param
    )


_OPTIONS = (
    option("-s", "--site", metavar="NAME|FILE",
           help="Site profile. Default: the profile for this host's name, else local."),
    option("-N", "--nodes", callback=_counts, metavar="N[,N...]",
           help="Number of nodes. With several numbers, jobs are submitted for each number.  [default: 1]"),
    option("--ppn", "ranks_per_node", callback=_counts, metavar="N[,N...]",
           help="Ranks per node. With several numbers, jobs are submitted for each number. Default: the site's."),
    option("-A", "--account", help="Account or project to charge."),
    option("-q", "--queue", help="Queue or partition."),
    option("-t", "--time", "walltime", metavar="TIME", callback=parsed(units.walltime),
           help="Time limit of a job: 30 (minutes), 30m, 1:30:00."),
    option("-J", "--job-option", "job_options", multiple=True, type=_Lines(), metavar="OPT",
           help="Pass this option to the batch system unchanged; repeatable."),
    option("-d", "--data", type=FOLDER, metavar="DIR", help="Folder for datasets: the file system under test."),
    option("--existing", metavar="GLOB",
           help="Read these existing files, and generate nothing; GLOB is relative to --data: 'train/*.jpg'."),
    option("--ab", type=FOLDER, nargs=2, metavar="DIR_A DIR_B",
           help="Compare two file systems in one job, in the order ABBA, instead of --data."),
    option("-o", "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True,
           help="Folder for the directories of jobs."),
    option("--archive", type=FOLDER, metavar="DIR", help="Folder for archives. Default: RUNS/archive."),
    option("-S", "--set", "overrides", multiple=True, type=_Lines(), metavar="KEY=VALUE", callback=distinct,
           help="Set a key of the workload, such as dataset.files=8, or of the site, such as site.depth=2."),
    option("-P", "--sweep", "sweeps", multiple=True, type=_Lines(), metavar="KEY=A,B,...",
           help="Measure these values of a key: reader.read_threads=1,2,4 or 1..4*2. If repeated, measure all "
                "combinations."),
    option("--zip", "zipped", is_flag=True,
           help="Measure the first values of all -P together, then the second values, and so on."),
    option("--weak", is_flag=True, help="With several -N or --ppn, let each rank read the same amount."),
    option("--study", metavar="NAME|FILE", help="Measure the points of a study file, such as fig11."),
    option("--suite", metavar="NAME|FILE", help="Measure a suite (a study file with a verdict), such as nightly."),
    option("--mix", multiple=True, type=_Lines(), metavar="WORKLOAD=SHARE",
           help="Run several workloads at the same time, each on a share of the ranks, and measure how much they slow "
                "each other down; repeat the option for each of them."),
    option("--mix-until", metavar="first|last|TIME", default="last", show_default=True,
           help="End of such a run: when the first or the last workload ends, or after a time such as 60s. Until then, "
                "workloads that end start again."),
    option("--mix-pairs", is_flag=True, help="Measure each pair of workloads, too."),
    option("--users", metavar="N|auto", callback=_users,
           help="Users of an inference workload; auto: search for the largest number that is served in time (--ttft)."),
    option("--ttft", metavar="TIME", callback=parsed(units.seconds),
           help="Time to the first token that users accept, such as 2s."),
    option("--full", is_flag=True,
           help="Use the sizes for a large machine in the study file. Default for suites on batch systems."),
    option("--seed", type=click.IntRange(0), metavar="N", help="Seed of the random order of runs. Default: random."),
    option("--repeat", type=click.IntRange(1), metavar="N",
           help="Measured runs of each point.  [default: 1 (4 with --ab), or the study file's]"),
    option("--nights", type=click.IntRange(1), metavar="N", default=1,
           help="Measure the whole study on N nights, with jobs and --repeat runs for each.  [default: 1]"),
    option("--every", metavar="TIME", callback=parsed(units.interval),
           help="With --nights, the time from night to night: 24h, 7d, 12:00:00.  [default: 24h]"),
    option("--warmup", type=click.IntRange(0), metavar="N",
           help="Warm-up runs of each dataset.  [default: 0, or the study file's]"),
    option("--dataset-size", metavar="SIZE", callback=parsed(units.large_size),
           help="Size of the dataset, to within one file. Changes the number of files, or of samples per file."),
    option("--generate", type=click.Choice(["auto", "separate", "only", "never"]), default="auto", show_default=True,
           help="auto: generate the dataset in the job if it does not exist; separate: generate it in another job; "
                "only: generate it and measure nothing; never: the dataset must exist."),
    option("--darshan/--no-darshan", default=None,
           help="Run under Darshan. Default: use Darshan if the site profile names a libdarshan."),
    option("--tf-profile", is_flag=True,
           help="With loader tensorflow, keep the TensorFlow profile of ranks 0 to 7 for the first 30 s of each run."),
)  # fmt: skip


def plan_options(function: Any) -> Any:
    """Add the argument WORKLOAD to a command, and an option for each other field of Options. The command gets their
    values as its parameter `options`.
    """

    @wraps(function)
    def command(*context: click.Context, **parameters: Any) -> Any:
        if not parameters.get("quiet"):
            _say_unknown_variables()
        given = {name: parameters.pop(name) for name in Options.__struct_fields__}
        return function(*context, **parameters, options=Options(**given))

    for add in reversed(_OPTIONS):
        command = add(command)
    return argument("workload", metavar="[WORKLOAD]", required=False)(command)


def _say_unknown_variables() -> None:
    if not any(name.startswith(usage_faults.PREFIX) for name in os.environ):
        return
    from dlio_hpc.cli import console

    for note in usage_faults.unknown_variables(click.get_current_context()):
        console.say(f"note: {note}")


def given_options(context: click.Context, allowed: set[str]) -> list[str]:
    """Return the long names of options that are given on the command line. Leave out options whose parameters are in
    `allowed`.
    """
    return [
        param.opts[-1]
        for param in context.command.params
        if isinstance(param, click.Option)
        and param.name not in allowed
        and context.get_parameter_source(str(param.name)) is click.core.ParameterSource.COMMANDLINE
    ]
